"""Mistakes that laws of acceptance fall into: each is planted in a ladder or a fit, and found.

Every check that finds a mistake here holds without it. What is random has a fixed seed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import generate, make_pair, make_prompts
from test_ladder import MARKS, check_held_out, check_reading, toy  # noqa: F401
from test_train_heads import make_source

from specviz.costs.laws import fit_log, resampled_lengths
from specviz.engine.drafters import Draft
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.state import State
from specviz.zoo import train
from specviz.zoo.heads import pipeline
from specviz.zoo.ladder import study, training
from specviz.zoo.ladder.batch import batch_table
from specviz.zoo.ladder.data import WindowFeatures
from specviz.zoo.ladder.fits import fit_points
from specviz.zoo.ladder.measure import count_all_rounds
from specviz.zoo.ladder.rungs import LARGE_K, SMALL_K, Size

Study = Callable[..., Any]


# marks without a cooldown


def last_rates(run: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The last factor of the rates in each stretch of training."""
    factors: list[float] = []
    last: list[float] = []
    update, trained = train.update, train.train_on

    def noted(*given: Any) -> None:
        factors.append(given[3])
        update(*given)

    def stretch(*given: Any) -> Any:
        history = trained(*given)
        last.append(factors[-1])
        return history

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", noted)
        patch.setattr(training, "train_on", stretch)
        run()
    return last


