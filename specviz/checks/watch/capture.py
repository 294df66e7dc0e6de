"""See every forward of a model that somebody else's code calls.

Contract: while a `Capture` is open, each forward of its model leaves a `CapturedForward`, in the
order of the calls. The model computes what it would have computed. Not known here: which tokens are
drafts, which rows belong to which request, and what is right.

The inputs come from hooks on the model, K/V from the cache's `update`, and the mask from the
attention function of the first layer, so that all forms of masks are read as they take effect.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from itertools import count
from threading import get_ident
from typing import Any
from weakref import finalize

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.checks.watch.masks import visible
from specviz.checks.watch.mixers import KINDS, RowStates, keeps_states, read_mixers
from specviz.checks.watch.prints import kv_print
from specviz.engine.models.compat import FULL, NOTHING, SLIDING, read_setting
from specviz.engine.models.settings import ignored_in_call

TOP = 8  # candidates of a forward that are kept
SMALL = 64  # tokens of a vocabulary of which all logits are kept


@dataclass
class CapturedForward:
    """One forward of one model. b rows, q tokens, T slots, L layers.

    Attributes:
        number: its place among the forwards of both models.
        model: "target", "draft" or "drafter".
        cache: the number of the cache object among those of its model; 0 for none.
        tokens: (b, q).
        positions: (b, q), position ids as given, or as the model derives them.
        padding: (b, q), which tokens a 2-D mask calls padding; None without such a mask.
        given: the attention mask of the call, 2-D or 4-D; None for none.
        seen: (b, q, T), the slots that each query attends to; None where that was not seen.
        held: (b, T), the prints of the K/V that was attended to.
        written: (b, q), the prints of the tokens' own K/V.
        layers: those that read or wrote K/V.
        unseen: why `seen` is None, in a clause.
        is_early: whether it left the target before its last layer, and so is a draft.
        before, after: the states, by kind, that layers went on from and left; None for a kind whose
            rows are not those of the forward.
        read: bool (b, q), the tokens that layers with states were to read; None for all.
        narrow: the same forward as layers with a window see it, where others attend to all tokens.
        top_ids, top_logprobs: (b, kept, k), the leading candidates after the last `kept` tokens;
            None if the forward made no logits.
        logits: (b, kept, V), as the model gave them; None for a vocabulary above `SMALL`.
    """

    number: int
    model: str
    cache: int
    tokens: Tensor
    positions: Tensor | None = field(default=None, repr=False)
    padding: Tensor | None = field(default=None, repr=False)
    given: Tensor | None = field(default=None, repr=False)
    seen: Tensor | None = field(default=None, repr=False)
    held: Tensor | None = field(default=None, repr=False)
    written: Tensor | None = field(default=None, repr=False)
    layers: set[int] = field(default_factory=set, repr=False)
    top_ids: Tensor | None = field(default=None, repr=False)
    top_logprobs: Tensor | None = field(default=None, repr=False)
    logits: Tensor | None = field(default=None, repr=False)
    unseen: str = ""
    is_early: bool = False
    before: dict[str, RowStates | None] = field(default_factory=dict, repr=False)
    after: dict[str, RowStates | None] = field(default_factory=dict, repr=False)
    read: Tensor | None = field(default=None, repr=False)
    narrow: "CapturedForward | None" = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens a row."""
        return self.tokens.shape[0], self.tokens.shape[1]

    @property
    def queries(self) -> tuple[int, int]:
        """Rows and queries a row."""
        return self.shape

    @property
    def width(self) -> int:
        """How many slots it reads."""
        return self.shape[1] if self.held is None else self.held.shape[1]

    def keep(self, logits: Tensor) -> None:
        """Keep the leading candidates of logits (b, kept, V)."""
        logprobs = logits.detach().float().log_softmax(-1)
        ids = logprobs.topk(min(TOP, logprobs.shape[-1]), -1).indices.sort(-1).values
        # Of equal candidates the first one comes first, as in argmax.
        top = logprobs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
        self.top_ids, self.top_logprobs = ids.gather(-1, top.indices), top.values
        if logits.shape[-1] <= SMALL:
            self.logits = logits.detach().clone()


