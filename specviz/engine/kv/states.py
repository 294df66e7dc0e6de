"""States of convolutions and recurrences, kept by row and token index like K/V.

Contract: each row has a ring of states, and the state after the token with index p lies at p modulo
its depth. A forward that begins at index p reads the state p - 1. So a rejected draft needs no
taking back: its states are overwritten. Several tokens are read one by one, as a model does in
single-token decoding; only a prompt from its beginning is read at once. Not known here: which
tokens are right.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import LinearAttentionLayer

# What the code of a module asks the cache for if it keeps a state.
_ASKS = re.compile(r"\.(get|update)_(conv|recurrent)_state\(|\.get_linear_cache\(")
# Some classes clamp time steps where they read several tokens, and not where they read one.
_UNLIMITED = (0.0, inf)


@dataclass(frozen=True)
class Steps:
    """Which tokens the current forward reads.

    Attributes:
        rows: (b,), rows of the rings.
        indices: (b, q), the tokens' indices in their own rows.
        counts: of a prefill, how many tokens of each row count; None where all do.
    """

    rows: Tensor
    indices: Tensor
    counts: Sequence[int] | None


class StateLayer(LinearAttentionLayer):
    """The states of one layer: in `conv_states` and `recurrent_states` those that a mixer reads and
    writes now, in the rings all that are kept.
    """

    is_sliding = False
    is_initialized = False

    def __init__(self, rows: int, depth: int, number_of_states: int = 1) -> None:
        super().__init__(number_of_states)
        self.rows = rows
        self.depth = depth
        self.rings: dict[tuple[str, int], Tensor] = {}  # (R, depth, ...)
        self.tags: dict[tuple[str, int], Tensor] = {}  # (R, depth), the index after which each is
        # Several mixers may share a layer. Each keeps what it has asked for itself.
        self.asked: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Let a mixer read from a row's beginning."""
        self.asked.clear()
        for i in range(self.number_of_states):
            self.conv_states[i] = self.recurrent_states[i] = None
            self.is_conv_states_initialized[i] = self.is_recurrent_states_initialized[i] = False
            self.has_previous_state[i] = False

    def select(self, rows: Tensor, indices: Tensor) -> None:
        """Let a mixer read on from the states after these tokens (b,), zeros for index -1."""
        self.begin()
        for (kind, i), ring in self.rings.items():
            # A device_map may have put the layer on another device than the inputs.
            rows, indices = rows.to(ring.device), indices.to(ring.device)
            slots = indices % self.depth
            tags = self.tags[kind, i][rows, slots]
            if tags.device.type == "cpu" and bool(((tags != indices) & (indices >= 0)).any()):
                raise RuntimeError(
                    f"rows {rows.tolist()} have no state after tokens {indices.tolist()}"
                )
            state = ring[rows, slots]
            state[indices < 0] = 0
            getattr(self, kind)[i] = state
            getattr(self, f"is_{kind}_initialized")[i] = True
            self.has_previous_state[i] = True
            if kind == "conv_states":
                self.conv_kernel_size[i] = state.shape[-1]

    def keep(self, rows: Tensor, indices: Tensor) -> None:
        """Keep what the mixer has left as the states after these tokens (b,)."""
        # Mixers of transformers before 5.23 read a layer's only states without asking the cache.
        only = {("conv_states", 0), ("recurrent_states", 0)}
        for kind, i in self.asked if self.number_of_states > 1 else only:
            state = getattr(self, kind)[i]
            if state is None:
                continue
            if (kind, i) not in self.rings:
                shape = (self.rows, self.depth, *state.shape[1:])
                self.rings[kind, i] = state.new_zeros(shape)
                self.tags[kind, i] = torch.full(shape[:2], -1, device=state.device)
            rows, indices = rows.to(state.device), indices.to(state.device)
            self.rings[kind, i][rows, indices % self.depth] = state
            self.tags[kind, i][rows, indices % self.depth] = indices

    def forget(self) -> None:
        """Free the states of all rows."""
        self.rings.clear()
        self.tags.clear()

    def move(self, from_rows: Tensor, to_rows: Tensor) -> None:
        """Let the states of rows go to others, all read before any is written."""
        for values in (*self.rings.values(), *self.tags.values()):
            values[to_rows.to(values.device)] = values[from_rows.to(values.device)]


