"""Checks of 15_scaling: a law's next rungs, its fit, and the K that gives most tokens a second."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from checks.base import Answer, NotYetError, WrongAnswerError, ask, exercise
from specviz.costs.laws import fit_log

# The draft of the exercise: what it gains when its tokens double, and where it stands.
_PER_DOUBLING = 0.15
_LAST = (80, 1.5)  # thousand tokens, length
_ASKED = 640
# Other bases of the logarithm that a fit may have used.
_BASES = {"log10": np.log(10), "log2": np.log(2)}


@exercise
def next_rung(answer: Any) -> str:
    """Check the length after 640 thousand tokens, by the law of the notebook's three lengths."""
    tokens, length = _LAST
    doublings = np.log2(_ASKED / tokens)
    wanted = length + doublings * _PER_DOUBLING
    found = float(answer)
    if abs(found - (length + _PER_DOUBLING)) < 0.005:
        raise WrongAnswerError(f"{found:g} is one doubling further, at {2 * tokens}k tokens")
    if abs(found - wanted) > 0.005:
        raise WrongAnswerError(
            f"got {found:g}; count how often {tokens}k doubles until {_ASKED}k, and what each "
            "doubling adds"
        )
    return f"{doublings:g} doublings, {_PER_DOUBLING:g} each: {wanted:g} tokens a round"


@exercise
def fit(answer: Answer) -> str:
    """Check answer(tokens, lengths): (a, b) of length = a + b ln(tokens), by least squares."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        count = int(rng.integers(3, 8))
        tokens = np.sort(rng.uniform(1e4, 1e6, count))
        lengths = rng.uniform(-3, 0) + rng.uniform(0.1, 0.6) * np.log(tokens)
        lengths += rng.normal(0, 0.05, count)
        law = fit_log(tokens, lengths)
        found = _pair(ask(answer, tokens.tolist(), lengths.tolist()))
        if np.allclose(found, (law.a, law.b), atol=1e-6):
            continue
        for name, factor in _BASES.items():
            if np.isclose(found[1], law.b * factor, atol=1e-6):
                raise WrongAnswerError(f"b is that of {name}; the law has the natural logarithm")
        raise WrongAnswerError(
            f"for {count} points expected a = {law.a:.3f} and b = {law.b:.3f}, "
            f"got {found[0]:.3f} and {found[1]:.3f}"
        )
    return "the same a and b for 100 noisy drafts"


def _pair(found: Any) -> tuple[float, float]:
    if not isinstance(found, Sequence | np.ndarray) or len(found) != 2:
        raise WrongAnswerError("the function must return two numbers, a and b")
    if any(each is None or each is ... for each in found):
        raise NotYetError("a or b is missing")
    return float(found[0]), float(found[1])


@exercise
def best(answer: Answer) -> str:
    """Check answer(lengths, round_ms): the K with most tokens a second; dicts by K, from 0."""
    rng = np.random.default_rng(0)
    longest = 0
    for _ in range(200):
        count = int(rng.integers(3, 17))
        lengths = {0: 1.0}
        round_ms = {0: float(rng.uniform(5, 50))}
        right = rng.uniform(0.3, 0.9)
        for k in range(1, count):
            lengths[k] = lengths[k - 1] + float(right**k)
            round_ms[k] = round_ms[k - 1] + float(rng.uniform(0.2, 15))
        speeds = {k: lengths[k] / round_ms[k] for k in lengths}
        wanted = max(speeds, key=lambda k: speeds[k])
        found = ask(answer, dict(lengths), dict(round_ms))
        if found != wanted:
            raise WrongAnswerError(
                f"at K = {wanted} a round gains {lengths[wanted]:.2f} tokens in "
                f"{round_ms[wanted]:.1f} ms, which is most a second; got K = {found!r}"
            )
        longest += wanted == count - 1
    return f"right for 200 devices; in {200 - longest} of them the longest K is not the best one"
