"""How tokens are chosen from logits: greedily, or by one of two lossless ways to sample.

Pure tensor arithmetic: no model, cache or tokenizer is known here. B rows, K draft tokens, V
vocabulary. p is the target's distribution after temperature, top-k and top-p; q is the draft's,
warped alike. Logits are warped in float32, as `generate()` warps them; probabilities and sums over
them are float64. The random numbers come from `rng.py`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specviz.engine.accept import count_leading, judged, likeliest
from specviz.engine.draft import Draft
from specviz.engine.names import COUPLINGS, check_temperature, check_top_p
from specviz.engine.rng import ACCEPT, CHILDREN, DRAFT, RESIDUAL, TARGET, Noise
from specviz.engine.trees import (
    Tree,
    Walk,
    follow_choices,
    judge_children,
    sibling_ranks,
    walk_to,
)
from specviz.util.validate import require_choice, require_int, require_kind


@dataclass(frozen=True)
class Places:
    """Which tokens are chosen. Random numbers depend on these and on the seed, on nothing else.

    Attributes:
        requests: (b,) int64, the rows' places in the caller's list.
        indices: (b,) int64, the index in its row of the first token that is chosen.
    """

    requests: Tensor
    indices: Tensor

    def on_host(self) -> list[tuple[int, int]]:
        """Return (request, index) of each row."""
        return list(zip(self.requests.tolist(), self.indices.tolist(), strict=True))


class Chooser(Protocol):
    """How tokens are chosen from logits.

    Attributes:
        weighs_drafts: whether the text depends on the drafts, not on the target alone.
    """

    weighs_drafts: bool

    def draft(self, logits: Tensor, places: Places) -> Tensor:
        """Return the draft's next token (b,), given its logits (b, V) float32."""
        ...

    def branch(self, logits: Tensor, places: Places, count: int) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens (b, m, count) after each of m nodes, and their log scores.

        The first one is what `draft` would choose, unless that is drawn at random.

        Args:
            logits: (b, m, V) float32, the draft's.
        """
        ...

    def log_q(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (..., V) of what `draft` chooses from the logits (..., V)."""
        ...

    def judge(self, draft: Draft, logits: Tensor, places: Places) -> Walk:
        """Return which drafts are accepted, and what is emitted.

        Args:
            draft: chains or trees of K drafts.
            logits: (b, K+1, V), the target's, in its own dtype.
        """
        ...


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn, from target and draft alike.

    Attributes:
        temperature: 1e-5 to 1e5; logits are divided by it. For greedy decoding pass `sampling=None`
            instead.
        top_k: only the k most likely tokens; None for all.
        top_p: only the most likely tokens that together reach this probability, after top_k; 0 <
            top_p <= 1, None for all.
        coupling: "rejection" accepts most, and equals autoregressive sampling in distribution.
            "gumbel" accepts a little less, and equals it token for token, given the seed. See
            `Rejection` and `Gumbel`.

    Raises:
        ValueError: a value cannot be used.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    coupling: str = "rejection"

    def __post_init__(self) -> None:
        # Plain numbers, also where numpy's were passed: they are recorded.
        object.__setattr__(self, "temperature", check_temperature(self.temperature))
        if self.top_k is not None:
            remedy = "pass for instance 50, or None for all tokens"
            object.__setattr__(self, "top_k", require_int("top_k", self.top_k, remedy=remedy))
        if self.top_p is not None:
            object.__setattr__(self, "top_p", check_top_p(self.top_p))
        require_choice("coupling", self.coupling, COUPLINGS)

    def warp(self, logits: Tensor) -> Tensor:
        """Return logits (..., V) as float32 after temperature, top-k and top-p, in this order.

        The logits of tokens that top-k or top-p removes are -inf.

        Raises ValueError if `logits` is not a tensor.
        """
        require_kind("logits", logits, Tensor, "pass a tensor (..., V)")
        scores = logits.float().reshape(-1, logits.shape[-1])
        scores = TemperatureLogitsWarper(self.temperature)(None, scores)
        if self.top_k is not None:
            scores = TopKLogitsWarper(self.top_k)(None, scores)
        if self.top_p is not None and self.top_p < 1:
            scores = TopPLogitsWarper(self.top_p)(None, scores)
        return scores.reshape(logits.shape)

    def distribution(self, logits: Tensor) -> Tensor:
        """Return the probabilities (..., V) float64 of the tokens, for logits (..., V)."""
        return self.warp(logits).softmax(-1, dtype=torch.float64)

    def chooser(self, seed: int) -> Chooser:
        """Return a `Chooser` that draws tokens this way. `seed` is any int >= 0."""
        kinds: dict[str, type[Gumbel] | type[Rejection]] = {
            "gumbel": Gumbel,
            "rejection": Rejection,
        }
        return kinds[self.coupling](self, seed)


