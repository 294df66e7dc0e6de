"""The drafts of a round as one compiled function: the same run as with one call a draft."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import published
import pytest
import torch
from conftest import CLASSES, make_pair, make_prompts

import specviz as sv
from specviz.engine.kv import chained, compiled
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.chained import CompiledChain, is_worth_chaining
from specviz.engine.kv.compiled import CompiledModel

RUN: dict[str, Any] = {"max_new_tokens": 16, "progress": False}


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compile nothing; return a list to which each call of a chain appends its length."""

    def leave_as_is(code: Callable[..., object], options: object) -> Callable[..., object]:
        return code

    monkeypatch.setattr(torch, "compile", leave_as_is)
    monkeypatch.setattr(compiled, "_known", WeakKeyDictionary())
    lengths: list[int] = []
    call = CompiledChain.__call__

    def observed(self: CompiledChain, **arguments: Any) -> object:
        lengths.append(arguments["steps"])
        return call(self, **arguments)

    monkeypatch.setattr(CompiledChain, "__call__", observed)
    return lengths


@pytest.mark.sweep(3)
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec", "masking"])
def test_the_record_equals_that_of_single_forwards(
    strategy: str, batch_size: int, chains: list[int]
) -> None:
    pair = make_pair("llama")
    options = RUN | {"strategy": strategy, "batch_size": batch_size, "num_draft_tokens": 3}
    expected = sv.generate(pair, make_prompts()[:5], record=True, **options).trace
    assert not chains
    found = sv.generate(pair, make_prompts()[:5], record=True, compile=True, **options).trace
    assert expected is not None
    assert found is not None
    assert len(chains) == found.num_rounds
    assert set(chains) == {3}
    assert not sv.check_invariants(found)
    for name, table in expected.tables.items():
        for column, values in table.items():
            if not column.endswith("_ms"):
                np.testing.assert_allclose(
                    found.tables[name][column], values, rtol=1e-4, atol=1e-5, err_msg=column
                )


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_models_writes_the_same_text(name: str, chains: list[int]) -> None:
    pair = make_pair(name)
    options = RUN | {"strategy": "inplace", "batch_size": 2, "num_draft_tokens": 2}
    expected = sv.generate(pair, make_prompts()[:3], **options)
    found = sv.generate(pair, make_prompts()[:3], compile=True, **options)
    assert found.tokens == expected.tokens
    assert len(found.rounds["batch"]) == len(expected.rounds["batch"])
    assert len(chains) == len(found.rounds["batch"])


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"deterministic": True}, id="deterministic"),
        pytest.param({"lanes": 2, "strategy": "inplace"}, id="lanes"),
    ],
)
def test_a_chain_goes_with_other_options(options: dict[str, Any], chains: list[int]) -> None:
    pair = make_pair("llama")
    options = RUN | {"num_draft_tokens": 3, "batch_size": 4} | options
    expected = sv.generate(pair, make_prompts(), **options)
    found = sv.generate(pair, make_prompts(), compile=True, **options)
    assert found.tokens == expected.tokens
    assert found.summary["mean_acceptance_length"][0] == pytest.approx(
        expected.summary["mean_acceptance_length"][0]
    )
    assert set(chains) == {3}


@pytest.mark.parametrize("strategy", ["inplace", "eqspec"])
def test_prompts_of_one_token_and_short_budgets(strategy: str, chains: list[int]) -> None:
    pair = make_pair("llama")
    options = RUN | {"strategy": strategy, "num_draft_tokens": 4, "max_new_tokens": [1, 2, 7]}
    expected = sv.generate(pair, [[5], [9], [3]], batch_size=3, **options)
    found = sv.generate(pair, [[5], [9], [3]], batch_size=3, compile=True, **options)
    assert found.tokens == expected.tokens
    assert chains


def test_a_strategy_may_shorten_a_round(chains: list[int]) -> None:
    strategy = published.strategy("eqspec", as_published=True)
    pair = make_pair("llama")
    options = RUN | {"strategy": strategy, "num_draft_tokens": 4, "batch_size": 2}
    expected = sv.generate(pair, make_prompts()[:3], **options)
    found = sv.generate(pair, make_prompts()[:3], compile=True, **options)
    assert found.tokens == expected.tokens
    # Near the end of a budget fewer tokens are drafted, one call each.
    assert set(chains) == {4}
    assert len(chains) < len(found.rounds["batch"])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("drafter", ["eagle3", sv.drafter("eagle3", reread=False)])
