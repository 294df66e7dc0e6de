"""Checks of 07_equivalence: causes of divergences, acceptance, the residual, a wrong sampler."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from checks.base import Answer, NotYetError, WrongAnswerError, ask, exercise, expect, rounded
from specviz.checks.equivalence import CAUSES, CEILINGS, Evidence, judge

_NAN = float("nan")
_DIVERGENCES = {  # dtype, measured noise, and what is known of the divergence
    "A": ("bfloat16", 0.187, Evidence(gap=0.0625, deviation=0.04, later_gap=0.0)),
    "B": ("float32", 1.4e-5, Evidence(gap=0.0174, deviation=0.03, later_gap=0.2)),
    "C": ("bfloat16", 0.187, Evidence(gap=0.125, deviation=0.9, later_gap=0.0)),
    "D": ("bfloat16", 0.187, Evidence(gap=0.0312, deviation=0.05, later_gap=2.9)),
    "E": ("float16", _NAN, Evidence(gap=0.02)),
}
_P, _Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])  # what the notebook asks about
_PAIRS = (
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
    ([0.7, 0.0, 0.3, 0.0], [0.25, 0.25, 0.25, 0.25]),
    ([0.2, 0.8], [0.0, 0.0]),  # behind the last draft q is zero
    ([0.25, 0.75], [0.25, 0.75]),  # nothing is left: any draft is accepted
)
_GRID = 60  # values of each uniform number
_NEAR = 0.02  # how far a probability found on the grid may lie from p


def divergences() -> pd.DataFrame:
    """Return five divergences as `compare` would measure them, without their cause."""
    entries = {
        name: {
            "dtype": dtype,
            "gap": known.gap,
            "noise": noise,
            "deviation": known.deviation,
            "later_gap": known.later_gap,
        }
        for name, (dtype, noise, known) in _DIVERGENCES.items()
    }
    return pd.DataFrame.from_dict(entries, orient="index")


@exercise
def causes(answer: dict[str, Any]) -> str:
    """Check the cause of each of the `divergences`, by its letter."""
    if not isinstance(answer, dict):
        raise WrongAnswerError(
            "the answer must be a dict with a cause for each letter, but it is "
            f"{type(answer).__name__}"
        )
    if any(cause is None or cause is ... for cause in answer.values()):
        raise NotYetError("put a cause in place of each `...`")
    for name, (dtype, noise, known) in _DIVERGENCES.items():
        if answer.get(name) not in CAUSES:
            raise WrongAnswerError(
                f"the cause of {name} is {answer.get(name)!r}; "
                f"choose one of {', '.join(map(repr, CAUSES))}"
            )
        if answer[name] != judge(known, noise, CEILINGS[dtype])[0]:
            raise WrongAnswerError(
                f"{name} is not {answer[name]!r}; compare each of its numbers with twice the noise"
            )
    return (
        "only A is a near tie; B, C and D each have a number beyond twice the noise; "
        "the noise of E was not measured"
    )


@exercise
def acceptance(probability: float, rest: Sequence[float]) -> str:
    """Check the probability that a draft is accepted, and the distribution after a rejection."""
    if abs(float(probability) - float(np.minimum(_P, _Q).sum())) > 1e-6:
        raise WrongAnswerError(
            f"{probability} is not the probability; for each token, the probability that it is "
            "drafted and accepted is min(p, q): sum these"
        )
    expect(
        [round(float(share), 6) for share in rest],
        [1.0, 0.0, 0.0],
        "the distribution after a rejection",
    )
    return (
        "0.7 = 1 - TV, and after a rejection only token 0 can follow, "
        "which the draft gives too little probability"
    )


@exercise
def residual(answer: Answer) -> str:
    """Check answer(p, q): the distribution (V,) to draw from after a rejection."""
    for ps, qs in _PAIRS:
        p, q = np.array(ps), np.array(qs)
        found, left = np.asarray(ask(answer, p.copy(), q.copy()), float), np.maximum(p - q, 0)
        wanted = left / left.sum() if left.sum() > 0 else p
        if found.shape != p.shape or not np.allclose(found, wanted, atol=1e-6):
            raise WrongAnswerError(
                f"for p = {ps}, q = {qs} expected {rounded(wanted)}, got {rounded(found)}"
            )
    return (
        "after a rejection follow the tokens that the draft gives too little probability, "
        "and behind the last draft p itself"
    )


@exercise
def sampler(answer: Answer) -> str:
    """Check answer(draft, p, q, u, v): the emitted token for a draft from q, with two uniforms.

    It is judged by the distribution of its tokens, over all drafts and a fine grid of u and v.
    """
    numbers = (np.arange(_GRID) + 0.5) / _GRID
    for ps, qs in _PAIRS[:3]:
        p, q = np.array(ps), np.array(qs)
        law = np.zeros(len(ps))
        for draft in np.flatnonzero(q):
            for u in numbers:
                for v in numbers:
                    token = int(ask(answer, int(draft), p, q, float(u), float(v)))
                    law[token] += q[draft] / _GRID**2
        if np.abs(law - p).max() > _NEAR:
            raise WrongAnswerError(
                f"for p = {ps}, q = {qs} it emits tokens with the probabilities {rounded(law)}"
            )
    return "the emitted tokens are distributed as p, whatever q is"
