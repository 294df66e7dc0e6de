"""Read masks where attention applies them.

Contract: `visible` says which slots each query sees under a mask. `AttentionReader` passes each
call of an attention function to a callback, and changes none. Not known here: models' inputs.
"""

import sys
from collections.abc import Sequence
from threading import Lock
from typing import Any, ClassVar, Protocol

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
    """Shows the calls of all attention functions to the captures, while it is open.

    Readers may be open at the same time and close in any order, in any thread: they share one
    wrapper around each function, and the last one that closes takes it away.
    """

    _lock = Lock()
    _opened: ClassVar[list["AttentionReader"]] = []

    def __init__(self, captures: Sequence[Attends]) -> None:
        self._captures = captures

    def open(self) -> None:
        """Read all functions that are registered."""
        with self._lock:
            self._opened.append(self)
        self.renew()

    def renew(self) -> None:
        """Read the functions that were registered since, too."""
        with self._lock:
            if not self._opened:  # closed by another thread in the middle of a forward
                return
            local = ALL_ATTENTION_FUNCTIONS._local_mapping  # over what the library registers
            for name in {*ALL_ATTENTION_FUNCTIONS, "eager"}:
                if not isinstance(local.get(name), _Shown):
                    ALL_ATTENTION_FUNCTIONS[name] = _Shown(name, local.get(name))

    def close(self) -> None:
        with self._lock:
            self._opened.remove(self)
            if self._opened:
                return
            for name, function in list(ALL_ATTENTION_FUNCTIONS._local_mapping.items()):
                if not isinstance(function, _Shown):
                    continue  # registered since the last forward
                if function.before is None:
                    del ALL_ATTENTION_FUNCTIONS[name]
                else:
                    ALL_ATTENTION_FUNCTIONS[name] = function.before

    @classmethod
    def show(cls, *call: Any) -> None:
        """Show a call to the captures of all readers that are open."""
        for reader in tuple(cls._opened):
            for capture in reader._captures:
                capture.attends(*call)


class _Shown:
    """An attention function whose calls are shown to the readers that are open.

    Attributes:
        before: what stood in its place; None where that was what is registered for all.
    """

    def __init__(self, name: str, before: Any) -> None:
        self.before = before
        self._name = name

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, *args: Any,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        call = self.before or ALL_ATTENTION_FUNCTIONS._global_mapping.get(self._name)
        if call is None:
            call = sys.modules[type(module).__module__].eager_attention_forward
        is_causal = kwargs.get("is_causal")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        effect = mask
        if self._name == "eager":
            effect = _of_eager(mask)
            # Eager attention applies the mask that it is given, and no causal one of its own.
            is_causal = False
        AttentionReader.show(module, key, value, effect, bool(is_causal))
        return call(module, query, key, value, mask, *args, **kwargs)


def _of_eager(mask: Any) -> Any:
    """Return the mask as eager attention applies it: it adds, so a bool mask hides nothing."""
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return torch.ones_like(mask)
    return mask
