"""Heads in the layouts in which EAGLE-3 and Medusa are published, read from local folders.

Only weights in safetensors are read. The layouts are those of the authors' repositories: EAGLE-3
with one layer called `midlayer`, an LM head of its own and `d2t`; Medusa with residual layers and
one LM head for each head.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.heads.build import fused_layers, settings_for
from specviz.engine.heads.settings import HeadSettings
from specviz.util.validate import quoted_path, short

# Of EAGLE-3: the target's embedding, and which ids can be drafted. Both follow from the rest.
_UNUSED = ("embed_tokens.weight", "t2d")
# Where it is missing or empty, the layers are those of EAGLE-3's own code.
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# Files that may hold the weights.
_FILES = ("model.safetensors", "medusa_lm_head.safetensors")


def read_published(
    config: Mapping[str, Any], folder: Path, target: PreTrainedModel
) -> tuple[HeadSettings, dict[str, Tensor]]:
    """Return settings and weights of a published head, with the names that our modules have.

    Raises:
        FileNotFoundError: there are no weights in safetensors.
        ValueError: the layout is unknown.
    """
    weights = _read_weights(folder)
    if "medusa_num_heads" in config:
        return _medusa(config, weights, target)
    if "fc.weight" in weights and "midlayer.hidden_norm.weight" in weights:
        return _eagle3(config, weights, target)
    raise ValueError(
        f"{quoted_path(folder)} holds no draft head of a layout that is known; pass a folder that "
        "`specviz train --heads` wrote, or one of EAGLE-3 or Medusa as their authors publish them"
    )


def _read_weights(folder: Path) -> dict[str, Tensor]:
    for name in _FILES:
        if (folder / name).is_file():
            return load_file(folder / name)
    raise FileNotFoundError(
        f"{quoted_path(folder)} has none of {', '.join(_FILES)}; convert pickled weights to "
        "safetensors, because a pickle may run code"
    )


def _eagle3(
    config: Mapping[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> tuple[HeadSettings, dict[str, Tensor]]:
    size = weights["norm.weight"].shape[0]
    heads = config["num_attention_heads"]
    given = {
        "hidden_size": size,
        "vocabulary_size": config.get("vocab_size", 0),
        "layers": _layers(config, target),
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or 0,
        "intermediate_size": config["intermediate_size"],
        "max_position_embeddings": config.get("max_position_embeddings", 2048),
        "rope_theta": config.get("rope_theta") or 10000.0,
        "rope_scaling": config.get("rope_scaling"),
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        "hides_first": True,
        "draft_vocabulary_size": weights["lm_head.weight"].shape[0],
    }
    kept = {name: values for name, values in weights.items() if name not in _UNUSED}
    kept.setdefault("d2t", kept["lm_head.weight"].new_zeros(len(kept["lm_head.weight"])).long())
    return settings_for("eagle3", target, **given), kept


def _layers(config: Mapping[str, Any], target: PreTrainedModel) -> tuple[int, ...]:
    """Return the layers that a published EAGLE-3 head fuses, named by their outputs.

    One entry has two meanings. SpecForge writes it in `eagle_config`, and names layers by their
    outputs, as SGLang reads it. vLLM reads it at the top, and names layers by their inputs.
    """
    outputs = (config.get("eagle_config") or {}).get(_LAYER_IDS)
    inputs = config.get(_LAYER_IDS)
    if outputs:
        layers = tuple(outputs)
    elif inputs:
        layers = tuple(layer - 1 for layer in inputs)
    else:
        return fused_layers(target)
    if min(layers) < 0:  # LAST would be taken for it
        raise ValueError(
            f"{_LAYER_IDS} must name outputs of layers, got {short(outputs or inputs)}; "
            "pass a head that does not read the embedding"
        )
    return layers


def _medusa(
    config: Mapping[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> tuple[HeadSettings, dict[str, Tensor]]:
    count = config["medusa_num_heads"]
    depth = config.get("medusa_num_layers", 1)
    found = {}
    for i in range(count):
        for j in range(depth):
            name = f"heads.{i}" if j == 0 else f"deeper.{i}.{j - 1}"
            found[f"{name}.weight"] = weights[f"{i}.{j}.linear.weight"]
            found[f"{name}.bias"] = weights[f"{i}.{j}.linear.bias"]
        found[f"lm_heads.{i}.weight"] = weights[f"{i}.{depth}.weight"]
    rows, size = found["lm_heads.0.weight"].shape
    settings = settings_for(
        "medusa",
        target,
        heads=count,
        depth=depth,
        hidden_size=size,
        vocabulary_size=rows,
        own_lm_heads=True,
    )
    return settings, found
