"""Distributions that drafts may have been drawn from, and rules that may have judged them.

Contract: logits of both models go in, and the chances of each hypothesis come out. Not known here:
what was drawn, and which hypothesis fits.
"""

from collections.abc import Mapping

import numpy as np
import torch

from specviz.checks.sampling.evidence import own
from specviz.engine.sampling import SamplingParams
from specviz.record.schema import Array

Q = "q"
LARGEST = "the most likely token"
UNFILTERED = "q before top-k and top-p"
UNWARPED = "q at temperature 1, before top-k and top-p"
PLAIN = (Q, UNFILTERED, UNWARPED)
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FACTORS = np.geomspace(0.2, 5, 121)  # temperatures of the draft model, as multiples of the target's
TEMPERED = "times the temperature"
ABOVE, WITHOUT = "what p has above q", "p without the draft"  # behind a rejected draft
MIN_P = (0.05, 0.1, 0.2, 0.3, 0.5)
SLACK = 0.02  # of drafts that a hypothesis without chance does not explain
CERTAIN = 1 - 1e-6  # chances of acceptance beyond it, and below its complement, are rounding

# Rules that keep the target's distribution, whatever q. OF_P does so for any drafts.
RATIO, OF_P, GUMBEL = "p / q", "p", "Gumbel"
SWAPPED, ALWAYS, FIRST = "q / p", "always", "the first always"
LIKELIEST, WHERE_MORE = "the likeliest token of the target", "where p >= q"
UNFILTERED_RATIO = "p / q before top-k and top-p"


def at_temperature(factor: float) -> str:
    return f"q at {factor:.3g} {TEMPERED}"


def in_dtype(name: str) -> str:
    return f"q in {name}"


def proposals(logits: Array, params: SamplingParams) -> dict[str, Array]:
    """Return the distributions (N, V) that drafts may have, for the draft's logits (N, V)."""
    given = torch.from_numpy(np.ascontiguousarray(logits))
    q = params.distribution(given).numpy()
    found = {Q: q}
    for factor in FACTORS:
        name = at_temperature(factor)
        if abs(factor - 1) > 1e-9:
            temperature = float(np.clip(params.temperature * factor, 1e-5, 1e5))
            other = SamplingParams(temperature, params.top_k, params.top_p)
            found[name] = other.distribution(given).numpy()
    for name, dtype in DTYPES.items():
        found[in_dtype(name)] = _rounded(given, q, params, dtype)
    if params.top_k is not None or params.top_p is not None:
        found[UNFILTERED] = SamplingParams(params.temperature).distribution(given).numpy()
        found[UNWARPED] = SamplingParams(1.0).distribution(given).numpy()
    found |= _filtered(q)
    one_hot = np.eye(q.shape[1])[q.argmax(1)]
    found[LARGEST] = (1 - SLACK) * one_hot + SLACK * q
    return found


def _filtered(q: Array) -> dict[str, Array]:
    """Return q after filters that the draft model may have of its own."""
    order = np.sort(q, axis=1)[:, ::-1]  # (N, V)
    least = {f"q after top-k={k}": order[:, k - 1] for k in range(2, q.shape[1])}
    least |= {f"q after min-p={share:g}": share * order[:, 0] for share in MIN_P}
    found = {}
    for name, limit in least.items():
        kept = np.where(q >= limit[:, None], q, 0)
        found[name] = kept / kept.sum(1, keepdims=True)
    return found


def _rounded(given: torch.Tensor, q: Array, params: SamplingParams, dtype: torch.dtype) -> Array:
    """Return what a softmax in another dtype makes of logits."""
    scores = given.to(dtype) / params.temperature
    scores = scores.masked_fill(torch.from_numpy(q == 0), -torch.inf)
    weights = scores.softmax(-1).double().numpy()
    # A logit that the dtype cannot hold leaves nothing to compare.
    weights = np.where(np.isfinite(weights).all(1, keepdims=True), weights, q)
    found: Array = weights / weights.sum(1, keepdims=True)
    return found


