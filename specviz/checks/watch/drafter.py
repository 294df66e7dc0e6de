"""See the forwards of drafters that read the target's hidden states: MTP layers, and DFlash.

Contract: each call of a layer of an `MtpModel`, and each forward of a DFlash drafter, leaves a
`CapturedDrafting`. Not known here: requests, and what is right.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import MuseGlimmerAssistantModel, PreTrainedModel
from transformers.modeling_layers import MtpModel

from specviz.checks.watch.capture import Capture, CapturedForward
from specviz.checks.watch.prints import bit_print, sketch

KINDS = (MtpModel, MuseGlimmerAssistantModel)


@dataclass
class CapturedDrafting(CapturedForward):
    """One call. b rows, q entries, and of DFlash a block of queries at their end.

    `tokens` are the prints of embeddings, and 0 for entries before a block, which have none.

    Attributes:
        depth: the number of the MTP layer; 0 for DFlash.
        block: the length of DFlash's block; 0 for MTP, where each entry is a query.
        hidden: (b, q, n), sketches of the hidden states that entries were made of; NaN for none.
        left: (b, q, n), sketches of what an MTP layer gave.
        rotation: (b, q, size), cosines and sines that were applied; None where they are not given.
    """

    depth: int = 0
    block: int = 0
    hidden: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    left: Tensor | None = field(default=None, repr=False)
    rotation: Tensor | None = field(default=None, repr=False)

    @property
    def queries(self) -> tuple[int, int]:
        return self.shape[0], self.block or self.shape[1]


class DrafterCapture(Capture):
    """Hooks on a drafter; the arguments are those of `Capture`."""

    def __init__(self, model: PreTrainedModel, forwards: list[CapturedForward], lock: Any) -> None:
        super().__init__(model, "drafter", forwards, lock)
        self._windowed = set()  # each depth is followed on its own

    def open(self, before: Callable[[], None]) -> None:
        """Add the hooks; `before` is called before each forward."""
        parts = self.model.layers if isinstance(self.model, MtpModel) else [self.model]
        for depth, module in enumerate(parts):
            enter = partial(self._enter, depth)
            self._hooks += [
                module.register_forward_pre_hook(lambda *_: before()),
                module.register_forward_pre_hook(enter, with_kwargs=True),
                module.register_forward_hook(self._leave),
            ]
        if not isinstance(self.model, MtpModel):  # whose rotation is also the target's
            hook = self.model.rotary_emb.register_forward_pre_hook
            self._hooks.append(hook(self._positions, with_kwargs=True))

    def _enter(
        self, depth: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        given = signature(module.forward).bind_partial(*args, **kwargs).arguments
        given = {**given.pop("kwargs", {}), **given}
        self._let_go(get_ident())  # of a forward that raised
        embeds = given["noise_embeds" if module is self.model else "inputs_embeds"]
        tokens = bit_print(embeds[:, None], 0)
        block = 0
        if module is self.model:
            hidden, block = sketch(given["context_hidden_states"]), tokens.shape[1]
            hidden = nn.functional.pad(hidden, (0, 0, 0, block), value=torch.nan)
            tokens = nn.functional.pad(tokens, (hidden.shape[1] - block, 0), value=0)
        else:
            hidden = sketch(given["previous_hidden_state"])
        with self._lock:
            forward = CapturedDrafting(
                len(self._forwards), self.name, 0, tokens, depth=depth, block=block, hidden=hidden
            )
            self._forwards.append(forward)
        self._running[get_ident()] = forward
        positions = given.get("position_ids")
        if isinstance(positions, Tensor) and positions.dim() == 2:
            forward.positions = positions.detach().clone().expand(forward.shape)
        rotation = given.get("position_embeddings")
        if rotation is not None:
            applied = torch.cat([each.detach() for each in rotation], -1)
            forward.rotation = applied.expand(*forward.shape, -1)
        cache = given.get("past_key_values")
        if cache is not None and hasattr(cache, "update"):
            forward.cache = self._number_of(cache)
            self._wrap(cache, forward)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        forward = self._running.pop(get_ident(), None)
        if isinstance(forward, CapturedDrafting):
            self._let_go(get_ident())
            if isinstance(output, Tensor):
                forward.left = sketch(output)


@contextmanager
def found_while_open(target: PreTrainedModel, found: Callable[[MtpModel], None]) -> Iterator[None]:
    """Call `found` with each MTP model of this target before its first forward."""
    known: set[int] = set()

    def look(module: nn.Module, _: Any) -> None:
        is_new = isinstance(module, MtpModel) and id(module) not in known
        if is_new and module.shared_head is target.get_output_embeddings():
            known.add(id(module))
            found(module)

    hook = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()
