"""TETRIS: draft a few tokens more than are verified, and verify those with the best chances.

Source: TETRIS (Wu et al., arXiv 2502.15197). Its public code differs in one point: where scores are
equal, it may verify more than C drafts.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from specviz.engine.drafters.base import Draft
from specviz.engine.selectors.base import Selector, count_working
from specviz.engine.selectors.capacity import best_capacity, sortable
from specviz.engine.state import State
from specviz.engine.trees.shape import Tree, find_tree
from specviz.scheduling import selection
from specviz.util.validate import require_choice, require_int

SCORES = ("chosen", "largest", "entropy")
CAPACITIES = ("fixed", "best")
MOST = 2**16 - 1  # of extra tokens and of rounds to wait


@dataclass(frozen=True)
class Tetris(Selector):
    """Each row drafts K + extra tokens, and the K * b of the batch that score highest are verified.

    A score is the logarithm of a chance, or stands for one, and never rises along a row. Where the
    draft model's logits are NaN, so is the score, and the draft is ranked last. Where drafts
    branch, "before" means on the draft's own branch, and what is verified of all rows is the best
    K * b drafts of their trees (EAGLE-2, arXiv 2406.16858, over a batch).

    capacity="best" verifies as many as write the most tokens a second, by the scores and by what
    rounds took so far; see `capacity.py`. It needs scores that are chances, so not "entropy".

    Attributes:
        extra: tokens that a row drafts beyond K.
        score: "chosen": the product of q of the row's drafts, the one that is judged among them, as
            published; of trees, the scores by which their drafter grew them, if it gives any.
            "largest": the same with the largest q in place of the last factor. "entropy": minus the
            sum of the entropies of q up to the draft. The first one foresees; the other two read
            only what was known before the draft was drawn.
        max_wait: rounds after which a row's first draft is verified whatever its score; None: a
            row may wait for good.
        capacity: "fixed": C is K * b. "best": C is chosen in each round, up to all drafts.

    Raises:
        ValueError: an option cannot be used.
    """

    extra: int = 2
    score: str = "chosen"
    max_wait: int | None = None
    capacity: str = "fixed"

    name: ClassVar[str] = "tetris"
    description: ClassVar[str] = (
        "the drafts of the batch with the best chances, of a few more than are verified"
    )
    needs_logits: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    ranks_nan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", require_int("extra", self.extra, 0, maximum=MOST))
        require_choice("score", self.score, SCORES)
        if self.max_wait is not None:
            remedy = "pass for instance 4, or None for no limit"
            waits = require_int("max_wait", self.max_wait, remedy=remedy, maximum=MOST)
            object.__setattr__(self, "max_wait", waits)
        require_choice("capacity", self.capacity, CAPACITIES)
        if self.decides_capacity and self.score == "entropy":
            raise ValueError(
                "capacity='best' needs scores that are chances of acceptance, and "
                "score='entropy' gives none; pass score='largest' or 'chosen'"
            )
        super().__post_init__()

    @property
    def foresees(self) -> bool:
        return self.score == "chosen"

    @property
    def unbiased(self) -> str:
        # The best capacity needs chances, which entropies are not.
        return 'pass score="largest"' + ("" if self.decides_capacity else ' or "entropy"')

    @property
    def decides_capacity(self) -> bool:
        return self.capacity == "best"

    def drafted(self, num_draft_tokens: int) -> int:
        return num_draft_tokens + self.extra

    def round_capacity(self, state: State, num_draft_tokens: int) -> int:
        if self.decides_capacity:
            return super().round_capacity(state, self.drafted(num_draft_tokens))
        return super().round_capacity(state, num_draft_tokens)

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        scores = score_round(state, draft, self.score)
        usable = available(state, draft)  # (b, K)
        ranked = scores
        if self.max_wait is not None:
            # The first draft of a row that has waited comes before all others.
            due = state.batch.waited[: len(state.batch)] >= self.max_wait  # (b,)
            ranked = scores.clone()
            ranked[:, 0] = torch.where(due, torch.inf, scores[:, 0])
        if self.decides_capacity:
            lengths = largest(ranked, usable, best_capacity(state, scores, ranked, usable))
            return replace(draft, lengths=lengths, scores=scores)
        total = None
        if draft.lengths is None:
            # Known without asking the device, so that a captured forward may be packed.
            total = min(capacity, count_working(state) * draft.tokens.shape[1])
        lengths = largest(ranked, usable, capacity)
        return replace(draft, lengths=lengths, scores=scores, total=total)


def score_round(state: State, draft: Draft, kind: str) -> Tensor:
    """Return the scores (b, K) of a round's drafts, which never rise along a row; see `Tetris`."""
    if draft.parents is None:
        return score_drafts(log_q(state, draft), draft.tokens, kind)
    if kind == "chosen" and draft.scores is not None:
        scores = draft.scores
    else:
        tree = find_tree(draft.parents, draft.height)
        scores = score_branches(log_q(state, draft), draft.tokens, tree, kind)
    # A draft is verified only with all that stand before it in its row. So it is worth no more than
    # they are, even where it follows none of them. Parents stand before their children.
    return scores.cummin(1).values