def judgements(
    tokens: Array,
    depths: Array,
    p: Array,
    named: Mapping[str, Array],
    unfiltered: tuple[Array, Array] | None,
) -> dict[tuple[str, str], Array]:
    """Return {(rule, q): chance (N,) that each draft is accepted}.

    Args:
        tokens: (N,), the drafts.
        depths: (N,), their place in the round, from 1.
        p: (N, V), of the target.
        named: {name: q (N, V)}.
        unfiltered: p and q before top-k and top-p; None if there are none.
    """
    p_draft = own(p, tokens)
    q_draft = {name: own(q, tokens) for name, q in named.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = {name: np.minimum(p_draft / each, 1) for name, each in q_draft.items()}
        swapped = np.minimum(q_draft[Q] / p_draft, 1)
        gumbel = {name: _gumbel(tokens, p, q) for name, q in named.items()}
    found = {(RATIO, name): each for name, each in ratio.items()}
    found[OF_P, ""] = p_draft
    found |= {(GUMBEL, name): each for name, each in gumbel.items()}
    found[SWAPPED, Q] = _with_slack(swapped)
    found[ALWAYS, ""] = np.full(len(tokens), 1 - SLACK)
    found[FIRST, Q] = np.where(depths == 1, 1 - SLACK, ratio[Q])
    found[LIKELIEST, ""] = _with_slack((tokens == p.argmax(1)).astype(float))
    found[WHERE_MORE, Q] = _with_slack((p_draft >= q_draft[Q]).astype(float))
    if unfiltered is not None:
        raw = np.minimum(own(unfiltered[0], tokens) / own(unfiltered[1], tokens), 1)
        found[UNFILTERED_RATIO, ""] = raw
    return {
        rule: np.clip(np.nan_to_num(chance, nan=0.5), 1 - CERTAIN, CERTAIN)
        for rule, chance in found.items()
    }


def _with_slack(chance: Array) -> Array:
    return (1 - SLACK) * chance + SLACK / 2


def _gumbel(tokens: Array, p: Array, q: Array) -> Array:
    """Return the chance that target and draft choose the draft under one noise, given the draft."""
    p_draft, q_draft = own(p, tokens)[:, None], own(q, tokens)[:, None]
    both = 1 / np.maximum(p / p_draft, q / q_draft).sum(1)
    return both / q_draft[:, 0]


def behind_tokens(
    drafts: Array,
    p: Array,
    q: Array,
    neighbours: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the distributions (N, V) that the token behind a rejected draft may have.

    Args:
        drafts: (N,), those that were rejected.
        p, q: (N, V).
        neighbours: {name: (N, V)}, the target's distributions at other places.
    """
    rest = np.clip(p - q, 0, None)
    total = rest.sum(1, keepdims=True)
    residual = np.where(total > 0, rest / np.where(total > 0, total, 1), p)
    without = p.copy()
    without[np.arange(len(drafts)), drafts] = 0
    left = without.sum(1, keepdims=True)
    without = np.where(left > 0, without / np.where(left > 0, left, 1), p)
    apart = np.abs(p - q)
    unscaled = rest.copy()
    unscaled[:, -1] += 1 - total[:, 0]
    found = {
        ABOVE: residual,
        WITHOUT: without,
        "p": p,
        "q": q,
        "|p - q|": apart / np.maximum(apart.sum(1, keepdims=True), 1e-12),
        f"{ABOVE}, not scaled to 1": unscaled,
        **neighbours,
    }
    return {name: _softened(each) for name, each in found.items()}


def bonus_tokens(p: Array, neighbours: Mapping[str, Array]) -> dict[str, Array]:
    """Return the distributions (N, V) that the token behind all drafts may have."""
    one_hot = np.eye(p.shape[1])[p.argmax(1)]
    found = {"p": p, "the target's likeliest token": one_hot, **neighbours}
    return {name: _softened(each) for name, each in found.items()}


def _softened(chances: Array) -> Array:
    """Give a little to what a hypothesis rules out, so that one token does not decide."""
    return (1 - SLACK) * chances + SLACK / chances.shape[1]
