"""`pays`: a short measurement with a verdict for each B."""

import pandas as pd
import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.bench import pays

SHORT = {"max_new_tokens": 4, "num_draft_tokens": 2, "repetitions": 1}


def test_each_batch_size_has_a_price_a_gain_and_a_verdict() -> None:
    pair = make_pair("llama")
    prompts = make_prompts()
    table = pays(pair, prompts, (1, 5), **SHORT)
    assert table["batch_size"].tolist() == [1, 5]
    for size, entry in zip((1, 5), table.itertuples(), strict=True):
        run = sv.generate(
            pair,
            prompts[: max(size, 4)],
            strategy="inplace",
            batch_size=size,
            max_new_tokens=4,
            num_draft_tokens=2,
            progress=False,
        )
        assert entry.gain == pytest.approx(run.summary["mean_acceptance_length"].iloc[0])
        assert entry.price == pytest.approx(entry.round_ms / entry.step_ms)
        assert 0 < entry.ratio_low <= entry.ratio <= entry.ratio_high


def test_a_faster_way_pays_and_a_slower_one_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds that are given instead of measured: the first pair of runs is not counted."""
    given = iter(
        [1.0, 9.0, 3.0, 2.0, 5.0, 2.0, 7.0, 1.0, 1.0, 4.0, 1.0, 2.0, 7.0, 1.0, 3.0, 2.0, 2.0, 2.0]
    )

    class Run:
        def __init__(self) -> None:
            self.rounds = {"batch": pd.Series([1, 1])}
            self.speed = next(given)
            self.summary = pd.DataFrame(
                {"tokens_per_s": [self.speed], "mean_acceptance_length": [3.0]}
            )
            self.stages = pd.DataFrame(
                {
                    "total_ms": [1 / self.speed] * 2,
                    "schedule_ms": [0.0] * 2,
                    "draft_ms": [0.0] * 2,
                    "sync_ms": [0.0] * 2,
                }
            )

    monkeypatch.setattr("specviz.bench.measuring.generate", lambda *_, **__: Run())
    table = pays(make_pair("llama"), make_prompts(), (1, 2, 3), repetitions=2)
    assert table["verdict"].tolist() == ["pays", "loses", "too close to tell"]
    assert table["ratio"].tolist() == [2.0, 0.375, 1.25]
    ranges = [[1.5, 2.5], [0.25, 0.5], [1.0, 1.5]]
    assert table[["ratio_low", "ratio_high"]].to_numpy().tolist() == ranges
    assert table["gain"].tolist() == [3.0] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"batch_sizes": (11,)}, "prompts must be at least as many as the largest B, 11, got 10"),
        ({"strategy": "nope"}, "nope"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pays(make_pair("llama"), make_prompts(), **arguments)
