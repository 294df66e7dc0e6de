"""States of convolutions and recurrences, kept by row and token index like K/V.

Contract: each row has a ring of states, and the state after the token with index p lies at p modulo
its depth. A forward that begins at index p reads the state p - 1. So a rejected draft needs no
taking back: its states are overwritten. Several tokens are read one by one, as a model does in
single-token decoding: by the whole mixer, or by its rule alone where it calls one. Only a prompt is
read at once, from its beginning. Instead of the states after single tokens, a layer may keep what
its rule has read, and read that again. Not known here: which tokens are right.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.cache_utils import LinearAttentionLayer

from specviz.engine.kv.having import having
from specviz.engine.kv.rules import Scan, reading
from specviz.engine.models.compat import source_of

# States after one token of a row, by what a mixer calls them in the cache.
Snapshot = dict[tuple[str, int], Tensor]
# What the code of a module asks the cache for if it keeps a state.
_ASKS = re.compile(r"\.(get|update)_(conv|recurrent)_state\(|\.get_linear_cache\(")
# What it assigns if it keeps a state itself.
_HOLDS = re.compile(r"\bself\.(\w*_states?) = ")
# Some classes clamp time steps where they read several tokens, and not where they read one.
UNLIMITED = (0.0, inf)
RECURRENCE = ("recurrent_states", 0)
# What each mixer has asked a cache for. It asks every cache for the same, and a new cache that goes
# on from snapshots has to know before it asks.
_asked_by: WeakKeyDictionary[nn.Module, set[tuple[str, int]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Steps:
    """Which tokens the current forward reads.

    Attributes:
        rows: (b,), rows of the rings.
        indices: (b, q), the tokens' indices in their own rows.
        after: (b,), the index of the token whose states each row goes on from, -1 for none.
        counts: of a prefill, how many tokens of each row count; None where all do.
    """

    rows: Tensor
    indices: Tensor
    after: Tensor
    counts: Sequence[int] | None

    @cached_property
    def are_runs(self) -> bool:
        """Whether each row reads tokens that follow each other; a filled row repeats one."""
        return bool((self.indices.diff(dim=1) == 1).all())

    def row(self, row: slice) -> "Steps":
        """Return what a forward of this row alone reads."""
        counts = None if self.counts is None else self.counts[row]
        return Steps(self.rows[row], self.indices[row], self.after[row], counts)


class Ring:
    """Something of the last `depth` tokens of each row, by the tokens' indices.

    Attributes:
        held: (R, depth, ...), that of the token with index i at i modulo `depth`.
        tags: (R, depth), the index of each; -1 where there is none.
    """

    def __init__(self, rows: int, depth: int, like: Tensor) -> None:
        """Make room for R rows of what is `like` (b, ...)."""
        self.held = like.new_zeros(rows, depth, *like.shape[1:])
        self.tags = torch.full((rows, depth), -1, device=like.device)

    def put(self, rows: Tensor, indices: Tensor, values: Tensor) -> None:
        """Keep the values (b, ...) of tokens (b,), or (b, q, ...) of tokens (b, q)."""
        # A device_map may have put the layer on another device than the inputs.
        rows, indices = rows.to(self.tags.device), indices.to(self.tags.device)
        rows = rows.view(-1, *[1] * (indices.ndim - 1))
        slots = indices % self.tags.shape[1]
        self.held[rows, slots] = values
        self.tags[rows, slots] = indices

    def take(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Return copies of what tokens (b,) have left, zeros for index -1."""
        rows, indices = rows.to(self.tags.device), indices.to(self.tags.device)
        slots = indices % self.tags.shape[1]
        require_kept(rows, indices, (self.tags[rows, slots] == indices) | (indices < 0))
        found = self.held[rows, slots]
        found[indices < 0] = 0
        return found

    def has(self, row: int, index: int) -> bool:
        """Return whether what a token of a row has left is still there."""
        return int(self.tags[row, index % self.tags.shape[1]]) == index

    def move(self, from_rows: Tensor, to_rows: Tensor) -> None:
        """Let what rows have go to others, all read before any is written."""
        for each in (self.held, self.tags):
            each[to_rows.to(each.device)] = each[from_rows.to(each.device)]


