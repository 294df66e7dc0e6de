"""The deterministic mode, in any dtype.

The target's K/V and logits are the same bits whatever the batch around a row.
"""

import pytest
import torch
from conftest import check_refusal, generate, generate_alone, make_pair, make_prompts
from test_equivalence import VALID

import specviz as sv
from specviz.engine.kv.deterministic import FixedModel, fixed_shape
from specviz.engine.strategies import Strategy

NEW_TOKENS = 12
STRATEGIES = (
    sv.strategy("autoregressive"),
    sv.strategy("inplace"),
    sv.strategy("eqspec"),
    sv.strategy("eqspec", refill=False),
    sv.strategy("masking"),
    sv.strategy("rollback"),
    sv.strategy("exspec", window=8, fallback="wait", max_wait=2),
)


def run(
    pair: sv.Pair,
    prompts: list[list[int]],
    strategy: str | Strategy,
    batch_size: int,
    **options: object,
) -> sv.Result:
    arguments = {"max_new_tokens": NEW_TOKENS, "deterministic": True} | options
    return generate(pair, prompts, strategy=strategy, batch_size=batch_size, **arguments)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param("gpt2", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("qwen3", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("glm4", torch.bfloat16, marks=pytest.mark.slow),
        ("llama", torch.float32),
    ],
    ids=str,
)
def test_text_does_not_depend_on_the_batch(name, dtype):
    """The text is the same in bf16, where another batch size usually changes some rows."""
    pair, prompts = make_pair(name, dtype), make_prompts()
    alone = run(pair, prompts, "autoregressive", 1)
    for strategy in STRATEGIES:
        assert run(pair, prompts, strategy, 4).tokens == alone.tokens, strategy


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec"])
def test_a_sample_does_not_depend_on_the_batch_though_the_draft_has_a_say(strategy):
    """coupling="rejection" reads the draft's probabilities.

    So the draft's rounding in bf16 has to be the same in every batch, too.
    """
    pair, prompts = make_pair("llama", torch.bfloat16), make_prompts()
    options = {"sampling": sv.SamplingParams(1.0), "seed": 3, "max_new_tokens": 24}
    alone = run(pair, prompts, strategy, 1, **options)
    for batch_size in (2, 5, 10):
        result = run(pair, prompts, strategy, batch_size, **options)
        assert result.tokens == alone.tokens, batch_size


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafter",
    [sv.drafter("lookup"), sv.drafter("synthetic", rates=[0.9, 0.7, 0.5, 0.4, 0.3])],
    ids=lambda d: d.name,
)
def test_text_does_not_depend_on_the_drafter(drafter):
    """Of the synthetic one's drafts enough are accepted that the drafter matters."""
    pair, prompts = make_pair("llama", torch.bfloat16), make_prompts()
    alone = run(pair, prompts, "autoregressive", 1)
    for strategy in VALID:
        result = run(pair, prompts, strategy, 4, drafter=drafter)
        assert result.tokens == alone.tokens, strategy
        if drafter.name == "synthetic" and strategy.drafts:
            assert result.summary["draft_acceptance_rate"].item() > 0.1, strategy


def recorded_logits(result: sv.Result) -> dict[tuple[int, int], tuple[float, ...]]:
    """The target's best log-probabilities where it said each kept token, by request and index."""
    rows = result.trace.rows
    said = {}
    columns = (rows[name].tolist() for name in ("request", "length", "gained"))
    for number, (request, length, gained) in enumerate(zip(*columns, strict=True)):
        for j in range(gained):
            said[request, length + j] = tuple(rows["target_top_logprobs"][number, j].tolist())
    return said


@pytest.mark.slow
def test_logits_are_the_same_bits(prompts):
    pair = make_pair("llama", torch.bfloat16)
    whole = run(pair, prompts, "autoregressive", 1, record=True)
    alone = recorded_logits(whole)
    for strategy in STRATEGIES[1:]:
        result = run(pair, prompts, strategy, 4, record=True)
        assert result.tokens == whole.tokens
        assert recorded_logits(result) == alone, strategy
    twice = run(pair, prompts * 2, "inplace", 12)  # twelve rows take two forwards
    assert twice.tokens == whole.tokens * 2
    moved = recorded_logits(run(pair, prompts, "eqspec", 4, record=True, deterministic=False))
    assert moved != alone  # the mode is what does it: without it the bits differ somewhere


def test_prompts_longer_than_a_chunk_of_the_prefill():
    pair = make_pair("llama", torch.bfloat16)
    generator = torch.Generator().manual_seed(5)
    prompts = [
        torch.randint(0, 97, (n,), generator=generator).tolist() for n in (64, 65, 66, 130, 3)
    ]
    alone = run(pair, prompts, "autoregressive", 1)
    assert run(pair, prompts, "eqspec", 5).tokens == alone.tokens
    assert run(pair, prompts[::-1], "inplace", 2).tokens == alone.tokens[::-1]


def test_the_text_is_generates_own_in_fp64(prompts):
    pair = make_pair("qwen3", torch.float64)
    expected = generate_alone(pair.target, prompts, NEW_TOKENS)
    assert run(pair, prompts, "eqspec", 4).tokens == expected


def test_every_forward_has_the_one_shape(monkeypatch, prompts):
    pair, seen = make_pair("llama"), set()
    original = FixedModel._arguments

    def watched(self, feed, dense):  # type: ignore[no-untyped-def]
        seen.add((tuple(feed.tokens.shape), tuple(feed.visible.shape), tuple(feed.order.shape)))
        return original(self, feed, dense)

    monkeypatch.setattr(FixedModel, "_arguments", watched)
    run(pair, prompts, "exspec", 3)
    run(pair, prompts, "autoregressive", 10)
    assert seen == {((8, 6), (8, 6, 256), (8, 256)), ((8, 64), (8, 64, 256), (8, 256))}
    assert fixed_shape(6, 251).attended == 512


def test_a_fault_is_still_seen(prompts):
    pair, prompts = make_pair("llama"), prompts[2:6]
    alone = run(pair, prompts, "autoregressive", 1)
    for kind in ("positions", "mask", "kv", "bonus"):
        broken = run(pair, prompts, sv.strategy("eqspec", break_invariant=kind), 4)
        assert broken.tokens != alone.tokens, kind


def test_it_has_to_be_a_bool(pair):
    check_refusal(
        lambda: generate(pair, [[1]], deterministic="yes"),
        "deterministic must be a bool, got 'yes'; pass True or False",
    )


@pytest.mark.gpu
def test_text_does_not_depend_on_the_batch_on_cuda(prompts):
    pair = make_pair("llama", torch.bfloat16, "cuda")
    alone = run(pair, prompts, "autoregressive", 1)
    for strategy in STRATEGIES:
        assert run(pair, prompts, strategy, 8).tokens == alone.tokens, strategy
