"""How tokens are chosen from logits: what every way has to offer, and the greedy one.

Pure tensor arithmetic. It knows no model, cache or tokenizer. B rows, K draft tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specviz.engine.accept import accept_greedy, likeliest
from specviz.engine.trees.shape import Tree
from specviz.engine.trees.walk import Walk, follow


class Chooser(Protocol):
    """How tokens are chosen from logits.

    Randomness may depend on the seed, on `requests` (b), the rows' places in the caller's list, and
    on `indices` (b), the index in its row of the first token that is chosen. It depends on nothing
    else.

    Attributes:
        weighs_drafts: whether the text depends on the drafts, not on the target alone.
        exact: whether the text is distributed as the target's.
    """

    weighs_drafts: bool
    exact: bool

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """Return the draft's next token (b,), given its logits (b, V) float32."""
        ...

    def log_q(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (..., V) of what `draft` chooses from the logits (..., V)."""
        ...

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return how many drafts are accepted (b,) and the emitted tokens (b, K+1).

        Args:
            drafts: (b, K) int64.
            draft_logits: (b, K, V) float32; None for proposals that were not drawn from a
                distribution.
            logits: (b, K+1, V), the target's, in its own dtype.
            lengths: (b,) int64, how many of each row's drafts are judged, 0..K; None for all.
        """
        ...

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens (b, m, count) after each of m nodes, and their log scores.

        The first one is what `draft` would choose, unless that is drawn at random.

        Args:
            logits: (b, m, V) float32, the draft's.
        """
        ...

    def accept_tree(
        self,
        drafts: Tensor,
        tree: Tree,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
        judged_by: str = "target",
        *,
        drawn: Tensor | None = None,
    ) -> Walk:
        """Return what is accepted of trees. Arguments are as for `accept`.

        Args:
            draft_logits: (b, K, V), of each draft those that it was chosen from.
            judged_by: one of `drafters.base.JUDGES`, which matters under coupling="rejection" only.
            drawn: (b, K), see `drafters.base.Draft`; it matters for judged_by="each" only.
        """
        ...


class Greedy:
    """Always choose the most likely token; nothing is random."""

    weighs_drafts = False
    exact = True

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        return likeliest(logits)

    def log_q(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        return accept_greedy(drafts, logits, lengths)

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        return best_tokens(logits.log_softmax(-1), count)

    def accept_tree(
        self,
        drafts: Tensor,
        tree: Tree,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
        judged_by: str = "target",
        *,
        drawn: Tensor | None = None,
    ) -> Walk:
        return follow(drafts, tree, likeliest(logits.float()), lengths)


def best_tokens(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the tokens (..., count) with the largest scores (..., V), and their scores.

    The first one is the argmax, also where several are equal.
    """
    values, tokens = scores.topk(count, -1)
    choice = scores.argmax(-1, keepdim=True)
    # Among equals, `topk` may put another one first. If so the two trade places.
    tokens = torch.where(tokens == choice, tokens[..., :1], tokens)
    return torch.cat([choice, tokens[..., 1:]], -1), values
