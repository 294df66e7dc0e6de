"""A model is tried once before a run, and refused if its logits depend on where K/V lies."""

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
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXJapaneseConfig,
    GPTNeoXJapaneseForCausalLM,
    JetMoeConfig,
    JetMoeForCausalLM,
    LlamaForCausalLM,
    PreTrainedModel,
)

import specviz as sv
from specviz.engine.kv.slabs import SlabLayer
from specviz.engine.probe import check_exact, find_difference

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


def gpt_neo() -> PreTrainedModel:
    """Hides cache columns by a causal rule of its own, whatever the mask says."""
    config = GPTNeoConfig(
        **IDS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global"], 2]],
        initializer_range=0.3,
    )
    return GPTNeoForCausalLM(config)


UNUSUAL = [deepseek, big_code, jet_moe, doge, neox_japanese]


def made(make: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return make().eval()


class NoPositions(LlamaForCausalLM):
    """Derives positions from the number of tokens, as code that knows one row does."""

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        return super().forward(input_ids, attention_mask, None, past_key_values, **kwargs)


class OneMask(LlamaForCausalLM):
    """Gives every row the mask of the first."""

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        if attention_mask is not None:
            attention_mask = attention_mask[:1].expand_as(attention_mask)
        return super().forward(input_ids, attention_mask, position_ids, past_key_values, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CLASSES)
def test_models_that_obey_are_taken(name: str, dtype: torch.dtype) -> None:
    pair = make_pair(name, dtype)
    assert find_difference(pair.target) is None
    assert find_difference(pair.draft) is None


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


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (gpt_neo, "since it masks cache columns by a rule of its own"),
        (lambda: NoPositions(make_pair("llama").target.config), "does not read position_ids"),
        (lambda: OneMask(make_pair("llama").target.config), "does not give each row a mask"),
    ],
    ids=["mask by column", "no positions", "one mask"],
)
def test_models_that_do_not_obey_are_refused(make: Any, cause: str) -> None:
    model = made(make)
    good = make_pair("llama").target
    for role, pair in (("target", sv.Pair(model, good)), ("draft", sv.Pair(good, model))):
        name = f"{role}={type(model).__name__} cannot be decoded in a batch: its logits differ by"
        with pytest.raises(ValueError, match=re.escape(name) + ".*" + re.escape(cause)):
            sv.generate(pair, [[7, 8]], progress=False)
    # Without drafts the draft is not used.
    sv.generate(sv.Pair(good, model), [[7, 8]], strategy="autoregressive", progress=False)


def test_kv_that_the_cache_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SlabLayer.update

    def update(self: SlabLayer, keys: Any, values: Any, *args: Any) -> Any:
        keys, values = plain(self, keys, values, *args)
        return keys, values.roll(1, dims=2)

    monkeypatch.setattr(SlabLayer, "update", update)
    found = find_difference(make_pair("llama").target)
    assert found is not None
    assert "reads other K/V than the cache returns" in found


def test_an_exception_becomes_a_sentence() -> None:
    class Broken(LlamaForCausalLM):
        def forward(
            self,
            input_ids: Any = None,
            attention_mask: Any = None,
            position_ids: Any = None,
            past_key_values: Any = None,
            **kwargs: Any,
        ) -> Any:
            if past_key_values is not None:
                raise IndexError("no such layer\nin this cache")
            return super().forward(input_ids, **kwargs)

    model = made(lambda: Broken(make_pair("llama").target.config))
    with pytest.raises(ValueError, match="a trial forward raised IndexError: no such layer; "):
        check_exact("target", model)


def test_a_model_is_tried_once_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def find(model: PreTrainedModel) -> None:
        tried.append(model.dtype)

    monkeypatch.setattr("specviz.engine.probe.find_difference", find)
    model = made(lambda: LlamaForCausalLM(make_pair("llama").target.config))
    check_exact("target", model)
    check_exact("draft", model)
    check_exact("target", model.to(torch.bfloat16))
    assert tried == [torch.float32, torch.bfloat16]


def test_a_trial_leaves_no_trace_in_the_text() -> None:
    """Texts before and after it are the same, and the random state is untouched."""
    model = make_pair("qwen3").target
    before = torch.get_rng_state()
    assert find_difference(model) is None
    assert torch.equal(torch.get_rng_state(), before)
    result = sv.generate(make_pair("qwen3"), make_prompts(), max_new_tokens=8, progress=False)
    assert result.tokens == generate_one_by_one("qwen3", torch.float32, 8)
