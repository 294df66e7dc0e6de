"""Attention that asks the cache where its queries lie, once for all rows: run row by row.

Contract: a module runs for each row alone, while the cache answers for that row, by token index.
Not known here: what the module computes.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from specviz.engine.kv.having import having
from specviz.engine.models.compat import ASKS_OFFSET, source_of


def find_rowwise(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model that ask the cache for one offset of all queries."""
    found = []
    for module in model.modules():
        kind: Any = type(module)
        if ASKS_OFFSET in source_of(kind):
            found.append(module)
    return found


def running_rowwise(modules: Sequence[nn.Module], cache: Any) -> AbstractContextManager[None]:
    """Let the modules run for each row alone, inside the context."""
    return having("forward", {module: _rowwise(module.forward, cache) for module in modules})


def _rowwise(forward: Callable[..., Any], cache: Any) -> Callable[..., Any]:
    def rowwise(*args: Any, **kwargs: Any) -> Any:
        access, steps = cache.access, cache.steps
        count = len(access.rows)
        found: dict[int, Any] = {}
        try:
            for i in range(count):
                row = slice(i, i + 1)
                # A row that has nothing to prefill has no state to read on from.
                if steps.counts is None or steps.counts[i]:
                    cache.access, cache.steps = access.row(row), steps.row(row)
                    found[i] = forward(*_of_row(args, row, count), **_of_row(kwargs, row, count))
        finally:
            cache.access, cache.steps = access, steps
        return _together(found, count)

    return rowwise


def _of_row(value: Any, row: slice, count: int) -> Any:
    """Return a row of all that has as many."""
    if isinstance(value, tuple):
        return tuple(_of_row(each, row, count) for each in value)
    if isinstance(value, dict):
        return {name: _of_row(each, row, count) for name, each in value.items()}
    has_rows = isinstance(value, Tensor) and value.ndim and value.shape[0] == count
    return value[row] if has_rows else value


def _together(found: dict[int, Any], count: int) -> Any:
    """Return what was computed for single rows as one, with zeros for the others."""
    first = next(iter(found.values()))
    if isinstance(first, tuple):
        parts = range(len(first))
        return tuple(_together({i: found[i][part] for i in found}, count) for part in parts)
    if not isinstance(first, Tensor):
        return first
    return torch.cat([found.get(i, torch.zeros_like(first)) for i in range(count)])
