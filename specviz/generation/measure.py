"""Measure the size of a model of any class: on a copy without weights, on the device "meta".

Nothing is computed there, so it takes no memory and little time. The kit's own caches and masks are
used, so that what is counted is what a run holds.
"""

import copy
from collections.abc import Callable
from math import ceil
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from specviz.costs.shapes import MeasuredShape
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.models.compat import attention_of
from specviz.engine.peak import PeakMeter

# A rule that reads many tokens in chunks fills the last one up: 64 tokens, or 256.
CHUNK = 256
ROWS = 32
VERIFIED = 4  # tokens of a row that are read with logits

_measured: WeakKeyDictionary[PreTrainedModel, tuple[object, MeasuredShape]]
_measured = WeakKeyDictionary()


def measure_model(role: str, model: PreTrainedModel, state: str = "states") -> MeasuredShape:
    """Return the shape of a loaded model. Raise ValueError if it cannot be measured.

    state: what its recurrences keep, "states" or "inputs"; see `Levers`.
    """
    conditions = (model.dtype, state)
    known = _measured.get(model)
    if known is None or known[0] != conditions:
        config = copy.deepcopy(model.config)
        made = {"dtype": model.dtype, "attn_implementation": attention_of(model)}
        name = type(model).__name__
        shape = _measure(role, name, lambda: type(model)._from_config(config, **made), state)
        known = _measured[model] = (conditions, shape)
    return known[1]


def measure_config(role: str, config: PreTrainedConfig, dtype: str) -> MeasuredShape:
    """Return the shape of a causal LM from its configuration alone.

    Raises:
        ValueError: it cannot be measured, or it routes tokens to experts.
    """

    def make() -> PreTrainedModel:
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
        if any(".experts." in name for name, _ in model.named_parameters()):
            raise ValueError("it routes tokens to experts, so what a forward reads depends on them")
        return model

    return _measure(role, config.model_type, make, "states")


def _measure(
    role: str, name: str, make: Callable[[], PreTrainedModel], state: str
) -> MeasuredShape:
    try:
        with torch.device("meta"), torch.inference_mode():
            return _shape(make().eval(), state)
    except Exception as error:  # whatever a class raises, its memory is not known
        message = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"{role}={name} cannot be measured without its weights ({type(error).__name__}: "
            f"{message}); choose another model, or decode without a plan"
        ) from error


class _Fused(TorchFunctionMode):
    """Kernels that keep no values between their products, as those of real devices."""

    operations = 0  # of the products of experts, which no counter knows

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is F.scaled_dot_product_attention:
            query, _, value = args[:3]
            return query.new_empty(*query.shape[:-1], value.shape[-1])
        if function is torch._grouped_mm:
            tokens, weight = args[:2]
            self.operations += 2 * tokens.numel() * weight.shape[-1]
            return tokens.new_empty(tokens.shape[0], weight.shape[-1])
        return function(*args, **(kwargs or {}))


def _shape(model: PreTrainedModel, state: str) -> MeasuredShape:
    config = model.config.get_text_config()
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kernels = sum(any(True for _ in m.parameters(recurse=False)) for m in model.modules())
    # Logits are counted elsewhere.
    model.set_output_embeddings(nn.Linear(config.hidden_size, 1, bias=False, dtype=model.dtype))
    (kept, operations), (more, _) = (_read(model, columns, state) for columns in (0, 1))
    rings = [ring for layer in kept.cache.state_layers for ring in layer.rings.values()]
    ring_bytes, more_bytes = (
        sum(
            ring.held.nbytes + ring.tags.nbytes
            for layer in cached.cache.state_layers
            for ring in (*layer.rings.values(), *layer.inputs)
        )
        for cached in (kept, more)
    )
    slabs = sorted(kept.slabs, key=lambda slab: slab[0, 0].numel())
    kv_heads, head_dim = slabs[-1].shape[2:] if slabs else (1, 1)
    heads = getattr(config, "num_attention_heads", None) or 1
    return MeasuredShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads if heads % kv_heads == 0 else kv_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=1,
        vocabulary=config.vocab_size,
        tied=tied,
        own_parameters=parameters,
        kv_values=sum(slab[0, 0].numel() for slab in slabs),
        state_bytes=kept.bytes_per_state,
        kept_states=ring_bytes,
        column_bytes=more_bytes - ring_bytes,
        largest_state=max((ring.held.nbytes for ring in rings), default=0) / max(ring_bytes, 1),
        operations=operations,
        kernels=kernels,
        **_work(model, state),
    )


def _read(model: PreTrainedModel, columns: int, state: str) -> tuple[CachedModel, int]:
    """Return a cache of one row that has read three tokens, and the operations of the second."""
    cached = CachedModel(model, 1, 2, columns=columns, state=state)
    with _Fused():
        cached.forward(_feed(1, 1, 2))  # where there is no state yet, a rule may read a chunk
    with _Fused() as fused, FlopCounterMode(display=False) as counter:
        cached.forward(_feed(1, 1, 2))
    with _Fused():
        cached.forward(_feed(1, 2, 2))  # what a rule reads is kept where it reads several
    return cached, counter.get_total_flops() + fused.operations


def _work(model: PreTrainedModel, state: str) -> dict[str, Any]:
    """Return the workspace of a forward by what it grows with, as slopes at large sizes.

    It grows no slower at larger sizes than at smaller ones, so it is never more than these say.
    """

    def peak(rows: int, tokens: int, window: int = 1) -> int:
        """Return the bytes that one forward holds at most, beside slabs and rings."""
        cached = CachedModel(model, rows, window, state=state)
        feed = _feed(rows, tokens, window)
        with _Fused():
            cached.forward(_feed(rows, 1, window))  # it allocates what is kept
            with PeakMeter([model]) as meter:
                (cached.forward if tokens < CHUNK else cached.prefill)(feed)
        return meter.peak_bytes

    chunk = peak(1, CHUNK)
    verified = peak(ROWS, VERIFIED)
    more = peak(2 * ROWS, CHUNK) - peak(ROWS, CHUNK)
    wider = peak(ROWS, 2 * VERIFIED) - verified
    pairs = peak(1, CHUNK, 2 * CHUNK) - peak(1, CHUNK, CHUNK)
    slots = peak(ROWS, 1, 2 * CHUNK) - peak(ROWS, 1, CHUNK)
    return {
        "fixed_work": chunk,
        "column_work": ceil((peak(1, 2 * CHUNK) - chunk) / CHUNK),
        "row_work": ceil((peak(2 * ROWS, VERIFIED) - verified) / ROWS),
        "token_work": ceil(max(more / CHUNK, wider / VERIFIED) / ROWS),
        "pair_work": ceil(pairs / CHUNK**2),
        "slot_work": ceil(slots / (ROWS * CHUNK)),
    }


def _feed(rows: int, tokens: int, window: int) -> Feed:
    """Return a feed of rows from their beginning that attend to `window` slots.

    Of a prefill, layers of state read the first row alone: they read one row after the other.
    """
    with torch.device("cpu"):
        index = torch.arange(tokens).expand(rows, tokens)
        numbers = torch.arange(rows)
        valid = (numbers == 0)[:, None].expand(rows, tokens)
    meta = index.to("meta")
    return Feed(
        rows=numbers,
        requests=list(range(rows)),
        tokens=meta,
        indices=index,
        positions=meta,
        slots=index % window,
        visible=torch.empty(rows, tokens, window, dtype=torch.bool, device="meta"),
        valid=valid,
    )
