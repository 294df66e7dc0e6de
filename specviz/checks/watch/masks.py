"""Read masks where attention applies them.

Contract: `visible` says which slots each query sees under a mask. `AttentionReader` passes each
call of an attention function to a callback, and changes none. Not known here: models' inputs.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

HIDDEN = -1e4  # an additive mask hides what lies below


class Attends(Protocol):
    """Takes what an attention layer was called with."""

    def attends(
        self, module: nn.Module, keys: Tensor, values: Tensor, mask: Any, is_causal: bool
    ) -> None: ...


def visible(
    mask: Any, shape: tuple[int, int], slots: int, is_causal: bool
) -> tuple[Tensor | None, str]:
    """Return which slots each query sees, (b, q, T), and "" or why that is not known.

    Args:
        mask: what the attention function was given.
        shape: rows and tokens a row.
        slots: T.
        is_causal: whether the layer is causal where there is no mask.
    """
    rows, count = shape
    if mask is None:
        seen = torch.ones(count, slots, dtype=torch.bool)
        if is_causal and count > 1:
            seen = seen.tril()  # aligned at the first slot, as torch does it
        return seen.expand(rows, count, slots), ""
    if not isinstance(mask, Tensor):
        return None, f"the mask is a {type(mask).__name__}"
    if mask.dim() == 2:
        causal = torch.ones(count, slots, dtype=torch.bool).tril(slots - count)
        return causal & (mask[:, None, :slots] != 0).cpu(), ""
    is_shared = mask.dim() == 4 and mask.shape[2] == 1  # by all queries of a row
    if mask.dim() != 4 or (mask.shape[2] % count and not is_shared):
        return None, f"the mask has the shape {tuple(mask.shape)}"
    # All heads are masked alike, so the first one is read.
    seen = mask[:, 0, :count, :slots].detach()
    seen = seen.clone() if seen.dtype == torch.bool else seen > HIDDEN
    if seen.shape[-1] < slots:
        return None, f"the mask has {seen.shape[-1]} of {slots} slots"
    return seen.expand(rows, count, slots), ""


class AttentionReader:
    """Shows the calls of all attention functions to the captures, while it is open."""

    def __init__(self, captures: Sequence[Attends]) -> None:
        self._captures = captures
        self._before: dict[str, Any] = {}
        self._reading: dict[str, Any] = {}

    def open(self) -> None:
        """Read all functions that are registered; again for those that were registered since."""
        local = ALL_ATTENTION_FUNCTIONS._local_mapping
        for name in {*ALL_ATTENTION_FUNCTIONS, "eager"}:
            current = local.get(name)
            if current is None or current is not self._reading.get(name):
                function = self._read(name, ALL_ATTENTION_FUNCTIONS.get(name))
                self._before[name] = current
                self._reading[name] = ALL_ATTENTION_FUNCTIONS[name] = function

    def close(self) -> None:
        local = ALL_ATTENTION_FUNCTIONS._local_mapping
        for name, function in self._before.items():
            if local.get(name) is not self._reading[name]:
                continue  # registered since the last forward
            if function is None:
                del ALL_ATTENTION_FUNCTIONS[name]
            else:
                ALL_ATTENTION_FUNCTIONS[name] = function
        self._before = {}
        self._reading = {}

    def _read(self, name: str, function: Any) -> Callable[..., Any]:
        def attend(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *args: Any,
            **kwargs: Any,
        ) -> Any:  # fmt: skip
            call = function or sys.modules[type(module).__module__].eager_attention_forward
            is_causal = kwargs.get("is_causal")
            if is_causal is None:
                is_causal = getattr(module, "is_causal", True)
            effect = mask
            if name == "eager":
                effect = _of_eager(mask)
                # Eager attention applies the mask that it is given, and no causal one of its own.
                is_causal = False
            for capture in self._captures:
                capture.attends(module, key, value, effect, bool(is_causal))
            return call(module, query, key, value, mask, *args, **kwargs)

        return attend


def _of_eager(mask: Any) -> Any:
    """Return the mask as eager attention applies it: it adds, so a bool mask hides nothing."""
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return torch.ones_like(mask)
    return mask