def log_q(state: State, draft: Draft) -> Tensor:
    """Return the log-probabilities (b, K, V) that the drafts were drawn from.

    Raises ValueError if the drafter gave no logits.
    """
    if draft.logits is None:
        raise ValueError(
            "Draft.logits must be a tensor (b, K, V) for a selector that scores drafts, got None; "
            "let the drafter return its logits, or pass selector='everything'"
        )
    return state.chooser.log_q(draft.logits)


def available(state: State, draft: Draft) -> Tensor:
    """Return which drafts may be verified, bool (b, K): none of a row that has finished."""
    b, k = draft.tokens.shape
    going_on = state.batch.limits[:b] > state.batch.n  # (b,)
    if draft.lengths is None:
        return going_on[:, None].expand(b, k)
    offset = torch.arange(k, device=draft.tokens.device)
    return going_on[:, None] & (offset < draft.lengths[:, None])


def score_drafts(log_q: Tensor, tokens: Tensor, kind: str) -> Tensor:
    """Return the score of each draft, (b, K) float32; see `Tetris`.

    Args:
        log_q: (b, K, V), log-probabilities that the drafts were drawn from.
        tokens: (b, K), the drafts.
        kind: one of SCORES.
    """
    if kind == "entropy":
        return -torch.special.entr(log_q.exp()).sum(-1).cumsum(1)
    chosen = log_q.gather(2, tokens[:, :, None])[:, :, 0]  # (b, K)
    chances = chosen.cumsum(1)
    if kind == "chosen":
        return chances
    # Of the drafts before, what they are; of this one, only what it may be.
    return pad(chances[:, :-1], (1, 0)) + log_q.amax(-1)


def score_branches(log_q: Tensor, tokens: Tensor, tree: Tree, kind: str) -> Tensor:
    """Return the score of each draft of trees, (b, K) float32. Arguments are as for `score_drafts`.

    Of siblings that were drawn, none is scored by its own token unless kind is "chosen".
    """
    on_branch = tree.ancestors[:, 1:, 1:]  # bool (b, K, K), by draft, itself included
    if kind == "entropy":
        entropy = torch.special.entr(log_q.exp()).sum(-1)  # (b, K)
        return -_sum_along(entropy, on_branch)
    chosen = log_q.gather(2, tokens[:, :, None])[:, :, 0]  # (b, K)
    if kind == "chosen":
        return _sum_along(chosen, on_branch)
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    return _sum_along(chosen, on_branch & ~itself) + log_q.amax(-1)


def _sum_along(values: Tensor, on_branch: Tensor) -> Tensor:
    """Return the sum (b, K) of the values (b, K) on each draft's branch."""
    # Not a product with the mask: 0 times an infinite value is NaN.
    return torch.where(on_branch, values[:, None], 0.0).sum(2)


def largest(scores: Tensor, usable: Tensor, capacity: int | Tensor) -> Tensor:
    """Return how many scores of each row are verified, (b,) int64; see `scheduling.selection`.

    Args:
        scores: (b, K).
        usable: bool (b, K), true for the first ones of each row.
        capacity: an int, or a tensor () where the host does not know it.
    """
    found: Tensor = selection.largest(sortable(scores, usable), usable, capacity)
    return found
