"""A cache of the decoder's own: each row writes at slots of its own, under a 4-D mask.

Rows that finish are replaced by waiting prompts: a prompt is read alone, and its K/V is copied
into the row. Rejected drafts are overwritten in the next round.
"""

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from .base import Decoder, EosOnlyLast, OneDraftTooMany, Tokens, with_faults

ROWS = 3  # of the batch; more prompts wait


class SlotCache:
    """K/V of all layers, each (rows, heads, slots, size), as transformers' attention uses it."""

    is_compileable = False

    def __init__(self, model: PreTrainedModel, rows: int, slots: int) -> None:
        config = model.config
        shape = (rows, config.num_key_value_heads, slots, config.head_dim)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in layers]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        # Rows that the next forward feeds, (batch,), and where their tokens go, (batch, tokens).
        self.rows = torch.arange(rows)
        self.slots = torch.zeros(rows, 0, dtype=torch.long)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        place = (self.rows[:, None], slice(None), self.slots)
        self.keys[layer][place] = keys.transpose(1, 2)
        self.values[layer][place] = values.transpose(1, 2)
        return self.keys[layer][self.rows], self.values[layer][self.rows]

    def get_seq_length(self, layer: int = 0) -> int:
        return 0  # it differs by row; the mask and the positions are given

    def copy_in(self, row: int, slots: Tokens, source: DynamicCache) -> None:
        for layer, states in enumerate(source.layers):
            self.keys[layer][row, :, slots] = states.keys[0]
            self.values[layer][row, :, slots] = states.values[0]


