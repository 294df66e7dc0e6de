"""The rows that are being decoded: tokens, lengths and budgets, on the device and on the host.

It knows no model, cache or strategy. The device's tensors are copied to the host once a round
(`sync_to_host`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specviz.engine.accept import Outcome
from specviz.engine.kv.transfer import to_device, to_host
from specviz.engine.sampling import Places


@dataclass(frozen=True)
class Request:
    """One prompt to decode.

    Attributes:
        index: its place in the caller's list.
        prompt: token ids.
        budget: how many tokens it may emit, those in `written` included.
        written: tokens that it has emitted already, where a run continues after it was out of
            memory.
    """

    index: int
    prompt: tuple[int, ...]
    budget: int
    written: tuple[int, ...] = ()


@dataclass
class Row:
    """The host's side of one live row.

    Attributes:
        output: the tokens emitted so far.
        verified, accepted, gained, discarded: of the last round, see `Outcome`.
        path: of a tree, how far behind the pending token's slot the target keeps the K/V of each
            accepted draft, in order; empty for a chain.
        draft_path: the same of the draft models, 0 where they have none.
        draft_cached: at least so many of its first tokens have K/V in the draft models' caches.
        finished: whether it has reached EOS, its budget or non-finite logits.
        ended_nonfinite: whether it has finished because the target's logits were non-finite.
    """

    request: Request
    output: list[int] = field(default_factory=list)
    verified: int = 0
    accepted: int = 0
    gained: int = 0
    discarded: int = 0
    path: list[int] = field(default_factory=list)
    draft_path: list[int] = field(default_factory=list)
    draft_cached: int = 0
    finished: bool = False
    ended_nonfinite: bool = False

    @property
    def length(self) -> int:
        """n: committed tokens, prompt included."""
        return len(self.request.prompt) + len(self.output)

    def fed_to_draft(self, rereads: str = "none") -> int:
        """Return how many of its first tokens the draft models have read, after a round.

        rereads: see `Batch`.
        """
        if rereads != "none":
            before = self.length - self.gained  # with what was pending
            return before - 1 if rereads == "pending" else before
        # Of a tree, a draft model may have left more out.
        if 0 in self.draft_path[: max(self.gained - 2, 0)]:
            return self.length - self.gained + self.draft_path.index(0)
        # The draft model was fed all drafts but the last. After a full acceptance the K/V of that
        # one is missing, and of the bonus token, too.
        return self.length - 2


class Batch:
    """Up to R live rows. The first b of them, the batch, take part in the running round.

    Attributes:
        live: the live rows in order. Most strategies run all of them; one with a pool keeps some
            behind the batch.
        active: b.
        capacity: R.
        tokens: (R, S) int64, each row's committed tokens from index 0; from index n on it is
            undefined.
        lengths: (R,) int64, n of each row.
        limits: (R,) int64, the n at which a row's budget is spent; a finished row's limit is its n.
        requests: (R,) int64, the index of each row's request.
        waited: (R,) int64, rounds since a draft of the row was last verified.
        rereads: of which tokens draft models compute K/V anew after a round: "none", those that
            were "drafts", or those and the one that was "pending", too.
    """

    def __init__(
        self, capacity: int, slots: int, device: torch.device, *, rereads: str = "none"
    ) -> None:
        self.rereads = rereads
        self.live: list[Row] = []
        self.active = 0
        self.capacity = capacity
        self.tokens = torch.zeros(capacity, slots, dtype=torch.long, device=device)
        self.lengths = torch.zeros(capacity, dtype=torch.long, device=device)
        self.limits = torch.zeros(capacity, dtype=torch.long, device=device)
        self.requests = torch.zeros(capacity, dtype=torch.long, device=device)
        self.waited = torch.zeros(capacity, dtype=torch.long, device=device)
        self._all_rows = torch.arange(capacity, device=device)

    def __len__(self) -> int:
        return self.active

    @property
    def rows(self) -> list[Row]:
        """The rows of the batch."""
        return self.live[: self.active]

    @property
    def working(self) -> int:
        """How many rows of the batch go on."""
        return sum(not row.finished for row in self.rows)

    @property
    def index(self) -> Tensor:
        """(b,): the rows' numbers, 0..b-1."""
        return self._all_rows[: self.active]

    @property
    def n(self) -> Tensor:
        """(b,): committed tokens of each row."""
        return self.lengths[: self.active]

    def places(self, ahead: int = 0) -> Places:
        """Return which token each row chooses next, or `ahead` tokens behind that one."""
        return Places(self.requests[: self.active], self.n + ahead)

    def place(self, requests: Sequence[Request], at: Sequence[int]) -> None:
        """Start `requests` in the rows `at`, free or new ones. All live rows become active."""
        for request, number in zip(requests, at, strict=True):
            row = Row(request, list(request.written))
            # Rows stay dense: a new one is always the next behind the live ones.
            if number == len(self.live):
                self.live.append(row)
            else:
                self.live[number] = row
            tokens = to_device(request.prompt + request.written, self.tokens.device)
            self.tokens[number, : row.length] = tokens
            self.lengths[number] = row.length
            # Not row.length + budget: `written` counts towards the budget.
            self.limits[number] = len(request.prompt) + request.budget
            self.requests[number] = request.index
            self.waited[number] = 0
        self.active = len(self.live)

    def take(self, order: Sequence[int]) -> None:
        """Let live row order[k] become row k. The rows in `order` are active, all others leave."""
        changed = [(k, row) for k, row in enumerate(order) if row != k]
        if changed:
            to, source = to_device(changed, self.tokens.device).T
            # Indexing copies the sources before anything is written, so rows may trade places.
            for values in (self.tokens, self.lengths, self.limits, self.requests, self.waited):
                values[to] = values[source]
        self.live = [self.live[row] for row in order]
        self.active = len(order)

    def last_tokens(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the last `count` committed tokens of each row and their indices, both (b, count).

        A row shorter than `count` repeats its token 0, at index 0.
        """
        before_end = torch.arange(-count, 0, device=self.tokens.device)
        indices = (self.n[:, None] + before_end).clamp(min=0)
        return self.tokens[: self.active].gather(1, indices), indices

    def append(self, outcome: Outcome) -> None:
        """Append what each row gained, on the device."""
        b, width = outcome.emitted.shape
        lengths = self.lengths[:b]
        limits = self.limits[:b]
        waited = self.waited[:b]
        indices = lengths[:, None] + torch.arange(width, device=lengths.device)
        # All K+1 tokens are written, whatever was accepted: a fixed shape, without asking the
        # device how many count. The next round overwrites those beyond `gained`.
        self.tokens[:b].scatter_(1, indices, outcome.emitted)
        lengths += outcome.gained
        # A row that ends before its budget has no room from now on, so that it gains nothing while
        # it stays in the batch.
        limits.copy_(torch.where(outcome.finished, lengths, limits))
        waited += 1
        waited.masked_fill_(outcome.verified > 0, 0)

    def sync_to_host(self, outcome: Outcome) -> list[int]:
        """Update the host's rows, by the round's only copy to the host.

        Return the rows of the batch that had any non-finite logits.
        """
        drafted = outcome.emitted.shape[1] > 1
        # One tensor, because every copy is a wait for the device.
        facts = torch.stack(
            [
                outcome.verified,
                outcome.accepted,
                outcome.gained,
                outcome.discarded,
                outcome.finished,
                outcome.ended_nonfinite,
                outcome.any_nonfinite,
            ],
            1,
        )
        parts = [facts, outcome.emitted]
        if outcome.path is not None:
            columns = outcome.path + 1
            parts += [columns, columns if outcome.draft_columns is None else outcome.draft_columns]
        copied = to_host(torch.cat(parts, 1)).tolist()
        width = outcome.emitted.shape[1]
        nonfinite_rows = []
        for i, (row, values) in enumerate(zip(self.rows, copied, strict=True)):
            verified, accepted, gained, discarded, *flags_and_tokens = values
            finished, ended_nonfinite, any_nonfinite, *tokens_and_paths = flags_and_tokens
            emitted, paths = tokens_and_paths[:width], tokens_and_paths[width:]
            row.verified = verified if gained else 0
            row.accepted = accepted if gained else 0
            row.gained = gained
            row.discarded = discarded
            row.path = paths[: width - 1][:accepted]
            row.draft_path = paths[width - 1 :][:accepted]
            row.finished = bool(finished)
            row.ended_nonfinite = row.ended_nonfinite or bool(ended_nonfinite)
            row.output.extend(emitted[:gained])
            if drafted:
                row.draft_cached = row.fed_to_draft(self.rereads)
            if any_nonfinite:
                nonfinite_rows.append(i)
        return nonfinite_rows
