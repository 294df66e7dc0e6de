"""What a drafter proposes in a round."""

from dataclasses import dataclass

from torch import Tensor

from specviz.engine.trees import Tree, find_tree

# How trees are judged under coupling="rejection"; see `Draft.judged_by`.
JUDGES = ("target", "rest", "each", "first")


@dataclass(frozen=True)
class Draft:
    """The proposals of a round.

    Attributes:
        tokens: (b, K) int64.
        logits: (b, K, V) float32, from which the tokens were chosen; None without a model.
        lengths: (b,) int64, how many of a row's tokens are verified, 0..K; None for all.
        scores: (b, K) float32, by which they were selected; None where nothing was.
        total: the sum of `lengths`, where the host knows it.
        parents: (b, K) int64, the draft that each draft follows, -1 for the pending token. None for
            a chain, where each follows the one before. A parent stands before its children, and
            drafts of one parent differ.
        height: the most drafts on one branch, where it is known to be less than K.
        columns: (b, K) int64, how far behind the pending token's slot the draft models keep the K/V
            of each draft of a tree; 0 where they have none. None for draft j at j + 1.
        judged_by: under coupling="rejection", how a tree is judged. "target": a token is drawn
            from the target's distribution after each node, and followed where it is a draft. That
            is exact however the drafts were found. "rest": each child by the q that is left
            without its earlier siblings, which is exact for children drawn from `logits` without
            replacement, in this order. "each": each child by the whole q, which is exact for
            children drawn from it independently, with `drawn`. "first": the same without `drawn`,
            which is biased.
        drawn: (b, K) int64, for judged_by="each": what was drawn in the place of each draft. Where
            an earlier sibling is that token already, `tokens` has another one, which is not
            accepted.
    """

    tokens: Tensor
    logits: Tensor | None = None
    lengths: Tensor | None = None
    scores: Tensor | None = None
    total: int | None = None
    parents: Tensor | None = None
    height: int | None = None
    columns: Tensor | None = None
    judged_by: str = "target"
    drawn: Tensor | None = None

    def tree(self) -> Tree | None:
        """Return the shape of the trees, None for chains."""
        return None if self.parents is None else find_tree(self.parents, self.height)
