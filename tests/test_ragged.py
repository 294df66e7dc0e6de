"""Rows that verify different numbers of drafts: the same text, the same logits, a valid record."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import published
import pytest
import torch
from conftest import (
    NEW_TOKENS,
    generate,
    generate_one_by_one,
    in_turn,
    make_pair,
    make_prompts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tables import BUDGET, DEPTH, check_same_rounds, tiny
from test_tables import table as tiny_table

import specviz as sv
from specviz.engine.accept import check_finite
from specviz.engine.draft import Draft
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.packing import find_packing, is_worth_packing
from specviz.engine.rng import DRAFT, Noise
from specviz.engine.sampling import Greedy, Places
from specviz.engine.selectors import Selector
from specviz.engine.state import State
from specviz.engine.trial import SLOTS, VERIFIED, can_pack, make_feed, token_ids

MODELS = ["llama", "gpt2", "qwen3", "glm4"]
VALID = ["rollback", "masking", "eqspec", "exspec", "inplace"]
SAMPLED = sv.SamplingParams(0.8, top_p=0.9, coupling="gumbel")


@dataclass(frozen=True)
class AtRandom(Selector):
    """Verifies 0 to K drafts of each row at random, the same for a row whatever the batch."""

    seed: int = 0

    name: ClassVar[str] = "at random"

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        noise = Noise(self.seed)
        drawn = [
            noise.uniforms(row.request.index, row.length, 1)[0, DRAFT] for row in state.batch.rows
        ]
        lengths = (torch.tensor(drawn) * (draft.tokens.shape[1] + 1)).long()
        return replace(draft, lengths=lengths)


def cases() -> list[Any]:
    """Every model, strategy and dtype; the fast tests have each strategy once."""
    found = []
    for i, strategy in enumerate(VALID):
        for j, model in enumerate(MODELS):
            for k, dtype in enumerate((torch.float32, torch.float64)):
                is_fast = i % len(MODELS) == j and i % 2 == k
                marks = [] if is_fast else [pytest.mark.slow]
                found.append(pytest.param(model, strategy, dtype, marks=marks))
    return found


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("model", "strategy", "dtype"), cases())
def test_the_text_is_that_of_the_target_alone(model: str, strategy: str, dtype: Any) -> None:
    pair = make_pair(model, dtype)
    result = generate(
        pair, make_prompts(), strategy=strategy, selector=AtRandom(), num_draft_tokens=6,
        batch_size=4, max_new_tokens=NEW_TOKENS, record=True,
    )  # fmt: skip
    assert result.tokens == generate_one_by_one(model, dtype)
    assert result.trace is not None
    assert sv.check_invariants(result.trace, deep=True, pair=pair) == []


@cache
def alone(sampling: Any, max_new_tokens: int) -> list[list[int]]:
    """The target's own text for each prompt."""
    return generate(
        make_pair("llama"), make_prompts(), strategy="autoregressive", sampling=sampling,
        max_new_tokens=max_new_tokens,
    ).tokens  # fmt: skip


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**30), st.integers(1, 8), st.integers(1, 5), st.sampled_from(VALID),
    st.booleans(),
)  # fmt: skip
def test_no_choice_of_drafts_changes_the_text(
    seed: int, k: int, batch_size: int, strategy: str, sampled: bool
) -> None:
    sampling = SAMPLED if sampled else None
    result = generate(
        make_pair("llama"),
        make_prompts(),
        strategy=strategy,
        selector=AtRandom(seed),
        num_draft_tokens=k,
        batch_size=batch_size,
        record=True,
        sampling=sampling,
        max_new_tokens=10,
    )
    assert result.tokens == alone(sampling, 10)
    assert result.trace is not None
    assert sv.check_invariants(result.trace) == []


SELECTORS = (
    sv.selector("tetris", extra=3),
    sv.selector("tetris", score="largest", max_wait=2),
    sv.selector("threshold", at_least=0.3),
)


@pytest.mark.sweep(40)
@pytest.mark.parametrize(
    ("selector", "strategy", "sampling"),
    in_turn(SELECTORS, [*VALID, sv.strategy("eqspec", refill=False)], [None, SAMPLED], every=2),
)
def test_selectors_keep_the_text_and_their_records_are_valid(
    selector: Selector, strategy: Any, sampling: Any
) -> None:
    result = generate(
        make_pair("llama"), make_prompts(), strategy=strategy, selector=selector,
        num_draft_tokens=2, record=True, sampling=sampling, max_new_tokens=16, batch_size=3,
    )  # fmt: skip
    assert result.tokens == alone(sampling, 16)
    trace = result.trace
    assert trace is not None
    # What is fed does not depend on how tokens are chosen, and the models take long.
    models = {"deep": True, "pair": make_pair("llama")} if sampling is None else {}
    assert sv.check_invariants(trace, **models) == []
    assert len(set(trace.rows["verified"][trace.rows["gained"] > 0].tolist())) > 1, "ragged"


