"""Token identity with Hugging Face's own greedy decoding at batch 1.

It holds for every row, batch composition, class and precision.
"""

import contextlib
import io
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CLASSES, EOS, generate_one_by_one, make_pair, make_prompts

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
SPINE = ("autoregressive", "eqspec", "inplace")


def named(strategy: Strategy) -> str:
    """The strategy as a test's id: its name and the options that are not the default."""
    default = STRATEGIES[strategy.name]().options
    changed = [
        f"{name}={value}" for name, value in strategy.options.items() if value != default[name]
    ]
    return "-".join([strategy.name, *changed])


each_valid = pytest.mark.parametrize("strategy", VALID, ids=named)
NEW_TOKENS = 24


each_precision = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"]
)
each_class = pytest.mark.parametrize("name", CLASSES)


def batches_and_ks(strategy: Strategy) -> list[tuple[int, int]]:
    """All pairs of a batch size and a K with which a strategy is compared."""
    ks = (1, 2, 5, 8) if strategy.name in SPINE else (1, 5)
    return list(product((1, 3, 8), ks))


def own_share(strategy: Strategy, name: str) -> list[tuple[int, int]]:
    """The pairs that the fast test decodes with class `name`; each pair has one class."""
    first = list(CLASSES).index(name)
    return batches_and_ks(strategy)[first :: len(CLASSES)]


