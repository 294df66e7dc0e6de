"""A benchmark's synthetic drafter: the texts that it knows save the target's work, nothing else."""

from typing import Any

import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.bench.measuring import ClockedDrafter
from specviz.engine.drafters import chains as synthetic

DRAFTER = sv.drafter("synthetic", rates=[0.9, 0.7, 0.4])
OPTIONS: dict[str, Any] = {
    "num_draft_tokens": 3,
    "batch_size": 2,
    "max_new_tokens": 20,
    "progress": False,
}


def knowing(result: sv.Result, ids_more: int = 0) -> ClockedDrafter:
    """Return the drafter with the result's texts as what it knows."""
    texts = [[token + ids_more for token in tokens] for tokens in result.tokens]
    known = dict(zip(map(tuple, result.prompts), texts, strict=True))
    return ClockedDrafter(**vars(DRAFTER), known=known)


def assert_same(result: sv.Result, plain: sv.Result) -> None:
    assert result.tokens == plain.tokens
    for name in ("accepted", "gained", "verified"):
        assert result.rows[name].tolist() == plain.rows[name].tolist(), name


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that run ahead, in order."""
    names: list[str] = []
    run_ahead = synthetic.run_ahead

    def counted(state: Any, name: str, *given: Any, **options: Any) -> Any:
        names.append(name)
        return run_ahead(state, name, *given, **options)

    monkeypatch.setattr(synthetic, "run_ahead", counted)
    return names


@pytest.mark.sweep(3)
@pytest.mark.parametrize("strategy", ["inplace", "exspec", "rollback"])
def test_known_texts_leave_the_run_as_it_is(asked: list[str], strategy: str) -> None:
    pair, prompts = make_pair("llama"), make_prompts()[:5]
    plain = sv.generate(pair, prompts, strategy=strategy, drafter=DRAFTER, **OPTIONS)
    rounds = asked.count("target")
    asked.clear()
    result = sv.generate(pair, prompts, strategy=strategy, drafter=knowing(plain), **OPTIONS)
    assert_same(result, plain)
    assert asked.count("target") < rounds / 2
    assert asked.count("draft") == rounds


def test_the_target_is_asked_where_a_row_has_left_its_known_text(asked: list[str]) -> None:
    pair, prompts = make_pair("llama"), make_prompts()[:2]
    plain = sv.generate(pair, prompts, drafter=DRAFTER, **OPTIONS)
    rounds = asked.count("target")
    asked.clear()
    result = sv.generate(pair, prompts, drafter=knowing(plain, ids_more=1), **OPTIONS)
    assert result.tokens == plain.tokens
    # Before its first round a row has written nothing that could differ.
    assert asked.count("target") >= rounds - 1


def test_drawn_texts_are_not_taken_from_greedy_ones() -> None:
    pair, prompts = make_pair("llama"), make_prompts()[:3]
    greedy = sv.generate(pair, prompts, drafter=DRAFTER, **OPTIONS)
    sampling = sv.SamplingParams(temperature=1.0, coupling="gumbel")
    plain, result = (
        sv.generate(pair, prompts, drafter=drafter, sampling=sampling, seed=3, **OPTIONS)
        for drafter in (DRAFTER, knowing(greedy))
    )
    assert_same(result, plain)