class Capture:
    """Hooks on one model.

    Args:
        model: the model.
        name: "target" or "draft".
        forwards: the list that each forward is appended to; both models' captures share it.
        lock: guards the list.
    """

    def __init__(
        self, model: PreTrainedModel, name: str, forwards: list[CapturedForward], lock: Any
    ) -> None:
        self.model = model
        self.name = name
        self._forwards = forwards
        self._lock = lock
        self._running: dict[int, CapturedForward] = {}  # by thread
        self._finished: dict[int, CapturedForward] = {}
        self._hooks: list[Any] = []
        self._caches: dict[int, Callable[[], None]] = {}  # by thread: how to let go of its cache
        self._cache_numbers: dict[int, int] = {}  # by id, which another object may have later
        self._next_cache = count(1)
        self._layers = attention_layers(model)
        self._windowed = windowed_layers(model)
        config = model.config.get_text_config()
        types = read_setting(config, "layer_types") or [FULL] * config.num_hidden_layers
        self._depth = sum(kind not in NOTHING for kind in types)

    def open(self, before: Callable[[], None]) -> None:
        """Add the hooks.

        Args:
            before: called before each forward.
        """
        base = self.model.get_decoder() or self.model.base_model
        self._hooks = [
            base.register_forward_pre_hook(lambda *_: before()),
            base.register_forward_pre_hook(self._before, with_kwargs=True),
            base.register_forward_hook(self._after),
        ]
        if base is not self.model:
            self._hooks.append(self.model.register_forward_hook(self._with_logits))
        lm_head = self.model.get_output_embeddings()
        if lm_head is not None:  # for decoders that call it themselves
            self._hooks.append(lm_head.register_forward_hook(self._of_lm_head))
        if keeps_states(self.model):
            self._hooks += read_mixers(self.model, self._note_states, self._note_mask)
        rotary = getattr(base, "rotary_emb", None)
        if isinstance(rotary, nn.Module):
            self._hooks.append(rotary.register_forward_pre_hook(self._positions, with_kwargs=True))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        for thread in list(self._caches):
            self._let_go(thread)
        self._running.clear()
        self._finished.clear()

    def attends(
        self, module: nn.Module, keys: Tensor, values: Tensor, mask: Any, is_causal: bool
    ) -> None:
        """Note what an attention layer of the model was called with, if it is one."""
        layer = self._layers.get(module)
        forward = self._running.get(get_ident())
        if layer is None or forward is None:
            return
        if layer not in forward.layers:  # no cache: all K/V is of this forward
            self._note_kv(forward, layer, keys, values, keys, values)
        view = self._view(forward, layer)
        # One layer's mask is enough, and keeping each would multiply the memory.
        if view.seen is None and not view.unseen:
            view.seen, view.unseen = visible(mask, forward.queries, keys.shape[2], is_causal)

    def _view(self, forward: CapturedForward, layer: int) -> CapturedForward:
        """Return what takes K/V and masks of a layer."""
        if layer not in self._windowed:
            return forward
        if forward.narrow is None:
            forward.narrow = CapturedForward(
                forward.number, forward.model, forward.cache, forward.tokens
            )
        return forward.narrow

    def _note_mask(self, mask: Any) -> None:
        forward = self._running.get(get_ident())
        if forward is not None and isinstance(mask, Tensor) and mask.dim() == 2:
            forward.read = mask[:, -forward.shape[1] :].detach() != 0

    def _note_states(self, when: str, layer: int, states: dict[str, RowStates]) -> None:
        forward = self._running.get(get_ident())
        if forward is None:
            return
        forward.layers.add(layer)
        noted = forward.before if when == "before" else forward.after
        for kind in KINDS:
            found, known = states.get(kind), noted.get(kind)
            if kind not in noted:
                noted[kind] = found
            else:
                noted[kind] = None if known is None or found is None else known + found

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Decoders pass arguments by place or by name.
        given = signature(module.forward).bind_partial(*args, **kwargs).arguments
        given = {**given.pop("kwargs", {}), **given}
        tokens = given.get("input_ids")
        if tokens is None or tokens.dim() != 2:
            return
        cache = given.get("past_key_values")
        self._let_go(get_ident())  # of a forward that raised
        with self._lock:
            forward = CapturedForward(len(self._forwards), self.name, 0, tokens.detach().clone())
            self._forwards.append(forward)
        self._running[get_ident()] = forward
        forward.positions = _positions(given, cache, tokens)
        mask = given.get("attention_mask")
        if isinstance(mask, Tensor):
            forward.given = mask.detach().clone()
        if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] >= tokens.shape[1]:
            forward.padding = mask[:, mask.shape[1] - tokens.shape[1] :] == 0
        if cache is not None and hasattr(cache, "update"):
            forward.cache = self._number_of(cache)
            self._wrap(cache, forward)

    def _number_of(self, cache: Any) -> int:
        """Return the number of a cache object, which no later one gets."""
        if id(cache) not in self._cache_numbers:
            self._cache_numbers[id(cache)] = next(self._next_cache)
            with suppress(TypeError):  # of a kind that has no weak references
                finalize(cache, self._cache_numbers.pop, id(cache), None).atexit = False
        return self._cache_numbers[id(cache)]

    def _wrap(self, cache: Any, forward: CapturedForward) -> None:
        """Read what the cache is given and returns, until the forward is over."""

        def note(keys: Tensor, values: Tensor, layer: int, *attended: Tensor) -> None:
            if self._running.get(get_ident()) is forward:
                self._note_kv(forward, layer, keys, values, *attended)

        self._caches[get_ident()] = _ReadUpdate.share(cache, "update", note)

    def _let_go(self, thread: int) -> None:
        let_go = self._caches.pop(thread, None)
        if let_go is not None:
            let_go()

    def _note_kv(
        self, forward: CapturedForward, layer: int, keys: Tensor, values: Tensor, *attended: Tensor
    ) -> None:
        forward.layers.add(layer)
        own = kv_print(keys, values, layer)
        held = kv_print(attended[0], attended[1], layer)
        view = self._view(forward, layer)
        if view.held is None or view.written is None:
            view.held, view.written = held, own
        elif view.held.shape == held.shape:  # a sliding window keeps fewer slots
            view.held = view.held + held.to(view.held.device)
            view.written = view.written + own.to(view.written.device)

    def _positions(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        forward = self._running.get(get_ident())
        positions = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if forward is not None and isinstance(positions, Tensor) and positions.dim() == 2:
            # These are what rotation really applies, even if the model made them itself.
            forward.positions = positions.detach().clone().expand(forward.shape)

    def _after(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        forward = self._running.pop(get_ident(), None)
        if forward is None:
            return
        self._let_go(get_ident())
        if self.name == "target" and 0 < len(forward.layers) < self._depth:
            forward.model, forward.is_early = "draft", True
        if forward.seen is None and not forward.unseen:
            forward.unseen = "the model's attention is called in a way of its own"
        cache = getattr(output, "past_key_values", None)
        if not forward.cache and cache is not None:
            forward.cache = self._number_of(cache)
        if forward.narrow is not None:
            forward.narrow.cache = forward.cache
        self._finished[get_ident()] = forward

    def _of_lm_head(self, _: nn.Module, args: tuple[Any, ...], logits: Any) -> None:
        forward = self._finished.get(get_ident())
        if forward is not None and isinstance(logits, Tensor) and logits.dim() == 3:
            forward.keep(logits)

    def _with_logits(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        forward = self._finished.pop(get_ident(), None)
        logits = getattr(output, "logits", None)
        if forward is not None and logits is not None:
            forward.keep(logits)  # a model may scale what its LM head gave


class _ReadMethod:
    """A method of one object, which captures share while they read it.

    Attributes:
        notes: called with what is read, one by each capture.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self.notes: list[Callable[..., None]] = []
        self._owner, self._name = owner, name
        self._call = getattr(owner, name)
        self._own = vars(owner).get(name)  # None: that of its class

    @classmethod
    def share(cls, owner: Any, name: str, note: Callable[..., None]) -> Callable[[], None]:
        """Read a method, and return what ends that."""
        # On this object alone: patching the class would also read others.
        if not isinstance(getattr(owner, name), cls):
            setattr(owner, name, cls(owner, name))
        shared = getattr(owner, name)
        shared.notes.append(note)
        return partial(shared.let_go, note)

    def let_go(self, note: Callable[..., None]) -> None:
        """Read no more for one capture; the last one gives the object its own method back."""
        self.notes.remove(note)
        if self.notes:
            return
        if self._own is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own)


class _ReadUpdate(_ReadMethod):
    """The `update` of a cache; notes take the K/V that it is given and returns."""

    def __call__(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        found = self._call(keys, values, layer, *args, **kwargs)
        for note in self.notes:
            note(keys, values, layer, *found)
        return found


class ReadGenerate(_ReadMethod):
    """The `generate` of a model; notes take what it applies and specviz does not."""

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__(owner, name)
        self._running: set[int] = set()  # threads

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if get_ident() in self._running:  # a draft of the model's own
            return self._call(*args, **kwargs)
        given = signature(self._call).bind_partial(*args, **kwargs).arguments
        ignored = ignored_in_call(self._owner, {**given.pop("kwargs", {}), **given})
        for note in self.notes:
            note(ignored)
        self._running.add(get_ident())
        try:
            return self._call(*args, **kwargs)
        finally:
            self._running.discard(get_ident())


def attention_layers(model: PreTrainedModel) -> dict[nn.Module, int]:
    """Return {module: number of its layer} of the modules of a model that attend."""
    found = {}
    for module in model.modules():
        number = getattr(module, "layer_idx", None)
        attends = hasattr(module, "q_proj") or hasattr(module, "scaling")
        if isinstance(number, int) and attends:
            found[module] = number
    return found


def windowed_layers(model: PreTrainedModel) -> set[int]:
    """Return the numbers of the layers with a window, if there are others that see all tokens."""
    types = read_setting(model.config.get_text_config(), "layer_types") or []
    found = {number for number, kind in enumerate(types) if kind == SLIDING}
    return found if FULL in types else set()


def _positions(given: dict[str, Any], cache: Any, tokens: Tensor) -> Tensor:
    positions = given.get("position_ids")
    if isinstance(positions, Tensor) and positions.dim() == 2:
        return positions.detach().clone().expand(tokens.shape)
    past = 0 if cache is None or not hasattr(cache, "get_seq_length") else cache.get_seq_length()
    first = torch.as_tensor(past, device=tokens.device)
    return (first + torch.arange(tokens.shape[1], device=tokens.device)).expand(tokens.shape)
