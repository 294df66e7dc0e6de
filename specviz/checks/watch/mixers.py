"""See from which states the layers of a model go on in a forward, and which they leave behind.

Contract: hooks on the modules that keep states note these of each row, over all layers: by kind, as
exact prints, and as sketches, which rounding changes little. Not known here: tokens and rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.checks.watch.prints import SKETCH, bit_print, random_numbers, sketch
from specviz.engine.kv.states import find_mixers
from specviz.engine.models.compat import HYBRIDS, STATES, layer_types

# By kind, what cache layers of transformers call the states.
KINDS = {"convolution": "conv_states", "recurrent": "recurrent_states"}


@dataclass
class RowStates:
    """States of one kind, one entry a row.

    Attributes:
        prints: (b,) int64. Equal states have equal prints, and zeros have 0.
        sketches: (b, n) float64, random projections: as far apart as the states are.
    """

    prints: Tensor
    sketches: Tensor

    def __add__(self, other: "RowStates") -> "RowStates":
        return RowStates(self.prints + other.prints, self.sketches + other.sketches)


def keeps_states(model: PreTrainedModel) -> bool:
    """Return whether layers of a model keep states."""
    return bool(layer_types(model.config.get_text_config()) & (STATES | HYBRIDS))


def states_of(layers: Sequence[Any], numbers: Sequence[int], rows: int) -> dict[str, RowStates]:
    """Return the states by kind that these layers of a cache hold; none of a kind that none has.

    A layer that holds nothing counts as zeros. Kinds are left out that have another number of rows.
    """
    found = {}
    for kind, name in KINDS.items():
        parts = []
        for number in numbers:
            for i, state in getattr(layers[number], name, {}).items():
                if state is None:
                    continue
                if kind == "convolution":  # behind it lie inputs that may be taken back
                    state = state[..., -(layers[number].conv_kernel_size[i] or state.shape[-1]) :]
                parts.append(_of(state, number))
        if all(len(part.prints) == rows for part in parts):
            none = RowStates(
                torch.zeros(rows, dtype=torch.long), torch.zeros(rows, SKETCH).double()
            )
            found[kind] = sum(parts, start=none)
    return found


def read_mixers(
    model: PreTrainedModel,
    note: Callable[[str, int, dict[str, RowStates]], None],
    note_mask: Callable[[Tensor | None], None],
) -> list[Any]:
    """Hook the modules of a model that keep states; return the hooks.

    Args:
        note: called with "before" or "after" the module, the number of its layer and what the
            cache has there.
        note_mask: called with the mask of tokens (b, q) that it is given, or None.
    """

    def shown(when: str, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        layers = next((each.layers for each in given if hasattr(each, "layers")), None)
        hidden = next(each for each in given if isinstance(each, Tensor))
        if layers is not None:
            note(when, number, states_of(layers, [number], len(hidden)))

    hooks = []
    for module, number in find_mixers(model).items():

        def before(_: Any, args: Any, kwargs: Any, number: int = number) -> None:
            shown("before", number, args, kwargs)
            note_mask(kwargs.get("attention_mask"))

        def after(_: Any, args: Any, kwargs: Any, output: Any, number: int = number) -> None:
            shown("after", number, args, kwargs)

        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after, with_kwargs=True))
    return hooks


def _of(state: Tensor, number: int) -> RowStates:
    flat = state.detach().flatten(1)
    # What tells layers apart: an odd factor of the print, and one for each number of the sketch.
    prints = bit_print(flat[:, None, None], seed=-1)[:, 0] * (2 * number + 1)
    return RowStates(prints.cpu(), sketch(flat) * random_numbers(number, 1))
