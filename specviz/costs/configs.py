"""Read the sizes of a model from its configuration, as config.json holds it.

Contract: a plain dict in, the arguments of `ModelShape` out. What a configuration leaves out has
the default of its class in transformers. Not known here: weights, devices.
"""

from collections.abc import Mapping
from typing import Any

from specviz.util.validate import short


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ModelShape` for a configuration with a known `model_type`.

    Raises:
        ValueError: an unknown model_type, or a size is missing or is not a number.
    """
    if not isinstance(config, Mapping):
        raise ValueError(
            f"config must be a dict, got {short(config)}; pass config.to_dict(), or what a"
            " config.json holds"
        )
    model_type = config.get("model_type")
    if model_type not in _READERS:
        raise ValueError(
            f"model_type must be one of {', '.join(_READERS)}, got {short(model_type)}; choose a"
            " model of one of these types"
        )
    try:
        return _READERS[model_type](config)
    except KeyError as missing:
        raise ValueError(
            f"config must have {missing.args[0]!r}, which is missing; pass a complete configuration"
            f" of model_type={model_type!r}"
        ) from None
    except (TypeError, ZeroDivisionError):
        raise ValueError(
            f"config of model_type={model_type!r} must hold sizes that are ints >= 1, got "
            f"{short(config)}; correct it"
        ) from None


def _read_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the names that all types but GPT-2 share. The defaults are those of LlamaConfig."""
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    attention_bias = bool(config.get("attention_bias", False))
    return {
        "layers": config["num_hidden_layers"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "intermediate": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied": bool(config.get("tie_word_embeddings", False)),
        "qkv_bias": attention_bias,
        "out_bias": attention_bias,
        "mlp_bias": bool(config.get("mlp_bias", False)),
    }


def _read_qwen2(config: Mapping[str, Any]) -> dict[str, Any]:
    return _read_llama(config) | {"qkv_bias": True, "out_bias": False, "mlp_bias": False}


def _read_qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    sizes = _read_llama({"head_dim": 128, **config})
    return sizes | {"mlp_bias": False, "head_norms": True}


def _read_glm4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read a GLM-4: four norms a layer, gate and up projection in one matrix, no output bias."""
    sizes = _read_llama({"head_dim": 128, "attention_bias": True, **config})
    return sizes | {"out_bias": False, "mlp_bias": False, "norms": 4, "fused": 6}


def _read_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    hidden = config["n_embd"]
    heads = config["n_head"]
    return {
        "layers": config["n_layer"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "intermediate": config.get("n_inner") or 4 * hidden,
        "vocabulary": config["vocab_size"],
        "positions": config["n_positions"],
        "tied": bool(config.get("tie_word_embeddings", True)),
        "gated": False,
        "fused": 4,
        "norm_bias": True,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
    }


_READERS = {
    "llama": _read_llama,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "glm4": _read_glm4,
    "gpt2": _read_gpt2,
}
