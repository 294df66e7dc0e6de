"""Models as users bring them: mixed classes, wrapped, compiled, in training mode, with settings."""

import copy
import warnings
from typing import Any

import pytest
import tiny_models
import torch
from conftest import check_refusal, generate, generate_alone, make_pair, make_prompts
from tiny_models import tiny_model
from transformers import (
    AutoModelForCausalLM,
    DogeConfig,
    GenerationConfig,
    GPT2Config,
    HunYuanDenseV1Config,
    Llama4TextConfig,
    LlamaConfig,
    Olmo3Config,
    PreTrainedConfig,
    PreTrainedModel,
)

import specviz as sv
from specviz.engine.models.compat import read_setting
from specviz.engine.models.settings import _WITHOUT_EFFECT

NEW = 12


def check_text(target: PreTrainedModel, draft: PreTrainedModel | None = None, **options: Any):
    """The text is that of the target's `generate` for each prompt alone."""
    prompts = make_prompts()[1:6]
    expected = generate_alone(target, prompts, NEW)
    pair = sv.Pair(target, target if draft is None else draft)
    run = {"batch_size": 4, "num_draft_tokens": 3, "max_new_tokens": NEW} | options
    assert generate(pair, prompts, **run).tokens == expected


MIXES = [
    ("llama", "gpt2"),
    ("gpt2", "llama"),
    ("qwen2", "gpt_neox"),
    ("gemma", "opt"),
    ("deepseek_v3", "llama"),
    ("gpt_bigcode", "qwen3_moe"),
    ("doge", "phi"),
    ("gptj", "glm4"),
]


OTHER_STRATEGIES = ("inplace", "exspec", "masking", "rollback")


@pytest.mark.sweep(10)
@pytest.mark.parametrize(
    "strategy",
    ["eqspec", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_STRATEGIES)],
)
@pytest.mark.parametrize(("target", "draft"), MIXES)
def test_target_and_draft_of_different_families(target: str, draft: str, strategy: str) -> None:
    check_text(tiny_model(target), tiny_model(draft), strategy=strategy)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("config", [LlamaConfig, GPT2Config])
def test_tied_embeddings(config: type[PreTrainedConfig]) -> None:
    model = tiny_model(config.model_type, tie_word_embeddings=True)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    check_text(model, tiny_model("qwen3", tie_word_embeddings=True))