def find_mixers(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model that keep a state in the cache."""
    found = []
    for module in model.modules():
        kind: Any = type(module)
        if _ASKS.search(source_of(kind)):
            found.append(module)
    return found


@cache
def source_of(code: Any) -> str:
    """Return the source of a class or function of a model; "" where it has no file."""
    if code.__module__.startswith("torch."):
        return ""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


@contextmanager
def stepping(mixers: Sequence[nn.Module], cache: Any) -> Iterator[None]:
    """Let the mixers read their tokens as `cache.steps` says, inside the context."""
    # Libraries that spread a model over devices leave forwards of their own on its modules.
    before = [vars(mixer).get("forward") for mixer in mixers]
    for mixer in mixers:
        mixer.forward = _stepped(mixer.forward, cache, int(mixer.layer_idx))  # type: ignore[arg-type]
    try:
        with without_limits(mixers):
            yield
    finally:
        for mixer, own in zip(mixers, before, strict=True):
            if own is None:
                del mixer.forward
            else:
                mixer.forward = own


@contextmanager
def without_limits(mixers: Sequence[nn.Module]) -> Iterator[None]:
    """Let the mixers read a prompt by the rule that they read single tokens by."""
    name = "time_step_limit"
    limits = [(mixer, getattr(mixer, name)) for mixer in mixers if hasattr(mixer, name)]
    for mixer, _ in limits:
        setattr(mixer, name, _UNLIMITED)
    try:
        yield
    finally:
        for mixer, limit in limits:
            setattr(mixer, name, limit)


def _stepped(forward: Callable[..., Any], cache: Any, number: int) -> Callable[..., Any]:
    def stepped(*args: Any, **kwargs: Any) -> Any:
        steps: Steps = cache.steps
        layer: StateLayer = cache.layers[number]
        shape = (steps.indices.shape[0], steps.indices.shape[1])

        def run(rows: slice, columns: slice) -> Any:
            own = [_part(value, shape, rows, columns) for value in args]
            named = {name: _part(each, shape, rows, columns) for name, each in kwargs.items()}
            return forward(*own, **named)

        if steps.counts is None:
            return _joined(_steps(layer, steps, slice(None), range(shape[1]), run), shape[1])
        found = []
        for i, count in enumerate(steps.counts):
            row = slice(i, i + 1)
            pieces = []
            first = 0
            if count > 2 and int(steps.indices[i, 0]) == 0:
                # A draft model reads the last token again, so the state before it is needed, too.
                first = count - 1
                layer.begin()
                pieces.append(run(row, slice(0, first)))
                layer.keep(steps.rows[row], steps.indices[row, first - 1])
            pieces += _steps(layer, steps, row, range(first, count), run)
            if pieces:
                found.append((i, _joined(pieces, shape[1])))
        return _stacked(found, shape[0])

    return stepped


def _steps(
    layer: StateLayer,
    steps: Steps,
    rows: slice,
    columns: range,
    run: Callable[[slice, slice], Any],
) -> list[Any]:
    """Read tokens one by one, and return the mixer's outputs."""
    found = []
    for j in columns:
        indices = steps.indices[rows, j]
        layer.select(steps.rows[rows], indices - 1)
        found.append(run(rows, slice(j, j + 1)))
        layer.keep(steps.rows[rows], indices)
    return found


def _part(value: Any, shape: tuple[int, int], rows: slice, columns: slice) -> Any:
    """Return some rows and columns of what has an entry for each token (b, q)."""
    if isinstance(value, tuple):
        return tuple(_part(each, shape, rows, columns) for each in value)
    if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] != shape[1]:
        return value
    if value.shape[0] == shape[0]:
        return value[rows, columns]
    return value[:, columns] if value.shape[0] == 1 else value


def _joined(pieces: Sequence[Any], width: int) -> Any:
    """Return outputs of parts of a row as one, with its last one again up to `width` tokens.

    Where a shorter row is filled with its last token, whose K/V may be written again.
    """
    first = pieces[0]
    if isinstance(first, tuple):
        return tuple(_joined(each, width) for each in zip(*pieces, strict=True))
    if not isinstance(first, Tensor):
        return first
    joined = torch.cat(list(pieces), 1)
    last = joined[:, -1:]
    return torch.cat([joined, *[last] * (width - joined.shape[1])], 1)


def _stacked(found: Sequence[tuple[int, Any]], rows: int) -> Any:
    """Return outputs of single rows as one, with zeros for rows that have none."""
    first = found[0][1]
    if isinstance(first, tuple):
        parts = zip(*(each for _, each in found), strict=True)
        numbers = [i for i, _ in found]
        return tuple(_stacked(list(zip(numbers, part, strict=True)), rows) for part in parts)
    if not isinstance(first, Tensor):
        return first
    stacked = first.new_zeros(rows, *first.shape[1:])
    for i, each in found:
        stacked[i] = each[0]
    return stacked
