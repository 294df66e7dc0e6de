"""What samplers may do, right or wrong: what each way predicts from p and q, and its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from specviz.checks.sampling.evidence import own
from specviz.engine.sampling import SamplingParams
from specviz.record.schema import Array

Q = "q"
LARGEST = "the most likely token"
UNFILTERED = "q before top-k and top-p"
UNWARPED = "q at temperature 1, before top-k and top-p"
TEMPERED = "times the temperature"
RATIO, OF_P = "p / q", "p"
ABOVE, WITHOUT = "what p has above q", "p without the draft"  # behind a rejected draft

# Temperatures that the draft model may have of its own, as multiples of the target's.
FACTORS = np.delete(np.geomspace(0.2, 5, 121), 60)  # without 1
MIN_P = (0.05, 0.1, 0.2, 0.3, 0.5)
SLACK = 0.02  # of draws that a hypothesis without chance does not explain
CERTAIN = 1 - 1e-6  # chances of acceptance beyond it, and below its complement, are rounding


# ---- what drafts may be drawn from ----


def proposals(logits: Array, params: SamplingParams) -> dict[str, Array]:
    """Return the distributions (N, V) that drafts may have, for the draft's logits (N, V)."""
    q = distribution(logits, params)
    found = {Q: q}
    for factor in FACTORS:
        temperature = float(np.clip(params.temperature * factor, 1e-5, 1e5))
        other = SamplingParams(temperature, params.top_k, params.top_p)
        found[f"q at {factor:.3g} {TEMPERED}"] = distribution(logits, other)
    for dtype in (torch.bfloat16, torch.float16):
        scores = torch.from_numpy(logits).to(dtype) / params.temperature
        scores = scores.masked_fill(torch.from_numpy(q == 0), -torch.inf)
        weights = scores.softmax(-1).double().numpy()
        # A logit that the dtype cannot hold leaves nothing to compare.
        weights = np.where(np.isfinite(weights).all(1, keepdims=True), weights, q)
        found[f"q in {str(dtype).removeprefix('torch.')}"] = _scaled(weights, q)
    if is_filtered(params):
        found[UNFILTERED] = distribution(logits, SamplingParams(params.temperature))
        found[UNWARPED] = distribution(logits, SamplingParams(1.0))
    order = np.sort(q, axis=1)[:, ::-1]  # (N, V)
    least = {f"q after top-k={k}": order[:, k - 1] for k in range(2, q.shape[1])}
    least |= {f"q after min-p={share:g}": share * order[:, 0] for share in MIN_P}
    for name, limit in least.items():
        found[name] = _scaled(np.where(q >= limit[:, None], q, 0), q)
    found[LARGEST] = (1 - SLACK) * _one_hot(q) + SLACK * q
    return found


def distribution(logits: Array, params: SamplingParams) -> Array:
    """Return the probabilities (N, V) of logits (N, V)."""
    found: Array = params.distribution(torch.from_numpy(np.ascontiguousarray(logits))).numpy()
    return found


def is_filtered(params: SamplingParams) -> bool:
    return params.top_k is not None or params.top_p is not None


def _scaled(weights: Array, otherwise: Array) -> Array:
    """Return weights (N, V) scaled to 1; `otherwise` where all are 0."""
    total = weights.sum(1, keepdims=True)
    found: Array = np.where(total > 0, weights / np.where(total > 0, total, 1), otherwise)
    return found


def _one_hot(p: Array) -> Array:
    found: Array = np.eye(p.shape[1])[p.argmax(1)]
    return found


# ---- how drafts may be judged ----


