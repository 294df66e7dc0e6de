"""Token identity with Hugging Face's own greedy decoding at batch 1.

It holds for every row, batch composition, class and precision.
"""

import contextlib
import copy
import io
from functools import cache
from itertools import combinations, product

import pytest
import torch
from conftest import (
    CLASSES,
    EOS,
    NEW_TOKENS,
    example,
    generate,
    generate_alone,
    generate_one_by_one,
    make_pair,
    make_prompts,
)

import specviz as sv
from specviz.engine.kv import moves as moving
from specviz.engine.kv.moves import METHODS
from specviz.engine.strategies import STRATEGIES, Strategy

VARIANTS = (
    sv.strategy("repadding", ones_mask=False, draft_bonus=False),
    sv.strategy("repadding", skip_unpadding=False, ones_mask=False, draft_bonus=False),
    sv.strategy("exspec", window=8, fallback="partial"),
    sv.strategy("exspec", window=9, fallback="wait", max_wait=2, sort_prompts=True),
)
STATIC = tuple(
    sv.strategy(name, refill=False)
    for name in ("autoregressive", "rollback", "masking", "eqspec", "inplace")
)
VALID = [strategy for strategy in (*map(sv.strategy, STRATEGIES), *VARIANTS) if strategy.valid]
SPINE = ("eqspec", "inplace")


def named(strategy: Strategy) -> str:
    """The strategy as a test's id: its name and the options that are not the default."""
    default = STRATEGIES[strategy.name]().options
    changed = [
        f"{name}={value}" for name, value in strategy.options.items() if value != default[name]
    ]
    return "-".join([strategy.name, *changed])


each_valid = pytest.mark.parametrize("strategy", VALID, ids=named)
DTYPES = (torch.float32, torch.float64)
KINDS = list(product(CLASSES, DTYPES))
BATCH_SIZES = (1, 3, 8)


Case = tuple[str, torch.dtype, int, int]  # class, precision, batch size, K


def ks_of(strategy: Strategy) -> tuple[int, ...]:
    """The values of K with which a strategy is compared."""
    return (1, 2, 5, 8) if strategy.name in SPINE else (1, 5)


def all_shapes(strategy: Strategy) -> list[Case]:
    """Every batch size with every K, each with one kind of model; the first differs by strategy."""
    first = 3 * VALID.index(strategy)
    return [
        (*KINDS[(first + number) % len(KINDS)], batch_size, k)
        for number, (batch_size, k) in enumerate(product(BATCH_SIZES, ks_of(strategy)))
    ]


def fast_share(strategy: Strategy) -> list[Case]:
    """Half of these, in turn: every batch size, and every K."""
    shapes = product(range(len(BATCH_SIZES)), range(len(ks_of(strategy))))
    return [
        case
        for (i, j), case in zip(shapes, all_shapes(strategy), strict=True)
        if (i + j + VALID.index(strategy)) % 2 == 0
    ]