def test_a_row_is_judged_as_it_would_be_with_fewer_drafts() -> None:
    """For all three ways of choosing tokens; what the target computed behind does not matter."""
    generator = torch.Generator().manual_seed(0)
    k, size, b = 4, 7, 40
    drafts = torch.randint(0, size, (b, k), generator=generator)
    said = torch.randn(b, k, size, generator=generator)
    logits = torch.randn(b, k + 1, size, generator=generator)
    lengths = torch.randint(0, k + 1, (b,), generator=generator)
    for row, length in enumerate(lengths.tolist()):
        logits[row, length + 1 :] = torch.nan if row % 2 else 100.0
    finite = logits.nan_to_num(5.0)
    choosers = [
        Greedy(),
        sv.SamplingParams(1.0).chooser(3),
        sv.SamplingParams(1.0, coupling="gumbel").chooser(3),
    ]
    for chooser in choosers:
        for draft_logits in (said, None):
            draft = Draft(drafts, draft_logits, lengths)
            places = Places(torch.arange(b), torch.full((b,), 5))
            accepted, emitted, _ = chooser.judge(draft, finite, places)
            for row, length in enumerate(lengths.tolist()):
                one = slice(row, row + 1)
                own_logits = None if draft_logits is None else draft_logits[one, :length]
                alone, tokens, _ = chooser.judge(
                    Draft(drafts[one, :length], own_logits),
                    finite[one, : length + 1],
                    Places(torch.tensor([row]), torch.tensor([5])),
                )
                count = int(alone)
                assert accepted[row] == count
                assert emitted[row, : count + 1].tolist() == tokens[0, : count + 1].tolist()
    none = Greedy().judge(Draft(drafts, lengths=lengths * 0), finite, places)
    assert int(none.accepted.sum()) == 0
    reached, any_nonfinite = check_finite(logits, Draft(drafts, lengths=lengths), None)
    assert reached.tolist() == [k + 1] * b
    assert not any_nonfinite.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", ["llama", "gpt2", "qwen3", "glm4"])
def test_a_packed_forward_computes_the_logits_of_the_rectangle(model: str, dtype: Any) -> None:
    target = make_pair(model, dtype).target
    assert can_pack(target)
    feed = make_feed(target, token_ids(target, len(SLOTS[0])), prefill=False)
    lengths = torch.tensor([[0], [2]])
    valid = torch.arange(VERIFIED) <= lengths
    feed = replace(feed, valid=valid, count=4)
    found = []
    for packs in ("never", "always"):
        cached = CachedModel(target, len(SLOTS), 200)
        cached.prefill(make_feed(target, token_ids(target, len(SLOTS[0])), prefill=True))
        cached.packs = packs
        logits, features = cached.forward(feed, select=lambda states: states[-1])
        assert features is not None
        found.append((logits[valid], features[valid]))
    measured = torch.backends.mkl.is_available()  # other libraries may add in another order
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-14 if measured else 1e-12}[dtype]
    for plain, packed in zip(*found, strict=True):
        assert (plain - packed).abs().max() <= tolerance * plain.std()
        if measured and dtype == torch.float32:
            assert torch.equal(plain, packed)


def test_feeds_are_packed_where_enough_is_left_out() -> None:
    target = make_pair("llama").target
    feed = make_feed(target, token_ids(target, len(SLOTS[0])), prefill=False)
    wide = replace(feed, tokens=feed.tokens.repeat(10, 1))  # 20 rows of 3 tokens
    assert not is_worth_packing(wide), "nothing is left out"
    assert not is_worth_packing(replace(wide, count=45)), "too little is left out"
    assert is_worth_packing(replace(wide, count=44))
    large = replace(feed, tokens=feed.tokens.repeat(100, 1))
    assert not is_worth_packing(replace(large, count=541)), "less than a tenth is left out"
    valid = torch.arange(3) <= torch.tensor([[1], [2]])
    packing = find_packing(replace(feed, valid=valid, count=5))
    assert packing.places.tolist() == [0, 1, 3, 4, 5]
    values = torch.arange(12.0).reshape(2, 3, 2)
    assert packing.unpack(packing.pack(values))[1].equal(values[1])