def require_kept(rows: Tensor, indices: Tensor, kept: Tensor) -> None:
    """Raise RuntimeError unless all is kept, where it takes no waiting for a device to know."""
    if kept.device.type == "cpu" and not bool(kept.all()):
        raise RuntimeError(f"rows {rows.tolist()} have no state after tokens {indices.tolist()}")


class StateLayer(LinearAttentionLayer):
    """The states of one layer: in `conv_states` and `recurrent_states` those that a mixer reads and
    writes now, in the rings all that are kept.

    Attributes:
        at_once: whether the mixer can read several tokens in one call; see `reads_at_once`.
        most_bytes: if the states of the recurrence took more, its inputs are kept.
        inputs: what the rule has read of each token since the state that is kept; see `Scan`.
        own: modules with the names of their attributes that take the place of `conv_states` and
            `recurrent_states`, where a mixer keeps its states itself.
    """

    is_sliding = False
    is_initialized = False
    at_once = False
    most_bytes = inf
    _scan: Scan

    def __init__(self, rows: int, depth: int, number_of_states: int = 1) -> None:
        super().__init__(number_of_states)
        self.rows = rows
        self.depth = depth
        self.rings: dict[tuple[str, int], Ring] = {}
        self.inputs: list[Ring] = []
        # Several mixers may share a layer. Each reads and keeps what it asks for itself.
        self.asked: set[tuple[str, int]] = set()
        self.own: Sequence[tuple[nn.Module, str]] = ()
        # What the last convolutions have read, the states before it included: (b, C, k + q).
        self.whole: dict[int, Tensor] = {}

    def serve(self, mixer: nn.Module) -> None:
        """Let a mixer read and write from now on."""
        self.asked = _asked_by.setdefault(mixer, set())

    def begin(self) -> None:
        """Let a mixer read from a row's beginning."""
        for i in range(self.number_of_states):
            self.conv_states[i] = self.recurrent_states[i] = None
            self.is_conv_states_initialized[i] = self.is_recurrent_states_initialized[i] = False
            self.has_previous_state[i] = False
        for module, name in self.own:
            setattr(module, name, None)

    @property
    def keeps_inputs(self) -> bool:
        """Whether one state a row is kept of the recurrence, and what its rule has read since."""
        ring = self.rings.get(RECURRENCE)
        return ring is not None and ring.tags.shape[1] == 1

    def select(self, rows: Tensor, indices: Tensor) -> None:
        """Let a mixer read on from the states after these tokens (b,), zeros for index -1."""
        self.begin()
        for (kind, i), ring in self.rings.items():
            if self.number_of_states > 1 and (kind, i) not in self.asked:
                continue
            if self.inputs and (kind, i) == RECURRENCE:
                self._catch_up(rows, indices)
            state = ring.take(rows, indices)
            if kind == "own":
                module, name = self.own[i]
                setattr(module, name, state)
                continue
            getattr(self, kind)[i] = state
            getattr(self, f"is_{kind}_initialized")[i] = True
            self.has_previous_state[i] = True
            if kind == "conv_states":
                self.conv_kernel_size[i] = state.shape[-1]

    def _catch_up(self, rows: Tensor, indices: Tensor) -> None:
        """Let the rule read again what it has read up to these tokens (b,), behind those kept."""
        ring = self.rings[RECURRENCE]
        rows, indices = rows.to(ring.tags.device), indices.to(ring.tags.device)
        last = torch.where(indices < 0, indices, ring.tags[rows, 0])
        missing = indices - last
        counts = missing.tolist()  # known on every device, since the loop needs them
        require_kept(rows, indices, torch.tensor(counts) >= 0)
        state = ring.held[rows, 0]
        state[last < 0] = 0
        for j in range(max(counts)):
            due = missing > j
            at = torch.where(due, last + 1 + j, -1)
            inputs = [each.take(rows, at) for each in self.inputs]
            _, after = self._scan.read(state, inputs, ())
            state = torch.where(due.view(-1, *[1] * (state.ndim - 1)), after.to(state.dtype), state)
        ring.put(rows, indices, state)

    def scan(self, steps: Steps, scan: Scan) -> tuple[Tensor, Tensor]:
        """Carry a rule out token by token, and keep its states or what it reads.

        Returns output and last state, as the rule does.
        """
        ring = self.rings[RECURRENCE]
        state: Any = self.recurrent_states[0]
        outputs = []
        for j in range(steps.indices.shape[1]):
            inputs, others = ([each[:, j] for each in part] for part in (scan.inputs, scan.others))
            output, state = scan.read(state, inputs, others)
            state = state.to(ring.held.dtype)
            outputs.append(output)
            if not self.keeps_inputs:
                ring.put(steps.rows, steps.indices[:, j], state)
        if self.keeps_inputs:
            if not self.inputs:
                self.inputs = [Ring(self.rows, self.depth, each[:, 0]) for each in scan.inputs]
            for each, values in zip(self.inputs, scan.inputs, strict=True):
                each.put(steps.rows, steps.indices, values)
            self._scan = replace(scan, inputs=(), others=())
        return torch.stack(outputs, scan.axis), state

    def keep(self, rows: Tensor, indices: Tensor) -> None:
        """Keep what the mixer has left as the states after these tokens (b,)."""
        # Mixers of transformers before 5.23 read a layer's only states without asking the cache.
        only = {("conv_states", 0), RECURRENCE}
        asked = self.asked if self.number_of_states > 1 else only
        for kind, i in asked | {("own", i) for i in range(len(self.own))}:
            state = getattr(*self.own[i]) if kind == "own" else getattr(self, kind)[i]
            if state is None:
                continue
            if not state.is_floating_point():
                raise TypeError("a layer keeps ids of tokens, whose beginning is not zero")
            self._ring((kind, i), state).put(rows, indices, state)

    def _ring(self, key: tuple[str, int], state: Tensor) -> Ring:
        """Return the ring of states that are like this one (b, ...)."""
        if key not in self.rings:
            depth = self.depth
            nbytes = self.rows * depth * state[0].numel() * state.element_size()
            if self.at_once and key == RECURRENCE and nbytes > self.most_bytes:
                depth = 1
            self.rings[key] = Ring(self.rows, depth, state)
        return self.rings[key]

    def keep_windows(self, steps: Steps) -> None:
        """Keep the states that convolutions have left behind each of the tokens (b, q)."""
        for kind, i in self.asked:
            if kind == "conv_states":
                ring = self.rings[kind, i]
                windows = self.whole[i].unfold(-1, ring.held.shape[-1], 1)  # (b, C, q + 1, k)
                ring.put(steps.rows, steps.indices, windows[:, :, 1:].transpose(1, 2))
        self.whole.clear()

    def snapshot(self, row: int, index: int) -> Snapshot | None:
        """Return copies of a row's states after a token; None if they are gone."""
        rows, indices = torch.tensor([row]), torch.tensor([index])
        if self.inputs and int(self.rings[RECURRENCE].tags[row, 0]) < index:
            if not all(ring.has(row, index) for ring in self.inputs):
                return None
            self._catch_up(rows, indices)
        if not all(ring.has(row, index) for ring in self.rings.values()):
            return None
        return {key: ring.take(rows, indices)[0] for key, ring in self.rings.items()}

    def put_back(self, row: int, index: int, states: Snapshot) -> None:
        """Let these be a row's states after a token, and its only ones."""
        for key, state in states.items():
            ring = self._ring(key, state[None])
            ring.tags[row] = -1
            ring.put(torch.tensor([row]), torch.tensor([index]), state[None])

    def forget(self) -> None:
        """Free the states of all rows."""
        self.rings.clear()
        self.inputs.clear()

    def move(self, from_rows: Tensor, to_rows: Tensor) -> None:
        """Let the states of rows go to others."""
        for ring in (*self.rings.values(), *self.inputs):
            ring.move(from_rows, to_rows)