def assert_equal_to_generate(
    strategy: Strategy, name: str, dtype: torch.dtype, pairs: list[tuple[int, int]]
) -> None:
    expected = generate_one_by_one(name, dtype, NEW_TOKENS)
    for batch_size, k in pairs:
        result = sv.generate(
            make_pair(name, dtype),
            make_prompts(),
            strategy=strategy,
            num_draft_tokens=k,
            batch_size=batch_size,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
        assert result.tokens == expected, f"B={batch_size}, K={k}"


@each_precision
@each_class
@each_valid
def test_every_row_equals_generate(strategy: Strategy, name: str, dtype: torch.dtype) -> None:
    """Every batch size with every K, each such pair with one class; the slow test has the rest."""
    assert_equal_to_generate(strategy, name, dtype, own_share(strategy, name))


@pytest.mark.slow
@each_precision
@each_class
@each_valid
def test_every_row_equals_generate_in_every_combination(
    strategy: Strategy, name: str, dtype: torch.dtype
) -> None:
    share = own_share(strategy, name)
    rest = [pair for pair in batches_and_ks(strategy) if pair not in share]
    assert_equal_to_generate(strategy, name, dtype, rest)


def test_every_pair_of_batch_size_and_k_has_a_class() -> None:
    for strategy in VALID:
        shares = [pair for name in CLASSES for pair in own_share(strategy, name)]
        assert sorted(shares) == batches_and_ks(strategy)


@pytest.mark.parametrize("name", CLASSES)
def test_the_drafts_are_accepted_sometimes(name: str, prompts: list[list[int]]) -> None:
    """Some drafts are accepted and some are not, and some row ends with EOS.

    Otherwise the identity above would prove little.
    """
    result = sv.generate(
        make_pair(name), prompts, num_draft_tokens=1, max_new_tokens=NEW_TOKENS, progress=False
    )
    assert 0.3 <= result.summary["draft_acceptance_rate"].item() <= 0.8
    assert any(row[-1] in EOS for row in result.tokens)
    assert any(len(row) == NEW_TOKENS for row in result.tokens)


@pytest.mark.parametrize("strategy", STATIC, ids=named)
def test_static_batches_give_the_same_text(
    strategy: Strategy, pair: sv.Pair, prompts: list[list[int]]
) -> None:
    result = sv.generate(
        pair, prompts, strategy=strategy, batch_size=3, max_new_tokens=NEW_TOKENS, progress=False
    )
    assert result.tokens == generate_one_by_one("llama", torch.float32, NEW_TOKENS)


@each_valid
def test_budgets_are_kept_row_by_row(
    strategy: Strategy, pair: sv.Pair, prompts: list[list[int]]
) -> None:
    """A small budget cuts its own row and no other; K does not shrink for anyone."""
    whole = generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    budgets = [1, 2, 3, 5, 24, 7, 24, 4, 6, 1]
    result = sv.generate(
        pair, prompts, strategy=strategy, batch_size=4, max_new_tokens=budgets, progress=False
    )
    assert result.tokens == [row[:budget] for row, budget in zip(whole, budgets, strict=True)]
    assert set(result.rows["drafted"]) == {0 if strategy.name == "autoregressive" else 5}


def test_attention_written_out_takes_the_mask_as_numbers(prompts: list[list[int]]) -> None:
    """The eager path adds its mask to the scores, where a bool mask would be silently wrong."""
    pair = make_pair("qwen3")
    pair.target.set_attn_implementation("eager")
    pair.draft.set_attn_implementation("eager")
    try:
        result = sv.generate(
            pair,
            prompts,
            strategy="eqspec",
            batch_size=3,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
    finally:
        pair.target.set_attn_implementation("sdpa")
        pair.draft.set_attn_implementation("sdpa")
    assert result.tokens == generate_one_by_one("qwen3", torch.float32, NEW_TOKENS)


@pytest.mark.gpu
@pytest.mark.parametrize("move", METHODS)
@pytest.mark.parametrize("name", CLASSES)
@each_valid
def test_every_row_equals_generate_on_cuda(
    strategy: Strategy, name: str, move: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    _force_move(monkeypatch, move)
    pair, expected = (
        make_pair(name, torch.float64, "cuda"),
        generate_one_by_one(name, torch.float64, NEW_TOKENS, "cuda"),
    )
    for batch_size in (1, 3, 8):
        result = sv.generate(
            pair,
            make_prompts(),
            strategy=strategy,
            batch_size=batch_size,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
        assert result.tokens == expected, f"B={batch_size}"


@pytest.mark.parametrize("move", METHODS)
def test_all_ways_of_realigning_give_the_same_text(
    move: str, pair: sv.Pair, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _force_move(monkeypatch, move)
    result = sv.generate(
        pair, prompts, strategy="eqspec", batch_size=4, max_new_tokens=NEW_TOKENS, progress=False
    )
    assert result.tokens == generate_one_by_one("llama", torch.float32, NEW_TOKENS)


def _force_move(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(moving, "choose", lambda device, moves: method)


def test_the_strategy_of_contributing(pair: sv.Pair, prompts: list[list[int]]) -> None:
    """The example as it stands in the text, and its class on prompts that make rows ragged."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "class LazyEqSpec" in block
    )
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, "CONTRIBUTING.md", "exec"), names)
    assert printed.getvalue().strip() == "all invariants hold"
    for every in (1, 3, 7):
        lazy = names["LazyEqSpec"](every=every)
        result = sv.generate(
            pair,
            prompts,
            strategy=lazy,
            batch_size=4,
            max_new_tokens=NEW_TOKENS,
            record=True,
            progress=False,
        )
        assert result.tokens == generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    assert len(example.splitlines()) <= 40


@each_valid
def test_bundled_prompts_on_the_embedded_pair(strategy: Strategy, embedded: sv.Pair) -> None:
    result = sv.generate(
        embedded, sv.load_prompts(), strategy=strategy, max_new_tokens=48, progress=False
    )
    assert result.tokens == generate_bundled(embedded, 48)


@cache
def generate_bundled(pair: sv.Pair, new_tokens: int) -> list[list[int]]:
    """What transformers' `generate` writes for each bundled prompt alone."""
    rows = [pair.tokenizer(prompt, return_tensors="pt") for prompt in sv.load_prompts()]
    outputs = [
        pair.target.generate(**row, do_sample=False, max_new_tokens=new_tokens) for row in rows
    ]
    return [
        output[0, row["input_ids"].shape[1] :].tolist()
        for row, output in zip(rows, outputs, strict=True)
    ]
