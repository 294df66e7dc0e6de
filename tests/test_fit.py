"""The cost model fitted to data whose law is known, and for sanity to a short real run."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import specviz as sv
from specviz.costs.fit import (
    COSTS,
    MIN_ROUNDS,
    STEP,
    CostFit,
    GrowthLaw,
    fit_costs,
    fit_growth,
    resampled_means,
)
from specviz.record.schema import PHASES

SIZES = (1, 2, 4, 8, 16, 32)
K, LENGTH = 4, 2.5
LAWS = {
    "draft": (2.0, 0.1, 1.0),
    "verify": (5.0, 0.5, 1.0),
    "synchronise": (0.3, 0.05, 1.6),
    "accept": (0.2, 0.0, 1.0),
}
STEPPING = (5.0, 0.3, 1.0)


def law(parameters: tuple[float, float, float], size: Any) -> Any:
    offset, scale, exponent = parameters
    return offset + scale * size**exponent


def draw(
    parameters: tuple[float, float, float], rounds: int, seed: int, noise: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """Times of `rounds` rounds at each size, with independent lognormal noise of mean 1."""
    sizes = np.repeat(SIZES, rounds).astype(float)
    return sizes, law(parameters, sizes) * np.random.default_rng(seed).lognormal(
        -(noise**2) / 2, noise, len(sizes)
    )


def fit(sizes: np.ndarray, times: np.ndarray, resamples: int = 20, seed: int = 0) -> GrowthLaw:
    """The law of times at each size."""
    groups = {int(size): times[sizes == size][:, None] for size in np.unique(sizes)}
    means = resampled_means(groups, resamples, np.random.default_rng(seed))
    return fit_growth(groups, means[..., 0])


def test_a_cost_of_the_other_rows_is_linear_and_has_a_negative_offset() -> None:
    """B - 1 rows move: nothing at B = 1. Without an offset this would count as superlinear."""
    sizes = np.repeat(SIZES, MIN_ROUNDS).astype(float)
    found = fit(sizes, sizes - 1)
    assert found.offset == pytest.approx(-1)
    assert found.at(1)[0] == pytest.approx(0, abs=1e-9)
    assert (found.exponent, found.verdict) == (1, "linear")


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("parameters", "verdict"),
    [
        ((0.3, 0.05, 1.0), "linear"),
        ((0.3, 0.05, 1.6), "superlinear"),
        ((0.1, 0.2, 0.6), "sublinear"),
        ((-0.1, 0.11, 1.0), "linear"),
    ],
)
def test_intervals_hold_the_exponent_as_often_as_they_say(
    parameters: tuple[float, float, float], verdict: str
) -> None:
    """Of 40 data sets at least 32.

    Over 400 others 94 % of the intervals did; then fewer do once in 2,000 times, in each of four
    cases. The last case is EQSPEC's B - 1 rows to be moved: linear, though it grows faster than B
    from one B to the next.
    """
    found = [fit(*draw(parameters, 40, seed), resamples=300, seed=seed) for seed in range(40)]
    assert sum(each.low <= parameters[2] <= each.high for each in found) >= 32
    assert np.median([each.exponent for each in found]) == pytest.approx(parameters[2], abs=0.1)
    at_24 = np.median([each.at(24)[0] for each in found])
    assert at_24 == pytest.approx(law(parameters, 24), rel=0.05)
    verdicts = [each.verdict for each in found]
    assert max(set(verdicts), key=verdicts.count) == verdict


def test_without_noise_the_law_comes_back() -> None:
    for parameters in ((0.3, 0.05, 1.6), (-0.05, 0.06, 1.0)):
        sizes = np.repeat(SIZES, MIN_ROUNDS)
        found = fit(sizes, law(parameters, sizes.astype(float)))
        assert (found.offset, found.scale, found.exponent) == pytest.approx(parameters, rel=1e-3)
        assert found.low == found.exponent == found.high


def test_what_does_not_grow_has_no_exponent() -> None:
    """Constant times; and noise around a constant, where the fit must not claim that anything is
    known.

    A trend in pure noise is taken for a law now and then: in 3 of 400 other data sets. At 1 % each,
    more than 2 of 20 come once in 1,000 times.
    """
    sizes = np.repeat(SIZES, 20)
    flat = fit(sizes, np.full(len(sizes), 0.5))
    assert (flat.verdict, flat.scale, flat.at(64)[0]) == ("no growth", 0, 0.5)
    noisy = [fit(*draw((0.5, 0.0, 1.0), 20, seed), resamples=300).verdict for seed in range(20)]
    assert sum(verdict in ("linear", "superlinear") for verdict in noisy) <= 2


@dataclass
class Made:
    """A run as the fit reads it."""

    meta: dict[str, Any]
    rounds: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


def make_runs(rounds: int = 60) -> tuple[list[Made], list[Made]]:
    """Speculative and autoregressive runs at every size, by LAWS.

    A row gains 1 to 4 tokens, LENGTH on average.
    """
    made: tuple[list[Made], list[Made]] = ([], [])
    generator = np.random.default_rng(0)
    for size in SIZES:
        spread = generator.lognormal(-0.005, 0.1, (2, len(PHASES), rounds))
        tokens = generator.integers(1, 5, size * rounds)
        kinds = ((K, LAWS, tokens), (0, {"verify": STEPPING}, np.ones_like(tokens)))
        for kind, (drafts, laws, gained) in enumerate(kinds):
            table = {"batch": np.full(rounds, size)}
            for i, phase in enumerate(PHASES):
                expected = law(laws.get(phase, (0.0, 0.0, 1.0)), size)
                table[f"{phase}_ms"] = spread[kind, i] * expected
            rows = {"round": np.repeat(np.arange(rounds), size), "gained": gained}
            meta = {"strategy": "eqspec", "num_draft_tokens": drafts}
            made[kind].append(Made(meta, table, rows))
    return made


def true_speedup(size: int) -> float:
    return LENGTH * law(STEPPING, size) / sum(law(parameters, size) for parameters in LAWS.values())


@pytest.fixture(scope="module")
def fitted() -> CostFit:
    return fit_costs(*make_runs())


def test_costs_are_found_in_runs(fitted: CostFit) -> None:
    """Each exponent by an interval of 99.9 %: one of four misses the truth once in 250 times."""
    found = fit_costs(*make_runs(), confidence=0.999).exponents.set_index("cost")
    assert list(found.index) == [*COSTS, STEP]
    for name, exponent in (("draft", 1.0), ("verify", 1.0), ("sync", 1.6), (STEP, 1.0)):
        assert found.loc[name, "exponent_low"] <= exponent <= found.loc[name, "exponent_high"], name
    assert fitted.exponents.set_index("cost").loc["sync", "verdict"] == "superlinear"


def test_speedups_are_those_of_the_model(fitted: CostFit) -> None:
    """Measured and fitted ones, also where nothing was measured."""
    table = fitted.table
    assert table["batch_size"].tolist() == list(SIZES)
    assert (table["rounds"] == 60).all()
    truth = np.array([true_speedup(size) for size in SIZES])
    np.testing.assert_allclose(table["speedup"], truth, rtol=0.1)
    np.testing.assert_allclose(table["fitted"], truth, rtol=0.05)
    assert (table["speedup_low"] < table["speedup"]).all()
    assert (table["speedup"] < table["speedup_high"]).all()
    costs = table[[f"c_{name}" for name in COSTS]].sum(axis=1)
    # S = alpha k / (c_draft + c_verify + c_sync)
    np.testing.assert_allclose(table["tokens_per_row"] / costs, table["speedup"])


def test_rare_batch_sizes_are_left_out() -> None:
    runs, baseline = make_runs()
    runs[-1].rounds["batch"][: MIN_ROUNDS - 1] = 31  # the last rounds of a run with fewer rows
    found = fit_costs(runs, baseline[:-1]).table
    # 31 is rare, and of 32 there is no baseline.
    assert found["batch_size"].tolist() == list(SIZES[:-1])


def test_idle_rows_count_as_rows() -> None:
    """Finished rows in a static batch gain nothing: half of the tokens, half of the speedup."""
    runs, baseline = make_runs()
    whole = fit_costs(runs, baseline, resamples=20).table
    for run in runs:
        run.rows["gained"] = run.rows["gained"] / 2
    half = fit_costs(runs, baseline, resamples=20).table
    np.testing.assert_allclose(half["speedup"], whole["speedup"] / 2)
    np.testing.assert_allclose(half["tokens_per_row"], whole["tokens_per_row"] / 2)


@pytest.mark.slow
def test_a_short_real_run_is_fitted(pair: sv.Pair, prompts: list[list[int]]) -> None:
    lengths: dict[str, Any] = {"num_draft_tokens": 3, "max_new_tokens": 16, "progress": False}
    runs, plain = (
        [
            sv.generate(pair, prompts, strategy=strategy, batch_size=size, **lengths)
            for size in (1, 2, 3, 5)
        ]
        for strategy in ("eqspec", "autoregressive")
    )
    table = fit_costs(runs, plain, resamples=50).table
    assert set(table["batch_size"]) >= {1, 2, 3, 5}
    assert table.notna().all(axis=None)
    assert table["tokens_per_row"].between(1, 4).all()


RUNS, BASELINE = make_runs(rounds=MIN_ROUNDS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_costs([], BASELINE), "runs must share one strategy and one K, got"),
        (lambda: fit_costs([None], BASELINE), r"runs\[0\]=None: this run was not recorded"),
        (
            lambda: fit_costs([RUNS[0], BASELINE[0]], BASELINE),
            r"runs must share one strategy and one K, got .*'eqspec', 0.*'eqspec', 4",
        ),
        (lambda: fit_costs(RUNS, RUNS), "baseline must hold autoregressive runs"),
        (lambda: fit_costs(RUNS, BASELINE[:3]), r"got them at \[1, 2, 4\]"),
    ],
)
def test_bad_input_says_why(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
