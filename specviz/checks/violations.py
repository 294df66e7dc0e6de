"""What a broken invariant looks like: one sentence that an engineer can act on, with its numbers beside it.

Contract: `Findings` gathers what the checks find, one `Violation` for each (round, phase, model, row, rule), and hands them out in the
order in which things went wrong. Not known here: how anything is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from specviz.record.schema import MODELS, PHASES, Array

RULES = {
    "lengths": "what a row gains is what its request's output says, and the next round starts from there",
    "rectangle": "a row's tokens fit between its start and its pending slot, and rows that are aligned on the right end in one column",
    "positions": "the position id of a token is its index in its own row",
    "mask": "a query sees the slots of its own row's tokens up to itself, each once, and no other slot",
    "kv": "the slot of a token holds K/V of that token, computed with right position and mask",
    "caches": "the draft's cache holds what the target's does; where it alone is wrong, drafts get worse and the text stays right",
    "acceptance": "an accepted draft is the target's choice, and is emitted as it was drafted",
    "bonus": "the token behind the accepted drafts comes from the target",
    "budget": "a request emits no more tokens than its budget, and one that has finished no fewer without EOS",
    "eos": "nothing follows the first EOS of an output",
}
_ORDER = {name: place for place, name in enumerate(RULES)}


@dataclass(frozen=True)
class Violation:
    """One invariant that does not hold, for one row in one phase of one round, and one model where it is about a cache.

    Attributes:
        round, phase: when it went wrong, which may be before the forward that suffers from it.
        model: "target" or "draft"; None where it is about neither's cache.
        row, request: row of the batch, and the request that it served.
        rule: one of RULES.
        slot: the first slot that is affected, None where it is not about slots.
        count: how many slots, or tokens, are affected in this phase.
        expected, found: in words, for the first of them.
    """

    round: int
    phase: str
    model: str | None
    row: int
    request: int
    rule: str
    slot: int | None
    count: int
    expected: str
    found: str

    @property
    def message(self) -> str:
        """All of it in one line."""
        model = f", {self.model} model" if self.model else ""
        unit = "token" if self.slot is None else "slot"
        count = f" ({self.count} {unit}s)" if self.count > 1 else ""
        where = f"round {self.round}, {self.phase} phase{model}, row {self.row} (request {self.request})"
        return f"{where}: {self.rule}: expected {self.expected}; found {self.found}{count}"

    def __str__(self) -> str:
        return self.message


class Violations(list[Violation]):
    """A list of `Violation`s, the first that went wrong first; empty when all invariants hold. `print` gives a line for each."""

    def frame(self) -> pd.DataFrame:
        """One entry per violation; the columns are the attributes of `Violation`."""
        names = [field.name for field in fields(Violation)]
        return pd.DataFrame(
            [{name: getattr(violation, name) for name in names} for violation in self],
            columns=names,
        )

    def first_per_request(self) -> "Violations":
        """Of each request the violation that came first: the cause, where the later ones may be its consequences."""
        firsts: dict[int, Violation] = {}
        for violation in self:
            firsts.setdefault(violation.request, violation)
        return Violations(firsts.values())

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "all invariants hold"

    def __repr__(self) -> str:
        return f"<{len(self)} violations, the first: {self[0]}>" if self else "[]"


@dataclass
class _Found:
    expected: str
    found: str
    first: int | None
    slots: Array
    count: int


class Findings:
    """Gathers violations: of those that share round, phase, model, row and rule, the first gives the words and all are counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int, int, int, str], _Found] = {}

    def add(
        self, rule: str, stage: int, row: int, request: int, expected: str, found: str,
        *, model: int | None = None, slots: Array | Sequence[int] = (), count: int = 1, evidence: bool = False,
    ) -> None:  # fmt: skip
        """`stage`: round * 5 + phase; `model`: its place in MODELS; `slots`: those affected, or else `count` tokens; `evidence`: whether
        `found` says more of a violation that may be known already.
        """
        round_number, phase = divmod(int(stage), len(PHASES))
        key = (
            round_number,
            phase,
            -1 if model is None else int(model),
            int(row),
            int(request),
            rule,
        )
        if evidence and key in self._found:
            self._found[key].found += f"; {found}"
        affected = np.asarray(slots, np.int64)
        first = int(affected[0]) if affected.size else None
        known = self._found.setdefault(key, _Found(expected, found, first, affected[:0], 0))
        known.first = first if known.first is None else known.first
        known.slots = np.union1d(known.slots, affected)
        known.count += int(count)

    def sorted(self) -> Violations:
        """By round, phase, rule, row and model."""
        keys = sorted(self._found, key=lambda key: (key[0], key[1], _ORDER[key[5]], key[3], key[2]))
        return Violations(self._violation(key) for key in keys)

    def _violation(self, key: tuple[int, int, int, int, int, str]) -> Violation:
        (number, phase, model, row, request, rule), found = key, self._found[key]
        count = found.slots.size or found.count
        name = MODELS[model] if model >= 0 else None
        return Violation(
            number,
            PHASES[phase],
            name,
            row,
            request,
            rule,
            found.first,
            count,
            found.expected,
            found.found,
        )