def test_a_model_that_keeps_no_cache_by_itself() -> None:
    model = tiny_model("llama")
    model.config.use_cache = False
    model.generation_config.use_cache = False
    check_text(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own
def test_a_compiled_model_is_refused_with_the_remedy() -> None:
    model = make_pair("llama").target
    check_refusal(
        lambda: sv.Pair(torch.compile(model), model),
        "target=OptimizedModule must be a transformers model; ",
        "pass the model before torch.compile, and compile=True to generate",
        error=TypeError,
    )


@pytest.mark.slow
def test_a_model_that_is_compiled_in_place() -> None:
    model = tiny_model("llama")
    prompts = make_prompts()[1:4]
    expected = generate_alone(model, prompts, 6)
    model.compile(backend="eager")
    result = generate(
        sv.Pair(model, tiny_model("gpt2")), prompts, max_new_tokens=6, num_draft_tokens=2
    )
    assert result.tokens == expected


def test_training_mode_is_refused() -> None:
    pair = sv.Pair(tiny_model("gpt2"), tiny_model("gpt2"))
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        # A part is enough: dropout works by module.
        model.transformer.h[1].train()
        check_refusal(
            lambda: generate(pair, [[7]]),
            f"{role}=GPT2LMHeadModel is in training mode",
            f"call pair.{role}.eval()",
        )
        model.eval()
    generate(pair, [[7]], max_new_tokens=2)
    pair.draft.train()
    generate(pair, [[7]], max_new_tokens=2, strategy="autoregressive")  # makes no use of it


CHANGING = {
    "suppress_tokens": [3, 4, 6, 8],
    "begin_suppress_tokens": [3, 4, 6, 8],
    "repetition_penalty": 1.3,
    "encoder_repetition_penalty": 1.3,
    "min_new_tokens": 5,
    "min_length": 5,
    "no_repeat_ngram_size": 2,
    "encoder_no_repeat_ngram_size": 2,
    "bad_words_ids": [[3], [4, 5]],
    "sequence_bias": [[[3], -5.0]],
    "forced_bos_token_id": 3,
    "forced_eos_token_id": 5,
    "exponential_decay_length_penalty": (3, 1.5),
    "guidance_scale": 1.5,
    "num_beams": 2,
    "stop_strings": ["a"],
    "max_time": 1.0,
    "token_healing": True,
    "cache_implementation": "quantized",
}


@pytest.mark.sweep(19)
@pytest.mark.parametrize("name", CHANGING)
def test_settings_that_only_generate_applies_are_named(name: str) -> None:
    pair = sv.Pair(tiny_model("llama"), tiny_model("llama"))
    assert pair.notes == ()
    setattr(pair.target.generation_config, name, CHANGING[name])
    with pytest.warns(UserWarning, match="target.generation_config has") as caught:
        generate(pair, [[7]], max_new_tokens=2)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert f"{name}={CHANGING[name]!r}: generate() would apply it and specviz does not" in message
    assert pair.notes == (message,)
    # The draft's settings change no text.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(sv.Pair(pair.draft, pair.target), [[7]], max_new_tokens=2)


SAME_TEXT = set(
    """
    max_length max_new_tokens early_stopping do_sample use_mtp use_cache cache_config max_cache_len
    temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff length_penalty
    renormalize_logits remove_invalid_values num_return_sequences output_attentions
    output_hidden_states output_scores output_logits return_dict_in_generate pad_token_id
    bos_token_id eos_token_id decoder_start_token_id is_assistant num_assistant_tokens
    num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens
    max_matching_ngram_size assistant_early_exit assistant_lookbehind target_lookbehind
    assistant_ensemble_weight speculation_type compile_config disable_compile
    continuous_batching_config low_memory diversity_penalty num_beam_groups prefill_chunk_size
    transformers_version
    """.split()  # noqa: SIM905
)


def test_every_setting_of_greedy_generate_is_known() -> None:
    """A later transformers may add one: decide whether it changes the text."""
    known = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert known - SAME_TEXT - set(_WITHOUT_EFFECT) == set()


@pytest.mark.parametrize(
    "settings",
    [
        {"eos_token_id": [5, 9, 17], "max_length": 20, "temperature": 0.7, "pad_token_id": 0},
        {"suppress_tokens": [], "repetition_penalty": 1.0, "num_beams": 1, "min_new_tokens": 0},
    ],
)
def test_settings_that_change_nothing(settings: dict[str, Any]) -> None:
    model = tiny_model("llama")
    model.generation_config.update(**settings)
    pair = sv.Pair(model, tiny_model("gpt2"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers says that greedy search has no temperature
        expected = generate_alone(model, make_prompts()[:4], NEW)
    assert generate(pair, make_prompts()[:4], max_new_tokens=NEW).tokens == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
def test_lora() -> None:
    peft = pytest.importorskip("peft", reason="needs peft")
    plain = tiny_model("llama")
    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.3, init_lora_weights=False, target_modules=["q_proj"]
    )
    wrapped = peft.get_peft_model(copy.deepcopy(plain), config).eval()
    check_refusal(
        lambda: sv.Pair(wrapped, plain),
        "target=PeftModel must be a transformers model; ",
        "pass model.get_base_model()",
        error=TypeError,
    )
    inner = wrapped.get_base_model()
    check_text(inner, plain)
    check_text(plain, inner)
    prompts = make_prompts()[1:6]
    assert generate_alone(inner, prompts, NEW) != generate_alone(plain, prompts, NEW)
    added = copy.deepcopy(plain)
    added.add_adapter(config)
    added.eval()
    check_text(added, plain)
    check_text(wrapped.merge_and_unload(), plain)


def test_a_model_that_selects_in_long_texts_is_used_for_short_ones() -> None:
    """Doge keeps the largest values of a window; which of two equal ones depends on slots."""
    doge = tiny_models.make_config(DogeConfig, keep_window_size=64)
    llama4 = tiny_models.make_config(
        Llama4TextConfig, layer_types=["full_attention"] * 2, floor_scale=64
    )
    for config in (doge, llama4):
        model = AutoModelForCausalLM.from_config(config).eval()
        check_text(model)
        pair = sv.Pair(model, model)
        assert pair.max_positions == 64
        check_refusal(lambda pair=pair: generate(pair, [[7] * 60]), "prompts[0] has 60 tokens; ")


def test_layer_types_say_more_than_a_window() -> None:
    """A window is that of sliding layers; without any, it does not count."""
    full = tiny_models.make_config(Olmo3Config, layer_types=["full_attention"] * 2)
    assert full.sliding_window == 8
    check_text(AutoModelForCausalLM.from_config(full).eval())


def test_rope_that_is_only_called_dynamic() -> None:
    """Hunyuan's alpha makes the frequencies fixed."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}
    config = tiny_models.make_config(HunYuanDenseV1Config, rope_parameters=rope)
    check_text(AutoModelForCausalLM.from_config(config).eval())


def test_a_setting_that_layers_differ_in() -> None:
    """Reading it raises in transformers."""
    config = copy.deepcopy(make_pair("llama").target.config)
    assert read_setting(config, "num_key_value_heads") == 2
    config.per_layer_config = {0: {"num_key_value_heads": 4}}
    with pytest.raises(RuntimeError):
        _ = config.num_key_value_heads
    assert read_setting(config, "num_key_value_heads") == 4
    assert read_setting(config, "nothing") is None