class Greedy:
    """Always choose the most likely token; nothing is random."""

    weighs_drafts = False

    def draft(self, logits: Tensor, places: Places) -> Tensor:
        return likeliest(logits)

    def branch(self, logits: Tensor, places: Places, count: int) -> tuple[Tensor, Tensor]:
        return best_tokens(logits.log_softmax(-1), count)

    def log_q(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def judge(self, draft: Draft, logits: Tensor, places: Places) -> Walk:
        # float32 before the argmax, as `generate()` does it, so that near ties fall the same way.
        return follow(draft, likeliest(logits.float()))


class Gumbel:
    """Take the argmax of log-probability plus Gumbel noise, the same for both models.

    The emitted token is always the target's own choice, so the text depends on the seed alone: not
    on drafter, K, strategy or batch. A draft is accepted with probability at least (1 - TV) / (1 +
    TV), where `Rejection` reaches 1 - TV; TV is the total variation distance of p and q.

    Source: the drafter-invariant coupling of Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """

    weighs_drafts = False

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._warp = params.warp
        self._random = Random(seed)

    def draft(self, logits: Tensor, places: Places) -> Tensor:
        return likeliest(self._perturbed(logits[:, None], places))[:, 0]

    def branch(self, logits: Tensor, places: Places, count: int) -> tuple[Tensor, Tensor]:
        """See `Chooser`. Siblings share the target's noise, so it often chooses one of them."""
        noise = self._random.gumbel(places, 1, logits.shape[-1])  # (b, 1, V)
        return best_tokens((self._warp(logits) + noise).log_softmax(-1), count)

    def log_q(self, logits: Tensor) -> Tensor:
        """See `Chooser`. The noise is left out: it is not known before the token is chosen."""
        return self._warp(logits).log_softmax(-1)

    def judge(self, draft: Draft, logits: Tensor, places: Places) -> Walk:
        """See `Chooser`. What the drafts were drawn from makes no difference."""
        tree = draft.tree()
        # The noise depends on a draft's depth, not on what comes before it.
        depths = None if tree is None else tree.depths
        choice = likeliest(self._perturbed(logits, places, depths))
        # The next round begins behind a rejection, at indices whose noise this one has drawn.
        self._random.forget_all_but(places)
        return follow(draft, choice, tree)

    def _perturbed(self, logits: Tensor, places: Places, depths: Tensor | None = None) -> Tensor:
        """Return warped logits (b, q, V) plus the noise of each position, or of its depth."""
        # Logits instead of log-probabilities: they differ by a constant, which argmax ignores.
        steps = logits.shape[1]
        noise = self._random.gumbel(places, steps, logits.shape[-1])  # (b, q, V)
        if depths is not None:
            noise = noise[torch.arange(len(noise), device=noise.device)[:, None], depths]
        return self._warp(logits) + noise


class Rejection:
    """Accept draft d with probability min(1, p(d) / q(d)); else draw from max(p - q, 0).

    Source: Leviathan et al. 2023 (arXiv 2211.17192).
    """

    weighs_drafts = True

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params = params
        self._random = Random(seed)

    def draft(self, logits: Tensor, places: Places) -> Tensor:
        """Draw from q; see `Chooser`."""
        uniforms = self._random.uniforms(places, 1)  # (b, 1, 3)
        return draw(self._params.distribution(logits), uniforms[:, 0, DRAFT])

    def branch(self, logits: Tensor, places: Places, count: int) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens, which are chosen, not drawn; see `Chooser`."""
        return best_tokens(self.log_q(logits), count)

    def log_q(self, logits: Tensor) -> Tensor:
        return self._params.warp(logits).log_softmax(-1)

    def judge(self, draft: Draft, logits: Tensor, places: Places) -> Walk:
        """See `Chooser`. After index a, the emitted tokens of a chain repeat the drafts."""
        tree = draft.tree()
        if tree is not None:
            return self._judge_tree(draft, tree, logits, places)
        uniforms = self._random.uniforms(places, logits.shape[1])  # (b, K+1, 3)
        p = self._params.warp(logits)  # (b, K+1, V), logarithms but for a constant
        q = None if draft.logits is None else self._params.warp(draft.logits)  # (b, K, V)
        q_draft = torch.ones_like(uniforms[:, 1:, 0]) if q is None else share(q, draft.tokens)
        # u < p / q without the division, so that q = 0 needs no care. Strict, so that a draft that
        # the target rules out (p = 0) is never accepted.
        right = uniforms[:, :-1, ACCEPT] * q_draft < share(p[:, :-1], draft.tokens)
        accepted = count_leading(judged(right, draft.lengths))

        # One position is drawn from: the first rejected one, or what follows the last draft that
        # was judged, where nothing is subtracted.
        rows = torch.arange(len(p), device=p.device)
        last = draft.tokens.shape[1] if draft.lengths is None else draft.lengths
        p_here = p[rows, accepted].softmax(-1, dtype=torch.float64)  # (b, V)
        q_here = self._subtracted(draft, q, rows, accepted, p_here)
        q_here = q_here.masked_fill((accepted == last)[:, None], 0)
        bonus = draw(residual(p_here, q_here), uniforms[rows, accepted, RESIDUAL])
        emitted = F.pad(draft.tokens, (0, 1)).scatter(1, accepted[:, None], bonus[:, None])
        return Walk(accepted, emitted, None)

    @staticmethod
    def _subtracted(
        draft: Draft, q: Tensor | None, rows: Tensor, at: Tensor, like: Tensor
    ) -> Tensor:
        """Return the q (b, V) of the draft at `at` (b,); behind the last one it is any."""
        K = draft.tokens.shape[1]
        if K == 0:
            return torch.zeros_like(like)
        at = at.clamp(max=K - 1)
        if q is not None:
            return q[rows, at].softmax(-1, dtype=torch.float64)
        return torch.zeros_like(like).scatter(1, draft.tokens[rows, at][:, None], 1.0)

    def _judge_tree(self, draft: Draft, tree: Tree, logits: Tensor, places: Places) -> Walk:
        p = self._params.distribution(logits)  # (b, K+1, V)
        b, width, size = p.shape
        # By depth: of the nodes of one depth only one can be on the path that is accepted.
        u = self._random.uniforms(places, tree.height + 1)[:, :, RESIDUAL]  # (b, height + 1)
        if draft.judged_by == "target":
            each = u.gather(1, tree.depths).reshape(-1)
            choice = draw(p.reshape(-1, size), each).reshape(b, width)
            return follow(draft, choice, tree)
        if draft.logits is None:
            q = F.one_hot(draft.tokens, size).double()
        else:
            q = self._params.distribution(draft.logits)
        last, weights = judge_children(
            draft.tokens,
            tree,
            p,
            q,
            self._child_uniforms(places, tree),
            draft.lengths,
            renormalise=draft.judged_by == "rest",
            drawn=draft.drawn if draft.judged_by == "each" else None,
        )
        depth = tree.depths.gather(1, last[:, None])  # (b, 1)
        own = draw(weights, u.gather(1, depth)[:, 0])
        return walk_to(draft.tokens, tree, last, own)

    def draw_children(self, logits: Tensor, places: Places, count: int) -> Tensor:
        """Draw `count` tokens (b, m, count) after each of m nodes from q, without replacement.

        logits: (b, m, V) float32. Nodes of a row share the noise, since only one of them can be on
        the path that is accepted.
        """
        noise = self._random.gumbel(places, 1, logits.shape[-1], CHILDREN)  # (b, 1, V)
        return (self.log_q(logits) + noise).topk(count, -1).indices

    def draw_independently(self, logits: Tensor, places: Places, count: int) -> Tensor:
        """Draw `count` tokens (b, m, count) after each of m nodes from q, each from all of it.

        logits: (b, m, V) float32. Nodes of a row share the numbers, as in `draw_children`.
        """
        b, m, size = logits.shape
        q = self._params.distribution(logits)[:, :, None].expand(b, m, count, size)
        ranks = [self._random.uniforms(places, 1, child)[:, 0, DRAFT] for child in range(count)]
        uniforms = torch.stack(ranks, 1)[:, None].expand(b, m, count)
        return draw(q.reshape(-1, size), uniforms.reshape(-1)).reshape(b, m, count)

    def _child_uniforms(self, places: Places, tree: Tree) -> Tensor:
        """Return a number (b, K) for each draft, by its depth and its rank among its siblings."""
        ranks = sibling_ranks(tree.parents)  # (b, K)
        numbers = [
            self._random.uniforms(places, tree.height, child)[:, :, ACCEPT]  # (b, height)
            for child in range(ranks.shape[1])
        ]
        by_rank = torch.cat(numbers, 1)  # (b, K * height)
        return by_rank.gather(1, ranks * tree.height + tree.depths[:, 1:] - 1)


class Random:
    """The numbers of `Noise` as tensors on the device of the places that they belong to."""

    def __init__(self, seed: int) -> None:
        self.noise = Noise(seed)
        # Gumbel noise (V,) by request and index: draft and target need the same.
        self._drawn: dict[tuple[int, int], Tensor] = {}

    def uniforms(self, places: Places, count: int, child: int = 0) -> Tensor:
        """Return (b, count, 3) in (0, 1) for `count` tokens from each place on."""
        if places.indices.is_cuda:
            return self.uniforms_on_device(places, count, child)
        rows = [self.noise.uniforms(*place, count, child) for place in places.on_host()]
        return torch.from_numpy(np.stack(rows))

    def gumbel(self, places: Places, count: int, size: int, purpose: int = TARGET) -> Tensor:
        """Return noise (b, count, V) for `count` tokens from each place on."""
        if places.indices.is_cuda:
            return self.gumbel_on_device(places, count, size, purpose)
        if purpose != TARGET:
            drawn = [self.noise.gumbel(*place, size, purpose) for place in places.on_host()]
            return torch.from_numpy(np.stack(drawn))[:, None]
        rows: list[Tensor] = []
        for request, index in places.on_host():
            for at in range(index, index + count):
                place = request, at
                if place not in self._drawn:
                    self._drawn[place] = torch.from_numpy(self.noise.gumbel(*place, size))
                rows.append(self._drawn[place])
        return torch.stack(rows).unflatten(0, (-1, count))

    def forget_all_but(self, places: Places) -> None:
        """Drop the noise of other requests, and of tokens before these."""
        firsts = dict(places.on_host()) if self._drawn else {}
        kept = {}
        for (request, index), noise in self._drawn.items():
            if index >= firsts.get(request, index + 1):
                kept[request, index] = noise
        self._drawn = kept

    # On a GPU the numbers are computed there, so that a graph can capture it.

    def uniforms_on_device(self, places: Places, count: int, child: int) -> Tensor:
        indices = places.indices[:, None] + torch.arange(count, device=places.indices.device)
        zero = torch.zeros_like(indices)
        requests = places.requests[:, None] + zero
        words = self.noise.words(requests, (indices, zero, zero, zero + child))
        return _unit(torch.stack(words[:3], -1))

    def gumbel_on_device(self, places: Places, count: int, size: int, purpose: int) -> Tensor:
        device = places.indices.device
        indices = places.indices[:, None, None] + torch.arange(count, device=device)[:, None]
        fours = torch.arange(-(-size // 4), device=device)  # four ids of each
        indices, fours = torch.broadcast_tensors(indices, fours)  # (b, count, V/4)
        zero = torch.zeros_like(indices)
        requests = places.requests[:, None, None] + zero
        words = self.noise.words(requests, (fours, indices, zero + purpose, zero))
        uniforms = _unit(torch.stack(words, -1).flatten(2)[:, :, :size])
        return -(-uniforms.log()).log()


def _unit(words: Tensor) -> Tensor:
    """Return words as `rng.unit` does."""
    return ((words >> 12 & (1 << 52) - 1).double() + 0.5) * 2.0**-52


def follow(draft: Draft, choice: Tensor, tree: Tree | None = None) -> Walk:
    """Accept the drafts that the target chooses itself.

    Source: speculative decoding (Leviathan et al. 2023), greedy case. The bonus token is the
    target's own choice at index a. It is emitted after a rejection and a full acceptance alike.

    Args:
        choice: (b, K+1) int64, the target's choices after the pending token and each draft.
        tree: the shape of the draft's trees, if it is known already.
    """
    tree = draft.tree() if tree is None else tree
    if tree is not None:
        return follow_choices(draft.tokens, tree, choice, draft.lengths)
    # choice[:, a] is what the target writes instead of the first rejected draft, or after all of
    # them. So the bonus token needs no case of its own.
    right = judged(draft.tokens == choice[:, :-1], draft.lengths)
    return Walk(count_leading(right), choice, None)


def best_tokens(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the tokens (..., count) with the largest scores (..., V), and their scores.

    The first one is the argmax, also where several are equal.
    """
    values, tokens = scores.topk(count, -1)
    choice = scores.argmax(-1, keepdim=True)
    # Among equals, `topk` may put another one first. If so the two trade places.
    tokens = torch.where(tokens == choice, tokens[..., :1], tokens)
    return torch.cat([choice, tokens[..., 1:]], -1), values


def share(scores: Tensor, tokens: Tensor) -> Tensor:
    """Return the probabilities (b, K) float64 of tokens (b, K) under warped logits (b, K, V)."""
    scores = scores.double()
    own = scores.gather(2, tokens[:, :, None])[:, :, 0]
    return (own - scores.logsumexp(-1)).exp()


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Return max(p - q, 0) for p and q (b, V), not normalised."""
    rest = (p - q).clamp(min=0)
    # Where nothing is left, p and q are equal but for rounding, and p is as good.
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw tokens (b,) by inverse CDF: the first whose cumulative weight exceeds u times the total.

    A token of weight 0 is never drawn, whatever the rounding.

    Args:
        weights: (b, V) float64, not necessarily normalised.
        uniforms: (b,) in (0, 1).
    """
    cumulative = weights.cumsum(-1)
    # Times the sum as it was rounded, so that the threshold stays below the last entry.
    threshold = uniforms[:, None] * cumulative[:, -1:]  # (b, 1)
    # right=True: a token of weight 0 shares its cumulative weight with the one before, and is
    # passed over.
    found = torch.searchsorted(cumulative, threshold, right=True)
    found = found.clamp(max=weights.shape[-1] - 1)
    # A parallel cumsum need not rise everywhere, so the search may end on weight 0 after all.
    largest = weights.argmax(-1, keepdim=True)
    return torch.where(weights.gather(1, found) > 0, found, largest)[:, 0]
