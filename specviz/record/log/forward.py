"""The arguments of `TraceWriter.forward` and `TraceWriter.move`, checked.

Contract: returns an event, or raises a ValueError of one sentence. Not known here: rounds, files.

b rows of q tokens. A packed forward has one entry a token: then b counts tokens, and q is 1.
"""

from typing import Any

import numpy as np

from specviz.record.log.arrays import as_array, booleans, check_limits, integers, rectangle
from specviz.record.log.events import MOVED, Forward, Limits, Moves
from specviz.record.log.sight import Sight, sight
from specviz.record.schema import MODELS, PHASES, Array
from specviz.util.validate import require_choice, short

_MOST = 2**31 - 2


def read_forward(limits: Limits, model: Any, given: dict[str, Any]) -> Forward:
    """Check the arguments of `TraceWriter.forward`, given by name."""
    model = require_choice("model", model, MODELS)
    tokens = rectangle("tokens", given["tokens"])
    packed = tokens.ndim == 1
    tokens = _column(tokens)
    index = _same_shape(rectangle("indices", given["indices"]), tokens.shape)
    rows = _of_rows("rows", given["rows"], index.shape)
    requests = _of_rows("requests", given["requests"], index.shape, limits.lengths.size - 1)
    picked = _picked(given["valid"], index, packed)
    columns = {
        "row": rows[picked],
        "request": requests[picked],
        "token": tokens[picked],
        "index": index[picked],
    }
    check_limits("tokens", columns["token"], 0, limits.vocabulary_size - 1)
    _check_index(columns["index"], columns["request"], limits)
    slots = _optional("slots", given["slots"], picked, packed)
    seen = _seen(given["visible"], picked, slots, packed)
    phase = given["phase"]
    if phase is None:
        phase = _phase_of(model, columns["index"], columns["request"], limits.lengths)
    require_choice("phase", phase, PHASES)
    positions = _optional("positions", given["positions"], picked, packed)
    nodes = _optional("nodes", given["nodes"], picked, packed)
    return Forward(model, phase, **columns, position=positions, slot=slots, node=nodes, sight=seen)


def _column(array: Array) -> Array:
    return array[:, None] if array.ndim == 1 else array


def _same_shape(index: Array, shape: tuple[int, ...]) -> Array:
    index = _column(index)
    if index.shape != shape:
        raise ValueError(
            f"indices must have the shape of tokens, {shape}, got {index.shape}; "
            "pass the index of each token in its own row"
        )
    return index


def _of_rows(name: str, value: Any, shape: tuple[int, ...], most: int = _MOST) -> Array:
    """Return one int for each of the rows as (b, q)."""
    return np.broadcast_to(integers(name, value, shape[:1], most=most)[:, None], shape)


def _picked(valid: Any, index: Array, packed: bool) -> Array:
    """Return which tokens are not padding, bool (b, q)."""
    if valid is None:
        return index >= 0
    if packed:
        return booleans("valid", valid, index.shape[:1])[:, None]
    return booleans("valid", valid, index.shape)


def _optional(name: str, value: Any, picked: Array, packed: bool) -> Array | None:
    """Return the values of the picked tokens, (m,). One row of values stands for all rows."""
    if value is None:
        return None
    array = rectangle(name, value)
    if packed:
        array = _column(array)
    try:
        values: Array = np.broadcast_to(array, picked.shape)[picked]
    except ValueError:
        raise ValueError(
            f"{name} must have the shape {picked.shape}, got {array.shape}; "
            "pass one value for each token"
        ) from None
    check_limits(name, values, 0, _MOST)
    return values


def _seen(visible: Any, picked: Array, slots: Array | None, packed: bool) -> Sight | None:
    if visible is None:
        return None
    if slots is None:
        raise ValueError(
            f"visible needs slots, got visible={short(visible)} alone; pass both, or leave both out"
        )
    return sight(visible, picked, slots, packed=packed)


def _check_index(index: Array, request: Array, limits: Limits) -> None:
    check_limits("indices", index, 0, _MOST)
    last = limits.lengths[request] + limits.num_draft_tokens - 1
    beyond = np.flatnonzero(index > last)
    if beyond.size:
        k = int(beyond[0])
        raise ValueError(
            f"indices must be at most n + K - 1 = {last[k]} for request {request[k]}, "
            f"got {index[k]}; call round(...) after each round, so that n grows"
        )


def _phase_of(model: str, index: Array, request: Array, lengths: Array) -> str:
    """Return the phase of a forward: a prefill stops before each row's pending token."""
    if not (index >= lengths[request] - 1).any():
        return "schedule"
    return "draft" if model == "draft" else "verify"


def read_moves(model: Any, phase: str, given: dict[str, Any]) -> Moves:
    """Check the arguments of `TraceWriter.move`, given by name."""
    model = require_choice("model", model, MODELS)
    require_choice("phase", phase, PHASES)
    columns = [_column_of_blocks(name, given[name]) for name in MOVED]
    count = max(column.size for column in columns)
    for name, column in zip(MOVED, columns, strict=True):
        if column.size not in (1, count):
            raise ValueError(
                f"{name} must have {count} entries as the others, got {column.size}; "
                "pass one for each block"
            )
    blocks = [np.broadcast_to(column, count) for column in columns]
    return Moves(model, phase, np.stack(blocks, axis=1))


def _column_of_blocks(name: str, value: Any) -> Array:
    """Return an int, or one or more of them, as (n,)."""
    column = as_array(name, value, "iu", "an int or a list of ints")
    if column.ndim > 1 or column.size == 0:
        raise ValueError(
            f"{name} must be an int or a list of ints, got {short(value)}; pass one for each block"
        )
    check_limits(name, column, 1 if name == "length" else 0, _MOST)
    return column.reshape(-1).astype(np.int64)
