"""Shapes without weights: real configurations, here scaled down, with random weights.

The texts of these models can be compared in any dtype.
"""

from typing import Any

import pytest
import torch

from specviz.bench import Grid, ShapePair, run_bench
from specviz.bench.sources import random_model
from specviz.costs.shapes import SHAPES

SMALLER = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 500,
    "initializer_range": 0.06,  # louder layers than 0.02 makes of so few numbers
}
RATES = (0.9, 0.7, 0.4)
CLASSES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def scaled(name: str) -> dict[str, dict[str, Any]]:
    return {role: config | SMALLER for role, config in SHAPES[name].items()}


@pytest.fixture(params=SHAPES)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a shape under which a scaled-down one stands."""
    monkeypatch.setitem(SHAPES, "small", scaled(request.param))
    return "small"


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_a_shape_writes_the_next_id_and_never_ends(small: str, dtype: str | None) -> None:
    pair = ShapePair(small).load("cpu", dtype)
    assert pair.target.dtype == pair.draft.dtype == (torch.float32 if dtype else torch.bfloat16)
    assert (pair.tokenizer, pair.eos_token_ids, pair.vocabulary_size) == (None, [], 500)
    prompt = torch.tensor([[3, 77, 498]])
    written = pair.target.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=6,
        pad_token_id=0,
    )
    assert written[0, 3:].tolist() == [499, 0, 1, 2, 3, 4]


def test_the_margin_is_wide_and_the_context_counts(small: str) -> None:
    """The best logit leads by far more than the rounding error of bfloat16.

    Other tokens before it also change a logit by far more than that.
    """
    model = random_model(SHAPES[small]["target"], torch.device("cpu"), torch.float32)
    ids = torch.randint(0, 500, (2, 20), generator=torch.Generator().manual_seed(0))
    ids[1, 10:] = ids[0, 10:]
    with torch.no_grad():
        logits = model(ids).logits.double()
        model = random_model(SHAPES[small]["target"], torch.device("cpu"), torch.bfloat16)
        rough = model(ids).logits.double()
    best = logits.topk(2).values
    noise = (logits - rough).abs().max()
    assert (best[..., 0] - best[..., 1]).min() > 20 * noise
    assert (logits[0, -1] - logits[1, -1]).abs().max() > 10 * noise


def test_weights_do_not_depend_on_what_was_drawn_before(small: str) -> None:
    config, device = SHAPES[small]["draft"], torch.device("cpu")
    before = torch.random.get_rng_state()
    first = random_model(config, device, torch.float32).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    second = random_model(config, device, torch.float32).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.parametrize("small", ["qwen3-8b/0.6b"], indirect=True)
def test_every_strategy_is_measured_at_the_acceptance_that_was_asked_for(small: str) -> None:
    """The measured mean length lies within 0.5 of the one that the rates give.

    The random draws have a fixed seed. There are 8 prompts with about 8 rounds each.
    """
    drafter = "synthetic:rates=" + "/".join(map(str, RATES))
    names = ("autoregressive", "hf_generate", "eqspec", "inplace")
    grid = Grid(names, (4,), (3,), (24,), (12,), (drafter,), devices=("cpu",), repetitions=1)
    table, found = run_bench(ShapePair(small), [], grid, limit=8, progress=False)
    assert table["failure"].tolist() == [""] * 4
    assert table["exact_match"].tolist() == [1] * 4
    assert table["new_tokens"].tolist() == [8 * 24] * 4
    length = pytest.approx(1 + sum(RATES), abs=0.5)
    assert table["mean_acceptance_length"].tolist() == [1, 1, length, length]
    assert (found["dtype"], found["prompts"]) == ("bfloat16", 8)
    assert str(found["draft"]).startswith(CLASSES[SHAPES["small"]["draft"]["model_type"]])


def test_a_name_or_a_device_that_is_unknown() -> None:
    said = r"^shapes must be one of qwen3-8b/0.6b, .*, got 'gpt'; choose one of them"
    with pytest.raises(ValueError, match=said):
        ShapePair("gpt")
    with pytest.raises(ValueError, match=r"^device='tpu' is unknown; "):
        ShapePair("qwen3-8b/0.6b").load("tpu", None)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 40e9,
    reason="needs a CUDA device with 40 GB",
)
@pytest.mark.parametrize("name", SHAPES)
def test_real_shapes_on_a_gpu(name: str) -> None:
    names = ("autoregressive", "inplace")
    drafters = ("synthetic:rates=0.9/0.7/0.4",)
    grid = Grid(names, (1, 8), (3,), (16,), (64,), drafters, devices=("cuda",), repetitions=1)
    table, _ = run_bench(ShapePair(name), [], grid, limit=8, progress=False)
    assert (table["failure"] == "").all()
    assert (table["exact_match"] == 1).all()