@pytest.mark.slow
def test_a_run_packs_its_verifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that differ much in width; the text and the record are those of the rectangle."""
    packed = []

    def find(feed: Any) -> Any:
        packed.append(feed.count)
        return find_packing(feed)

    monkeypatch.setattr("specviz.engine.kv.cache.find_packing", find)
    run: dict[str, Any] = {"num_draft_tokens": 8, "batch_size": 8, "record": True}
    result = generate(
        make_pair("llama"), make_prompts(), selector=AtRandom(), max_new_tokens=NEW_TOKENS, **run
    )
    assert len(packed) > 2
    assert result.tokens == generate_one_by_one()
    monkeypatch.setattr("specviz.engine.run.can_pack", lambda model: False)
    count = len(packed)
    plain = generate(
        make_pair("llama"), make_prompts(), selector=AtRandom(), max_new_tokens=NEW_TOKENS, **run
    )
    assert len(packed) == count
    assert plain.trace is not None
    assert result.trace is not None
    for name, values in plain.trace.feeds.items():
        assert np.array_equal(values, result.trace.feeds[name])


@pytest.mark.sweep(12)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec"])
@pytest.mark.parametrize(
    "selector", [sv.selector("tetris", extra=2), sv.selector("threshold", at_least=0.5)]
)
def test_a_replay_on_a_table_is_the_engines_run(strategy: str, selector: Selector) -> None:
    trace = generate(
        tiny(), make_prompts(), strategy=strategy, selector=selector,
        num_draft_tokens=DEPTH - 2, batch_size=3, max_new_tokens=BUDGET, record=True,
    ).trace  # fmt: skip
    check_same_rounds(trace, tiny_table())


@pytest.mark.slow
def test_no_row_waits_longer_than_it_may(embedded: sv.Pair) -> None:
    """Without the limit one does."""
    waits = {}
    for limit in (None, 2):
        selector = sv.selector("tetris", extra=4, max_wait=limit)
        trace = generate(
            embedded, sv.load_prompts()[:6], selector=selector,
            num_draft_tokens=1, batch_size=6, max_new_tokens=24, record=True,
        ).trace  # fmt: skip
        assert trace is not None
        assert sv.check_invariants(trace) == []
        longest = 0
        rows = trace.rows
        for request in range(trace.num_requests):
            own = rows["verified"][(rows["request"] == request) & (rows["gained"] > 0)]
            starved = "".join("1" if count == 0 else " " for count in own.tolist())
            longest = max([longest, *map(len, starved.split())])
        waits[limit] = longest
    assert waits[2] <= 2 < waits[None]


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": "auto"},
        {"deterministic": True},
        {"strategy": published.strategy("eqspec", bonus=False, shrink_to_budget=True)},
        {"strategy": published.strategy("exspec", as_published=True)},
        {"levers": sv.Levers(keep_draft=False)},
    ],
)
def test_selectors_work_with_every_option(options: dict[str, Any]) -> None:
    run: dict[str, Any] = {"max_new_tokens": 12, "batch_size": 4, "record": True}
    options = {"selector": sv.selector("tetris", extra=1), **options}
    result = generate(make_pair("llama"), make_prompts(), **options, **run)
    assert result.tokens == generate_one_by_one(max_new_tokens=12)
    assert result.trace is not None
    assert sv.check_invariants(result.trace, deep=True, pair=make_pair("llama")) == []


def test_without_the_bonus_a_row_gains_what_it_verifies() -> None:
    """Not K tokens of a row that verifies fewer than K drafts."""
    trace = generate(
        make_pair("llama"), make_prompts(), strategy=published.strategy("eqspec", bonus=False),
        selector=AtRandom(), num_draft_tokens=4, batch_size=4, max_new_tokens=NEW_TOKENS,
        record=True,
    ).trace  # fmt: skip
    assert trace is not None
    verified, accepted, gained = (trace.rows[name] for name in ("verified", "accepted", "gained"))
    assert ((verified > 0) & (verified < 4) & (accepted == verified)).any(), "nothing to cut off"
    assert (gained <= np.maximum(verified, 1)).all()


def test_verified_drafts_are_recorded_and_the_rest_has_no_verdict(tmp_path: Any) -> None:
    result = generate(
        make_pair("llama"), make_prompts(), selector="tetris", num_draft_tokens=2,
        max_new_tokens=16, record=True,
    )  # fmt: skip
    trace = result.trace
    assert trace is not None
    rows, k = trace.rows, trace.meta["num_draft_tokens"]
    assert k == 4
    beyond = np.arange(k) >= rows["verified"][:, None]
    assert np.isnan(rows["target_logprob"][beyond]).all()
    assert not np.isnan(rows["scores"]).any()
    used = np.bincount(rows["round"], weights=rows["verified"])
    assert (used <= trace.rounds["capacity"]).all()
    assert (result.rounds["capacity"] == trace.rounds["capacity"]).all()
    trace.save(tmp_path / "ragged.safetensors")
    again = sv.Trace.load(tmp_path / "ragged.safetensors")
    for table, columns in trace.tables.items():
        for name, values in columns.items():
            equal_nan = values.dtype == np.float32
            assert np.array_equal(again.tables[table][name], values, equal_nan=equal_nan)
