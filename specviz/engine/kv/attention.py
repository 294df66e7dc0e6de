"""Attention for slabs: grouped-query heads without a copy of K/V.

Where several query heads share a K/V head, transformers' sdpa path with a mask repeats K and V for
each of them. In a verification that copies the whole window in every layer. Here the query heads of
a group become further queries of their K/V head, which gives the same numbers without the copy.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from specviz.engine.kv.packing import Packing
from specviz.engine.models.compat import (
    OWN_ATTENTION,
    attention_of,
    read_setting,
    selects_tokens,
)

# Keyword under which models hand the places of packed queries on to the attention.
PACKED = "specviz_packed"

# How many contexts of `attending` each configuration is in, by its id. Reading the setting itself
# takes as long as a small operation.
_attending: dict[int, int] = {}
# Several threads may decode with the same models.
_lock = Lock()

# Models that take no grouped mask, as a trial has shown.
plain_masks: WeakSet[PreTrainedModel] = WeakSet()


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend, with the signature that transformers calls.

    Args:
        query: (b, H, q, D).
        key, value: (b, G, w, D); H is a multiple of G.
        attention_mask: (b, 1, H / G * q, w), additive, as `grouped_mask` makes it. With no mask, or
            one for each head, transformers' own sdpa attends.
        others: with a `Packing` under PACKED, `query` is (1, H, N, D), and so is what is returned:
            (1, N, H, D).

    Returns (b, q, H, D) and None for the weights.
    """
    packing: Packing | None = others.pop(PACKED, None)
    if packing is not None:
        rectangle = packing.unpack(query.transpose(1, 2)).transpose(1, 2)
        out, _ = grouped_attention(
            module, rectangle, key, value, attention_mask, scaling=scaling, **others
        )
        return packing.pack(out), None
    b, heads, q, depth = query.shape
    if attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
    groups = heads // key.shape[1]
    if attention_mask.shape[2] != groups * q:
        # This layer has other heads than the configuration says (multi-query, latent attention).
        attention_mask = attention_mask[:, :, :q].repeat(1, 1, groups, 1)
    # Queries of one K/V head lie next to each other in H, so folding them is a view, and the mask
    # repeats along q in the same order.
    folded = query.reshape(b, key.shape[1], -1, depth)  # (b, G, H / G * q, D)
    out = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(b, heads, q, -1).transpose(1, 2).contiguous(), None


def additive_mask(visible: Tensor, dtype: torch.dtype, hidden: float = -torch.inf) -> Tensor:
    """Return 0 where `visible` is True and `hidden` elsewhere. One mask serves all layers."""
    mask = torch.full(visible.shape, hidden, dtype=dtype, device=visible.device)
    return mask.masked_fill_(visible, 0)


def grouped_mask(added: Tensor, groups: int) -> Tensor:
    """Return the mask (b, 1, groups * q, w) of `grouped_attention` for an additive (b, q, w)."""
    # For one query a row, as in a draft step, this is a view.
    return added[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]


def query_groups(model: PreTrainedModel) -> int:
    """Return H / G, the query heads that share a K/V head; 1 if the configuration lacks them.

    It is also 1 for a model that works on the mask itself, and so needs one row for each query.
    """
    if model in plain_masks:
        return 1
    config = model.config.get_text_config()
    heads: int = read_setting(config, "num_attention_heads") or 1
    # A layer with other heads than these makes its own mask from this one.
    return max(1, heads // (read_setting(config, "num_key_value_heads") or heads))


def takes_grouped(model: PreTrainedModel) -> bool:
    """Return whether `grouped_attention` can attend for the model.

    The model must be set to sdpa and support attention backends. Others get an ordinary mask.
    """
    # Layers that select tokens mask the others with sdpa and eager attention alone.
    supports = bool(model._supports_attention_backend) and not selects_tokens(model)
    return attention_of(model) == "sdpa" and supports


def attends_grouped(model: PreTrainedModel) -> bool:
    """Return whether the model is inside `attending` now."""
    return id(model.config) in _attending


@contextmanager
def attending(models: Iterable[PreTrainedModel]) -> Iterator[None]:
    """Let those of the models that can use `grouped_attention` do so inside the context.

    May be nested, and entered by several threads: the last one to leave restores the models.
    Entering it costs more than a small operation, so a run enters it once.
    """
    configs = [model.config for model in models if takes_grouped(model)]
    with _lock:
        for config in configs:
            _attending[id(config)] = _attending.get(id(config), 0) + 1
            config._attn_implementation = OWN_ATTENTION
    try:
        yield
    finally:
        with _lock:
            for config in configs:
                _attending[id(config)] -= 1
                if not _attending[id(config)]:
                    del _attending[id(config)]
                    config._attn_implementation = "sdpa"


@contextmanager
def attending_plainly(models: Iterable[PreTrainedModel]) -> Iterator[None]:
    """Let the models attend as they do outside of runs, while all runs of them are suspended."""
    configs = [model.config for model in models if takes_grouped(model)]
    with _lock:
        for config in configs:
            config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        with _lock:
            for config in configs:
                if id(config) in _attending:
                    config._attn_implementation = OWN_ATTENTION


AttentionInterface.register(OWN_ATTENTION, grouped_attention)
AttentionMaskInterface.register(OWN_ATTENTION, sdpa_mask)
