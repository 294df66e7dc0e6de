"""A log made by hand: dicts that become the tables of a Trace.

`HandLog` takes the calls of a `TraceWriter`, as far as `MaskingDecoder` makes them, and does not
use its code, so that both can be compared.
"""

from typing import Any

import numpy as np

import specviz as sv
from specviz.record.schema import COLUMNS, PHASES
from specviz.record.trace import Trace, flatten_requests
from specviz.record.trees import DERIVED


class HandLog:
    """Notes feeds, holes, rows and rounds; every other column is zero."""

    def __init__(self, prompts: list[list[int]], K: int) -> None:
        self.prompts = prompts
        self.rows = [list(prompt) for prompt in prompts]
        self.K = K
        self.log: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("feeds", "holes", "rows", "rounds")
        }
        self.starts: list[int] = []
        self.slots = 0

    def forward(self, model: str, *, tokens, indices, positions, visible, **_: Any) -> None:
        """Note each token of the target that is not padding, and the slots hidden from it."""
        phase = "verify" if self.slots else "schedule"
        when = {"round": len(self.log["rounds"]), "phase": PHASES.index(phase)}
        first_new_slot = visible.shape[1] - tokens.shape[1]
        if not self.slots:
            self.starts = visible.int().argmax(1).tolist()
        self.slots = visible.shape[1]
        for row, column in (indices >= 0).nonzero().tolist():
            slot = first_new_slot + column
            start = int(visible[row].int().argmax())
            for hole in range(start, slot):
                if not visible[row, hole]:
                    entry = {"feed": len(self.log["feeds"]), "start": hole, "stop": hole + 1}
                    self.log["holes"].append(entry)
            entry = {
                "row": row,
                "request": row,
                "token": int(tokens[row, column]),
                "index": int(indices[row, column]),
                "position": int(positions[row, column]),
                "slot": slot,
                "visible_start": start,
                "visible_stop": slot + 1,
            }
            self.log["feeds"].append({**when, **entry})

    def round(self, end: sv.RoundEnd) -> None:
        """Note what a round did to each row."""
        drafts, accepted, emitted = end.drafts, end.accepted, end.emitted
        number = len(self.log["rounds"])
        pending = self.slots - self.K - 1
        for i, row in enumerate(self.rows):
            a = accepted[i]
            entry = {
                "round": number,
                "row": i,
                "request": i,
                "start": self.starts[i],
                "start_after": self.starts[i],
                "length": len(row),
                "pending": pending,
                "pending_after": pending + self.K + 1,
                "drafted": self.K,
                "accepted": a,
                "gained": a + 1,
                "drafts": drafts[i].tolist(),
                "emitted": emitted[i] + [-1] * (self.K - a),
                "target_top_ids": [[token] for token in end.choices[i].tolist()],
            }
            self.log["rows"].append(entry)
            row += emitted[i]
        self.log["rounds"].append({"batch": len(self.rows), "slots": self.slots})

    def trace(self, meta: dict[str, Any]) -> Trace:
        """Return the record; `meta` is a header of the same models and K."""
        outputs = [row[len(p) :] for row, p in zip(self.rows, self.prompts, strict=True)]
        tables = {"requests": flatten_requests(self.prompts, outputs, [64] * len(self.rows))}
        for name in COLUMNS:
            if name != "requests":
                tables[name] = self._table(name, self.log.get(name, []))
        status = ["interrupted"] * len(self.rows)
        return Trace({**meta, "status": status}, **tables)

    def _table(self, name: str, lines: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        sizes = {"N": len(lines), "K": self.K, "K+1": self.K + 1, "k": 1, "j": 0}
        columns = {}
        for column in COLUMNS[name].keys() - DERIVED.get(name, ()):
            form = COLUMNS[name][column]
            values = np.zeros([sizes[letter] for letter in form.shape], form.dtype)
            for i, line in enumerate(lines):
                if column in line:
                    values[i] = line[column]
            columns[column] = values
        return columns
