"""Every family of causal LMs in transformers, built tiny from its configuration, at random.

Contract: `make_config` and `build` know configurations and model classes. What specviz does with a
model is not known here; see families.py.
"""

import copy
import dataclasses
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

MOST_PARAMETERS = 5_000_000
EOS = 5

# Sizes under the names that the configurations use. A family takes those that it has.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 97),
    **dict.fromkeys(("hidden_size", "n_embd", "n_embed", "d_model", "embed_dim", "emb_dim"), 32),
    **dict.fromkeys(("hidden_size_per_layer_input", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "expert_ffn_hidden_size"), 64),
    **dict.fromkeys(("head_dim", "global_head_dim", "rotary_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "index_head_dim"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    "num_experts_per_tok": 2,
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 8),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "initializer_range": 0.3,  # so that the tokens of random models vary
    "tie_word_embeddings": False,  # tied to random embeddings, many models repeat one token
}
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks")
STACKS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")

# What a layer does differently beyond so many tokens: less than the longest prompt has, so that a
# tiny run gets there.
LIMITS: dict[str, Any] = {
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window_size"), 8),
    **dict.fromkeys(("attention_chunk_size", "local_attention", "window_size"), 8),
    "local_attention_window_len": 8,
    **dict.fromkeys(("log_scaling_n_floor", "index_topk", "index_block_size"), 4),
    "index_topk_blocks": 1,
}