def find_mixers(model: nn.Module) -> dict[nn.Module, int]:
    """Return the modules of a model that keep a state, and the numbers of their layers."""
    found: dict[nn.Module, int] = {}
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        kind: Any = type(module)
        if module not in inside and (_held(module) or _ASKS.search(source_of(kind))):
            numbers = [int(part) for part in name.split(".") if part.isdigit()]
            found[module] = int(getattr(module, "layer_idx", numbers[-1] if numbers else 0))
            inside |= set(module.modules())  # parts with states run as the whole does
    return found


def held_states(mixer: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the parts of a mixer that keep states themselves, with the attributes' names."""
    return [(module, name) for module in mixer.modules() for name in _held(module)]


def _held(module: nn.Module) -> list[str]:
    kind: Any = type(module)
    names = sorted(set(_HOLDS.findall(source_of(kind))))
    return [name for name in names if name in vars(module)]


@contextmanager
def stepping(mixers: Mapping[nn.Module, int], cache: Any) -> Iterator[None]:
    """Let the mixers read their tokens as `cache.steps` says, inside the context."""
    held = [each for number in mixers.values() for each in cache.layers[number].own]
    states = [getattr(*each) for each in held]
    forwards = {mixer: _stepped(mixer, cache, number) for mixer, number in mixers.items()}
    try:
        with having("forward", forwards), without_limits(mixers):
            yield
    finally:
        for (module, name), state in zip(held, states, strict=True):
            setattr(module, name, state)


def without_limits(mixers: Iterable[nn.Module]) -> AbstractContextManager[None]:
    """Let the mixers read a prompt by the rule that they read single tokens by."""
    name = "time_step_limit"
    return having(name, {mixer: UNLIMITED for mixer in mixers if hasattr(mixer, name)})


def _stepped(mixer: nn.Module, cache: Any, number: int) -> Callable[..., Any]:
    forward = mixer.forward

    def stepped(*args: Any, **kwargs: Any) -> Any:
        steps: Steps = cache.steps
        layer: StateLayer = cache.layers[number]
        layer.serve(mixer)
        shape = (steps.indices.shape[0], steps.indices.shape[1])

        def run(rows: slice, columns: slice) -> Any:
            own = [_part(value, shape, rows, columns) for value in args]
            named = {name: _part(each, shape, rows, columns) for name, each in kwargs.items()}
            return forward(*own, **named)

        found = _read(layer, steps, shape, run)
        layer.begin()  # all is kept, so nothing has to stay beside the rings
        return found

    return stepped


Run = Callable[[slice, slice], Any]  # reads some rows and columns, and returns the mixer's outputs


def _read(layer: StateLayer, steps: Steps, shape: tuple[int, int], run: Run) -> Any:
    if steps.counts is None and layer.at_once and shape[1] > 1 and steps.are_runs:
        return _at_once(layer, steps, run)
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


def _at_once(layer: StateLayer, steps: Steps, run: Run) -> Any:
    """Read all tokens of all rows in one call of the mixer; only its rule goes token by token."""
    everything = slice(None)
    if not layer.asked & layer.rings.keys():
        # Nobody has read anything. What states look like is known once a token is read.
        _steps(layer, steps, everything, range(1), run)
    layer.select(steps.rows, steps.after)
    with reading(partial(layer.scan, steps)):
        found = run(everything, everything)
    layer.keep_windows(steps)
    return found


def _steps(
    layer: StateLayer,
    steps: Steps,
    rows: slice,
    columns: range,
    run: Run,
) -> list[Any]:
    """Read tokens one by one, and return the mixer's outputs."""
    found = []
    for j in columns:
        indices = steps.indices[rows, j]
        layer.select(steps.rows[rows], indices - 1 if j else steps.after[rows])
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
        # What has other dimensions than the output is not of tokens, such as a last state.
        return tuple(
            _joined(each, width) if _like(each[0], first[0]) else each[-1]
            for each in zip(*pieces, strict=True)
        )
    if not isinstance(first, Tensor):
        return first
    joined = torch.cat(list(pieces), 1)
    last = joined[:, -1:]
    return torch.cat([joined, *[last] * (width - joined.shape[1])], 1)


def _like(value: Any, output: Any) -> bool:
    return not isinstance(value, Tensor) or value.ndim == output.ndim


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
