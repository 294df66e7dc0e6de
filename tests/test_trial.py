"""A model is tried once before a run, and refused if its logits depend on where K/V lies."""

import copy
import re
from typing import Any

import pytest
import torch
from conftest import (
    CLASSES,
    generate,
    generate_alone,
    generate_one_by_one,
    make_pair,
    make_prompts,
)
from tiny_models import tiny_model
from transformers import LlamaForCausalLM, PreTrainedModel

import specviz as sv
from specviz.engine import trial
from specviz.engine.kv.slabs import SlabLayer
from specviz.engine.trial import check_exact, find_difference

# Keys and values of different size; one head of K/V, which the configuration does not state; more
# query heads than stated; a mask by head; views of K/V, which have to be contiguous.
UNUSUAL = ["deepseek_v2", "gpt_bigcode", "jetmoe", "doge", "gpt_neox_japanese"]


def made(make: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return make().eval()


class Altered(LlamaForCausalLM):
    """A Llama that changes what its forward is given."""

    def alter(self, given: dict[str, Any]) -> None:
        raise NotImplementedError

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        **others: Any,
    ) -> Any:
        given = {
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "past_key_values": past_key_values,
        }
        self.alter(given)
        return super().forward(input_ids, **given, **others)


class NoPositions(Altered):
    """Derives positions from the number of tokens, as code that knows one row does."""

    def alter(self, given: dict[str, Any]) -> None:
        given["position_ids"] = None


class StretchedPositions(Altered):
    """Counts positions in steps of its own."""

    def alter(self, given: dict[str, Any]) -> None:
        if given["position_ids"] is not None:
            given["position_ids"] = 3 * given["position_ids"]


class OneMask(Altered):
    """Gives every row the mask of the first."""

    def alter(self, given: dict[str, Any]) -> None:
        mask = given["attention_mask"]
        if mask is not None:
            given["attention_mask"] = mask[:1].expand_as(mask)


def mask_by_column() -> PreTrainedModel:
    """Hides cache columns by a causal rule of its own, whatever the mask says."""

    def alter(module: Any, args: Any, given: dict[str, Any]) -> Any:
        mask = given["attention_mask"]  # (b, 1, q, w), or the queries of each head after each other
        if mask is not None:
            q, w = given["position_ids"].shape[1], mask.shape[-1]
            own = torch.arange(w - q, w).repeat(mask.shape[-2] // q)
            hidden = torch.arange(w) > own[:, None]
            given["attention_mask"] = mask.masked_fill(hidden, torch.finfo(mask.dtype).min)
        return args, given

    model = LlamaForCausalLM(make_pair("llama").target.config)
    model.model.register_forward_pre_hook(alter, with_kwargs=True)
    return model


class Broken(Altered):
    """Cannot read our cache."""

    def alter(self, given: dict[str, Any]) -> None:
        if given["past_key_values"] is not None:
            raise IndexError("no such layer.\nin this cache")


def altered(model_class: type[Altered]) -> PreTrainedModel:
    return made(lambda: model_class(make_pair("llama").target.config))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CLASSES)
def test_models_that_obey_are_taken(name: str, dtype: torch.dtype) -> None:
    pair = make_pair(name, dtype)
    assert find_difference(pair.target) is None
    assert find_difference(pair.draft) is None


@pytest.mark.sweep(24)
@pytest.mark.parametrize("family", UNUSUAL)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec", "masking"])
def test_unusual_attention_is_exact(family: str, strategy: str) -> None:
    """Compare with `generate` of each prompt alone. The draft is another random model."""
    target = tiny_model(family)
    prompts = make_prompts()[2:7]
    expected = generate_alone(target, prompts, 12)
    for draft in (target, make_pair("llama").draft):
        result = generate(
            sv.Pair(target, draft), prompts, strategy=strategy, batch_size=4, max_new_tokens=12
        )
        assert result.tokens == expected


