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

import specviz as sv
from specviz.costs.laws import LogLaw, fit_log, interval, resampled_lengths
from specviz.engine.drafters import Draft
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.heads import build_head
from specviz.engine.heads.base import HeadOutput
from specviz.engine.state import State
from specviz.zoo.heads.measure import count_hits, texts_from
from specviz.zoo.heads.training import kept_layers

STEP = 32  # tokens of a step
X = np.array([1e4, 2e4, 4e4, 8e4, 1.6e5, 3.2e5])


# a trunk and its branches


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that trains rungs of a toy target on two windows of 16 a step."""
    monkeypatch.setattr(laws, "LENGTH", 16)
    monkeypatch.setattr(laws, "STEP_TOKENS", STEP)
    pair = sv.Pair(tiny_target(), tiny_target(1))
    windows = np.random.default_rng(0).integers(3, 40, (24, 16))
    read: list[bytes] = []
    loss = laws.distillation_loss

    def noted(draft: Any, target: Any, tokens: Any) -> Any:
        read.append(tokens.numpy().tobytes())
        return loss(draft, target, tokens)

    monkeypatch.setattr(laws, "distillation_loss", noted)

    def train(folder: Path, size: str, *marks: int) -> list[bytes]:
        read.clear()
        folder.mkdir(exist_ok=True)
        for below, mark in zip((None, *marks), marks, strict=False):
            rung = Rung(size, mark)
            lower = None if below is None else Rung(size, below)
            laws.train_rung(rung, lower, pair.target, windows, folder)
        return list(read)

    return train


def test_branches_leave_one_trunk_and_all_sizes_read_the_same(climb: Any, tmp_path: Path) -> None:
    both = climb(tmp_path / "both", "1x64", 64, 160)
    assert len(both) == 3 + 4, "two steps and one of cooldown, then three more and one"
    one = climb(tmp_path / "one", "1x64", 160)
    assert climb(tmp_path / "wide", "2x64", 160) == one
    for name in ("1x64-160.safetensors", "1x64-160-cooled.safetensors"):
        ours, theirs = (load_file(tmp_path / each / name) for each in ("both", "one"))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    trunk = load_file(tmp_path / "one" / "1x64-160.safetensors")
    branch = load_file(tmp_path / "one" / "1x64-160-cooled.safetensors")
    key = "model.model.embed_tokens.weight"
    assert not torch.equal(trunk[key], branch[key])
    assert climb(tmp_path / "one", "1x64", 160) == [], "trained already"


def test_rates_rise_stay_and_fall_in_a_branch() -> None:
    assert [laws.constant(step, 40, 10) for step in (0, 4, 9, 39)] == [0.1, 0.5, 1, 1]
    branch = [laws.falling(40, step, 44, 10) for step in range(40, 44)]
    assert branch == pytest.approx([0.8, 0.6, 0.4, 0.2])


# counts


def test_counts_are_the_drafts_that_a_run_accepts() -> None:
    pair, prompts = make_pair("llama"), make_prompts()[:4]
    result = generate(pair, prompts, strategy="autoregressive", max_new_tokens=12)
    texts = zip(result.prompts, result.tokens, strict=True)
    found = [laws.count_accepted(pair.draft, *each) for each in texts]
    for k in (1, 3):
        run = generate(pair, prompts, num_draft_tokens=k, max_new_tokens=12, record=True)
        rounds = np.bincount(run.trace.rows["request"], minlength=4)
        assert rounds.tolist() == rounds_of(found, k).tolist()


def test_rounds_and_survival_are_those_of_a_plain_count() -> None:
    accepted = [[3, 2, 1, 0, 1, 0], [0]]
    assert rounds_of(accepted, 1).tolist() == [3, 1]
    assert rounds_of(accepted, 2).tolist() == [3, 1]
    assert rounds_of(accepted, 16).tolist() == [2, 1]
    found = laws.survival(accepted, 3)
    assert found.tolist() == [4 / 7, 2 / 5, 1 / 4]
    assert np.isnan(laws.survival([[0]], 2)[1])


class SeesTheBatch(ModelDrafter):
    """A drafter whose first draft is wrong in every row but one: acceptance falls with B."""

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        draft = super().propose(state, num_draft_tokens)
        draft.tokens[1:, 0] = (draft.tokens[1:, 0] + 1) % 97
        return draft


def accepted_by_request(batch_size: int, drafter: Any = "model") -> list[list[int]]:
    """Accepted drafts of each request, round by round."""
    prompts = make_prompts()[2:6]
    sizes = {"batch_size": batch_size, "num_draft_tokens": 3, "max_new_tokens": 8}
    run = generate(make_pair("llama"), prompts, drafter=drafter, **sizes)
    by_request: list[list[int]] = [[] for _ in prompts]
    for request, count in zip(run.rows["request"], run.rows["accepted"], strict=True):
        by_request[request].append(int(count))
    return by_request


def test_acceptance_does_not_depend_on_the_batch_unless_a_drafter_sees_it() -> None:
    alone = accepted_by_request(1)
    assert accepted_by_request(4) == alone
    assert accepted_by_request(1, SeesTheBatch()) == alone
    assert accepted_by_request(4, SeesTheBatch()) != alone


# fits


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


def runs_at(rate: float, prompts: int = 16, tokens: int = 400) -> list[list[int]]:
    """Drafts in a row that are right before each token, each right at this rate by itself."""
    found = []
    for prompt in range(prompts):
        right = np.random.default_rng(prompt).random(tokens) < rate
        runs = np.zeros(tokens, int)
        run = 0
        for i in reversed(range(tokens)):
            run = run + 1 if right[i] else 0
            runs[i] = run
        found.append(runs.tolist())
    return found


def law_at(k: int) -> dict[str, float]:
    """A fit to drafts whose unbounded length grows by 0.5 with each doubling of x."""
    lengths = 1.5 + 0.5 * np.arange(7)
    counts = [rounds_of(runs_at(1 - 1 / length), k) for length in lengths]
    tokens = np.full((7, 16), 400)
    return fit_points(1e4 * 2.0 ** np.arange(7), resampled_lengths(tokens, np.stack(counts), 200))


def test_a_small_k_fakes_a_saturating_law() -> None:
    """The data are log-linear. With K = 4 the bound of K + 1 bends them."""
    small, large = law_at(SMALL_K), law_at(LARGE_K)
    # The last length is below what the line predicts, beyond the interval, at K = 4 alone.
    assert small["log_error_low"] > 0
    assert large["log_error_low"] < 0 < large["log_error_high"]
    assert abs(small["saturating_error"]) < 0.1 * small["log_error"]
    assert small["saturating_a"] < SMALL_K + 1 < large["saturating_a"]
    assert large["log_r2"] > 0.995 > small["log_r2"]


# the batch law


def test_the_best_k_falls_with_the_batch_and_is_the_best_of_all() -> None:
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


def test_shapes_are_those_of_the_models() -> None:
    for size in ("1x64", "2x256"):
        draft = build_model(**laws.form_of(size))
        layers, width = map(int, size.split("x"))
        assert costs_of("cpu", layers, width).draft.parameters == draft.num_parameters()
    assert draft.num_parameters() == 2_524_416  # as the shipped draft


# the committed tables


@pytest.mark.slow
def test_committed_tables_follow_from_the_committed_counts() -> None:
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


def test_the_large_k_bounds_no_law() -> None:
    """A law of a bounded length is a law of the bound: the shipped draft's at K = 4 is."""
    lengths = pd.read_csv(DATA / "laws-lengths.csv")
    by_k = lengths.pivot_table("length", ["size", "mark"], "num_draft_tokens")
    last = (by_k[LARGE_K] - by_k[LARGE_K - 1]) / by_k[LARGE_K]
    assert last.drop("shipped", level="size").max() < 0.005
    assert ((by_k[SMALL_K] - by_k[SMALL_K - 1]) / by_k[SMALL_K])["shipped"].item() > 0.1


