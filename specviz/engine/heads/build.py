"""Make draft heads of any kind."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specviz.engine.heads.dflash import DFlashHead, dflash_config
from specviz.engine.heads.modules import DraftHead, EagleHead, ResidualHeads
from specviz.engine.heads.mtp import MtpHead, make_mtp, read_mtp
from specviz.engine.heads.settings import LAST, HeadSettings, check_layers, settings_for


def make_head(settings: HeadSettings, target: PreTrainedModel) -> DraftHead:
    """Return a head with these settings and random weights."""
    if settings.kind == "mtp":
        return MtpHead(settings, make_mtp(target, settings.num_layers))
    if settings.kind == "dflash":
        layers = layer_ids(settings.layers, target)
        return DFlashHead(settings, dflash_config(settings, layers))
    return ResidualHeads(settings) if settings.is_residual else EagleHead(settings)


def own_head(target: PreTrainedModel) -> DraftHead:
    """Return the MTP layers in the target's own checkpoint. Raise ValueError as `read_mtp`."""
    mtp = read_mtp(target)
    return ready(MtpHead(settings_for("mtp", target, num_layers=len(mtp.layers)), mtp), target)


def ready(head: DraftHead, target: PreTrainedModel) -> DraftHead:
    """Return the head attached to `target`, in its dtype and on its device."""
    head.attach(target)
    return head.to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)


def layer_ids(layers: Sequence[int], target: PreTrainedModel) -> list[int]:
    """Return the numbers of layers, with the last one's in place of LAST.

    transformers returns the output of the final norm in place of the last layer's.
    """
    last = target.config.get_text_config().num_hidden_layers - 1
    return [last if layer == LAST else layer for layer in layers]


def build_head(kind: str, target: PreTrainedModel, *, seed: int = 0, **changes: Any) -> DraftHead:
    """Return an untrained head for `target`, attached to it.

    Args:
        kind: one of KINDS.
        changes: settings of `HeadSettings` that differ from the kind's own.

    Raises:
        ValueError: the kind or a setting is unknown, or the target has no such layers.
    """
    settings = settings_for(kind, target, **changes)
    check_layers(settings.layers, target)
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
        torch.default_generator.manual_seed(seed)
        head = make_head(settings, target)
        for module in head.modules():
            if isinstance(module, nn.Linear) and module.weight.shape[0] != module.weight.shape[1]:
                nn.init.normal_(module.weight, std=0.02)
    head.attach(target)
    return head.to(target.device)
