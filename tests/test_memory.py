"""Memory by the model against real runs: each tensor, and the peak of all on a CPU and a GPU."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import specviz as sv
from specviz.costs.memory import RunMemory, memory, peak_bytes
from specviz.costs.shapes import named_pair
from specviz.engine.heads import KINDS as ALL_KINDS
from specviz.engine.heads import build_head
from specviz.engine.options import Options
from specviz.engine.peak import PeakMeter
from specviz.engine.run import make_run
from specviz.engine.strategies import STRATEGIES, Strategy
from specviz.generation.memory import shape_of

K, BATCH, BUDGET = 4, 3, 5
HOW = [
    *(sv.strategy(name) for name in STRATEGIES if name != "exspec"),
    sv.strategy("exspec", window=5),
]
IDS = [how.name for how in HOW]
OPTIONS: dict[str, Any] = {"batch_size": BATCH, "num_draft_tokens": K, "max_new_tokens": BUDGET}


def make_pair(
    dtype: torch.dtype = torch.float32, scale: int = 1, vocabulary: int = 997, device: str = "cpu"
) -> sv.Pair:
    """Random weights, no EOS; large enough that a page here and there is no matter."""
    torch.manual_seed(0)

    def model(hidden: int, layers: int) -> LlamaForCausalLM:
        config = LlamaConfig(
            hidden_size=hidden,
            intermediate_size=5 * hidden // 2,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=vocabulary,
            eos_token_id=[],
        )
        return LlamaForCausalLM(config).to(device, dtype)

    return sv.Pair(model(128 * scale, 4), model(64 * scale, 2))


KINDS = tuple(kind for kind in ALL_KINDS if kind != "dflash")  # whose block no plan counts


def make_prompts(longest: int, count: int = 7) -> list[list[int]]:
    return [[(7 * i + j) % 900 for j in range(longest - i)] for i in range(count)]


def parts(table: pd.DataFrame) -> dict[str, int]:
    return dict(zip(table["part"], table["bytes"], strict=True))


def with_head(pair: sv.Pair, kind: str) -> sv.Pair:
    head = build_head(kind, pair.target).to(pair.target.dtype).eval()
    return replace(pair, heads={kind: head})


def predict(
    pair: sv.Pair, how: Strategy, longest: int, requests: int = 7, **options: Any
) -> pd.DataFrame:
    """Of a run with the pair's head, or without one with its draft model."""
    (draft,) = pair.heads.values() or [pair.draft]
    dtype = str(pair.target.dtype).removeprefix("torch.")
    given = OPTIONS | {"dtype": dtype, "prompt_tokens": longest, "requests": requests} | options
    return memory(shape_of(pair.target), shape_of(draft), how, **given)


def without_weights(table: pd.DataFrame) -> int:
    """The peak without the weights, which would hide the rest."""
    found = parts(table)
    return peak_bytes(table) - found["target weights"] - found["draft weights"]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("how", HOW, ids=IDS)
def test_parts_are_the_bytes_of_the_tensors(how: Strategy) -> None:
    """Weights, slabs, tokens and logits of a run, each tensor's own bytes."""
    pair = make_pair()
    run = make_run(pair, make_prompts(30), Options(strategy=how, **OPTIONS))
    logits: dict[str, int] = {}
    for event in run.events():
        if event.phase == "draft" and event.draft.logits is not None:
            logits["draft logits"] = max(event.draft.logits.nbytes, logits.get("draft logits", 0))
        if event.phase == "verify":
            logits["target logits"] = max(event.logits.nbytes, logits.get("target logits", 0))
    found = parts(predict(pair, how, 30))
    slabs = {
        name: sum(
            slab.nbytes
            for layer in run.state.caches[name].cache.layers
            for slab in (layer.keys, layer.values)  # noqa: PD011 - a slab, not a frame
        )
        for name in run.state.caches
    }
    assert found["target K/V"] == slabs["target"]
    assert found["draft K/V"] == slabs.get("draft", 0)
    assert found["target logits"] == logits["target logits"]
    assert found["draft logits"] == logits.get("draft logits", 0)
    for name, model in (("target weights", pair.target), ("draft weights", pair.draft)):
        assert found[name] == sum(parameter.nbytes for parameter in model.parameters())
    batch = run.state.batch
    assert found["tokens"] == pytest.approx(
        batch.tokens.nbytes + batch.lengths.nbytes + batch.limits.nbytes, rel=0.05
    )


# Prompts or logits are what counts; with a head, the target's hidden states of all layers as well.
CASES = [
    ("autoregressive", "bfloat16", 100, 997, None),
    ("eqspec", "float32", 100, 997, None),
    ("exspec", "bfloat16", 100, 997, None),
    ("inplace", "bfloat16", 100, 997, None),
    ("inplace", "float32", 12, 4999, None),
    ("masking", "float32", 100, 997, None),
    ("rollback", "bfloat16", 12, 4999, None),
    *(("inplace", "float32", 100, 997, kind) for kind in KINDS),
    *(("eqspec", "bfloat16", 100, 997, kind) for kind in KINDS),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("name", "dtype", "longest", "vocabulary", "kind"), CASES)
