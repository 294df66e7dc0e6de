"""Sampling by the same Gumbel noise for target and draft.

It knows no model and no cache. B rows, K draft tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specviz.engine.accept import count_leading, judged, likeliest
from specviz.engine.chooser import best_tokens
from specviz.engine.rng import Noise
from specviz.engine.trees.shape import Tree
from specviz.engine.trees.walk import Walk, follow


class Gumbel:
    """Take the argmax of log-probability plus Gumbel noise, the same for both models.

    The emitted token is always the target's own choice, so the text depends on the seed alone: not
    on drafter, K, strategy or batch. A draft is accepted with probability at least (1 - TV) / (1 +
    TV), where `Rejection` reaches 1 - TV; TV is the total variation distance of p and q.

    Source: the drafter-invariant coupling of Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """

    weighs_drafts = False
    exact = True

    def __init__(self, warp: Callable[[Tensor], Tensor], seed: int) -> None:
        """`warp` turns logits into those that are sampled from; see `SamplingParams.warp`."""
        self._warp = warp
        self._noise = Noise(seed)
        # Noise (V,) by (prompt, index), of this round and of the last one's tokens.
        self._drawn: dict[tuple[int, int], Tensor] = {}

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """Return the draft's choice; see `Chooser`."""
        return self._choose(logits, list(zip(requests, indices, strict=True)))

    def log_q(self, logits: Tensor) -> Tensor:
        """See `Chooser`. The noise is left out: it is not known before the token is chosen."""
        return self._warp(logits).log_softmax(-1)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`. What the drafts were drawn from makes no difference."""
        b, width, size = logits.shape
        places = []
        for request, index in zip(requests, indices, strict=True):
            places += [(request, index + j) for j in range(width)]
        choice = self._choose(logits.reshape(-1, size), places).reshape(b, width)
        # The next round begins behind a rejection, at indices whose noise this one has drawn.
        self._drawn = {place: self._drawn[place] for place in places}
        return count_leading(judged(drafts == choice[:, :-1], lengths)), choice

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens with most noise and log-probability together; see `Chooser`.

        Siblings share the noise with the target, which therefore often chooses one of them.
        """
        places = list(zip(requests, indices, strict=True))
        noise = self._noise_at(places, logits)  # (b, V)
        perturbed = self._warp(logits) + noise[:, None]
        return best_tokens(perturbed.log_softmax(-1), count)

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
        """See `Chooser`."""
        return follow(drafts, tree, self._choices(tree, logits, requests, indices), lengths)

    def _choices(
        self, tree: Tree, logits: Tensor, requests: Sequence[int], indices: Sequence[int]
    ) -> Tensor:
        """Return the choice (b, K+1) after each column of a tree, given logits (b, K+1, V).

        The noise depends on a node's depth, not on what comes before it.
        """
        steps = tree.height + 1
        places = []
        for request, index in zip(requests, indices, strict=True):
            places += [(request, index + j) for j in range(steps)]
        noise = self._noise_at(places, logits).reshape(len(logits), steps, -1)
        rows = torch.arange(len(logits), device=logits.device)
        choice = likeliest(self._warp(logits) + noise[rows[:, None], tree.depths])
        self._drawn = {place: self._drawn[place] for place in places}
        return choice

    def _choose(self, logits: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
        """Return one choice for each of logits (n, V), under the noise of its (prompt, index)."""
        # Logits instead of log-probabilities: they differ by a constant, which argmax ignores.
        return likeliest(self._warp(logits) + self._noise_at(places, logits))

    def _noise_at(self, places: Sequence[tuple[int, int]], logits: Tensor) -> Tensor:
        """Return the noise (n, V) of each (prompt, index)."""
        for place in places:
            if place not in self._drawn:
                noise = self._noise.gumbel(*place, logits.shape[-1])
                self._drawn[place] = torch.from_numpy(noise).to(logits.device)
        return torch.stack([self._drawn[place] for place in places])
