"""The table `rows` of a record with what the row rules ask of it.

Contract: reads the record alone, and turns masks over its entries into reports. Not known here: the
rules.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from specviz.checks.violations import Findings
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace

NO_EOS = 2**31  # larger than any output


class Rows:
    """One entry per round and row.

    Attributes:
        trace: the record.
        table: the scalar columns of the table `rows`, and of each entry's request: prompt, output
            and budget in tokens; before and after, its new tokens before and after this round; end,
            its new tokens up to and including the first EOS, NO_EOS without one.
    """

    def __init__(self, trace: Trace, findings: Findings) -> None:
        self.trace = trace
        self._findings = findings
        scalars = {name: values for name, values in trace.rows.items() if values.ndim == 1}
        self.table = pd.DataFrame(scalars).astype(np.int64)
        request = self.table["request"]
        self.table["prompt"] = np.diff(trace.requests["prompt_offsets"])[request]
        self.table["output"] = np.diff(trace.requests["output_offsets"])[request]
        self.table["budget"] = trace.requests["budget"][request]
        self.table["end"] = _ends(trace)[request]
        self.table["before"] = self.table["length"] - self.table["prompt"]
        self.table["after"] = self.table["before"] + self.table["gained"]

    def column(self, name: str) -> Array:
        """Return a column of the table as (N, 1)."""
        values: Array = self.table[name].to_numpy()[:, None]
        return values

    def where(self, mask: Any) -> Iterator[Any]:
        """Yield the entries that a mask (N,) names, as named tuples."""
        return self.table[mask].itertuples() if mask.any() else iter(())

    def each(self, mask: Array) -> Iterator[tuple[Any, int]]:
        """Yield the entry and the column of each place that a mask (N, m) names."""
        for entry in self.where(mask.any(1)):
            for j in np.flatnonzero(mask[entry.Index]).tolist():
                yield entry, j

    def report(
        self, rule: str, phase: str, entry: Any, expected: str, found: str, **more: Any
    ) -> None:
        """Add a violation for an entry; more: see `Findings.add`."""
        stage = entry.round * len(PHASES) + PHASES.index(phase)
        self._findings.add(rule, stage, entry.row, entry.request, expected, found, **more)

    def token(self, token: int) -> str:
        """Name a token: its id, and its text where the record has it."""
        is_named = str(token) in self.trace.meta["token_texts"]
        return f"{token} ({self.trace.text(token)!r})" if is_named else f"{token}"


def _ends(trace: Trace) -> Array:
    """Return each request's number of new tokens up to and including the first EOS, (R,)."""
    ends = np.full(trace.num_requests, NO_EOS)
    for request in range(trace.num_requests):
        is_eos = np.isin(trace.output(request), trace.meta["eos_token_ids"])
        if is_eos.any():
            ends[request] = is_eos.argmax() + 1
    return ends
