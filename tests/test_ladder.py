"""The scripts on laws and heads: rungs that share a trunk, counts, fits, and the batch law.

The committed tables follow from their counts.
"""

from functools import partial
from pathlib import Path
from typing import Any

import heads
import laws
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import generate, make_pair, make_prompts
from laws import LARGE_K, SMALL_K, Rung, costs_of, fit_points, rounds_of
from measure import DATA
from pair import build_model
from safetensors.torch import load_file
from test_train_heads import tiny_target

from specviz.costs.laws import LogLaw, fit_log, interval, resampled_lengths

STEP = 32  # tokens of a step
X = np.array([1e4, 2e4, 4e4, 8e4, 1.6e5, 3.2e5])


# a trunk and its branches


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that trains rungs of a toy target on two windows of 16 a step.

    It returns the batches that were read.
    """
    monkeypatch.setattr(laws, "LENGTH", 16)
    monkeypatch.setattr(laws, "STEP_TOKENS", STEP)
    target = tiny_target()
    windows = np.random.default_rng(0).integers(3, 40, (24, 16))
    loss = laws.distillation_loss

    def train(folder: Path, size: str, *marks: int) -> list[bytes]:
        read: list[bytes] = []

        def noted(draft: Any, target: Any, tokens: Any) -> Any:
            read.append(tokens.numpy().tobytes())
            return loss(draft, target, tokens)

        monkeypatch.setattr(laws, "distillation_loss", noted)
        folder.mkdir(exist_ok=True)
        below = None
        for mark in marks:
            laws.train_rung(Rung(size, mark), below, target, windows, folder)
            below = Rung(size, mark)
        return read

    return train


def test_branches_leave_one_trunk_and_all_sizes_read_the_same(climb, tmp_path):
    # Two steps and one of cooldown, then three more and one.
    assert len(climb(tmp_path / "both", "1x64", 64, 160)) == 3 + 4
    one = climb(tmp_path / "one", "1x64", 160)
    assert climb(tmp_path / "wide", "2x64", 160) == one
    for name in ("1x64-160.safetensors", "1x64-160-cooled.safetensors"):
        ours, theirs = (load_file(tmp_path / each / name) for each in ("both", "one"))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert climb(tmp_path / "one", "1x64", 160) == [], "trained already"


def test_muon_in_float32_is_torchs_but_for_its_rounding():
    torch.manual_seed(0)
    shapes = ((24, 8), (8, 24), (16, 16))
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    before = [each.detach().clone() for each in ours]
    optimisers = (laws.Float32Muon(ours, lr=0.02), torch.optim.Muon(theirs, lr=0.02))
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    for mine, other, start in zip(ours, theirs, before, strict=True):
        assert (mine - other).norm() < 0.02 * (other - start).norm()  # bfloat16 has eight bits


def test_rates_rise_stay_and_fall_in_a_branch():
    assert [laws.constant(step, 40, 10) for step in (0, 4, 9, 39)] == [0.1, 0.5, 1, 1]
    branch = [laws.falling(40, step, 44, 10) for step in range(40, 44)]
    assert branch == pytest.approx([0.8, 0.6, 0.4, 0.2])


# counts


def test_counts_are_the_drafts_that_a_run_accepts():
    pair, prompts = make_pair("llama"), make_prompts()[:4]
    result = generate(pair, prompts, strategy="autoregressive", max_new_tokens=12)
    texts = zip(result.prompts, result.tokens, strict=True)
    found = [laws.count_accepted(pair.draft, *each) for each in texts]
    for k in (1, 3):
        run = generate(pair, prompts, num_draft_tokens=k, max_new_tokens=12, record=True)
        rounds = np.bincount(run.trace.rows["request"], minlength=4)
        assert rounds.tolist() == rounds_of(found, k).tolist()


def test_rounds_and_survival_are_those_of_a_plain_count():
    accepted = [[3, 2, 1, 0, 1, 0], [0]]
    assert rounds_of(accepted, 1).tolist() == [3, 1]
    assert rounds_of(accepted, 2).tolist() == [3, 1]
    assert rounds_of(accepted, 16).tolist() == [2, 1]
    found = laws.survival(accepted, 3)
    assert found.tolist() == [4 / 7, 2 / 5, 1 / 4]
    assert np.isnan(laws.survival([[0]], 2)[1])


# fits


def test_a_law_is_judged_on_the_point_that_it_has_not_seen():
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


def runs_at(rate: float, prompts: int = 16, tokens: int = 400) -> list[list[int]]:
    """Drafts in a row that are right before each token, each right at this rate by itself."""
    found = []
    for prompt in range(prompts):
        runs = [0]
        for right in np.random.default_rng(prompt).random(tokens) < rate:
            runs.append(runs[-1] + 1 if right else 0)
        found.append(runs[:0:-1])
    return found


def law_at(k: int) -> dict[str, float]:
    """A fit to drafts whose unbounded length grows by 0.5 with each doubling of x."""
    lengths = 1.5 + 0.5 * np.arange(7)
    counts = [rounds_of(runs_at(1 - 1 / length), k) for length in lengths]
    tokens = np.full((7, 16), 400)
    return fit_points(1e4 * 2.0 ** np.arange(7), resampled_lengths(tokens, np.stack(counts), 200))


def test_a_small_k_fakes_a_saturating_law():
    """The data are log-linear. With K = 4 the bound of K + 1 bends them."""
    small, large = law_at(SMALL_K), law_at(LARGE_K)
    # The last length is below what the line predicts, beyond the interval, at K = 4 alone.
    assert small["log_error_low"] > 0
    assert large["log_error_low"] < 0 < large["log_error_high"]
    assert abs(small["saturating_error"]) < 0.1 * small["log_error"]
    assert small["saturating_a"] < SMALL_K + 1 < large["saturating_a"]
    assert large["log_r2"] > 0.995 > small["log_r2"]


# the batch law


def test_the_best_k_falls_with_the_batch_and_is_the_best_of_all():
    lengths = pd.DataFrame({"num_draft_tokens": range(1, 17), "size": "2x128", "mark": 1})
    lengths = lengths.assign(layers=2, width=128)
    lengths["length"] = 1 + np.cumsum(0.8 ** lengths["num_draft_tokens"])
    found = pd.DataFrame(laws.batch_entries(lengths))
    assert set(found["device"]) == {"cpu", "assumed"}
    for _, of_device in found.groupby("device"):
        best = of_device["num_draft_tokens"].tolist()
        # Not at every step: the CPU's rate of matrix products is uneven over rows.
        assert best[0] > best[-1] == min(best)
        assert (of_device["speedup"] >= 1).all()
        # Read as a law of B, the length at the best K falls, though at any one K it is the same.
        law = fit_log(of_device["batch_size"].to_numpy(), of_device["length"].to_numpy())
        assert law.b < -0.05


def test_shapes_are_those_of_the_models():
    for size in ("1x64", "2x256"):
        draft = build_model(**laws.form_of(size))
        layers, width = map(int, size.split("x"))
        assert costs_of("cpu", layers, width).draft.parameters == draft.num_parameters()
    assert draft.num_parameters() == 2_524_416  # as the shipped draft


# the committed tables


@pytest.mark.slow
def test_committed_tables_follow_from_the_committed_counts():
    names = ("drafts", "prompts", "lengths", "fits", "batch")
    drafts, prompts, lengths, fits, batch = (pd.read_csv(DATA / f"laws-{n}.csv") for n in names)
    assert len(prompts) == len(drafts) * 32
    for k in (SMALL_K, LARGE_K):
        sums = prompts.groupby(["size", "mark"])[["new_tokens", f"rounds_k{k}"]].sum()
        expected = sums["new_tokens"] / sums[f"rounds_k{k}"]
        found = drafts.set_index(["size", "mark"])[f"length_k{k}"]
        np.testing.assert_allclose(found, expected.loc[found.index], rtol=1e-4)
    again = pd.DataFrame(laws.fit_entries(drafts, prompts, samples=10))
    for name in ("over", "num_draft_tokens", "points"):
        assert fits[name].tolist() == again[name].tolist()
    for name in ("per_doubling", "log_r2", "saturating_r2", "log_error"):
        np.testing.assert_allclose(fits[name], again[name], rtol=2e-3, atol=2e-4)
    best = pd.DataFrame(laws.batch_entries(lengths))
    assert batch["num_draft_tokens"].tolist() == best["num_draft_tokens"].tolist()


def test_the_large_k_bounds_no_law():
    """A law of a bounded length is a law of the bound: the shipped draft's at K = 4 is."""
    lengths = pd.read_csv(DATA / "laws-lengths.csv")
    by_k = lengths.pivot_table("length", ["size", "mark"], "num_draft_tokens")
    last = (by_k[LARGE_K] - by_k[LARGE_K - 1]) / by_k[LARGE_K]
    assert last.drop("shipped", level="size").max() < 0.005
    assert ((by_k[SMALL_K] - by_k[SMALL_K - 1]) / by_k[SMALL_K])["shipped"].item() > 0.1


# heads at equal training


def test_ratios_are_of_sums_over_the_prompts_that_count():
    of = partial(heads.ratio, samples=200)
    found = of("share", [1, 2, 9], [2, 4, 0])
    assert found["share"] == 3 / 6
    assert found["share_low"] == found["share_high"] == 0.5
    points = of("gain", [1, 2, 0], [2, 4, 1], [1, 0, 5], [4, 4, 0], points=True)
    assert points["gain"] == pytest.approx(100 * (3 / 6 - 1 / 8))
    assert points["gain_low"] < points["gain"] < points["gain_high"]
    assert np.isnan(of("none", [1], [0])["none"])