def test_a_head_reads_its_own_features(
    drafter: Any, batch_size: int, chains: list[int], embedded: sv.Pair
) -> None:
    options = RUN | {"drafter": drafter, "num_draft_tokens": 4, "batch_size": batch_size}
    prompts = sv.load_prompts()[:3]
    expected = sv.generate(embedded, prompts, record=True, **options)
    found = sv.generate(embedded, prompts, record=True, compile=True, **options)
    assert found.tokens == expected.tokens
    # As many rounds only if the same drafts were accepted.
    assert len(found.rounds["batch"]) == len(expected.rounds["batch"])
    assert set(chains) == {4}
    assert found.trace is not None
    assert expected.trace is not None
    # Without reading drafts again there are some, by its own choice.
    assert len(sv.check_invariants(found.trace)) == len(sv.check_invariants(expected.trace))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_draft_tokens": "auto"}, id="K varies"),
        pytest.param({"num_draft_tokens": 1}, id="one draft"),
        pytest.param({"sampling": sv.SamplingParams(temperature=0.8)}, id="drawn at random"),
        pytest.param({"selector": "tetris"}, id="selected"),
        pytest.param({"drafter": "lookup"}, id="no model"),
    ],
)
def test_nothing_else_is_chained(options: dict[str, Any], chains: list[int]) -> None:
    pair = make_pair("llama")
    options = RUN | {"num_draft_tokens": 3, "batch_size": 2} | options
    expected = sv.generate(pair, make_prompts()[:3], **options)
    found = sv.generate(pair, make_prompts()[:3], compile=True, **options)
    assert found.tokens == expected.tokens
    assert not chains


def test_long_chains_and_large_models_are_not_chained(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = make_pair("llama").draft
    assert is_worth_chaining(draft, 2, 8)
    assert not is_worth_chaining(draft, 2, 9), "more layers than are worth compiling"
    assert not is_worth_chaining(draft, 2, 1)
    assert not is_worth_chaining(draft, 2, None)
    monkeypatch.setattr(chained, "MAX_PACKED_BYTES", 3 * compiled.weight_bytes(draft))
    assert is_worth_chaining(draft, 2, 3)
    assert not is_worth_chaining(draft, 2, 4), "each forward has packed weights of its own"


def test_chains_are_for_cpus() -> None:
    draft = deepcopy(make_pair("llama").draft).to("meta")
    assert not is_worth_chaining(draft, 2, 3)


def test_single_forwards_and_chains_wait_for_one_another(chains: list[int]) -> None:
    """Both may put copies in the place of the same weights."""
    cached = CachedModel(make_pair("llama").draft, rows=1, slots=8)
    cached.compile(3)
    assert cached._chain is not None
    assert isinstance(cached._call, CompiledModel)
    assert cached._chain._lock is cached._call._lock


def test_the_lm_head_of_the_target_counts(
    embedded: sv.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = embedded.heads["eagle3"]
    own = compiled.weight_bytes(head)
    monkeypatch.setattr(chained, "MAX_PACKED_BYTES", 2 * own)
    assert not is_worth_chaining(head, 1, 2)
    borrowed = compiled.weight_bytes(embedded.target.lm_head)
    monkeypatch.setattr(chained, "MAX_PACKED_BYTES", 2 * (own + borrowed))
    assert is_worth_chaining(head, 1, 2)


@pytest.fixture
def compiled_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the chains alone. Compiling the target takes a minute more."""
    monkeypatch.setattr(compiled, "_known", WeakKeyDictionary())
    original = CachedModel.compile

    def compile_chain(self: CachedModel, chain_length: int | None = None) -> None:
        if chain_length is not None:
            original(self, chain_length)
            assert self.chain_length == chain_length

    monkeypatch.setattr(CachedModel, "compile", compile_chain)


@pytest.mark.slow
def test_a_compiled_chain_of_a_head_drafts_the_same(
    embedded: sv.Pair, compiled_drafts: None
) -> None:
    """A draft model's chain is compiled in test_compiled.py."""
    # Rows that end together need no code for fewer of them.
    prompts = [sv.load_prompts()[0]] * 3
    options = RUN | {"drafter": "eagle3", "num_draft_tokens": 2, "batch_size": 3}
    expected = sv.generate(embedded, prompts, **options)
    found = sv.generate(embedded, prompts, compile=True, **options)
    assert found.tokens == expected.tokens
    # As many rounds only if the same drafts were accepted.
    assert len(found.rounds["batch"]) == len(expected.rounds["batch"])
