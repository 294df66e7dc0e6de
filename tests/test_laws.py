"""Laws of the acceptance length: fits find what data were made with, and judge held-out points.

The committed tables of `specviz study laws` follow from its counts.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specviz.costs.laws import (
    EXPONENTS,
    LogLaw,
    SaturatingLaw,
    fit_log,
    fit_saturating,
    interval,
    r_squared,
    resampled_lengths,
)
from specviz.zoo.ladder.batch import SLOTS, batch_table, costs_of, draft_shape, embedded_shape
from specviz.zoo.ladder.fits import fit_points, fit_table
from specviz.zoo.ladder.measure import count_all_rounds, survival
from specviz.zoo.ladder.rungs import LARGE_K, SMALL_K, Size

X = np.array([1e4, 2e4, 4e4, 8e4, 1.6e5, 3.2e5])
DATA = Path(__file__).parents[1] / "figures" / "data"


def test_fits_find_the_laws_that_data_were_made_with() -> None:
    line = fit_log(X, LogLaw(-3.0, 0.5).at(X))
    assert (line.a, line.b) == pytest.approx((-3.0, 0.5))
    assert line.per_doubling == pytest.approx(line.at(2.0) - line.at(1.0))
    curve = fit_saturating(X, SaturatingLaw(5.0, 300.0, 0.5).at(X))
    assert (curve.a, curve.b, curve.c) == pytest.approx((5.0, 300.0, 0.5), rel=1e-3)
    for law in (line, curve):
        assert r_squared(law, X, law.at(X)) == pytest.approx(1)
    assert r_squared(line, X, curve.at(X)) < 0.99
    assert np.isnan(r_squared(line, X, np.ones(6)))


def test_a_saturating_law_becomes_the_line_where_nothing_saturates() -> None:
    y = LogLaw(-3.0, 0.5).at(X)
    curve = fit_saturating(X, y)
    assert curve.c < 0.02
    assert curve.at(X) == pytest.approx(y, abs=0.01)
    # What curves upwards is beyond both: c is at its bound.
    assert fit_saturating(X, np.log(X) ** 3).c == pytest.approx(EXPONENTS[0], rel=0.1)


@pytest.mark.parametrize("fit", [fit_log, fit_saturating])
def test_points_that_are_too_few_are_refused(fit: object) -> None:
    assert callable(fit)
    with pytest.raises(ValueError, match=r"^x must have at least . different values for this law"):
        fit([5.0, 5.0, 5.0], [1.0, 2.0, 3.0])


def test_resampled_lengths_are_those_of_a_plain_loop() -> None:
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


def test_a_law_is_judged_on_the_point_that_it_has_not_seen() -> None:
    bent = np.append(LogLaw(-3.0, 0.5).at(X[:5]), 2.0)
    lengths = np.stack([bent, bent, bent + np.eye(6)[5]])
    found = fit_points(X, lengths)
    expected = LogLaw(-3.0, 0.5).at(X[5]) - 2.0
    assert found["log_error"] == pytest.approx(expected)
    low, high = interval(np.array([expected, expected - 1]))
    assert (found["log_error_low"], found["log_error_high"]) == pytest.approx((low, high))
    assert found["saturating_error"] == pytest.approx(expected, abs=0.02)
    assert found["held_x"] == X[5]
    assert found["log_r2"] < 1
    # Through as many points as a law needs it goes exactly, which says nothing.
    two = fit_points(X[:2], lengths[:, :2])
    assert np.isnan([two["log_r2"], two["log_error"], two["saturating_a"]]).all()
    three = fit_points(X[:3], lengths[:, :3])
    assert np.isnan([three["saturating_r2"], three["saturating_error"]]).all()
    assert three["log_error"] == pytest.approx(0, abs=1e-9)


# counts


def test_rounds_and_survival_are_those_of_a_plain_count() -> None:
    accepted = [[3, 2, 1, 0, 1, 0], [0]]
    assert count_all_rounds(accepted, 1).tolist() == [3, 1]
    assert count_all_rounds(accepted, 2).tolist() == [3, 1]
    assert count_all_rounds(accepted, 16).tolist() == [2, 1]
    found = survival(accepted, 3)
    assert found[:2].tolist() == [4 / 7, 2 / 5]
    assert found[2] == 1 / 4
    assert np.isnan(survival([[0]], 2)[1])


# the batch law


def test_the_best_k_falls_with_the_batch_and_is_the_best_of_all() -> None:
    draft = {"size": "x", "layers": 2, "width": 128, "mark": 1}
    lengths = pd.DataFrame({**draft, "num_draft_tokens": range(1, 17)})
    lengths["length"] = 1 + np.cumsum(0.8 ** lengths["num_draft_tokens"])
    found = batch_table(lengths)
    assert set(found["device"]) == {"cpu", "assumed"}
    for device, of_device in found.groupby("device"):
        best = of_device["num_draft_tokens"].tolist()
        # Not at every step: the CPU's rate of matrix products is uneven over rows.
        assert best[0] > best[-1] == min(best)
        assert (of_device["speedup"] >= 1).all()
        costs = costs_of(str(device), Size(2, 128))
        for entry in of_device.to_dict("records")[::3]:
            b = entry["batch_size"]
            speeds = []
            for k, length in enumerate([1, *lengths["length"]]):
                round_s = sum(costs.phase_seconds(b, k, SLOTS[str(device)]).values())
                speeds.append(b * length / round_s)
            assert entry["num_draft_tokens"] == int(np.argmax(speeds))
            assert entry["tokens_per_s"] == pytest.approx(max(speeds))


def test_shapes_are_those_of_the_models() -> None:
    from specviz.zoo.ladder.training import new_draft

    for size in (Size(1, 64), Size(2, 256)):
        draft = new_draft(size)
        assert draft_shape(size).parameters == draft.num_parameters()
    assert new_draft(Size(2, 256)).num_parameters() == 2_524_416  # as the shipped draft
    assert embedded_shape().layers == 14


# the committed tables


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"laws-{name}.csv")


@pytest.mark.slow
def test_committed_tables_follow_from_the_committed_counts() -> None:
    drafts, prompts, lengths = read("drafts"), read("prompts"), read("lengths")
    assert len(prompts) == len(drafts) * 32
    for entry in drafts.to_dict("records"):
        ours = (prompts["size"] == entry["size"]) & (prompts["mark"] == entry["mark"])
        of_draft = prompts[ours]
        for k in (4, 16):
            length = of_draft["new_tokens"].sum() / of_draft[f"rounds_k{k}"].sum()
            name = f"length_k{k}"
            assert entry[name] == pytest.approx(length, rel=1e-4)
            assert entry[f"{name}_low"] < entry[name] < entry[f"{name}_high"]
            same = (lengths["size"] == entry["size"]) & (lengths["mark"] == entry["mark"])
            at_k = lengths[same & (lengths["num_draft_tokens"] == k)]
            assert at_k["length"].item() == pytest.approx(length, rel=1e-4)
    fits = read("fits")
    again = fit_table(drafts, prompts, samples=10, seed=0)
    for name in ("over", "num_draft_tokens", "points"):
        assert fits[name].tolist() == again[name].tolist()
    for name in ("per_doubling", "log_r2", "saturating_r2", "log_error"):
        np.testing.assert_allclose(fits[name], again[name], rtol=2e-3, atol=2e-4)
    batch = batch_table(lengths)
    assert read("batch")["num_draft_tokens"].tolist() == batch["num_draft_tokens"].tolist()
    conditions = json.loads((DATA / "laws-drafts.json").read_text(encoding="utf-8"))
    assert re.match(r"specviz study laws --sizes \S+ .* --marks 16384", conditions["command"])


def test_the_large_k_bounds_no_law() -> None:
    """A law of a bounded length is a law of the bound: the shipped draft's at K = 4 is."""
    lengths = read("lengths")
    full = lengths.set_index(["size", "mark", "num_draft_tokens"])["survival"]
    # What the last draft adds says whether K bounds the length. Survival does not: where the target
    # copies, all 16 drafts are right at many positions, which few rounds write.
    by_k = lengths.pivot_table("length", ["size", "mark"], "num_draft_tokens")
    last = (by_k[LARGE_K] - by_k[LARGE_K - 1]) / by_k[LARGE_K]
    assert last.drop("shipped", level="size").max() < 0.005
    assert ((by_k[SMALL_K] - by_k[SMALL_K - 1]) / by_k[SMALL_K])["shipped"].item() > 0.1
    assert full["shipped"].xs(SMALL_K, level="num_draft_tokens").item() > 0.7
    share = {
        k: lengths[(lengths["size"] == "shipped") & (lengths["num_draft_tokens"] == k)]["length"]
        / (k + 1)
        for k in (SMALL_K, LARGE_K)
    }
    assert share[SMALL_K].item() > 0.8
    assert share[LARGE_K].item() < 0.5
    assert set(read("fits")["num_draft_tokens"]) == {SMALL_K, LARGE_K}
