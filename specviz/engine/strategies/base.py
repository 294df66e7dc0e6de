"""What every strategy shares: who leaves, who enters, and the places where rows may be brought back into step."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from specviz.engine.batch import Request
from specviz.engine.faults import FAULTS, Fault
from specviz.engine.kv.layout import Layout
from specviz.engine.state import State
from specviz.util.validate import is_count, require_bool, require_int

FAULT_OPTIONS = ("break_invariant", "rows", "from_round")


@dataclass(frozen=True)
class Strategy:
    """How KV state, positions and masks are kept in step after a ragged acceptance.

    A strategy of your own subclasses this, sets `name` and `description`, and overrides `align`, or any other of the methods below.

    Attributes:
        refill: whether a finished row leaves at once and the next prompt takes its place. Without it a batch is static: finished
            rows stay in the forwards, gaining nothing, until the whole batch has finished.
        bonus: whether a round that accepts all K drafts also emits the target's token behind them. Without it that token, verified and
            right, is thrown away: such a round gains K, and K = 1 gains no more than decoding without drafts.
        shrink_to_budget: whether K shrinks, for the whole batch, to the smallest budget that one of its rows has left.
        break_invariant: a fault to inject on purpose: "positions", "mask", "kv" or "bonus" (see `Fault`); None in honest runs.
        rows: the rows of the batch that the fault hits, None for all.
        from_round: the first round that it hits.
        name, description, cost: what it is called, does, and costs.
        valid: whether it promises token identity with autoregressive decoding; no promise unless it says so.
        drafts: whether rows draft at all; False makes every round a plain decoding step.
        capturable: whether `keep` reads device tensors alone and the layout is a plain `Layout`, so that phases may be replayed. Each
            class says so for itself: it is not inherited.
        decisions: names of what its scheduler may decide in a round; `state.decision` is an index into them.
    """

    refill: bool = True
    bonus: bool = True
    shrink_to_budget: bool = False
    break_invariant: str | None = None
    rows: Collection[int] | None = None
    from_round: int = 0

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    valid: ClassVar[bool] = False
    drafts: ClassVar[bool] = True
    capturable: ClassVar[bool] = False
    decisions: ClassVar[tuple[str, ...]] = ("batch",)

    def __post_init__(self) -> None:
        for name in ("refill", "bonus", "shrink_to_budget"):
            require_bool(name, getattr(self, name))
        if self.break_invariant is None:
            if self.rows is not None or self.from_round != 0:
                raise ValueError(
                    f"rows={self.rows!r}, from_round={self.from_round!r} say where a fault hits; give break_invariant too"
                )
            return
        if self.break_invariant not in FAULTS:
            raise ValueError(
                f"break_invariant={self.break_invariant!r} is unknown; choose one of {', '.join(FAULTS)}"
            )
        if not self.valid:
            raise ValueError(
                f"break_invariant={self.break_invariant!r} needs a valid strategy, and {self.name!r} is none; choose eqspec"
            )
        numbers = (
            list(self.rows)
            if isinstance(self.rows, Collection) and not isinstance(self.rows, str)
            else [self.rows]
        )
        if self.rows is not None and not all(is_count(row) for row in numbers):
            raise ValueError(
                f"rows={self.rows!r} is no list of row numbers; pass for instance [0, 2], or None for all rows"
            )
        require_int("from_round", self.from_round, minimum=0)
        object.__setattr__(
            self,
            "rows",
            None if self.rows is None else tuple(sorted(int(row) for row in self.rows)),
        )

    @property
    def fault(self) -> Fault | None:
        """The fault that was asked for."""
        return (
            Fault(self.break_invariant, self.rows, self.from_round)
            if self.break_invariant is not None
            else None
        )

    @property
    def promises(self) -> bool:
        """Whether this very object promises token identity: a valid strategy without a fault."""
        return self.valid and self.break_invariant is None

    @property
    def drafter_options(self) -> dict[str, dict[str, Any]]:
        """Options that a drafter chosen by name is made with under this strategy, by the drafter's name; an object is taken as it is."""
        return {}

    @property
    def options(self) -> dict[str, Any]:
        """The options that this strategy was made with, by name; those of a fault only if there is one."""
        faulty = self.break_invariant is not None
        return {
            name: value
            for name, value in asdict(self).items()
            if faulty or name not in FAULT_OPTIONS
        }

    def capacity(self, batch_size: int, requests: int) -> int:
        """Rows to keep K/V for."""
        return min(batch_size, requests)

    def halved(self) -> "Strategy":
        """This strategy for half the batch size, where memory ran out."""
        return self

    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int:
        """Slots a row may need. `longest`: the largest prompt + budget; `budget`: the largest budget."""
        return longest + num_draft_tokens + 1

    def layout(
        self,
        rows: int,
        slots: int,
        num_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Layout:
        """Where tokens lie; empty rows."""
        return Layout(rows, device)

    def order(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The order in which requests enter; the output is in the caller's order whatever this says."""
        return requests

    def schedule(self, state: State) -> None:
        """Let finished rows leave, let waiting prompts enter, align all rows, and prefill the new ones."""
        fresh = self.replace(state)
        if fresh:
            self.align(state, fresh)
            state.prefill(fresh)

    def replace(self, state: State) -> list[int]:
        """Let finished rows leave and waiting prompts take their places; returns the rows that are new."""
        finished = [i for i, row in enumerate(state.batch.live) if row.finished]
        state.admitted = []
        if not self.refill and len(finished) < len(state.batch.live):
            return []
        free = [*finished, *range(len(state.batch.live), state.batch.capacity)]
        entering = [state.waiting.popleft() for _ in free[: len(state.waiting)]]
        state.admitted = free[: len(entering)]
        state.batch.place(entering, state.admitted)
        if left_over := [row for row in free[len(entering) :] if row in finished]:
            state.drop(left_over)
        return state.admitted

    def shorten(self, state: State, num_draft_tokens: int) -> int:
        """K of this round, where `num_draft_tokens` were wanted; the batch is there."""
        if not self.shrink_to_budget:
            return num_draft_tokens
        left = [
            row.request.budget - len(row.output) for row in state.batch.rows if not row.finished
        ]
        return min([num_draft_tokens, *left])

    def keep(
        self, drafts: Tensor, accepted: Tensor, emitted: Tensor, room: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What is kept of what the target accepted: accepted (b,) and emitted (b, K+1). `room` (b,) is 0 for a finished row."""
        return accepted, emitted

    def synchronise(self, state: State) -> None:
        """Bring the rows back into step after an acceptance."""
        self.align(state)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Give every row its start and move the K/V that lies elsewhere; rows in `fresh` have none yet."""
