"""Selectors: of the tokens that were drafted, they say which the target verifies.

A selector of one's own subclasses `Selector`, sets `name`, and writes `choose`. It overrides
`drafted` if rows are to draft more than is verified.

Contract: a draft counts only if all before it are accepted, so a row's verified drafts are always
its first ones, and `Draft.lengths` says how many. Not known here: how tokens are drafted, and what
the target will accept.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad

from specviz.engine.accept import count_leading
from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter
from specviz.engine.registry import described, make, plain_options
from specviz.engine.state import State
from specviz.engine.trees import Tree
from specviz.scheduling import selection
from specviz.util.validate import is_real, require_bool, require_choice, require_int, short

SCORES = ("chosen", "largest", "entropy")
MOST = 2**16 - 1  # of extra tokens and of rounds to wait


@dataclass(frozen=True)
class Selector:
    """Chooses the drafts that are verified. See the module's docstring.

    Attributes:
        valid: False allows a selector that foresees under coupling="rejection". The text is then
            not distributed as the target's.

    Class attributes, which a subclass sets:
        name, description: what it is called and does.
        needs_logits: whether it reads `Draft.logits`, which not every drafter returns.
        unbiased: what to do so that a selector that foresees no longer does; part of the error.
        capturable: whether `choose` reads only tensors that stay in place and no value on the
            host, so that CUDA graphs may replay it. A subclass does not inherit this: each class
            sets it for itself.
    """

    valid: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    needs_logits: ClassVar[bool] = False
    unbiased: ClassVar[str] = "let its scores read q and not the token that was drawn"
    capturable: ClassVar[bool] = False

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

    def drafted(self, num_draft_tokens: int) -> int:
        """Return how many tokens a row drafts where K >= 1 of them are verified on average."""
        return num_draft_tokens

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        """Return the draft with `lengths`, and with `scores` where there are any.

        Args:
            draft: the proposals of the batch, (b, `drafted(K)`); `lengths` may be set already, and
                must not become larger.
            capacity: C, how many drafts of the batch the round may verify: K for each row that
                goes on.
        """
        raise NotImplementedError(f"selector={self.name!r} must override `choose`")

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, as the record keeps them; a dict or a tensor is no option."""
        return plain_options(self)


@dataclass(frozen=True)
class Everything(Selector):
    """Verifies every draft: the same number in each row."""

    name: ClassVar[str] = "everything"
    description: ClassVar[str] = "all that was drafted"
    capturable: ClassVar[bool] = True

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        return draft


@dataclass(frozen=True)
class Tetris(Selector):
    """Each row drafts K + extra tokens, and the K * b of the batch that score highest are verified.

    A score is the logarithm of a chance, or stands for one, and never rises along a row. Where the
    draft model's logits are NaN, so is the score, and the draft is ranked last. Where drafts
    branch, "before" means on the draft's own branch, and what is verified of all rows is the best
    K * b drafts of their trees (EAGLE-2, arXiv 2406.16858, over a batch).

    Attributes:
        extra: tokens that a row drafts beyond K.
        score: "chosen": the product of q of the row's drafts, the one that is judged among them, as
            published; of trees, the scores by which their drafter grew them, if it gives any.
            "largest": the same with the largest q in place of the last factor. "entropy": minus the
            sum of the entropies of q up to the draft. The first one foresees; the other two read
            only what was known before the draft was drawn.
        max_wait: rounds after which a row's first draft is verified whatever its score; None: a
            row may wait for good.

    Source: TETRIS (Wu et al., arXiv 2502.15197). Its public code differs in one point: where scores
    are equal, it may verify more than C drafts.

    Raises:
        ValueError: an option cannot be used.
    """

    extra: int = 2
    score: str = "chosen"
    max_wait: int | None = None

    name: ClassVar[str] = "tetris"
    description: ClassVar[str] = (
        "the drafts of the batch with the best chances, of a few more than are verified"
    )
    needs_logits: ClassVar[bool] = True
    unbiased: ClassVar[str] = 'pass score="largest" or "entropy"'
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", require_int("extra", self.extra, 0, maximum=MOST))
        require_choice("score", self.score, SCORES)
        if self.max_wait is not None:
            remedy = "pass for instance 4, or None for no limit"
            waits = require_int("max_wait", self.max_wait, remedy=remedy, maximum=MOST)
            object.__setattr__(self, "max_wait", waits)
        super().__post_init__()

    @property
    def foresees(self) -> bool:
        return self.score == "chosen"

    def drafted(self, num_draft_tokens: int) -> int:
        return num_draft_tokens + self.extra

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        scores = score_round(state, draft, self.score)
        ranked = scores
        if self.max_wait is not None:
            # The first draft of a row that has waited comes before all others.
            due = state.batch.waited[: len(state.batch)] >= self.max_wait  # (b,)
            ranked = scores.clone()
            ranked[:, 0] = torch.where(due, torch.inf, scores[:, 0])
        total = None
        if draft.lengths is None:
            # Known without asking the device, so that a captured forward may be packed.
            total = min(capacity, state.batch.working * draft.tokens.shape[1])
        lengths = largest(ranked, available(state, draft), capacity)
        return replace(draft, lengths=lengths, scores=scores, total=total)


