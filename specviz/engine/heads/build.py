"""Make a head for a target, with weights that training can start from."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.eagle import EagleHead
from specviz.engine.heads.residual import ResidualHeads
from specviz.engine.heads.settings import LAST, HeadSettings
from specviz.engine.models.compat import read_setting
from specviz.util.validate import require_choice, short

# What each kind is, where nothing else is asked for.
HEADS = 5
DEFAULTS: dict[str, dict[str, Any]] = {
    "medusa": {"heads": HEADS, "depth": 3},
    "clover": {"heads": HEADS, "block": True, "gate": "cosine"},
    "eagle3": {},
    "eagle1": {},
    "parallel": {},
}


def make_head(settings: HeadSettings) -> DraftHead:
    """Return a head with these settings and random weights."""
    return ResidualHeads(settings) if settings.is_residual else EagleHead(settings)


def build_head(kind: str, target: PreTrainedModel, *, seed: int = 0, **changes: Any) -> DraftHead:
    """Return an untrained head for `target`, attached to it.

    Args:
        kind: one of KINDS.
        changes: settings of `HeadSettings` that differ from the kind's own.

    Raises:
        ValueError: the kind or a setting is unknown, or the target has no such layers.
    """
    require_choice("kind", kind, DEFAULTS)
    settings = settings_for(kind, target, **changes)
    check_layers(settings.layers, target)
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
        torch.default_generator.manual_seed(seed)
        head = make_head(settings)
        for module in head.modules():
            if isinstance(module, nn.Linear) and module.weight.shape[0] != module.weight.shape[1]:
                nn.init.normal_(module.weight, std=0.02)
    head.attach(target)
    return head.to(target.device)


def settings_for(kind: str, target: PreTrainedModel, **changes: Any) -> HeadSettings:
    """Return the settings of a head of this kind and the target's sizes."""
    config = target.config.get_text_config()
    attention_heads = read_setting(config, "num_attention_heads") or 1
    size = config.hidden_size
    values = {
        "kind": kind,
        "hidden_size": size,
        "vocabulary_size": target.get_input_embeddings().weight.shape[0],
        "layers": fused_layers(target) if kind in ("eagle3", "parallel") else (LAST,),
        "num_attention_heads": attention_heads,
        "num_key_value_heads": read_setting(config, "num_key_value_heads") or attention_heads,
        "intermediate_size": read_setting(config, "intermediate_size") or 4 * size,
        "max_position_embeddings": read_setting(config, "max_position_embeddings") or 4096,
        **DEFAULTS[kind],
        **changes,
    }
    return HeadSettings(**values)


def fused_layers(target: PreTrainedModel) -> tuple[int, ...]:
    """Return the layers that EAGLE-3 fuses: an early one, the middle one and a late one.

    A target of few layers has fewer of them.
    """
    count = count_layers(target)
    if count == 1:
        return (LAST,)
    # As published: the inputs of layers 2, n / 2 and n - 3, which are outputs of those before.
    wanted = (1, count // 2 - 1, count - 4)
    return tuple(sorted({min(max(layer, 0), count - 2) for layer in wanted}))


def count_layers(target: PreTrainedModel) -> int:
    count: int = target.config.get_text_config().num_hidden_layers
    return count


def check_layers(layers: Sequence[int], target: PreTrainedModel) -> None:
    """Raise ValueError if the target has no output of such layers.

    The last layer's own output is not among what transformers returns, only its norm, LAST.
    """
    count = count_layers(target)
    known = [LAST, *range(count - 1)]
    unknown = [layer for layer in layers if layer not in known]
    if unknown:
        raise ValueError(
            f"layers={short(tuple(layers))} names {short(unknown)}, but the target has {count} "
            f"layers; pass numbers from 0 to {count - 2}, or {LAST} for the final norm's output"
        )
