"""Heads on disk: our own folders, those that others publish, and the target that a head belongs to.

Of published heads, known are EAGLE-3 as its authors, SpecForge and vLLM lay it out, with one layer
called `midlayer`; EAGLE-3 of the library speculators, which calls it `layers.0`; Medusa with
residual layers; and DFlash as transformers and as its authors lay it out. What changes a head's
computation is used or refused by its name. Weights that are the target's own may be missing. Only
safetensors are read.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel, Qwen3Config

from specviz.engine.heads.build import make_head, ready
from specviz.engine.heads.dflash import DFlashHead, dflash_settings, read_config
from specviz.engine.heads.modules import DraftHead
from specviz.engine.heads.settings import HeadSettings, check_layers, fused_layers, settings_for
from specviz.util.files import is_dir, is_file
from specviz.util.validate import is_finite, quoted_path, short

HEAD_CONFIG = "config.json"
FORMAT = "specviz head"
VERSION = 1
# What a file says besides the settings.
_BESIDES = ("format", "version", "training_s")
# Files that may hold the weights, the last one together with the shards that it names.
_FILES = ("model.safetensors", "medusa_lm_head.safetensors", "model.safetensors.index.json")
_PICKLED = ("*.bin", "*.pt", "*.pth")
# Where it is missing or empty, the layers are those of EAGLE-3's own code.
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_LAYERS = {"llama": LlamaConfig, "qwen3": Qwen3Config}
# Other names that weights have, by how they begin.
_RENAMED = {"model.": "", "layers.0.": "midlayer.", "draft_id_to_target_id": "d2t"}
# Weights of the target, which training reads.
_OF_TARGET = ("verifier_norm.weight", "verifier_lm_head.weight")
# Entries that change the computation, and the values that stand for the one that we have.
_ONLY: Mapping[str, tuple[object, ...]] = {
    "num_hidden_layers": (1,),
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "qkv_bias": (False, None),
    "bias": (False, None),
    "mlp_bias": (False, None),
    "is_causal": (True, None),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (1, None),
    "logit_scale": (1, None),
    "norm_before_fc": (False, None),
    "fc_norm": (False, None),
    "norm_output": (False, None),
    "use_aux_hidden_state": (True, None),
    "parallel_drafting": (False, None),
    "quantization_config": (None,),
}


def fingerprint(model: nn.Module) -> str:
    """Return a SHA-256, in hex, of the names, shapes and values of the model's parameters.

    It is the same for all dtypes in which one checkpoint is loaded, as long as the dtype keeps the
    eight leading bits of each weight: bfloat16 is the coarsest of them, so its bits are hashed. A
    float16 load of weights below 6e-5 does not keep them.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        rounded = parameter.detach().to(torch.bfloat16).cpu().contiguous()
        digest.update(rounded.view(torch.int16).numpy().astype("<i2", copy=False).tobytes())
    return digest.hexdigest()


def head_folders(path: Path) -> list[Path]:
    """Return the folders of single heads in `path`, which may be one itself.

    Raises FileNotFoundError if there are none.
    """
    if not is_dir(path):
        raise FileNotFoundError(
            f"folder={quoted_path(path)} does not exist; "
            "pass one that `zoo.heads.export_head` wrote"
        )
    if is_file(path / HEAD_CONFIG):
        return [path]
    configs = sorted(path.glob(f"*/{HEAD_CONFIG}"))
    if not configs:
        raise FileNotFoundError(
            f"folder={quoted_path(path)} holds no draft head: there is no {HEAD_CONFIG} in it or "
            "in a folder of it; pass one that `zoo.heads.export_head` wrote"
        )
    return [config.parent for config in configs]


def read_head(folder: Path, target: PreTrainedModel) -> DraftHead:
    """Return the head in `folder`, attached to `target`, in its dtype and on its device.

    Raises:
        FileNotFoundError: the folder holds no weights in safetensors.
        ValueError: the files are damaged or of an unknown layout, or the head does not fit the
            target.
    """
    path = folder / HEAD_CONFIG
    try:
        config = json.loads(path.read_bytes())
        weights = _read_weights(folder)
        of_dflash = read_config(config, weights)
        if of_dflash is None:
            settings = _settings(config, weights, target)
        else:
            settings = dflash_settings(of_dflash, target, config.get("target", ""))
        _check_sizes(settings, target)
        if settings.target and settings.target != fingerprint(target):
            raise ValueError(
                f"the head in {quoted_path(folder)} was trained on another target, so hardly a "
                "draft of it would be accepted; pass the pair that it was trained on"
            )
        with torch.random.fork_rng(devices=[]):  # the values drawn here are replaced at once
            head = make_head(settings, target)
            if of_dflash is not None:
                head = DFlashHead(settings, of_dflash)
        head.load_state_dict(weights)
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError, LookupError,
            TypeError, AttributeError, RuntimeError, StrictDataclassError) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise ValueError(
            f"the files in {quoted_path(folder)} are damaged or do not fit each other "
            f"({reason}); get them again"
        ) from None
    seconds = config.get("training_s")
    if seconds is not None and not (is_finite(seconds) and seconds >= 0):
        raise ValueError(
            f"training_s in {quoted_path(path)} must be a number >= 0, got {short(seconds)}; "
            "get the file again, or take the entry out"
        )
    head.training_s = None if seconds is None else float(seconds)
    return ready(head, target)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        remedy = "get its files again"
        if any(found for kind in _PICKLED for found in folder.glob(kind)):
            remedy = "convert pickled weights to safetensors, because a pickle may run code"
        raise FileNotFoundError(f"{quoted_path(folder)} has none of {', '.join(_FILES)}; {remedy}")
    if path.suffix != ".json":
        return load_file(path)
    weights: dict[str, Tensor] = {}
    for name in sorted(set(json.loads(path.read_bytes())["weight_map"].values())):
        # An index must not lead to other folders.
        if Path(name).name != name or not (folder / name).is_file():
            raise FileNotFoundError(
                f"{quoted_path(path)} names {short(name)}, which is not a file beside it; get the "
                "head's files again"
            )
        weights |= load_file(folder / name)
    return weights


