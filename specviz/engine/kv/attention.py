"""Attention for slabs: grouped-query heads without a copy of K/V.

Where several query heads share a K/V head, transformers' sdpa path repeats K and V for each of them before it attends with a mask: in a
round of verification that copies the whole window, in every layer. Here the query heads of a group become further queries of their K/V
head, which gives the same numbers without the copy.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "specviz_grouped"


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query (b, H, q, D), key and value (b, G, w, D), H a multiple of G; returns (b, q, H, D).

    `attention_mask` (b, 1, H / G * q, w), additive, as `grouped_mask` makes it; with any other, from whoever else calls the model while a
    run goes on, transformers' own sdpa attends.
    """
    b, heads, q, depth = query.shape
    if attention_mask is None or attention_mask.shape[2] * key.shape[1] != heads * q:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
    folded = query.reshape(b, key.shape[1], -1, depth)  # heads of one group follow one another
    said = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return said.reshape(b, heads, q, -1).transpose(1, 2).contiguous(), None


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `visible` (b, q, w), -inf elsewhere: made once for all layers."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, -torch.inf
    )


def grouped_mask(added: Tensor, groups: int) -> Tensor:
    """The mask (b, 1, groups * q, w) of `grouped_attention`, from an additive one (b, q, w)."""
    return added[:, None].repeat(1, 1, groups, 1) if groups > 1 else added[:, None]


def query_groups(model: PreTrainedModel) -> int:
    """H / G: query heads that share a K/V head; 1 where the configuration does not say."""
    config = model.config.get_text_config()
    heads: int = getattr(config, "num_attention_heads", 1)
    return heads // (getattr(config, "num_key_value_heads", None) or heads)


def takes_grouped(model: PreTrainedModel) -> bool:
    """Whether the model is set to sdpa and lets others attend for it; one with attention code of its own gets an ordinary mask."""
    return bool(
        model.config._attn_implementation in ("sdpa", NAME) and model._supports_attention_backend
    )


@contextmanager
def attending(models: Iterable[PreTrainedModel]) -> Iterator[None]:
    """While this runs, models that let others attend for them do so by `grouped_attention`; then they are as they were.

    May be nested, but costs more than a small operation: a run enters it once.
    """
    changed = [
        model.config
        for model in models
        if model.config._attn_implementation == "sdpa" and takes_grouped(model)
    ]
    for config in changed:
        config._attn_implementation = NAME
    try:
        yield
    finally:
        for config in changed:
            config._attn_implementation = "sdpa"


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