def slow_share(strategy: Strategy) -> list[Case]:
    """The cases that join every two of class, precision, batch size and K, less the fast ones.

    Which three of them meet differs by strategy.
    """
    ks = ks_of(strategy)
    first = VALID.index(strategy)
    cases = all_shapes(strategy)
    # The fewest cases: each class with each value of what else has the most values.
    more_ks = len(ks) > len(BATCH_SIZES)
    for number, other in product(range(len(CLASSES)), range(max(len(ks), len(BATCH_SIZES)))):
        third = number + other
        batch, k = (third, other) if more_ks else (other, third)
        name = list(CLASSES)[(first + number) % len(CLASSES)]
        dtype = DTYPES[(number // 2 + other) % len(DTYPES)]
        cases.append((name, dtype, BATCH_SIZES[batch % len(BATCH_SIZES)], ks[k % len(ks)]))
    return [case for case in cases if case not in fast_share(strategy)]


def assert_equal_to_generate(
    strategy: Strategy, name: str, dtype: torch.dtype, batch_size: int, k: int
):
    run = {"num_draft_tokens": k, "batch_size": batch_size, "max_new_tokens": NEW_TOKENS}
    result = generate(make_pair(name, dtype), make_prompts(), strategy=strategy, **run)
    assert result.tokens == generate_one_by_one(name, dtype), f"{name} {dtype} B={batch_size} K={k}"


@pytest.mark.sweep(4)
@each_valid
def test_every_row_equals_generate(strategy):
    """Every batch size and every K; the slow test joins them with every class and precision."""
    for case in fast_share(strategy):
        assert_equal_to_generate(strategy, *case)


@pytest.mark.slow
@each_valid
def test_every_row_equals_generate_whatever_two_conditions_meet(strategy):
    for case in slow_share(strategy):
        assert_equal_to_generate(strategy, *case)


def test_the_fast_share_has_every_class_and_precision():
    assert {case[:2] for strategy in VALID for case in fast_share(strategy)} == set(KINDS)


@each_valid
def test_every_two_conditions_meet(strategy):
    cases = [*fast_share(strategy), *slow_share(strategy)]
    conditions = (CLASSES, DTYPES, BATCH_SIZES, ks_of(strategy))
    for one, other in combinations(range(len(conditions)), 2):
        met = {(case[one], case[other]) for case in cases}
        assert met == set(product(conditions[one], conditions[other]))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CLASSES)
def test_the_drafts_are_accepted_sometimes(name, prompts):
    """Some drafts are accepted and some are not, and some row ends with EOS.

    Otherwise the identity above would prove little.
    """
    result = generate(make_pair(name), prompts, num_draft_tokens=1, max_new_tokens=NEW_TOKENS)
    assert 0.3 <= result.summary["draft_acceptance_rate"].item() <= 0.8
    assert any(row[-1] in EOS for row in result.tokens)
    assert any(len(row) == NEW_TOKENS for row in result.tokens)


def assert_right(pair: sv.Pair, **options: object):
    """The ten prompts' text is the target's own, in batches of three."""
    run = {"batch_size": 3, "max_new_tokens": NEW_TOKENS} | options
    assert generate(pair, make_prompts(), **run).tokens == generate_one_by_one()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("strategy", STATIC, ids=named)
def test_static_batches_give_the_same_text(strategy, pair):
    assert_right(pair, strategy=strategy)


@pytest.mark.sweep(10)
@each_valid
def test_budgets_are_kept_row_by_row(strategy, pair, prompts):
    """A small budget cuts its own row and no other; K does not shrink for anyone."""
    budgets = [1, 2, 3, 5, 24, 7, 24, 4, 6, 1]
    result = generate(pair, prompts, strategy=strategy, batch_size=4, max_new_tokens=budgets)
    assert result.tokens == [
        row[:budget] for row, budget in zip(generate_one_by_one(), budgets, strict=True)
    ]
    assert set(result.rows["drafted"]) == {0 if strategy.name == "autoregressive" else 5}


def test_attention_written_out_takes_the_mask_as_numbers():
    """The eager path adds its mask to the scores, where a bool mask would be silently wrong."""
    pair = copy.deepcopy(make_pair("llama"))
    pair.target.set_attn_implementation("eager")
    pair.draft.set_attn_implementation("eager")
    assert_right(pair, strategy="eqspec")


@pytest.mark.gpu
@pytest.mark.parametrize("move", METHODS)
@pytest.mark.parametrize("name", CLASSES)
@each_valid
def test_every_row_equals_generate_on_cuda(strategy, name, move, monkeypatch):
    _force_move(monkeypatch, move)
    pair = make_pair(name, torch.float64, "cuda")
    expected = generate_one_by_one(name, torch.float64, NEW_TOKENS, "cuda")
    for batch_size in (1, 3, 8):
        run = {"batch_size": batch_size, "max_new_tokens": NEW_TOKENS}
        result = generate(pair, make_prompts(), strategy=strategy, **run)
        assert result.tokens == expected, f"B={batch_size}"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("move", METHODS)
def test_all_ways_of_realigning_give_the_same_text(move, pair, monkeypatch):
    _force_move(monkeypatch, move)
    assert_right(pair, strategy="eqspec")


def _force_move(monkeypatch: pytest.MonkeyPatch, method: str):
    monkeypatch.setattr(moving, "choose", lambda device, moves: method)


@pytest.mark.slow
def test_the_strategy_of_contributing(pair):
    """The example runs as it stands in the text, and on prompts that make rows ragged."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        lazy = example("LazyEqSpec")
    assert printed.getvalue().strip() == "all invariants hold"
    for every in (1, 3, 7):
        assert_right(pair, strategy=lazy(every=every), record=True)


@cache
def bundled_alone(pair: sv.Pair, limit: int, max_new_tokens: int) -> list[list[int]]:
    ids = [pair.tokenizer(prompt)["input_ids"] for prompt in sv.load_prompts(limit=limit)]
    return generate_alone(pair.target, ids, max_new_tokens)


def check_bundled(strategy: Strategy, pair: sv.Pair, limit: int, max_new_tokens: int):
    prompts = sv.load_prompts(limit=limit)
    result = generate(pair, prompts, strategy=strategy, max_new_tokens=max_new_tokens)
    assert result.tokens == bundled_alone(pair, limit, max_new_tokens)


@pytest.mark.sweep(12)
@each_valid
def test_bundled_prompts_on_the_embedded_pair(strategy, embedded):
    check_bundled(strategy, embedded, 9, 12)  # one more than a batch, so that a row is refilled


@pytest.mark.slow
@each_valid
def test_all_bundled_prompts_on_the_embedded_pair(strategy, embedded):
    check_bundled(strategy, embedded, 32, 48)