@pytest.mark.slow
def test_a_draft_that_is_measured_at_the_full_rate_is_found(
    toy: Study,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The draft of a mark is that of its branch, in which the rates have fallen."""

    def branch_ends(name: str) -> list[float]:
        def run() -> None:
            toy(tmp_path / name, sizes=["1x64"], marks=MARKS[:1])

        trunk, branch = last_rates(run, monkeypatch)
        assert trunk <= 1
        return [branch / trunk]

    monkeypatch.setattr(training, "WARMUP", 1)
    assert branch_ends("cooled") == [0.5]  # the one step of a cooldown that short
    monkeypatch.setattr(training, "falling", lambda first, *given: training.constant(*given))
    assert branch_ends("hot") == [1.0]


def noisy_distance(rates: Callable[[int], float]) -> float:
    """How far descent by noisy gradients of x**2 / 2 ends from 0, over 400 walkers."""
    noise = np.random.default_rng(0).normal(size=(100, 400))
    x = np.full(400, 3.0)
    for step in range(100):
        x -= rates(step) * (x + noise[step])
    return float(np.sqrt((x**2).mean()))


def test_rates_that_do_not_fall_understate_what_was_learned() -> None:
    """By the noise of the last steps. The schedules are those of a trunk and of a branch."""
    hot = noisy_distance(lambda step: 0.5 * training.constant(step, 100, 10))
    cooled = noisy_distance(lambda step: 0.5 * training.falling(80, step, 100, 10))
    assert cooled < 0.6 * hot


# other vocabularies and data


def test_a_rung_with_another_vocabulary_is_found(
    toy: Study,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_draft = training.new_draft

    def other(size: Size) -> Any:
        draft = new_draft(size)
        draft.resize_token_embeddings(1000)
        return draft

    monkeypatch.setattr(training, "new_draft", other)
    with pytest.raises(RuntimeError, match="size of tensor"):
        toy(tmp_path, sizes=["1x64"], marks=MARKS[:1])
    assert list((tmp_path / "rungs").iterdir()) == [], "it leaves no rung"


@pytest.mark.slow
def test_rungs_that_read_in_an_order_of_their_own_are_found(
    toy: Study,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they would with a seed by size: a size's law would be one of its windows, too."""
    toy = partial(toy, marks=MARKS[:1])
    check_reading(toy, tmp_path / "same", monkeypatch)
    train_rung = training.train_rung

    def shuffled(
        rung: Any, below: Any, target: Any, reading: WindowFeatures, *more: Any, **named: Any
    ) -> Any:
        kept = reading.features
        order = np.random.default_rng(rung.size.layers).permutation(len(kept.tokens))
        read = replace(reading, features=replace(kept, tokens=kept.tokens[order]))
        return train_rung(rung, below, target, read, *more, **named)

    monkeypatch.setattr(study, "train_rung", shuffled)
    with pytest.raises(AssertionError, match="windows of the sizes"):
        check_reading(toy, tmp_path / "other", monkeypatch)


def test_rungs_of_other_windows_are_refused(
    toy: Study,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library that is read differs between Pythons, also where all else is the same."""
    toy(tmp_path, sizes=["1x64"], marks=MARKS[:1])
    files = pipeline.read_corpus()
    changed = [replace(file, text=make_source(7 + i)) for i, file in enumerate(files)]
    monkeypatch.setattr(pipeline, "read_corpus", lambda: changed)
    with pytest.raises(ValueError, match=r"1x64-64\.json.* has read other windows .*; remove"):
        toy(tmp_path, sizes=["1x64", "2x64"], marks=MARKS[:1])
    assert [path.name for path in (tmp_path / "rungs").glob("2x64*")] == []


# training on what is measured


def test_a_ladder_that_trains_on_what_it_is_measured_on_is_found(
    toy: Study,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_held_out(tmp_path / "apart", monkeypatch)

    def all_files(pair: Any) -> Any:
        files = [replace(file, held_out=False) for file in pipeline.read_corpus()]
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "read_corpus", lambda: files)
            return library_of(pair)

    library_of = pipeline.library_of
    monkeypatch.setattr("specviz.zoo.ladder.data.library_of", all_files)
    with pytest.raises(AssertionError, match="windows of files that are held out"):
        check_held_out(tmp_path / "mixed", monkeypatch)


# a small K


def accepted_by(rate: float, prompts: int = 16, tokens: int = 400) -> list[list[int]]:
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
    x = 1e4 * 2.0 ** np.arange(7)
    lengths = 1.5 + 0.5 * np.arange(7)
    counts = [count_all_rounds(accepted_by(1 - 1 / length), k) for length in lengths]
    tokens = np.full((7, 16), 400)
    return fit_points(x, resampled_lengths(tokens, np.stack(counts), 200))


def test_a_small_k_fakes_a_saturating_law() -> None:
    """The data are log-linear. With K = 4 the bound of K + 1 bends them, and the held-out point
    says that the line is wrong.
    """
    small, large = law_at(SMALL_K), law_at(LARGE_K)
    # The last length is below what the line predicts, beyond the interval, at K = 4 alone.
    assert small["log_error_low"] > 0
    assert large["log_error_low"] < 0 < large["log_error_high"]
    assert abs(small["saturating_error"]) < 0.1 * small["log_error"]
    assert small["saturating_a"] < SMALL_K + 1 < large["saturating_a"]
    assert small["per_doubling"] < 0.7 * large["per_doubling"]
    assert large["log_r2"] > 0.995 > small["log_r2"]


# batches


class SeesTheBatch(ModelDrafter):
    """A drafter whose first draft is wrong in every row but one: acceptance falls with B."""

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        draft = super().propose(state, num_draft_tokens)
        draft.tokens[1:, 0] = (draft.tokens[1:, 0] + 1) % 97
        return draft


def accepted(batch_size: int, drafter: Any = "model") -> list[list[int]]:
    """Accepted drafts of each request, round by round."""
    run = generate(
        make_pair("llama"),
        make_prompts()[2:6],
        drafter=drafter,
        batch_size=batch_size,
        num_draft_tokens=3,
        max_new_tokens=8,
    )
    by_request: list[list[int]] = [[] for _ in range(4)]
    for request, count in zip(run.rows["request"], run.rows["accepted"], strict=True):
        by_request[request].append(int(count))
    return by_request


def test_a_drafter_whose_acceptance_depends_on_the_batch_is_found() -> None:
    """Its text is right, and its acceptance given the same prefix is not that of one row."""
    alone = accepted(1)
    assert accepted(4) == alone
    assert accepted(1, SeesTheBatch()) == alone
    assert accepted(4, SeesTheBatch()) != alone


def test_a_length_that_falls_with_the_batch_is_that_of_a_smaller_k() -> None:
    """At each B's best K the length falls with ln B, at any one K it is the same."""
    ks = np.arange(1, LARGE_K + 1)
    lengths = pd.DataFrame({"size": "2x128", "layers": 2, "width": 128, "mark": 1}, index=ks)
    lengths["num_draft_tokens"] = ks
    lengths["length"] = 1 + np.cumsum(0.8**ks)
    best = batch_table(lengths)
    for _, found in best.groupby("device"):
        law = fit_log(found["batch_size"].to_numpy(), found["length"].to_numpy())
        assert law.b < -0.05, "misread, acceptance falls with B"
        at_k = lengths.set_index("num_draft_tokens")["length"]
        drafting = found[found["num_draft_tokens"] > 0]
        for k, of_k in drafting.groupby("num_draft_tokens"):
            assert of_k["length"].to_numpy() == pytest.approx(at_k[k])