@dataclass(frozen=True)
class Judged:
    """Drafts that were judged."""

    tokens: Array  # (N,)
    depths: Array  # (N,), their place in the round, from 1
    p: Array  # (N, V)
    unfiltered: tuple[Array, Array] | None  # p and q before top-k and top-p; None without these

    def ratio(self, p: Array, q: Array) -> Array:
        """Return min(p / q, 1) (N,) of the drafts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = np.minimum(own(p, self.tokens) / own(q, self.tokens), 1)
        return found

    def is_common(self, q: Array) -> Array:
        """Return the chance (N,) that both models choose the draft under one Gumbel noise."""
        p_draft, q_draft = own(self.p, self.tokens), own(q, self.tokens)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = 1 / np.maximum(self.p / p_draft[:, None], q / q_draft[:, None]).sum(1)
            found: Array = both / q_draft
        return found


@dataclass(frozen=True)
class Rule:
    """A way to judge drafts."""

    name: str
    words: str  # how drafts are judged; "{q}" stands for the name of q
    chance: Callable[[Judged, Array], Array]  # (N,) that drafts are accepted, for q (N, V)
    is_right: bool = False  # whether it keeps the target's distribution, if drafts have that q
    of_any_q: bool = False  # whether it has a q that may be another one


def _nearly(chance: Array) -> Array:
    return (1 - SLACK) * chance + SLACK / 2


RULES = (
    Rule(RATIO, "by p / {q}", lambda at, q: at.ratio(at.p, q), is_right=True, of_any_q=True),
    Rule(OF_P, "by the chance p", lambda at, q: own(at.p, at.tokens), is_right=True),
    Rule(
        "Gumbel",
        "by Gumbel noise that both models share",
        lambda at, q: at.is_common(q),
        is_right=True,
        of_any_q=True,
    ),
    Rule(
        "q / p",
        "with the chance q / p, instead of p / q",
        lambda at, q: _nearly(at.ratio(q, at.p)),
    ),
    Rule("always", "always", lambda at, q: np.full(len(at.tokens), 1 - SLACK)),
    Rule(
        "the first always",
        "always if they are the first of a round, which nothing verifies",
        lambda at, q: np.where(at.depths == 1, 1 - SLACK, at.ratio(at.p, q)),
    ),
    Rule(
        "the likeliest",
        "if they are the target's likeliest token",
        lambda at, q: _nearly((at.tokens == at.p.argmax(1)).astype(float)),
    ),
    Rule(
        "where p >= q",
        "if p >= q, without a random number",
        lambda at, q: _nearly((own(at.p, at.tokens) >= own(q, at.tokens)).astype(float)),
    ),
    Rule(
        "unfiltered",
        "by p / q before top-k and top-p",
        lambda at, q: at.ratio(*(at.unfiltered or (at.p, q))),
    ),
)
BY_NAME = {rule.name: rule for rule in RULES}


def judgements(at: Judged, named: Mapping[str, Array]) -> dict[tuple[str, str], Array]:
    """Return {(rule, q): chances (N, 2) that a draft is rejected or accepted}, for {q: (N, V)}."""
    found = {}
    for rule in RULES:
        if rule.name == "unfiltered" and at.unfiltered is None:
            continue
        for name in named if rule.of_any_q else [Q]:
            chance = np.nan_to_num(rule.chance(at, named[name]), nan=0.5)
            chance = np.clip(chance, 1 - CERTAIN, CERTAIN)
            found[rule.name, name] = np.stack([1 - chance, chance], 1)
    return found


# ---- what the token behind drafts may be drawn from ----


def after_rejection(drafts: Array, p: Array, q: Array) -> dict[str, Array]:
    """Return the distributions (N, V) for rejected drafts (N,), and p and q (N, V) there."""
    above = np.clip(p - q, 0, None)
    without = p.copy()
    without[np.arange(len(drafts)), drafts] = 0
    unscaled = above.copy()
    unscaled[:, -1] += 1 - above.sum(1)
    return {
        ABOVE: _scaled(above, p),
        WITHOUT: _scaled(without, p),
        "p": p,
        "q": q,
        "|p - q|": _scaled(np.abs(p - q), p),
        f"{ABOVE}, not scaled to 1": unscaled,
    }


def behind_all(p: Array) -> dict[str, Array]:
    """Return the distributions (N, V) where all drafts were accepted, for p (N, V) there."""
    return {"p": p, "the target's likeliest token": _one_hot(p)}