class Slots(Decoder):
    """Right."""

    additive = False  # whether the mask is a float, 0 where a slot is seen

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.size = size = max(map(len, prompts)) + self.room()
        rows = min(ROWS, len(prompts))
        self.tokens: list[Tokens] = [[] for _ in range(rows)]
        self.where: list[Tokens] = [[] for _ in range(rows)]  # slots of the tokens that are read
        self.seen = torch.zeros(rows, size, dtype=torch.bool)  # the target's, committed
        self.target_cache = self.cache_of(self.target, rows, size)
        self.draft_cache = self.cache_of(self.draft, rows, size)
        outputs: list[Tokens] = [[] for _ in prompts]
        waiting = list(range(len(prompts)))
        serving: dict[int, int] = {}  # row -> request
        while waiting or serving:
            for row in range(rows):
                if row not in serving and waiting:
                    serving[row] = waiting.pop(0)
                    self.enter(row, prompts[serving[row]])
            live = sorted(serving)
            drafts = self.propose(live)
            choices, slots = self.verify(live, drafts)
            for row, drafted, chosen, used in zip(live, drafts, choices, slots, strict=True):
                new = self.accept(drafted, chosen)
                self.commit(row, new, used)
                if self.finish(outputs[serving[row]], new):
                    del serving[row]
        return outputs

    def room(self) -> int:
        """Return how many slots a row may need behind its prompt."""
        return self.max_new_tokens + self.K + 1

    def cache_of(self, model: PreTrainedModel, rows: int, size: int) -> Any:
        return SlotCache(model, rows, size)

    def read_target_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        return self.target(torch.tensor([prompt])).past_key_values

    def enter(self, row: int, prompt: Tokens) -> None:
        """Read all but the last token of a prompt, and copy its K/V into the row."""
        self.tokens[row] = list(prompt)
        self.where[row] = []
        self.clear(row)
        slots = self.free_slots(row, len(prompt) - 1)
        self.where[row] = slots
        self.seen[row, slots] = True
        self.target_cache.copy_in(row, slots, self.read_target_prompt(row, prompt[:-1]))
        self.read_draft_prompt(row, prompt[:-1])

    def read_draft_prompt(self, row: int, prompt: Tokens) -> None:
        known = self.draft(torch.tensor([prompt]), use_cache=True).past_key_values
        self.draft_cache.copy_in(row, list(range(len(prompt))), known)

    def clear(self, row: int) -> None:
        self.seen[row] = False

    def free_slots(self, row: int, count: int) -> Tokens:
        """Return the slots of the next tokens of a row."""
        start = len(self.where[row])
        return list(range(start, start + count))

    def commit(self, row: int, new: Tokens, used: Tokens) -> None:
        """Keep the pending token and the accepted drafts; the last new token is pending now."""
        self.tokens[row] += new
        self.where[row] += used[: len(new)]
        self.seen[row, used[: len(new)]] = True

    def propose(self, live: Tokens) -> list[Tokens]:
        """Draft K tokens for each live row; the draft's slots are its tokens' positions."""
        ids = torch.tensor([self.tokens[row][-2:] for row in live])
        ends = torch.tensor([[len(self.tokens[row])] for row in live])
        positions = ends + torch.tensor([[-2, -1]])
        drafts = []
        for _ in range(self.K):
            seen = torch.arange(self.size) <= positions[:, :, None]
            logits = self.read(self.draft, self.draft_cache, live, ids, positions, positions, seen)
            ids = logits[:, -1:].argmax(-1)
            positions = positions[:, -1:] + 1
            drafts.append(ids)
        return torch.cat(drafts, dim=1).tolist()

    def verify(self, live: Tokens, drafts: list[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
        """Return the target's choices, and the slots that the pending token and drafts have."""
        ids = torch.tensor(
            [[self.tokens[row][-1], *new] for row, new in zip(live, drafts, strict=True)]
        )
        ends = torch.tensor([[len(self.tokens[row])] for row in live])
        positions = ends - 1 + torch.arange(self.K + 1)
        slots = torch.tensor([self.free_slots(row, self.K + 1) for row in live])
        seen = self.seen[live][:, None] | self.new_slots_seen(slots)
        logits = self.read(self.target, self.target_cache, live, ids, positions, slots, seen)
        return logits.argmax(-1).tolist(), slots.tolist()

    def new_slots_seen(self, slots: torch.Tensor) -> torch.Tensor:
        """Which of a row's new slots each new token sees, (rows, tokens, slots)."""
        own = torch.nn.functional.one_hot(slots, self.size)
        return own.cumsum(1).bool()

    def read(
        self,
        model: PreTrainedModel,
        cache: SlotCache,
        live: Tokens,
        ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        seen: torch.Tensor,
    ) -> torch.Tensor:
        """Feed tokens, (rows, tokens) as positions and slots; seen is (rows, tokens, slots)."""
        cache.rows = torch.tensor(live)
        cache.slots = slots
        mask = seen[:, None]
        if self.additive:
            lowest = torch.finfo(model.dtype).min
            mask = torch.where(mask, 0.0, lowest).to(model.dtype)
        output = model(
            input_ids=ids,
            attention_mask=self.masks(model, mask),
            position_ids=positions,
            past_key_values=cache,
        )
        return output.logits.float()

    def masks(self, model: PreTrainedModel, mask: torch.Tensor) -> Any:
        """Return what the model takes as a mask."""
        return mask


class AdditiveMask(Slots):
    """Right, with a mask of floats."""

    additive = True


class SlotsFromTheEnd(Slots, odd=True):
    """Harmless: a row takes its free slots from the end, so that order of slots means nothing."""

    def free_slots(self, row: int, count: int) -> Tokens:
        used = set(self.where[row])
        free = [slot for slot in reversed(range(self.size)) if slot not in used]
        return free[:count]


class OldRowSeen(Slots, rule="mask", affects="text", model="target", min_batch=ROWS + 1):
    """A prompt that enters a row sees what is left of the K/V of the request before it."""

    def clear(self, row: int) -> None:
        pass


class LaterDraftsSeen(Slots, rule="mask", affects="text", model="target"):
    """The mask lets every new token see all new tokens, those after it included."""

    def new_slots_seen(self, slots: torch.Tensor) -> torch.Tensor:
        own = torch.nn.functional.one_hot(slots, self.size)
        return own.sum(1, keepdim=True).bool().expand(-1, slots.shape[1], -1)


with_faults(Slots, OneDraftTooMany, EosOnlyLast)