# heads at equal training


def test_ratios_are_of_sums_over_the_prompts_that_count() -> None:
    of = partial(heads.ratio, samples=200)
    found = of("share", [1, 2, 9], [2, 4, 0])
    assert found["share"] == 3 / 6
    assert found["share_low"] == found["share_high"] == 0.5
    points = of("gain", [1, 2, 0], [2, 4, 1], [1, 0, 5], [4, 4, 0], points=True)
    assert points["gain"] == pytest.approx(100 * (3 / 6 - 1 / 8))
    assert points["gain_low"] < points["gain"] < points["gain_high"]
    assert np.isnan(of("none", [1], [0])["none"])


def test_every_contender_has_steps_and_a_pair() -> None:
    names = {each.name for each in heads.CONTENDERS if each.share == 1}
    assert {name for pair in heads.PAIRS for name in pair} <= names
    labels = [each.label for each in heads.CONTENDERS]
    assert len(set(labels)) == len(labels)
    plan = heads.CONTENDERS[0].plan(40)
    assert (plan.steps, plan.warmup) == (40, 8)


def test_hits_are_those_of_a_plain_count() -> None:
    """The head's first choice is always 0, and its second 1."""
    target = tiny_target()
    head = build_head("medusa", target)
    logits = -torch.arange(4096.0)

    def unroll(
        tokens: torch.Tensor, _: object, starts: torch.Tensor, steps: int
    ) -> list[HeadOutput]:
        shape = (*starts.shape, 4096)
        return [HeadOutput(logits.expand(shape), logits[:0]) for _ in range(steps)]

    head.unroll = unroll
    texts = texts_from(target, [[1, 9], [5]], [[0, 0, 4, 0, 9], [0]], kept_layers(target))
    found = count_hits(head, texts, 3, 2)
    assert found.tokens.tolist() == [5, 1]
    assert found.positions.tolist() == [[5, 4, 3], [1, 0, 0]]
    assert found.top1.tolist() == [[3, 2, 1], [1, 0, 0]]
    assert found.top5.tolist() == [[4, 3, 2], [1, 0, 0]]
    # At 0 both are right and the third is not; at 1 the first; at 3 the first.
    assert found.accepted.tolist() == [[3, 1, 0], [1, 0, 0]]
    assert found.reached.tolist() == [[5, 3, 1], [1, 0, 0]]
    # 0 0 and 4 as bonus, then 0 and 9 as bonus; the other text is one round.
    assert found.rounds.tolist() == [2, 1]
    assert count_hits(head, texts, 3, 1).rounds.tolist() == [3, 1]
