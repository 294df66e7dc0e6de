"""Laws of the acceptance length: fits find what data were made with, and judge held-out points."""

import numpy as np
import pytest

from specviz.costs.laws import (
    EXPONENTS,
    LogLaw,
    SaturatingLaw,
    fit_log,
    fit_saturating,
    r_squared,
    resampled_lengths,
)

X = np.array([1e4, 2e4, 4e4, 8e4, 1.6e5, 3.2e5])


def test_fits_find_the_laws_that_data_were_made_with():
    line = fit_log(X, LogLaw(-3.0, 0.5).at(X))
    assert (line.a, line.b) == pytest.approx((-3.0, 0.5))
    assert line.per_doubling == pytest.approx(line.at(2.0) - line.at(1.0))
    curve = fit_saturating(X, SaturatingLaw(5.0, 300.0, 0.5).at(X))
    assert (curve.a, curve.b, curve.c) == pytest.approx((5.0, 300.0, 0.5), rel=1e-3)
    for law in (line, curve):
        assert r_squared(law, X, law.at(X)) == pytest.approx(1)
    assert r_squared(line, X, curve.at(X)) < 0.99
    assert np.isnan(r_squared(line, X, np.ones(6)))


def test_a_saturating_law_becomes_the_line_where_nothing_saturates():
    y = LogLaw(-3.0, 0.5).at(X)
    curve = fit_saturating(X, y)
    assert curve.c < 0.02
    assert curve.at(X) == pytest.approx(y, abs=0.01)
    # What curves upwards is beyond both: c is at its bound.
    assert fit_saturating(X, np.log(X) ** 3).c == pytest.approx(EXPONENTS[0], rel=0.1)


def test_resampled_lengths_are_those_of_a_plain_loop():
    tokens = np.array([[10, 20, 30], [10, 20, 30]])
    rounds = np.array([[5, 5, 5], [2, 4, 6]])
    found = resampled_lengths(tokens, rounds, samples=50, seed=3)
    assert found.shape == (51, 2)
    assert found[0].tolist() == [60 / 15, 60 / 12]
    drawn = np.random.default_rng(3).integers(0, 3, (50, 3))
    for sample, numbers in zip(found[1:], drawn, strict=True):
        for g in range(2):
            of_prompts = [(tokens[g, p], rounds[g, p]) for p in numbers]
            above, below = map(sum, zip(*of_prompts, strict=True))
            assert sample[g] == pytest.approx(above / below)
