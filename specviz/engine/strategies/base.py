"""What a strategy is: the way in which rows are kept in step after a ragged acceptance.

To add a strategy, subclass `Strategy` and write:

- `name`, under which runs are recorded, and `description` and `cost`, which tables show;
- `valid = True`, if it promises the text of autoregressive decoding;
- `right_aligned = True`, if it promises that all rows of a batch end in one column in every round;
- `align`, which gives every row its start and moves the K/V that lies elsewhere.

That is enough, and only `name` is required. The other methods have defaults. Override one where the
strategy differs; they are listed in the order in which a run calls them:

| when | method | by default |
|---|---|---|
| once | `capacity`, `slots`, `layout` | the batch; longest + K + 1; token p at slot start + p |
| once | `order` | prompts enter in the caller's order |
| each round | `schedule` | finished rows leave, prompts enter, `align`, prefill |
| each round | `shorten` | all rows draft the K that was chosen |
| each round | `keep`, `max_gain` | keep what the target accepts, up to K + 1 tokens |
| each round | `compact` | of trees, accepted drafts move behind the pending token |
| each round | `synchronise` | `align` |

An option is a field of the dataclass, checked in `__post_init__`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from specviz.engine.batch import Request
from specviz.engine.draft import Draft
from specviz.engine.faults import FAULTS, STATE, TREE_FAULTS, WINDOW, Fault
from specviz.engine.kv.layout import Layout
from specviz.engine.prefill import prefill
from specviz.engine.registry import plain_options
from specviz.engine.state import State
from specviz.engine.trees import Walk
from specviz.util.validate import is_count, require_bool, require_choice, require_int, short

FAULT_OPTIONS = ("break_invariant", "rows", "from_round")
KNOWN_FAULTS = (*FAULTS, STATE, WINDOW, *TREE_FAULTS)


@dataclass(frozen=True)
class Strategy:
    """Keeps K/V, positions and masks in step after a ragged acceptance. See the module's docstring.

    Options, which every strategy takes:
        refill: whether a finished row leaves at once and the next prompt takes its place. Without
            it a batch is static: finished rows stay in the forwards, gaining nothing, until the
            whole batch has finished.
        break_invariant: a fault to inject on purpose: "positions", "mask", "kv" or "bonus", with
            trees "tree_mask", "tree_positions" or "compaction", and with models that have them
            "state" or "window" (see `Fault`). None in ordinary runs.
        rows: the rows of the batch that the fault hits, None for all.
        from_round: the first round that the fault hits.

    Class attributes, which a subclass sets:
        name, description, cost: what it is called, does, and costs.
        valid: whether it promises the tokens of autoregressive decoding. False unless it says so.
        right_aligned: whether it promises that all rows of a batch end in one column whenever the
            models run. Records keep this, and `check_invariants` holds the run to it.
        drafts: whether rows draft at all. False makes every round a plain decoding step.
        takes_trees: whether rows may draft trees; `compact` then keeps what is accepted of them.
        capturable: whether `keep` reads device tensors alone and `layout` returns a plain `Layout`,
            so that CUDA graphs may replay the phases. A subclass does not inherit this: each class
            sets it for itself.
        decisions: names of the decisions that its `schedule` may take; `state.decision` is an
            index into them.
    """

    refill: bool = True
    break_invariant: str | None = None
    rows: Collection[int] | None = None
    from_round: int = 0

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    valid: ClassVar[bool] = False
    right_aligned: ClassVar[bool] = False
    drafts: ClassVar[bool] = True
    takes_trees: ClassVar[bool] = True
    capturable: ClassVar[bool] = False
    decisions: ClassVar[tuple[str, ...]] = ("batch",)

    def __post_init__(self) -> None:
        require_bool("refill", self.refill)
        if self.break_invariant is not None:
            self._check_fault()
        elif self.rows is not None or require_int("from_round", self.from_round, minimum=0):
            raise ValueError(
                f"rows={short(self.rows)} and from_round={short(self.from_round)} need a fault; "
                "give break_invariant too"
            )

    # ---- what a subclass overrides ----

    def capacity(self, batch_size: int, requests: int) -> int:
        """Return how many rows to keep K/V for."""
        return min(batch_size, requests)

    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int:
        """Return how many cache slots a row may need.

        Args:
            longest: the largest prompt + budget of the run, in tokens.
            budget: the largest budget of the run, in tokens.
            max_draft_tokens: the most that a row drafts in a round, or the most slots that the
                drafts of a tree take.
        """
        # A row that is about to finish still writes its pending token and K drafts behind n.
        return longest + max_draft_tokens + 1

    def layout(
        self,
        rows: int,
        slots: int,
        max_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Layout:
        """Return the rule that says in which slot each token lies; its rows are empty."""
        return Layout(rows, device, max_positions)

    def order(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Return the order in which requests enter. It does not change the order of the output."""
        return requests

    def schedule(self, state: State) -> None:
        """Remove finished rows, let waiting prompts enter, align all rows, prefill the new ones."""
        fresh = self.replace(state)
        if fresh:
            # First the place, then the K/V: prefilling writes where the layout says.
            self.align(state, fresh)
            prefill(state, fresh)

    def shorten(self, state: State, num_draft_tokens: int) -> int:
        """Return K of this round, at most `num_draft_tokens`. The batch is chosen already."""
        return num_draft_tokens

    def keep(self, draft: Draft, walk: Walk, room: Tensor) -> Walk:
        """Return what to keep of what the target accepted.

        Args:
            walk: of the emitted tokens, the first accepted + 1 count.
            room: (b,) int64, tokens that each row may still emit; 0 for a finished row.
        """
        return walk

    def max_gain(self, num_draft_tokens: int) -> int:
        """Return how many tokens a row may gain in a round with K = `num_draft_tokens`."""
        return num_draft_tokens + 1

    def compact(self, state: State) -> None:
        """Bring the K/V of accepted drafts of trees to where the layout looks for them."""
        state.compact(self.compacted(state))

    def synchronise(self, state: State) -> None:
        """Bring the rows back into step after an acceptance."""
        self.align(state)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Give every row its start and move the K/V that lies elsewhere.

        Rows in `fresh` have no K/V yet. By default every row starts at slot 0 and nothing moves.
        """

    def halved(self) -> "Strategy":
        """Return this strategy for half the batch size, to go on with after memory ran out."""
        return self

    @property
    def keeps_draft(self) -> bool:
        """Whether the draft models' K/V may be kept between rounds; see `Levers.keep_draft`."""
        return True

    # ---- what a subclass uses ----

    def compacted(self, state: State) -> list[int]:
        """Return the rows of the batch that are compacted: all, unless that fault is injected."""
        every = list(range(len(state.batch)))
        if state.fault is None or not state.fault.active("compaction", state.round):
            return every
        return [i for i in every if not state.fault.includes(i)]

    def replace(self, state: State) -> list[int]:
        """Remove finished rows, let waiting prompts take their places, return the new rows."""
        live = state.batch.live
        finished = [i for i, row in enumerate(live) if row.finished]
        state.admitted = []
        if not self.refill and len(finished) < len(live):
            return []
        # Prompts take the places of finished rows first, so that no other row has to move.
        free = [*finished, *range(len(live), state.batch.capacity)]
        entering = [state.waiting.popleft() for _ in free[: len(state.waiting)]]
        state.admitted = free[: len(entering)]
        state.batch.place(entering, state.admitted)
        # No prompt is left for these rows. They stand behind those that were filled, so dropping
        # them renumbers nothing in `admitted`.
        unused = [row for row in free[len(entering) :] if row in finished]
        if unused:
            state.drop(unused)
        return state.admitted

    # ---- what the engine reads ----

    @property
    def options(self) -> dict[str, Any]:
        """The options by name; those of a fault only if there is one."""
        options = plain_options(self)
        if self.break_invariant is None:
            for name in FAULT_OPTIONS:
                del options[name]
        return options

    @property
    def promises(self) -> bool:
        """Whether this object promises token identity: a valid strategy without a fault."""
        return self.valid and self.break_invariant is None

    @property
    def fault(self) -> Fault | None:
        """The fault to inject."""
        if self.break_invariant is None:
            return None
        return Fault(self.break_invariant, self.rows, self.from_round)

    def _check_fault(self) -> None:
        require_choice("break_invariant", self.break_invariant, KNOWN_FAULTS)
        if not self.valid:
            raise ValueError(
                f"break_invariant={self.break_invariant!r} needs a valid strategy, "
                f"and {self.name!r} is not valid; choose eqspec"
            )
        require_int("from_round", self.from_round, minimum=0)
        if self.rows is None:
            return
        if not _are_row_numbers(self.rows):
            raise ValueError(
                f"rows must be a list of row numbers, got {short(self.rows)}; "
                "pass for instance [0, 2], or None for all rows"
            )
        object.__setattr__(self, "rows", tuple(sorted(int(row) for row in self.rows)))


def _are_row_numbers(rows: object) -> bool:
    if not isinstance(rows, Collection) or isinstance(rows, str | bytes):
        return False
    return all(is_count(row) for row in rows)
