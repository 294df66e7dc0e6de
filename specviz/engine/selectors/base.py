"""What a selector is: of the tokens that were drafted, it says which the target verifies.

A selector of one's own subclasses `Selector`, sets `name`, and writes `choose`. It overrides
`drafted` if rows are to draft more than is verified.

Contract: a draft counts only if all before it are accepted, so a row's verified drafts are always
its first ones, and `Draft.lengths` says how many. Not known here: how tokens are drafted, and what
the target will accept.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from specviz.engine.drafters.base import Draft, Drafter
from specviz.engine.registry import plain_options
from specviz.engine.state import State
from specviz.util.validate import is_int, require_bool, require_int, require_kind, short

# What of a draft no selector may change: a tree without its parents would be judged as a chain.
KEPT = ("tokens", "logits", "parents", "height", "columns", "judged_by", "drawn")


@dataclass(frozen=True)
class Selector:
    """Chooses the drafts that are verified. See the module's docstring.

    Attributes:
        valid: False allows a selector that foresees under coupling="rejection". The text is then
            not distributed as the target's.

    Class attributes, which a subclass sets:
        name, description: what it is called and does.
        needs_logits: whether it reads `Draft.logits`, which not every drafter returns.
        capturable: whether `choose` reads only tensors that stay in place and no value on the
            host, so that CUDA graphs may replay it. A subclass does not inherit this: each class
            sets it for itself.
        ranks_nan: whether a score of NaN is meant: its draft is verified last or not at all. The
            built-in selectors score a draft so where the draft model's logits are NaN, which the
            run reports itself. Of any other selector, NaN is refused on a CPU.
    """

    valid: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    needs_logits: ClassVar[bool] = False
    capturable: ClassVar[bool] = False
    ranks_nan: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_bool("valid", self.valid)

    @property
    def foresees(self) -> bool:
        """Whether a token's score depends on that very token.

        Under coupling="rejection" such a selector changes the distribution of the text: whether a
        draft is judged at all then depends on which token it is. Trees that are judged by the
        target's own draws are the exception; see `Drafter.judged_by_q`.
        """
        return False

    @property
    def unbiased(self) -> str:
        """What to do so that a selector that foresees no longer does; part of the error."""
        return "let its scores read q and not the token that was drawn"

    @property
    def decides_capacity(self) -> bool:
        """Whether `choose` decides how many drafts of the batch are verified, up to C.

        The record's capacity then is that number. CUDA graphs cannot replay such a selector.
        """
        return False

    def drafted(self, num_draft_tokens: int) -> int:
        """Return how many tokens a row drafts where K >= 1 of them are verified on average."""
        return num_draft_tokens

    def round_capacity(self, state: State, num_draft_tokens: int) -> int:
        """Return C, how many drafts of the batch the round may verify: K for each row that goes on.

        The batch of the round is chosen already.
        """
        return num_draft_tokens * count_working(state)

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        """Return the draft with `lengths`, and with `scores` where there are any.

        Args:
            draft: the proposals of the batch, (b, `drafted(K)`); `lengths` may be set already, and
                must not become larger.
            capacity: C.
        """
        raise NotImplementedError(
            f"selector={self.name!r} must override `choose`; let it return the draft with `lengths`"
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, as the record keeps them; a dict or a tensor is no option."""
        return plain_options(self)


def count_working(state: State) -> int:
    """Return how many rows of the batch go on."""
    return sum(not row.finished for row in state.batch.rows)


def foresees(selector: Selector, drafter: Drafter) -> bool:
    """Return whether a draft that q weighs may decide itself whether it is judged."""
    if not drafter.judged_by_q:
        return False
    # Drafts of one depth share their noise. So a deeper one, whose score reads those before it,
    # says something of all drafts of that depth, and must not stand before any of them.
    reads_noise = drafter.branches and selector.needs_logits and not drafter.by_level
    return selector.foresees or reads_noise


def most_drafted(selector: Selector, most: int) -> int:
    """Return the most tokens that a row may draft in a run whose largest K is `most`."""
    if not most:
        return 0
    return require_int("drafted", selector.drafted(most), remedy=_drafted_remedy(selector))


def _drafted_remedy(selector: Selector) -> str:
    return f"let {selector.name!r} return a number of tokens"


