"""The rows that are being decoded: their tokens, lengths and budgets, dense, on the device and mirrored on the host.

Knows no model, cache or strategy. The host learns what happened by one copy a round (`hear`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specviz.engine.accept import Outcome
from specviz.engine.kv.transfer import to_device, to_host


@dataclass(frozen=True)
class Request:
    """One prompt to decode: its place in the caller's list, its token ids, and how many tokens it may emit, of which some may be written
    already.
    """

    index: int
    prompt: tuple[int, ...]
    budget: int
    written: tuple[int, ...] = ()


@dataclass
class Row:
    """Host side of one live row. `output` are the tokens emitted so far; `accepted`, `gained` and `discarded` are the last round's.
    `broken`: it has finished because the target's logits were no numbers.

    `held`: how many of its first tokens the draft models have K/V of, at least; all but the last two or three after a round that drafted.
    """

    request: Request
    output: list[int] = field(default_factory=list)
    accepted: int = 0
    gained: int = 0
    discarded: int = 0
    held: int = 0
    finished: bool = False
    broken: bool = False

    @property
    def length(self) -> int:
        """n: committed tokens, prompt included."""
        return len(self.request.prompt) + len(self.output)


class Batch:
    """Up to R live rows, of which the first b, the batch, take part in the running round.

    Attributes:
        live: the live rows in order; most strategies run all of them, a pool keeps some parked behind the batch.
        active: b.
        tokens: (R, S) int64, committed tokens from index 0; what lies at and beyond n is no token of the row.
        lengths: (R,) int64, n of each row.
        limits: (R,) int64, the n at which a row's budget is spent; a finished row's limit is its n.
    """

    def __init__(self, capacity: int, slots: int, device: torch.device) -> None:
        self.live: list[Row] = []
        self.active = 0
        self.capacity = capacity
        self.tokens = torch.zeros(capacity, slots, dtype=torch.long, device=device)
        self.lengths = torch.zeros(capacity, dtype=torch.long, device=device)
        self.limits = torch.zeros(capacity, dtype=torch.long, device=device)
        self._all_rows = torch.arange(capacity, device=device)

    def __len__(self) -> int:
        return self.active

    @property
    def rows(self) -> list[Row]:
        """The rows of the batch."""
        return self.live[: self.active]

    @property
    def index(self) -> Tensor:
        """(b,): the rows' numbers, 0..b-1."""
        return self._all_rows[: self.active]

    @property
    def n(self) -> Tensor:
        """(b,): committed tokens of each row."""
        return self.lengths[: self.active]

    def place(self, requests: Sequence[Request], at: Sequence[int]) -> None:
        """Start `requests` in the rows `at`: rows that are free, or the next ones after the last. All live rows are active then."""
        for request, row in zip(requests, at, strict=True):
            if row == len(self.live):
                self.live.append(Row(request, list(request.written)))
            else:
                self.live[row] = Row(request, list(request.written))
            n = self.live[row].length
            self.tokens[row, :n] = to_device(request.prompt + request.written, self.tokens.device)
            self.lengths[row] = n
            self.limits[row] = len(request.prompt) + request.budget
        self.active = len(self.live)

    def take(self, order: Sequence[int]) -> None:
        """Let live row order[k] become row k; rows that are not named leave. All that stay are active."""
        if changed := [(k, row) for k, row in enumerate(order) if row != k]:
            to, source = to_device(changed, self.tokens.device).T
            for state in (self.tokens, self.lengths, self.limits):
                state[to] = state[source]
        self.live = [self.live[row] for row in order]
        self.active = len(order)

    def last_tokens(self, count: int) -> tuple[Tensor, Tensor]:
        """The last `count` committed tokens of each row and their indices, both (b, count).

        A row shorter than `count` repeats its token 0, at index 0.
        """
        indices = (self.n[:, None] + torch.arange(-count, 0, device=self.n.device)).clamp(min=0)
        return self.tokens[: self.active].gather(1, indices), indices

    def append(self, outcome: Outcome) -> None:
        """Append what each row gained, on the device."""
        b, width = outcome.emitted.shape
        ahead = self.n[:, None] + torch.arange(width, device=self.n.device)
        self.tokens[:b].scatter_(
            1, ahead, outcome.emitted
        )  # what exceeds `gained` is overwritten by the next round
        self.lengths[:b] += outcome.gained
        self.limits[:b] = torch.where(outcome.finished, self.lengths[:b], self.limits[:b])

    def sync_to_host(self, outcome: Outcome) -> list[int]:
        """Let the host know what each row gained: the round's only copy to it. Returns the rows that are unsound; none should be."""
        numbers = (
            outcome.accepted,
            outcome.gained,
            outcome.discarded,
            outcome.finished,
            outcome.broken,
            outcome.unsound,
        )
        told = to_host(torch.cat([torch.stack(numbers, 1), outcome.emitted], 1)).tolist()
        for row, (accepted, gained, discarded, finished, broken, _, *emitted) in zip(
            self.rows, told, strict=True
        ):
            row.accepted, row.gained, row.discarded, row.finished = (
                accepted if gained else 0,
                gained,
                discarded,
                bool(finished),
            )
            row.broken = row.broken or bool(broken)
            row.output.extend(emitted[:gained])
            if outcome.emitted.shape[1] > 1:
                row.held = row.length - 2
        return [i for i, facts in enumerate(told) if facts[5]]
