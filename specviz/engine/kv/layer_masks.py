"""Masks of layers that attend to a window or to a chunk of a row's tokens.

Contract: they follow from what a query may attend to at all, by counting visible tokens and never
slots, so that padding, holes and trees change nothing. K/V stays in full slabs, so a rejected draft
is taken back as in any other layer. Not known here: layouts.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.engine.kv.having import having
from specviz.engine.models.compat import (
    CHUNKED,
    FULL,
    HYBRIDS,
    MASKS_COLUMNS,
    SLIDING,
    STATES,
    WIDTHS,
    layer_types,
    masks_columns,
    read_setting,
    source_of,
)

Narrow = Callable[..., Tensor]  # `sliding` or `chunked`, of a width
# How a forward asks whether it was given a mask for each type of layer.
_TAKES_MAPPING = re.compile(r"isinstance\((\w+ := )?attention_mask, dict\)")


def sliding(visible: Tensor, width: int, shortened: Tensor | int = 0) -> Tensor:
    """Return which slots queries see that attend to the last `width` tokens, their own included.

    Args:
        visible: bool (b, q, w), all that each query may see.
        width: in tokens.
        shortened: by how many tokens the window is too short, (b, 1, 1).
    """
    behind = visible.flip(-1).cumsum(-1).flip(-1)  # visible tokens from a slot up to the query
    return visible & ((behind <= width - shortened) | (behind == 1))


def chunked(visible: Tensor, width: int, shortened: Tensor | int = 0) -> Tensor:
    """Return which slots queries see that attend to their own chunk of `width` tokens of the row.

    Args:
        visible: bool (b, q, w), all that each query may see.
        width: in tokens.
        shortened: by how many tokens the row's chunks begin too early, (b, 1, 1).
    """
    # Of each visible token in its row; the last is the query's own.
    index = visible.cumsum(-1) - 1 + shortened
    return visible & (index // width == index[..., -1:] // width)


_NARROW = {SLIDING: sliding, CHUNKED: chunked}


class LayerMasks:
    """What the layers of a model attend to, by their type.

    Attributes:
        widths: to how many tokens the layers of a type attend; empty if all attend to all.
        masking: modules that mask columns of the cache by a table of their own, with the numbers of
            tokens that they attend to; None for all.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config()
        self.widths: dict[str, int] = {}
        # With one entry under "", the model takes one mask for all its layers.
        self._by_type: dict[str, Narrow | None] = {}
        types = layer_types(config)
        self.masking: dict[Any, int | None] = {
            module: _width_of(module) for module in find_masking(model)
        }
        if self.masking:
            types -= set(read_setting(config, "attention_layers") or [])
        if "hybrid_sliding" in types:  # what models call the mask of these layers
            types |= {SLIDING}
        self.has_states = bool(types & (STATES | HYBRIDS))
        if self.has_states:
            types |= {FULL}
        for kind in sorted(types - STATES):
            width = read_setting(config, WIDTHS[kind]) if kind in WIDTHS else None
            if kind == "hybrid_sliding":
                width = read_setting(config, WIDTHS[SLIDING])
            self._by_type[kind] = None
            if width is not None:
                self.widths[kind] = width
                self._by_type[kind] = partial(_NARROW.get(kind, sliding), width=width)
        # Where layers keep states, models take a mapping.
        if not self.has_states and not self.widths:
            self._by_type = {"": None}
        elif not self.has_states and not takes_mapping(model):
            if len(self._by_type) > 1:
                raise ValueError(
                    f"its layers are of {' and '.join(self._by_type)}, and its forward takes one "
                    "mask for all"
                )
            self._by_type = {"": next(iter(self._by_type.values()))}

        for width in filter(None, self.masking.values()):
            self.widths["local"] = width

    @contextmanager
    def obeyed(self, visible: Tensor, shortened: Tensor | int = 0) -> Iterator[None]:
        """Let layers that mask columns of the cache mask the tokens beyond their windows instead.

        visible: bool (b, q, w).
        """
        tables = {}
        for module, width in self.masking.items():
            seen = torch.ones_like(visible)
            if width is not None:
                seen = sliding(visible, width, shortened)
            # The mask hides the others. What is hidden twice would be -inf.
            tables[module] = _Given((seen | ~visible)[:, None].to(module.bias.device))
        with having("bias", tables):
            yield

    def masks(
        self,
        visible: Tensor,
        make: Callable[[Tensor], Tensor],
        shortened: Tensor | int = 0,
    ) -> Any:
        """Return the attention_mask of a forward: a mask, or one for each type of layer.

        Args:
            visible: bool (b, q, w), all that each query may see.
            make: turns what is visible into a mask.
            shortened: by how many tokens windows are too short, (b, 1, 1).
        """
        found: dict[str, Tensor | None] = {}
        whole = None
        for kind, narrow in self._by_type.items():
            if narrow is not None:
                found[kind] = make(narrow(visible, shortened=shortened))
            else:
                found[kind] = whole = make(visible) if whole is None else whole
        if self.has_states:
            found |= dict.fromkeys(STATES)
        return found.get("", found)

    def narrowed(self, visible: Tensor, shortened: Tensor | int = 0) -> Tensor | None:
        """Return what queries of the layers with a window see, bool (b, q, w); None without any."""
        if not self.widths:
            return None
        kind, width = next(iter(self.widths.items()))
        return _NARROW.get(kind, sliding)(visible, width, shortened)


class _Given:
    """Stands for a table of which columns a query sees; whatever is looked up is what it holds."""

    def __init__(self, seen: Tensor) -> None:
        self._seen = seen

    def __getitem__(self, _: object) -> Tensor:
        return self._seen


def find_masking(model: PreTrainedModel) -> list[nn.Module]:
    """Return the modules of a model that mask columns of the cache by a rule of their own."""
    if not masks_columns(model):
        return []
    kinds: dict[Any, bool] = {type(module): False for module in model.modules()}
    kinds = {kind: MASKS_COLUMNS in source_of(kind) for kind in kinds}
    return [module for module in model.modules() if kinds[type(module)]]


def _width_of(module: Any) -> int | None:
    """Return how many tokens the last query sees, by the module's own rule; None for all."""
    last = module.bias[0, 0, -1]
    width = int(last.sum())
    return width if width < len(last) else None


@contextmanager
def shrunk(model: PreTrainedModel, width: int) -> Iterator[None]:
    """Let the model attend to `width` tokens at most where it attends to a window or a chunk."""
    config = model.config.get_text_config()
    before = {name: read_setting(config, name) for name in WIDTHS.values()}
    try:
        for name, value in before.items():
            if value is not None:
                setattr(config, name, min(value, width))
        masking: list[Any] = [module for module in find_masking(model) if _width_of(module)]
        tables = {module: module.bias for module in masking}
        with having("bias", {each: bias & ~bias.tril(-width) for each, bias in tables.items()}):
            yield
    finally:
        for name, value in before.items():
            if value is not None:
                setattr(config, name, value)


def takes_mapping(model: PreTrainedModel) -> bool:
    """Return whether the model's forward takes a mask for each type of layer."""
    parts = {type(each) for each in model.modules() if isinstance(each, PreTrainedModel)}
    return any(_TAKES_MAPPING.search(source_of(part.forward)) for part in parts)