@pytest.mark.parametrize("kind", [None, NoPositions, StretchedPositions, OneMask])
def test_models_that_do_not_obey_are_refused(kind: type[Altered] | None) -> None:
    model = made(mask_by_column) if kind is None else altered(kind)
    good = make_pair("llama").target
    for role, pair in (("target", sv.Pair(model, good)), ("draft", sv.Pair(good, model))):
        name = f"{role}={type(model).__name__} cannot be decoded in a batch: its logits differ by"
        with pytest.raises(ValueError, match=re.escape(name)):
            sv.generate(pair, [[7, 8]], progress=False)
    # Without drafts the draft is not used.
    sv.generate(sv.Pair(good, model), [[7, 8]], strategy="autoregressive", progress=False)


def test_kv_that_the_cache_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SlabLayer.update

    def update(self: SlabLayer, keys: Any, values: Any, *args: Any) -> Any:
        keys, values = plain(self, keys, values, *args)
        return keys, values.roll(1, dims=2)

    monkeypatch.setattr(SlabLayer, "update", update)
    assert find_difference(make_pair("llama").target) is not None


def test_an_exception_becomes_a_sentence() -> None:
    with pytest.raises(ValueError, match="a trial forward raised IndexError: no such layer; "):
        check_exact("target", altered(Broken))


def deep_llama(dtype: torch.dtype) -> PreTrainedModel:
    config = copy.deepcopy(make_pair("llama").target.config)
    config.num_hidden_layers = 6
    return made(lambda: LlamaForCausalLM(config)).to(dtype)


def positions_by_slot(model: PreTrainedModel, given: dict[str, Any]) -> None:
    cache = given["past_key_values"]
    if cache is not None:
        rotary = model.model.rotary_emb
        given["position_embeddings"] = rotary(given["hidden_states"], cache.access.slots)


def sees_holes(model: PreTrainedModel, given: dict[str, Any]) -> None:
    if given["attention_mask"] is not None:
        given["attention_mask"] = given["attention_mask"].clone()
        given["attention_mask"][..., :100] = 0


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("alter", [positions_by_slot, sees_holes])
def test_one_wrong_layer_of_many_is_found(alter: Any, layer: int, dtype: torch.dtype) -> None:
    """What the last layer does wrong may be less than what bfloat16 rounds."""
    model = deep_llama(dtype)
    assert find_difference(model) is None

    def hook(module: Any, inputs: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        alter(model, given)
        return inputs, given

    attention = model.model.layers[layer].self_attn
    attention.register_forward_pre_hook(hook, with_kwargs=True)
    found = find_difference(model)
    assert found is not None
    assert "its logits differ by" in found


def test_a_model_is_tried_once_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def find(model: PreTrainedModel) -> None:
        tried.append(model.dtype)

    monkeypatch.setattr(trial, "find_difference", find)
    model = made(lambda: LlamaForCausalLM(make_pair("llama").target.config))
    check_exact("target", model)
    check_exact("draft", model)
    check_exact("target", model.to(torch.bfloat16))
    assert tried == [torch.float32, torch.bfloat16]


def test_a_refusal_is_not_kept() -> None:
    """Its reason may pass; the model is tried again."""
    model = made(lambda: LlamaForCausalLM(make_pair("llama").target.config))

    def fail(*_: object) -> None:
        raise RuntimeError("a hook of the user's")

    hook = model.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="a trial forward raised RuntimeError: a hook of the"):
        check_exact("target", model)
    hook.remove()
    check_exact("target", model)


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_a_lack_of_memory_is_no_fault_of_the_model(error: type[Exception]) -> None:
    model = made(lambda: LlamaForCausalLM(make_pair("llama").target.config))

    def fail(*_: object) -> None:
        raise error("no room")

    model.register_forward_pre_hook(fail)
    with pytest.raises(error, match="no room"):
        check_exact("target", model)


def test_a_trial_leaves_no_trace_in_the_text() -> None:
    """Texts before and after it are the same, and the random state is untouched."""
    model = make_pair("qwen3").target
    before = torch.get_rng_state()
    assert find_difference(model) is None
    assert torch.equal(torch.get_rng_state(), before)
    result = sv.generate(make_pair("qwen3"), make_prompts(), max_new_tokens=8, progress=False)
    assert result.tokens == generate_one_by_one("qwen3", torch.float32, 8)