@dataclass(frozen=True)
class Threshold(Selector):
    """Verifies a row's drafts up to the first whose q is below `at_least`.

    Engines know it as an early exit by the draft's confidence. Where drafts branch, it goes by a
    draft's whole branch: the chance that all of it is accepted.

    Attributes:
        at_least: 0 to 1.
        score: "chosen": q of the draft itself, which foresees. "largest": the largest q at its
            position; of trees, in place of the branch's last q.

    Raises:
        ValueError: an option cannot be used.
    """

    at_least: float = 0.5
    score: str = "chosen"

    name: ClassVar[str] = "threshold"
    description: ClassVar[str] = "a row's drafts up to the first that its draft was unsure of"
    needs_logits: ClassVar[bool] = True
    unbiased: ClassVar[str] = 'pass score="largest"'
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_real(self.at_least) or not 0 <= self.at_least <= 1:
            raise ValueError(
                f"at_least must be a number from 0 to 1, got {short(self.at_least)}; "
                "pass the smallest q that is worth verifying"
            )
        object.__setattr__(self, "at_least", float(self.at_least))
        require_choice("score", self.score, ("chosen", "largest"))
        super().__post_init__()

    @property
    def foresees(self) -> bool:
        return self.score == "chosen"

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        if draft.parents is not None:
            scores = score_round(state, draft, self.score)  # (b, K)
        else:
            log_q = state.chooser.log_q(logits_of(draft))
            chosen = log_q.gather(2, draft.tokens[:, :, None])[:, :, 0]
            scores = chosen if self.score == "chosen" else log_q.amax(-1)
        confident = torch.exp(scores) >= self.at_least
        lengths = count_leading(confident & available(state, draft))
        return replace(draft, lengths=lengths, scores=scores)


def foresees(selector: Selector, drafter: Drafter) -> bool:
    """Return whether a draft that q weighs may decide itself whether it is judged."""
    if not drafter.judged_by_q:
        return False
    # Drafts of one depth share their noise. So a deeper one, whose score reads those before it,
    # says something of all drafts of that depth, and must not stand before any of them.
    reads_noise = drafter.branches and selector.needs_logits and not drafter.by_level
    return selector.foresees or reads_noise


def score_round(state: State, draft: Draft, kind: str) -> Tensor:
    """Return the scores (b, K) of a round's drafts, which never rise along a row; see `Tetris`."""
    tree = draft.tree()
    if tree is not None and kind == "chosen" and draft.scores is not None:
        scores = draft.scores
    else:
        scores = score_drafts(state.chooser.log_q(logits_of(draft)), draft.tokens, kind, tree)
    # A draft is verified only with all that stand before it in its row. So it is worth no more than
    # they are, even where it follows none of them. Parents stand before their children.
    return scores if tree is None else scores.cummin(1)[0]


def score_drafts(log_q: Tensor, tokens: Tensor, kind: str, tree: Tree | None = None) -> Tensor:
    """Return the score of each draft, (b, K) float32; see `Tetris`.

    Of siblings that were drawn, none is scored by its own token unless kind is "chosen".

    Args:
        log_q: (b, K, V), log-probabilities that the drafts were drawn from.
        tokens: (b, K), the drafts.
        kind: one of SCORES.
        tree: of drafts that branch.
    """
    if kind == "entropy":
        entropy = torch.special.entr(log_q.exp()).sum(-1)  # (b, K)
        return -(entropy.cumsum(1) if tree is None else _along(entropy, tree))
    chosen = log_q.gather(2, tokens[:, :, None])[:, :, 0]  # (b, K)
    if kind == "chosen":
        return chosen.cumsum(1) if tree is None else _along(chosen, tree)
    # Of the drafts before, what they are; of this one, only what it may be.
    if tree is None:
        return pad(chosen.cumsum(1)[:, :-1], (1, 0)) + log_q.amax(-1)
    return _along(chosen, tree, itself=False) + log_q.amax(-1)


def _along(values: Tensor, tree: Tree, *, itself: bool = True) -> Tensor:
    """Return the sum (b, K) of the values (b, K) on each draft's branch, with `itself` or not."""
    on_branch = tree.ancestors[:, 1:, 1:]  # bool (b, K, K), by draft
    if not itself:
        on_branch = on_branch.tril(-1)
    # Not a product with the mask: 0 times an infinite value is NaN.
    return torch.where(on_branch, values[:, None], 0.0).sum(2)


def logits_of(draft: Draft) -> Tensor:
    """Return the draft's logits (b, K, V). Raise ValueError if the drafter gave none."""
    if draft.logits is None:
        raise ValueError(
            "Draft.logits must be a tensor (b, K, V) for a selector that scores drafts, got None; "
            "let the drafter return its logits, or pass selector='everything'"
        )
    return draft.logits


def available(state: State, draft: Draft) -> Tensor:
    """Return which drafts may be verified, bool (b, K): none of a row that has finished."""
    b, k = draft.tokens.shape
    going_on = state.batch.limits[:b] > state.batch.n  # (b,)
    if draft.lengths is None:
        return going_on[:, None].expand(b, k)
    offset = torch.arange(k, device=draft.tokens.device)
    return going_on[:, None] & (offset < draft.lengths[:, None])


def largest(scores: Tensor, usable: Tensor, capacity: int) -> Tensor:
    """Return how many scores of each row are verified, (b,) int64; see `scheduling.selection`.

    Args:
        scores: (b, K), NaN last.
        usable: bool (b, K), true for the first ones of each row.
    """
    lowest = torch.finfo(scores.dtype).min
    scores = scores.nan_to_num(lowest, torch.inf, lowest).masked_fill(~usable, -torch.inf)
    found: Tensor = selection.largest(scores, usable, capacity)
    return found


SELECTORS: dict[str, type[Selector]] = {kind.name: kind for kind in (Everything, Tetris, Threshold)}


def selector(name: str, **options: Any) -> Selector:
    """Return the selector called `name` with `options`: `selector("tetris", extra=3)`.

    Raises:
        ValueError: an unknown name or option (the message lists the known ones), or an option with
            an unusable value.
    """
    return make("selector", SELECTORS, name, options)


def selectors() -> pd.DataFrame:
    """Return the registered selectors: columns selector, description and options."""
    return described("selector", SELECTORS)
