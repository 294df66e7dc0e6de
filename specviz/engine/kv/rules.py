"""Rules by which recurrences read tokens, carried out token by token where a mixer reads several.

Contract: the files of transformers have each rule twice, as a function for several tokens and as
one for a single token. Where somebody is `reading`, the first is carried out by the second: the
state after every token is then known, and the numbers are those of single-token decoding. Not known
here: rows and rings.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from torch import Tensor, nn

from specviz.engine.models.compat import source_of


@dataclass(frozen=True)
class Scan:
    """A rule and what it is to read.

    Attributes:
        inputs: (b, q, ...) each, what of every token the state depends on.
        others: (b, q, ...) each, what only the output depends on.
        axis: that of the tokens in the output.
        read: reads a token, from the state before it, its inputs and its others: returns output and
            state. Without others the output means nothing.
    """

    inputs: Sequence[Tensor]
    others: Sequence[Tensor]
    axis: int
    read: Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Tensor]]


def _delta(single: Any, query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> Scan:
    """Gated delta rule (GDN) and Kimi's (KDA)."""
    inputs = [key, value, rest.pop("g"), rest.pop("beta")]
    rest |= {"output_final_state": True, "cu_seqlens": None}

    def read(state: Tensor, inputs: Sequence[Tensor], others: Sequence[Tensor]) -> Any:
        key, value, g, beta = (each[:, None] for each in inputs)
        query = others[0][:, None] if others else key
        own = rest | {"g": g, "beta": beta, "initial_state": state}
        output, state = single(query, key, value, **own)
        return output[:, 0], state

    return Scan(inputs, [query], 1, read)


def _mamba2(
    single: Any, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **rest: Any
) -> Scan:
    """The scan of Mamba-2."""
    heads, size = x.shape[2:]

    def wide(each: Tensor) -> Tensor:
        return each[..., None].expand(*each.shape, size)

    A = A.reshape(heads, 1, 1).expand(heads, size, B.shape[-1])
    D, dt_bias = wide(rest["D"]), wide(rest["dt_bias"])

    def read(state: Tensor, inputs: Sequence[Tensor], others: Sequence[Tensor]) -> Any:
        x, dt, B = inputs
        C = others[0] if others else B
        state = state.clone()  # the rule writes to it
        output = single(state, x, wide(dt), A, B, C, D, dt_bias=dt_bias, dt_softplus=True)
        return output, state

    return Scan([x, dt, B], [C], 1, read)


def _mamba(
    single: Any, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **rest: Any
) -> Scan:
    """The scan of Mamba-1, whose function for several tokens knows no state before them."""
    D, dt_bias = rest["D"], rest["delta_bias"]

    def read(state: Tensor, inputs: Sequence[Tensor], others: Sequence[Tensor]) -> Any:
        x, dt, B = inputs
        C, z = others if others else (B, None)
        state = state.clone()  # the rule writes to it
        output = single(state, x, dt, A, B, C, D, z=z, dt_bias=dt_bias, dt_softplus=True)
        return output, state

    inputs = [each.transpose(1, 2) for each in (x, dt, B)]
    return Scan(inputs, [each.transpose(1, 2) for each in (C, rest["z"])], 2, read)


# The function that reads several tokens, the one that reads a token, and how to go from the
# arguments of the first to those of the second.
_RULES: dict[str, tuple[str, Callable[..., Scan]]] = {
    "torch_chunk_gated_delta_rule": ("torch_recurrent_gated_delta_rule", _delta),
    "chunk_kimi_delta_attention": ("recurrent_kimi_delta_attention", _delta),
    "mamba2_chunk_scan": ("mamba2_selective_state_update", _mamba2),
    "mamba_selective_scan": ("mamba_selective_state_update", _mamba),
}
_reader: ContextVar[Callable[[Scan], Any] | None] = ContextVar("reader", default=None)


def reads_at_once(mixer: nn.Module) -> bool:
    """Return whether the mixer can read several tokens in one call, so that all states are known.

    It can if it calls a rule, which is then seen to, or only convolves.
    """
    kind: Any = type(mixer)
    source = source_of(kind)
    place = sys.modules[kind.__module__]
    if not re.search(r"(recurrent_state|linear_cache)\(", source):
        return ".is_recording_past(" in source  # else it may read on from nothing
    if hasattr(mixer, "n_mamba_heads"):  # Zamba's heads call the rule one after the other
        return False
    for name, (single, scan_of) in _RULES.items():
        if hasattr(place, single) and re.search(rf"\b{name}\(", source):
            _install(place, name, getattr(place, single), scan_of)
            return True
    return False


def _install(place: Any, name: str, single: Any, scan_of: Callable[..., Scan]) -> None:
    """Let the function of a file do as before where nobody is reading."""
    own = getattr(place, name)
    if hasattr(own, "carried_out_by"):
        return

    @wraps(own)
    def rule(*args: Any, **kwargs: Any) -> Any:
        read = _reader.get()
        return own(*args, **kwargs) if read is None else read(scan_of(single, *args, **kwargs))

    rule.carried_out_by = single  # type: ignore[attr-defined]
    setattr(place, name, rule)


@contextmanager
def reading(read: Callable[[Scan], Any]) -> Iterator[None]:
    """Let rules be carried out by `read`, which returns output and last state, inside."""
    token = _reader.set(read)
    try:
        yield
    finally:
        _reader.reset(token)