# What some families need besides: sizes under names of their own, or sizes that must agree.
LATENT = {
    family: {"num_key_value_heads": 4}
    for family in (
        *("axk1", "axk2", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32"),
        *("dots3_note", "dots3_note_text", "glm4_moe_lite", "glm_moe_dsa", "kimi_linear"),
        *("minicpm3", "youtu"),
    )
}
MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
INDEXER = dict.fromkeys(("indexer_n_heads", "indexer_kv_heads"), 1) | {
    "indexer_head_dim": 8,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
    "hc_lowrank": 8,
}
MIXED = ["sliding_attention", "full_attention"]
ASSISTANT = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_attention_heads")}
ASSISTANT |= {"num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 8}
ASSISTANT |= {"intermediate_size": 64, "layer_types": MIXED * 2, "num_hidden_layers": 4}
ASSISTANT |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
SPECIAL: dict[str, dict[str, Any]] = LATENT | {
    "bamba": MAMBA_HEADS | {"attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 97},
    "blt_local_encoder": {"hidden_size_global": 32},
    "blt_local_decoder": {"hidden_size_global": 32},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
            for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 64},
    },
    "dots3_note_text": LATENT["dots3_note_text"]
    | {"shared_experts_intermediate_size": 16}
    | {f"swa_num_{name}": 4 for name in ("attention_heads", "key_value_heads")}
    | {f"swa_{name}": 16 for name in ("q_lora_rank", "kv_lora_rank", "head_dim")}
    | {"swa_qk_nope_head_dim": 8, "swa_v_head_dim": 8},
    "falcon_h1": MAMBA_HEADS | {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4_assistant": {
        "backbone_hidden_size": 32,
        "text_config": ASSISTANT | {"model_type": "gemma4_text"},
    },
    "gemma4_unified_assistant": {
        "backbone_hidden_size": 32,
        "text_config": ASSISTANT | {"model_type": "gemma4_unified_text", "num_kv_shared_layers": 2},
    },
    "gemma4_unified_vision": {"mm_embed_dim": 32, "mm_posemb_size": 8, "output_proj_dims": 32},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": MAMBA_HEADS | {"layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"num_key_value_heads": 4, "zero_expert_num": 2, "moe_topk": 2},
    "mamba2": {"num_heads": 8, "state_size": 8},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8},
    "qwen4_exp_text": INDEXER,
    "reformer": {
        "is_decoder": True,
        "attention_head_size": 8,
        "feed_forward_size": 64,
        "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [8, 24],
        "num_buckets": 2,
        "hash_seed": 0,
    },
    "roc_bert": {"shape_vocab_size": 9, "pronunciation_vocab_size": 9},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "xlstm": {"hidden_size": 64, "num_heads": 4, "qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}


# Other settings of families whose own specviz refuses.
FULL_ATTENTION = {"layer_types": ["full_attention"] * 2, "attention_types": [[["global"], 2]]}
NO_WINDOW = {"sliding_window": None}
DECODER = {"is_decoder": True}


class NotBuiltError(Exception):
    """A family cannot be built tiny; says why."""


def families() -> dict[str, type[PreTrainedConfig]]:
    """Return the configuration class that each family's causal LM is built from, by its name."""
    found = {}
    for config_class, model_class in MODEL_FOR_CAUSAL_LM_MAPPING.items():
        parts = getattr(config_class, "sub_configs", {}).values()
        # Of a model with several parts, the causal LM may be one.
        own = model_class.config_class in parts
        found[config_class.model_type] = model_class.config_class if own else config_class
    return found


def make_config(config_class: type[PreTrainedConfig], **changes: Any) -> PreTrainedConfig:
    """Return a tiny configuration: two layers, or one of each type that the default has.

    Args:
        changes: fields that are set otherwise, in nested configurations, too, if they have them.
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    default = _default(config_class)
    special = SPECIAL.get(config_class.model_type, {})
    wanted = SIZES | LIMITS
    for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
        types = getattr(default, name, None)
        if types:
            wanted[name] = list(dict.fromkeys(types))
    wanted |= special | changes
    # Some take more keywords than they have fields.
    known |= special.keys()
    values = {name: value for name, value in wanted.items() if name in known}
    # A limit that is off by default is off here, too.
    for name in LIMITS.keys() - changes.keys():
        if name in values and getattr(default, name, None) is None:
            del values[name]
    _agree_on_layers(values, known)
    for name, part in getattr(config_class, "sub_configs", {}).items():
        part_class = type(getattr(default, name, None)) if part is AutoConfig else part
        if name not in values and issubclass(part_class, PreTrainedConfig):
            values[name] = make_config(part_class, **changes)
    try:
        return config_class(**values)
    except Exception as error:
        raise NotBuiltError(_first_line(error)) from error


def alternative(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """Return the changes that make all layers attend to every earlier token, and to no later one.

    Empty if the family has no such setting.
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    changes = FULL_ATTENTION | DECODER
    if "layer_types" not in known:
        changes |= NO_WINDOW
    parts = getattr(config_class, "sub_configs", {}).values()
    found = {name: value for name, value in changes.items() if name in known}
    for part in parts:
        if part is not AutoConfig:
            found |= alternative(part)
    return found


def _default(config_class: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    try:
        return config_class()
    except Exception:  # its defaults contradict each other
        return None


def _agree_on_layers(values: dict[str, Any], known: set[str]) -> None:
    """Make all lists of layers as long as the longest, and the numbers of layers, too."""
    lists = [
        name
        for name in ("layer_types", "mlp_layer_types", "layers_block_type")
        if isinstance(values.get(name), list)
    ]
    count = max([2, *(len(values[name]) for name in lists)])
    for name in lists:
        types = values[name]
        values[name] = [types[i % len(types)] for i in range(count)]
    values |= {name: count for name in LAYER_COUNTS if name in known}
    values |= {name: 2 for name in STACKS if name in known}


def build(family: str, config: PreTrainedConfig, attention: str) -> PreTrainedModel:
    """Return a random model of the family; raise NotBuiltError with the reason if there is none."""
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[family]]
    # Each class has its own way to refuse a configuration.
    try:
        with torch.device("meta"):
            counted = model_class._from_config(copy.deepcopy(config), attn_implementation=attention)
        size = sum(parameter.numel() for parameter in counted.parameters())
        if size <= MOST_PARAMETERS:
            torch.manual_seed(0)
            model: PreTrainedModel = model_class._from_config(
                copy.deepcopy(config), attn_implementation=attention
            )
            model = model.float().eval()
            _vary_constants(model)
            return model
    except Exception as error:
        raise NotBuiltError(_first_line(error)) from error
    raise NotBuiltError(f"its smallest build here has {size / 1e6:.0f}M parameters")


def tiny_model(family: str, **changes: Any) -> PreTrainedModel:
    """Return a random model of the family over 97 tokens, with its own kind of attention."""
    config = make_config(families()[family], **changes)
    return build(family, config, config._attn_implementation or "eager")


def _first_line(error: Exception) -> str:
    """Return the kind of an error and what it says."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [""]
    # A configuration's own check names itself before it says what is wrong.
    line = lines[-1] if lines[0].endswith(":") and "validat" in lines[0] else lines[0]
    return f"{type(error).__name__}: {line}"


@torch.no_grad()
def _vary_constants(model: PreTrainedModel) -> None:
    """Make biases, norms and the like random, since zeros and ones would hide what they do."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.numel() > 1 and parameter.max() == parameter.min():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
