"""A model is tried once before a run, and refused if its logits depend on where K/V lies."""

import copy
import re
from typing import Any

import pytest
import torch
from conftest import CLASSES, generate_one_by_one, make_pair, make_prompts
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DogeConfig,
    DogeForCausalLM,
    GPTBigCodeConfig,
    GPTBigCodeForCausalLM,
    GPTNeoXJapaneseConfig,
    GPTNeoXJapaneseForCausalLM,
    JetMoeConfig,
    JetMoeForCausalLM,
    LlamaForCausalLM,
    PreTrainedModel,
)

import specviz as sv
from specviz.engine import trial
from specviz.engine.kv.slabs import SlabLayer
from specviz.engine.trial import check_exact, find_difference

IDS: dict[str, Any] = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 5, "pad_token_id": 0}
MOE: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}


def deepseek() -> PreTrainedModel:
    """Latent attention: keys and values of different size, and as many heads as queries."""
    config = DeepseekV2Config(
        **IDS,
        **MOE,
        num_key_value_heads=4,
        intermediate_size=64,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
        initializer_range=0.3,
    )
    return DeepseekV2ForCausalLM(config)


def big_code() -> PreTrainedModel:
    """Multi-query: one head of K/V, which the configuration does not state."""
    config = GPTBigCodeConfig(**IDS, n_embd=32, n_layer=2, n_head=4, n_positions=128)
    return GPTBigCodeForCausalLM(config)


def jet_moe() -> PreTrainedModel:
    """Each token chooses its query heads, so there are more of them than stated."""
    config = JetMoeConfig(
        **IDS,
        num_hidden_layers=2,
        hidden_size=32,
        num_key_value_heads=2,
        kv_channels=8,
        intermediate_size=64,
        num_local_experts=4,
        initializer_range=0.3,
    )
    return JetMoeForCausalLM(config)


def doge() -> PreTrainedModel:
    """Works on the mask itself, by head."""
    config = DogeConfig(
        **IDS, **MOE, num_key_value_heads=2, intermediate_size=64, initializer_range=0.3
    )
    return DogeForCausalLM(config)


def neox_japanese() -> PreTrainedModel:
    """Takes views of K/V, so they have to be contiguous."""
    config = GPTNeoXJapaneseConfig(**IDS, **MOE, initializer_range=0.3)
    return GPTNeoXJapaneseForCausalLM(config)


UNUSUAL = [deepseek, big_code, jet_moe, doge, neox_japanese]


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
@pytest.mark.parametrize("make", UNUSUAL)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec", "masking"])
def test_unusual_attention_is_exact(make: Any, strategy: str) -> None:
    """Compare with `generate` of each prompt alone. The draft is another random model."""
    target = made(make)
    draft = make_pair("llama").draft
    prompts = make_prompts()[2:7]
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = target.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12
            )
        expected.append(out[0, len(prompt) :].tolist())
    for pair in (sv.Pair(target, target), sv.Pair(target, draft)):
        result = sv.generate(
            pair, prompts, strategy=strategy, batch_size=4, max_new_tokens=12, progress=False
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
