"""The rows that are being decoded: their tokens, lengths and budgets, dense in [0, b), on the device and mirrored on the host.

Knows no model, cache or strategy. The host learns what happened by one copy a round (`commit`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specviz.engine.accept import Outcome


@dataclass(frozen=True)
class Request:
    """One prompt to decode: its place in the caller's list, its token ids, and how many tokens it may emit."""

    index: int
    prompt: tuple[int, ...]
    budget: int


@dataclass
class Row:
    """Host side of one live row. `output` are the tokens emitted so far, `accepted` and `gained` those of the last round."""

    request: Request
    output: list[int] = field(default_factory=list)
    accepted: int = 0
    gained: int = 0
    finished: bool = False

    @property
    def length(self) -> int:
        """n: committed tokens, prompt included."""
        return len(self.request.prompt) + len(self.output)


class Batch:
    """Up to R live rows.

    Attributes:
        rows: the live rows in order; their number is b.
        tokens: (R, S) int64, committed tokens from index 0; what lies at and beyond n is no token of the row.
        lengths: (R,) int64, n of each row.
        limits: (R,) int64, the n at which a row's budget is spent; a finished row's limit is its n.
    """

    def __init__(self, capacity: int, slots: int, device: torch.device) -> None:
        self.rows: list[Row] = []
        self.capacity = capacity
        self.tokens = torch.zeros(capacity, slots, dtype=torch.long, device=device)
        self.lengths = torch.zeros(capacity, dtype=torch.long, device=device)
        self.limits = torch.zeros(capacity, dtype=torch.long, device=device)
        self._all_rows = torch.arange(capacity, device=device)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def index(self) -> Tensor:
        """(b,): the live rows' numbers, 0..b-1."""
        return self._all_rows[: len(self)]

    @property
    def n(self) -> Tensor:
        """(b,): committed tokens of each live row."""
        return self.lengths[: len(self)]

    @property
    def longest(self) -> int:
        """The largest n among the live rows; 0 without rows."""
        return max((row.length for row in self.rows), default=0)

    def place(self, requests: Sequence[Request], at: Sequence[int]) -> None:
        """Start `requests` in the rows `at`: rows that are free, or the next ones after the last."""
        for request, row in zip(requests, at, strict=True):
            if row == len(self.rows):
                self.rows.append(Row(request))
            else:
                self.rows[row] = Row(request)
            n = len(request.prompt)
            self.tokens[row, :n] = torch.tensor(request.prompt).to(self.tokens.device, non_blocking=True)
            self.lengths[row] = n
            self.limits[row] = n + request.budget

    def move_row(self, source: int, target: int) -> None:
        """Let the row `source` take the place of `target`; the caller drops `source`."""
        self.rows[target] = self.rows[source]
        for state in (self.tokens, self.lengths, self.limits):
            state[target] = state[source]

    def last_tokens(self, count: int) -> tuple[Tensor, Tensor]:
        """The last `count` committed tokens of each live row and their indices, both (b, count).

        A row shorter than `count` repeats its token 0, at index 0.
        """
        indices = (self.n[:, None] + torch.arange(-count, 0, device=self.n.device)).clamp(min=0)
        return self.tokens[: len(self)].gather(1, indices), indices

    def commit(self, outcome: Outcome) -> None:
        """Append what each row gained; the round's only copy to the host."""
        b, width = outcome.emitted.shape
        ahead = self.n[:, None] + torch.arange(width, device=self.n.device)
        self.tokens[:b].scatter_(1, ahead, outcome.emitted)  # what exceeds `gained` is overwritten by the next round
        self.lengths[:b] += outcome.gained
        self.limits[:b] = torch.where(outcome.finished, self.lengths[:b], self.limits[:b])
        facts = torch.stack([outcome.accepted, outcome.gained, outcome.finished.long()], 1)
        for row, (accepted, gained, finished, *emitted) in zip(self.rows, torch.cat([facts, outcome.emitted], 1).tolist(), strict=True):
            row.accepted, row.gained, row.finished = accepted if gained else 0, gained, bool(finished)
            row.output.extend(emitted[:gained])