def check_plan(selector: Selector, drafted: int, capacity: int, most: int) -> None:
    """Raise ValueError if a round cannot draft so many tokens a row, or verify so many drafts."""
    require_int("drafted", drafted, remedy=_drafted_remedy(selector), maximum=most)
    require_int("capacity", capacity, remedy="let the selector verify at least one draft")


def check_choice(selector: Selector, proposed: Draft, chosen: object) -> None:
    """Raise ValueError unless `choose` returned the draft that it was given, with its choice."""
    remedy = "return `replace(draft, lengths=...)`, which keeps the rest of the draft"
    require_kind(f"what selector={selector.name!r} chooses", chosen, Draft, remedy)
    assert isinstance(chosen, Draft)
    changed = [name for name in KEPT if _form(chosen, name) != _form(proposed, name)]
    if changed:
        name = changed[0]
        raise ValueError(
            f"selector={selector.name!r} must keep Draft.{name}, {_form(proposed, name)}, "
            f"got {_form(chosen, name)}; {remedy}"
        )
    if proposed.lengths is not None and proposed.lengths.device.type == "cpu":
        _check_no_more(selector, proposed.lengths, chosen.lengths)


def _check_no_more(selector: Selector, proposed: Tensor, chosen: object) -> None:
    """Raise ValueError if more drafts of a row are chosen than its drafter proposed, (b,)."""
    if isinstance(chosen, Tensor):
        # `check_selection` refuses another shape.
        if chosen.shape != proposed.shape or not (chosen > proposed).any():
            return
        chosen = chosen.tolist()
    raise ValueError(
        f"selector={selector.name!r} must verify at most what the drafter proposed for each row, "
        f"{short(proposed.tolist())}, got {short(chosen)}; "
        "let it return `torch.minimum(lengths, draft.lengths)`"
    )


def _form(draft: Draft, name: str) -> object:
    """Return the shape of a field that is a tensor, else its value."""
    value = getattr(draft, name)
    return tuple(value.shape) if isinstance(value, Tensor) else value


def check_selection(state: State, draft: Draft, capacity: int) -> int:
    """Return the sum of the draft's lengths. Raise ValueError if they cannot be verified."""
    b, k = draft.tokens.shape
    assert draft.lengths is not None
    lengths = draft.lengths.tolist()
    fits = len(lengths) == b and all(is_int(n) and 0 <= n <= k for n in lengths)
    if not fits:
        raise ValueError(
            f"Draft.lengths must be {b} ints from 0 to {k}, one a row, got {short(lengths)}; "
            f"let the selector (or drafter) return an integer a row, with clamp(0, {k})"
        )
    rows = zip(state.batch.rows, lengths, strict=True)
    working = sum(n for row, n in rows if not row.finished)
    if working > capacity:
        raise ValueError(
            f"the sum of Draft.lengths must be at most the round's capacity {capacity}, "
            f"got {working}; let the selector verify fewer drafts, or override its `round_capacity`"
        )
    return sum(lengths)


def check_scores(selector: Selector, state: State, draft: Draft) -> None:
    """Raise ValueError if the draft's scores are no numbers (b, K).

    NaN is looked for on a CPU alone: elsewhere the host would wait for the device.
    """
    scores, shape = draft.scores, tuple(draft.tokens.shape)
    require_kind("Draft.scores", scores, Tensor, "pass a tensor (b, K) of floats, or None")
    assert scores is not None
    if scores.shape != shape or not scores.is_floating_point():
        raise ValueError(
            f"Draft.scores must be floats of shape {shape}, one a draft, got {scores.dtype} "
            f"of shape {tuple(scores.shape)}; let the selector (or drafter) score each draft"
        )
    if selector.ranks_nan or scores.device.type != "cpu":
        return
    is_nan = scores.isnan()
    for number, row in enumerate(state.batch.rows):
        if not row.finished and is_nan[number].any():
            j = int(is_nan[number].nonzero()[0])
            raise ValueError(
                f"Draft.scores must not be NaN, got nan for draft {j} of row {number}; "
                "let the selector (or drafter) return -inf for a draft without a score"
            )


@dataclass(frozen=True)
class Everything(Selector):
    """Verifies every draft: the same number in each row."""

    name: ClassVar[str] = "everything"
    description: ClassVar[str] = "all that was drafted"
    capturable: ClassVar[bool] = True

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        return draft