def test_peak_is_within_5_per_cent_of_what_tensors_held_on_a_cpu(
    name: str, dtype: str, longest: int, vocabulary: int, kind: str | None
) -> None:
    """All tensors of a run, workspaces and copies among them, beside the weights."""
    pair = make_pair(getattr(torch, dtype), 2, vocabulary)
    pair = pair if kind is None else with_head(pair, kind)
    run = OPTIONS | {"strategy": HOW[IDS.index(name)], "drafter": kind or "model"}
    sv.generate(pair, [[1]], progress=False, **run)  # with the trial, which is not counted
    with PeakMeter([pair.target, pair.draft, *pair.heads.values()]) as held:
        sv.generate(pair, make_prompts(longest), progress=False, **run)
    predicted = without_weights(predict(pair, run["strategy"], longest))
    assert predicted == pytest.approx(held.peak_bytes, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_head_are_the_bytes_of_its_tensors(kind: str) -> None:
    """Its own weights, its K/V, and what is kept of the target's hidden states."""
    pair = with_head(make_pair(), kind)
    options = Options(strategy=sv.strategy("eqspec"), drafter=kind, **OPTIONS)
    run = make_run(pair, make_prompts(30), options)
    for event in run.events():
        if event.phase == "draft":
            logits = event.draft.logits.nbytes
            break
    found = parts(predict(pair, sv.strategy("eqspec"), 30))
    slabs = run.state.caches["draft"].cache.layers
    held = [slab for layer in slabs if layer.is_initialized for slab in (layer.keys, layer.values)]  # noqa: PD011
    assert len(held) == (0 if kind == "medusa" else 2)
    assert found["draft K/V"] == sum(slab.nbytes for slab in held)
    assert found["features"] == run.state.features.values.nbytes  # noqa: PD011 - tensors
    assert found["draft logits"] == logits
    assert found["draft weights"] == sum(tensor.nbytes for tensor in pair.heads[kind].parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["inplace", "eqspec", "exspec", "autoregressive"])
def test_peak_is_within_5_per_cent_of_the_allocator_on_a_gpu(name: str) -> None:
    how = HOW[IDS.index(name)]
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pair = make_pair(torch.bfloat16, 16, 32_000, "cuda:0")
    # All rows end in the same round, so that the next ones enter together. This is the hungriest
    # step, and otherwise it depends on what the device accepts.
    prompts, options = make_prompts(200, 14), OPTIONS | {"max_new_tokens": 1}
    sv.generate(pair, prompts, strategy=how, progress=False, **options)
    torch.cuda.synchronize()
    # Weights, and what libraries keep.
    kept = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    sv.generate(pair, prompts, strategy=how, progress=False, **options)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    predicted = without_weights(predict(pair, how, 200, requests=14, **options))
    assert predicted == pytest.approx(peak - kept, rel=0.05)


def test_what_is_not_needed_is_not_counted() -> None:
    pair = make_pair()
    target, draft = shape_of(pair.target), shape_of(pair.draft)
    plain = parts(predict(pair, sv.strategy("autoregressive"), 30))
    assert plain["draft K/V"] == plain["draft logits"] == plain["drafting"] == 0
    assert plain["draft weights"] == draft.weight_bytes("float32")  # loaded, if not used
    asked = OPTIONS | {"dtype": "float32", "prompt_tokens": 30}
    lookup = parts(memory(target, None, sv.strategy("inplace"), **asked))
    assert lookup["draft weights"] == lookup["draft K/V"] == lookup["draft logits"] == 0
    few = parts(predict(pair, sv.strategy("exspec", window=32), 30, requests=2))
    slots = 2 * (30 + BUDGET + K + 1)
    assert few["target K/V"] == slots * target.kv_bytes_per_slot("float32")


@pytest.mark.parametrize("how", [*HOW[:-1], sv.strategy("exspec", window=100)], ids=IDS)
def test_the_largest_batch_fits_and_one_more_does_not(how: Strategy) -> None:
    target, draft = named_pair("qwen3-8b/0.6b")
    sizes = {"num_draft_tokens": 5, "prompt_tokens": 512, "max_new_tokens": 128}
    asked: dict[str, Any] = {"dtype": "bfloat16"} | sizes

    def peak(batch_size: int) -> int:
        return peak_bytes(memory(target, draft, how, batch_size=batch_size, **asked))

    for budget in (40e9, 141e9):
        found = RunMemory(target, draft, how, **asked).largest_batch(budget)
        assert found > 0
        assert peak(found) <= budget
        if how.name != "exspec" or found < 100:  # its pool of 100 rows takes no more
            assert peak(found + 1) > budget
    assert RunMemory(target, draft, how, **asked).largest_batch(17e9) == 0  # not even the weights


def test_a_batch_that_the_strategy_refuses_has_no_memory() -> None:
    asked: dict[str, Any] = {"dtype": "float32", "prompt_tokens": 9, "max_new_tokens": 4}
    with pytest.raises(ValueError, match="window=32 is smaller than batch_size=33"):
        memory(*named_pair("vicuna-7b/68m"), sv.strategy("exspec"), batch_size=33, **asked)
