"""Targets whose layers keep states: convolutions and recurrences.

In a batch, each row has states of its own, beside slots of K/V. `Selecting` lets the layers with
states read the pending token and the drafts one by one, keeps the states after each, and goes on
from those after the last accepted one.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_next import modeling_qwen3_next

from .base import Decoder, Tokens
from .slots import ROWS, Slots

FILES = modeling_qwen3_next, modeling_qwen3_5  # whose rule `Inputs` runs
State = list[tuple[Any, Any] | None]  # by layer: convolution and recurrence, None for K/V


def kept(cache: DynamicCache, row: int) -> State:
    """Copy the states of a row."""
    found: State = []
    for layer in cache.layers:
        if hasattr(layer, "recurrent_states"):
            both = layer.conv_states[0], layer.recurrent_states[0]
            found.append(tuple(None if each is None else each[row].clone() for each in both))
        else:
            found.append(None)
    return found


def put(cache: DynamicCache, states: list[State]) -> None:
    """Let the rows of a cache have these states."""
    for number, layer in enumerate(cache.layers):
        if not hasattr(layer, "recurrent_states"):
            continue
        for i, (held, is_there) in enumerate(
            (
                (layer.conv_states, layer.is_conv_states_initialized),
                (layer.recurrent_states, layer.is_recurrent_states_initialized),
            )
        ):
            own = [state[number][i] for state in states]
            held[0] = None if own[0] is None else torch.stack(own)
            is_there[0] = own[0] is not None
        if layer.conv_states[0] is not None:
            layer.conv_kernel_size[0] = layer.conv_states[0].shape[-1]
        layer.has_previous_state[0] = True


def let_step(
    model: PreTrainedModel, cache: DynamicCache, note: Callable[[int, int, Any], None]
) -> Callable[[], None]:
    """Let layers with states read their tokens one by one; call `note` after each.

    Return what ends that.
    """
    mixers = {
        getattr(layer, name): number
        for number, layer in enumerate(model.get_decoder().layers)
        for name in ("linear_attn", "conv", "mamba")
        if hasattr(layer, name)
    }
    for mixer, number in mixers.items():

        def stepped(
            *args: Any, read: Any = mixer.forward, number: int = number, **named: Any
        ) -> Any:
            hidden = next(each for each in (*args, *named.values()) if is_hidden(each))
            outputs = []
            for j in range(hidden.shape[1]):
                own = [each[:, j : j + 1] if is_hidden(each) else each for each in args]
                parts = {k: v[:, j : j + 1] if is_hidden(v) else v for k, v in named.items()}
                outputs.append(read(*own, **parts))
                note(j, number, cache)
            if isinstance(outputs[0], tuple):
                return (torch.cat([each[0] for each in outputs], 1), *outputs[-1][1:])
            return torch.cat(outputs, 1)

        mixer.forward = stepped

    def end() -> None:
        for mixer in mixers:
            del mixer.forward

    return end


def is_hidden(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 3


class HybridSlots(DynamicCache):
    """Slots of K/V, as in `slots`, in the layers that attend; states in the others."""

    def __init__(self, model: PreTrainedModel, rows: int, slots: int) -> None:
        super().__init__(config=model.config)
        self.shape = rows, slots
        self.slabs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.rows = torch.arange(rows)
        self.slots = torch.zeros(rows, 0, dtype=torch.long)
        self.whole: dict[int, torch.Tensor] = {}  # what convolutions have read, states before it

    def slab(self, layer: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if layer not in self.slabs:
            rows, slots = self.shape
            shape = rows, like.shape[1], slots, like.shape[3]
            self.slabs[layer] = like.new_zeros(shape), like.new_zeros(shape)
        return self.slabs[layer]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        slabs = self.slab(layer, keys)
        for slab, states in zip(slabs, (keys, values), strict=True):
            slab[self.rows[:, None], :, self.slots] = states.transpose(1, 2)
        return slabs[0][self.rows], slabs[1][self.rows]

    def update_conv_state(self, states: torch.Tensor, layer: int, **named: Any) -> torch.Tensor:
        self.whole[layer] = super().update_conv_state(states, layer, **named)
        return self.whole[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        return 0

    def copy_in(self, row: int, slots: Tokens, source: DynamicCache) -> None:
        for layer, states in enumerate(source.layers):
            if not hasattr(states, "recurrent_states"):
                for slab, part in zip(
                    self.slab(layer, states.keys), (states.keys, states.values), strict=True
                ):
                    slab[row, :, slots] = part[0][:, -len(slots) :]


class Selecting(Slots):
    """Right: the states after each token are kept, and each row takes those of its acceptance."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.states: dict[int, State] = {}
        self.after: list[list[State]] = []  # by token and live row
        return super().run(prompts)

    def cache_of(self, model: PreTrainedModel, rows: int, size: int) -> Any:
        return HybridSlots(model, rows, size) if model is self.target else None

    def read_draft_prompt(self, row: int, prompt: Tokens) -> None:
        """The draft model reads all text for each draft."""

    def propose(self, live: Tokens) -> list[Tokens]:
        return [greedy(self.draft, self.tokens[row], self.K) for row in live]

    def read_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        cache = DynamicCache(config=self.target.config)
        self.target(torch.tensor([prompt]), past_key_values=cache)
        return cache

    def read_target_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        cache = self.read_prompt(row, prompt)
        self.states[row] = kept(cache, 0)
        return cache

    def verify(self, live: Tokens, drafts: list[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
        self.live = live
        self.after = []
        return super().verify(live, drafts)

    def read(
        self,
        model: PreTrainedModel,
        cache: Any,
        live: Tokens,
        ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        seen: torch.Tensor,
    ) -> torch.Tensor:
        put(cache, [self.states[row] for row in live])
        cache.rows, cache.slots = torch.tensor(live), slots
        end = self.begin(model, cache, ids.shape)
        try:
            output = model(
                input_ids=ids,
                attention_mask=masks(seen[:, None]),
                position_ids=positions,
                past_key_values=cache,
            )
        finally:
            end()
        return output.logits.float()

    def begin(
        self, model: PreTrainedModel, cache: HybridSlots, shape: torch.Size
    ) -> Callable[[], None]:
        """Prepare to keep what the forward computes; return what to do after it."""
        rows, count = shape
        self.after = [[[None] * len(cache.layers) for _ in range(rows)] for _ in range(count)]
        return let_step(model, cache, self.note)

    def note(self, j: int, number: int, cache: DynamicCache) -> None:
        """Keep the states of a layer after token j."""
        for i, after in enumerate(self.after[j]):
            after[number] = kept(cache, i)[number]

    def commit(self, row: int, new: Tokens, used: Tokens) -> None:
        super().commit(row, new, used)
        self.states[row] = self.select(self.live.index(row), len(new) - 1)

    def select(self, i: int, accepted: int) -> State:
        """Return the states that live row i goes on from."""
        return self.after[accepted][i]


def greedy(model: PreTrainedModel, tokens: Tokens, count: int) -> Tokens:
    """Return the next tokens of a text, which is read again for each."""
    text = list(tokens)
    for _ in range(count):
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(tokens) :]


def masks(seen: torch.Tensor) -> dict[str, torch.Tensor | None]:
    return {"full_attention": seen, "linear_attention": None, "conv": None}


def mixed(convolutions: State, recurrences: State) -> State:
    """Take each kind of state from elsewhere."""
    return [
        None if one is None or other is None else (one[0], other[1])
        for one, other in zip(convolutions, recurrences, strict=True)
    ]


class RejectedKept(Selecting, rule="state", affects="text", model="target"):
    """Rows go on from the states after all drafts."""

    def select(self, i: int, accepted: int) -> State:
        return self.after[-1][i]


class OneTooFar(Selecting, rule="state", affects="text", model="target"):
    """Rows go on from the states after the first rejected draft."""

    def select(self, i: int, accepted: int) -> State:
        return self.after[min(accepted + 1, self.K)][i]


class OneTooFew(Selecting, rule="state", affects="text", model="target"):
    """Rows go on from the states before the last accepted draft."""

    def select(self, i: int, accepted: int) -> State:
        return self.after[max(accepted - 1, 0)][i]


class OtherRow(Selecting, rule="state", affects="text", model="target", min_batch=2):
    """Rows take the states of the row before them."""

    def select(self, i: int, accepted: int) -> State:
        return self.after[accepted][i - 1]


class ConvolutionKept(Selecting, rule="state", affects="text", model="target"):
    """The recurrence goes back, and the window of the convolution does not."""

    def select(self, i: int, accepted: int) -> State:
        return mixed(self.after[-1][i], self.after[accepted][i])


class RecurrenceKept(Selecting, rule="state", affects="text", model="target"):
    """The window of the convolution goes back, and the recurrence does not."""

    def select(self, i: int, accepted: int) -> State:
        return mixed(self.after[accepted][i], self.after[-1][i])


class WindowCutLate(Selecting, rule="state", affects="text", model="target"):
    """The window of the convolution is cut one token too late."""

    def select(self, i: int, accepted: int) -> State:
        return mixed(self.after[min(accepted + 1, self.K)][i], self.after[accepted][i])


class OldRowKept(Selecting, rule="state", affects="text", model="target", min_batch=ROWS + 1):
    """A prompt that enters a row goes on from the states of the request before it."""

    def read_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        cache = DynamicCache(config=self.target.config)
        if row in self.states:
            put(cache, [self.states[row]])
        self.target(torch.tensor([prompt]), past_key_values=cache)
        return cache


class PaddedOnTheRight(Selecting, rule="state", affects="text", model="target"):
    """Padding behind a prompt is read into the states."""

    def read_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        cache = DynamicCache(config=self.target.config)
        padded = torch.tensor([[*prompt, 0, 0]])
        mask = torch.tensor([[1] * len(prompt) + [0, 0]])
        self.target.base_model(padded, attention_mask=mask, past_key_values=cache)
        for layer in cache.layers:
            if not hasattr(layer, "recurrent_states"):
                layer.keys, layer.values = layer.keys[:, :, :-2], layer.values[:, :, :-2]
        return cache


class PaddedOnTheLeft(Selecting, rule="state", affects="text", model="target"):
    """Padding before a prompt is hidden from attention, and read into the states."""

    def read_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        cache = DynamicCache(config=self.target.config)
        padded = torch.tensor([[*prompt[:1] * 2, *prompt]])
        mask = torch.tensor([[0, 0] + [1] * len(prompt)])
        self.target.base_model(
            padded,
            attention_mask=masks(mask_of(mask)),
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
        )
        return cache


def mask_of(mask: torch.Tensor) -> torch.Tensor:
    """Make a mask (b, n) causal, (b, 1, n, n); padding sees itself."""
    count = mask.shape[1]
    causal = torch.ones(count, count, dtype=torch.bool).tril() & mask[:, None].bool()
    return (causal | torch.eye(count, dtype=torch.bool))[:, None]


class Inputs(Selecting):
    """Right, for gated delta nets: what the rule has read is kept, and the rule is run again, with
    gates that hide the rejected drafts.
    """

    def begin(
        self, model: PreTrainedModel, cache: HybridSlots, shape: torch.Size
    ) -> Callable[[], None]:
        self.rules: list[tuple[Any, dict[str, Any]]] = []
        cache.whole = {}
        file = next(each for each in FILES if each.__name__ == type(model).__module__)
        rule = self.rule = file.torch_chunk_gated_delta_rule

        def noted(*args: Any, **named: Any) -> Any:
            # The cache copies the new states into the tensor that has the old ones.
            named["initial_state"] = named["initial_state"].clone()
            self.rules.append((args, dict(named)))
            return rule(*args, **named)

        def end() -> None:
            file.torch_chunk_gated_delta_rule = rule

        file.torch_chunk_gated_delta_rule = noted
        return end

    def select(self, i: int, accepted: int) -> State:
        cache = self.target_cache
        found: State = [None] * len(cache.layers)
        for number, (args, named) in zip(cache.whole, self.rules, strict=True):
            own = {
                name: value[i : i + 1] if isinstance(value, torch.Tensor) else value
                for name, value in named.items()
            }
            behind = torch.arange(self.K + 1) > accepted
            own |= {name: own[name].masked_fill(behind[:, None], 0) for name in ("g", "beta")}
            _, last = self.rule(*(each[i : i + 1] for each in args), **own)
            size = cache.layers[number].conv_states[0].shape[-1]
            window = cache.whole[number][i, :, accepted + 1 : accepted + 1 + size]
            found[number] = window, last[0]
        return found


class Replaying(Decoder):
    """Right, one row at a time: states from before a round are put back, and accepted tokens read
    again.
    """

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        return [self.one(list(prompt)) for prompt in prompts]

    def one(self, row: Tokens) -> Tokens:
        output: Tokens = []
        cache = DynamicCache(config=self.target.config)
        if row[:-1]:
            self.read(cache, row[:-1])
        is_done = False
        while not is_done:
            drafts = greedy(self.draft, row, self.K)
            saved = self.snapshot(cache)
            size = len(row) - 1
            choices = self.read(cache, [row[-1], *drafts])
            new = self.accept(drafts, choices)
            if len(new) <= self.K:
                self.put_back(cache, saved, size)
                self.read(cache, [row[-1], *new[:-1]])
            is_done = self.finish(output, new)
            row += new
        return output

    def read(self, cache: DynamicCache, tokens: Tokens) -> Tokens:
        ids = torch.tensor([tokens])
        return self.target(ids, past_key_values=cache).logits[0].float().argmax(-1).tolist()

    def snapshot(self, cache: DynamicCache) -> Any:
        return kept(cache, 0) if cache.layers else None

    def put_back(self, cache: DynamicCache, saved: Any, size: int) -> None:
        put(cache, [saved])
        cut(cache, size)


class NotCloned(Replaying, rule="state", affects="text", model="target"):
    """The snapshot holds the tensors that the cache writes to."""

    def snapshot(self, cache: DynamicCache) -> Any:
        return [
            (layer.conv_states[0], layer.recurrent_states[0])
            if hasattr(layer, "recurrent_states")
            else None
            for layer in cache.layers
        ]

    def put_back(self, cache: DynamicCache, saved: Any, size: int) -> None:
        super().put_back(
            cache,
            [
                None if s is None else tuple(None if each is None else each[0] for each in s)
                for s in saved
            ],
            size,
        )


class FromZeros(Replaying, rule="state", affects="text", model="target"):
    """Accepted tokens are read again from empty states."""

    def put_back(self, cache: DynamicCache, saved: Any, size: int) -> None:
        zeros = [
            None
            if state is None
            else tuple(None if each is None else torch.zeros_like(each) for each in state)
            for state in saved
        ]
        super().put_back(cache, zeros, size)


class OneByOne(Replaying):
    """Right: drafts are read one by one, up to the first that fails, so nothing is taken back."""

    def one(self, row: Tokens) -> Tokens:
        output: Tokens = []
        cache = DynamicCache(config=self.target.config)
        if row[:-1]:
            self.read(cache, row[:-1])
        is_done = False
        while not is_done:
            new: Tokens = []
            for draft in [*greedy(self.draft, row, self.K), None]:
                new += self.read(cache, [(row + new)[-1]])
                if new[-1] != draft:
                    break
            is_done = self.finish(output, new)
            row += new
        return output


class DraftReplaying(Decoder):
    """Right, one row at a time: of the draft model, states from before its drafts are put back."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        return [self.one(list(prompt)) for prompt in prompts]

    def one(self, row: Tokens) -> Tokens:
        output: Tokens = []
        cache = DynamicCache(config=self.draft.config)
        read = 0  # tokens in the draft's cache
        is_done = False
        while not is_done:
            drafts = self.best(row[read:], cache)
            read = len(row)
            saved = kept(cache, 0)
            while len(drafts) < self.K:
                drafts += self.best(drafts[-1:], cache)
            text = torch.tensor([[*row, *drafts]])
            choices = self.target(text).logits[0, len(row) - 1 :].argmax(-1).tolist()
            new = self.accept(drafts, choices)
            self.put_back(cache, saved, read)
            is_done = self.finish(output, new)
            row += new
        return output

    def best(self, tokens: Tokens, cache: DynamicCache) -> Tokens:
        logits = self.draft(torch.tensor([tokens]), past_key_values=cache).logits
        return [int(logits[0, -1].argmax())]

    def put_back(self, cache: DynamicCache, saved: State, size: int) -> None:
        put(cache, [saved])
        cut(cache, size)


class DraftKeepsRejected(DraftReplaying, affects="speed", costs="forwards", model="draft"):
    """K/V of the draft model is cut, and its states keep all drafts."""

    def put_back(self, cache: DynamicCache, saved: State, size: int) -> None:
        cut(cache, size)


def cut(cache: DynamicCache, size: int) -> None:
    for layer in cache.layers:
        if not hasattr(layer, "recurrent_states"):
            layer.keys, layer.values = layer.keys[:, :, :size], layer.values[:, :, :size]