def _settings(
    config: dict[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> HeadSettings:
    """Return the head's settings. Weights of a published head get our modules' names, in place."""
    if "format" in config:
        if (config["format"], config.get("version")) != (FORMAT, VERSION):
            raise ValueError(
                f"{HEAD_CONFIG} is not that of a draft head of version {VERSION}; "
                "pass a folder that `zoo.heads.export_head` wrote"
            )
        return HeadSettings(**{name: each for name, each in config.items() if name not in _BESIDES})
    for name in list(weights):
        ours = name
        for begin, instead in _RENAMED.items():
            if ours.startswith(begin):
                ours = instead + ours.removeprefix(begin)
        weights[ours] = weights.pop(name)
    if "medusa_num_heads" in config:
        return _medusa(config, weights, target)
    if "fc.weight" in weights and "midlayer.hidden_norm.weight" in weights:
        return _eagle3(config, weights, target)
    raise ValueError(
        "the folder holds no draft head of a layout that is known; pass one that "
        "`zoo.heads.export_head` wrote, or one of EAGLE-3 or Medusa as their authors publish them"
    )


def _eagle3(
    config: dict[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> HeadSettings:
    size = weights["fc.weight"].shape[0]
    # Nested as speculators writes it, flat as all others do.
    values = config.get("transformer_layer_config") or config
    given = {**config, **values, **(config.get("eagle_config") or {})}
    _check_computation(given)
    layer = _layer_config(values, size)
    rope = dict(layer.rope_parameters)
    _check_computation({"partial_rotary_factor": rope.pop("partial_rotary_factor", 1)})
    for name in ("hidden_size", "target_hidden_size"):
        if given.get(name) not in (None, size):
            raise ValueError(
                f"{name}={short(given[name])} in {HEAD_CONFIG} is not the size of the weights, "
                f"{size}; heads that are wider or narrower than their target cannot be read"
            )
    own = weights.pop("embed_tokens.weight", None)
    embedding = target.get_input_embeddings().weight.detach()
    if own is not None and (
        own.shape != embedding.shape
        or not torch.allclose(own.to(embedding), embedding, rtol=1e-2, atol=1e-4)
    ):
        raise ValueError(
            "embed_tokens.weight of the head is not the target's embedding; pass the target that "
            "it was trained on, or a head without an embedding of its own"
        )
    for name in _OF_TARGET:
        weights.pop(name, None)
    return settings_for(
        "eagle3",
        target,
        hidden_size=size,
        vocabulary_size=layer.vocab_size,
        layers=_layers(config, target),
        num_attention_heads=layer.num_attention_heads,
        num_key_value_heads=layer.num_key_value_heads,
        head_dim=layer.head_dim or 0,
        intermediate_size=layer.intermediate_size,
        max_position_embeddings=layer.max_position_embeddings,
        rope_theta=rope.pop("rope_theta"),
        rope_scaling=rope if rope["rope_type"] != "default" else None,
        rms_norm_eps=layer.rms_norm_eps,
        hides_first=True,
        norm_before_residual=bool(config.get("norm_before_residual")),
        qk_norm="midlayer.self_attn.q_norm.weight" in weights,
        draft_vocabulary_size=_drafted_ids(config, weights, target),
    )


def _layer_config(values: Mapping[str, Any], size: int) -> LlamaConfig | Qwen3Config:
    """Return the configuration of the head's layer, with the defaults of its class."""
    kind = values.get("model_type", "llama")
    if kind not in _LAYERS:
        raise ValueError(
            f"model_type={short(kind)} in {HEAD_CONFIG} is not among {', '.join(_LAYERS)}; "
            "pass a head with a layer of one of these"
        )
    try:
        return _LAYERS[kind](**{"hidden_size": size, **values, "num_hidden_layers": 1})
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise ValueError(
            f"{HEAD_CONFIG} cannot be used ({' '.join(str(error).split())}); get the file again"
        ) from None


def _check_computation(given: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry that makes the head compute something else than ours."""
    for name, known in _ONLY.items():
        if name in given and given[name] not in known:
            raise ValueError(
                f"{name}={short(given[name])} in {HEAD_CONFIG} is not supported, and without it "
                f"drafts would be others; pass a head with {name}={known[0]}"
            )
    if set(given.get("layer_types") or ()) - {"full_attention"}:
        raise ValueError(
            f"layer_types={short(given['layer_types'])} in {HEAD_CONFIG} is not supported; "
            "pass a head with full attention"
        )


def _drafted_ids(
    config: Mapping[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> int:
    """Return how many ids the head can propose, 0 for all of them.

    Adds to `weights` what is missing and known: `d2t` from `t2d`, and the target's own LM head.
    """
    whole = target.get_output_embeddings().weight
    of_target = weights.pop("t2d", None)
    if "d2t" not in weights and of_target is not None:
        ids = of_target.nonzero().flatten()
        weights["d2t"] = ids - torch.arange(len(ids))
    own = weights.get("lm_head.weight")
    count = (config.get("draft_vocab_size") or len(whole)) if own is None else len(own)
    if "d2t" not in weights:
        if count != len(whole):
            raise ValueError(
                f"the head proposes {count} of {len(whole)} ids, but d2t, which says which ones, "
                "is missing from its weights; get its files again"
            )
        if own is None:
            return 0
        weights["d2t"] = torch.zeros(count, dtype=torch.long)
    ids = weights["d2t"] + torch.arange(len(weights["d2t"]))
    if len(ids) and (ids.min() < 0 or ids.max() >= len(whole) or len(ids.unique()) < len(ids)):
        raise ValueError(
            f"d2t in the head's weights leads to ids from {int(ids.min())} to {int(ids.max())}, "
            f"{len(ids.unique())} of {len(ids)} different ones, but it must lead to different ids "
            f"below {len(whole)}; get its files again"
        )
    if own is None:
        weights["lm_head.weight"] = whole.detach()[ids.to(whole.device)].cpu()
    return len(weights["lm_head.weight"])


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
    config: dict[str, Any], weights: dict[str, Tensor], target: PreTrainedModel
) -> HeadSettings:
    count = config["medusa_num_heads"]
    depth = config.get("medusa_num_layers", 1)
    own_lm_heads = f"0.{depth}.weight" in weights
    for i in range(count):
        for j in range(depth):
            name = f"heads.{i}" if j == 0 else f"deeper.{i}.{j - 1}"
            weights[f"{name}.weight"] = weights.pop(f"{i}.{j}.linear.weight")
            weights[f"{name}.bias"] = weights.pop(f"{i}.{j}.linear.bias")
        if own_lm_heads:
            weights[f"lm_heads.{i}.weight"] = weights.pop(f"{i}.{depth}.weight")
    lm_head = weights.get("lm_heads.0.weight", target.get_output_embeddings().weight)
    return settings_for(
        "medusa",
        target,
        heads=count,
        depth=depth,
        hidden_size=weights["heads.0.weight"].shape[0],
        vocabulary_size=len(lm_head),
        own_lm_heads=own_lm_heads,
    )


def _check_sizes(settings: HeadSettings, target: PreTrainedModel) -> None:
    """Raise ValueError unless the head's sizes are the target's."""
    found = {
        "hidden_size": target.config.get_text_config().hidden_size,
        "vocabulary_size": target.get_input_embeddings().weight.shape[0],
    }
    for setting, size in found.items():
        if getattr(settings, setting) != size:
            raise ValueError(
                f"the head {settings.kind!r} was made for a target with {setting} "
                f"{getattr(settings, setting)}, and this target has {size}; "
                "pass the pair that the head was trained on"
            )
    check_layers(settings.layers, target)


def check_heads(heads: object, target: PreTrainedModel) -> None:
    """Raise ValueError unless these are heads by their kinds, of the target's sizes."""
    if not isinstance(heads, Mapping):
        raise ValueError(
            f"heads must be a dict from kinds to draft heads, got {short(heads)}; use load_heads"
        )
    for name, head in heads.items():
        if not isinstance(head, DraftHead):
            raise ValueError(
                f"heads[{name!r}] must be a DraftHead, got {short(head)}; use load_heads"
            )
        if head.settings.kind != name:
            raise ValueError(
                f"heads[{name!r}] is a head of kind {head.settings.kind!r}; pass it under that name"
            )
        _check_sizes(head.settings, target)


class FolderOfHeads(Mapping[str, DraftHead]):
    """The heads in the folders of a folder, by name. Each is read when it is first asked for."""

    def __init__(self, folder: Path, target: PreTrainedModel) -> None:
        self._target = target
        self._folders = {path.name: path for path in head_folders(folder)}
        self._read: dict[str, DraftHead] = {}

    # By identity: to compare heads, all of them would have to be read.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> DraftHead:
        if name not in self._read:
            self._read[name] = read_head(self._folders[name], self._target)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)
