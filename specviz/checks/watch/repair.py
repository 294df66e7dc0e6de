"""Repeat one row of a watched forward, as it was or with something put right.

Contract: `repeat` computes what the model would have computed for one row with other positions,
another mask, other K/V or other tokens. Not known here: which of them is the fault.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from specviz.checks.watch.capture import Forward
from specviz.checks.watch.follow import Part, Request
from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.origins import NOTHING

REPAIRS = ("positions", "mask", "inputs", "kv")


@dataclass
class Repeated:
    """What a repeated row gave. m tokens.

    Attributes:
        logprobs: (m, V) float32.
        keys, values: per layer (heads, m, head size).
    """

    logprobs: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@dataclass
class Bench:
    """What a repetition needs.

    Attributes:
        model: the model.
        forwards: all forwards of the model, by number.
        where: (forward, row, column) of each token that was read.
        labels: (request, index) of each token that was read.
    """

    model: PreTrainedModel
    forwards: dict[int, Forward]
    where: list[tuple[int, int, int]]
    labels: dict[int, tuple[int, int]]

    @torch.inference_mode()
    def repeat(
        self, part: Part, request: Request, fresh: FreshRow, repairs: Collection[str] = ()
    ) -> Repeated:
        """Repeat a part with these repairs, of REPAIRS.

        Args:
            part: the row.
            request: whose tokens it should have read.
            fresh: the same tokens, read at once.
            repairs: what to put right.
        """
        past, own = self._slots(part)
        held = [int(part.seen.held[part.row, slot]) for slot in past]
        due = self._due(part, request, held, fresh)
        keys, values = self._kv(held, due if "kv" in repairs else {}, part, fresh)
        seen = self._mask(part, past, own, due, "mask" in repairs)
        tokens = part.tokens
        if "inputs" in repairs:
            last = min(part.index + len(tokens), len(request.tokens))
            known = request.tokens[part.index : last]
            tokens = known + tokens[len(known) :]
        positions = [int(part.seen.positions[part.row, column]) for column in part.columns]
        if "positions" in repairs:
            positions = list(range(part.index, part.index + len(tokens)))
        return self._run(tokens, positions, seen, keys, values)

    def _slots(self, part: Part) -> tuple[list[int], list[int]]:
        """Return the slots that held K/V before, and those of the part's own tokens."""
        own = [int(part.seen.slots[part.row, column]) for column in part.columns]
        written = set(part.seen.slots[part.row].tolist())
        held = part.seen.held[part.row]
        past = [slot for slot in range(len(held)) if slot not in written and held[slot] != NOTHING]
        return past, own

    def _due(
        self, part: Part, request: Request, held: list[int], fresh: FreshRow
    ) -> dict[int, int]:
        """Return {place in `held`: index whose K/V belongs there}, for what the row should see."""
        seen = part.seen.seen[part.row, part.columns[0]]
        past, _ = self._slots(part)
        due: dict[int, int] = {}
        wanted = set(range(min(part.index, fresh.logprobs.shape[0])))
        order = sorted(range(len(past)), key=lambda i: (not seen[past[i]], -held[i]))
        for i in order:
            owner, index = self.labels.get(held[i], (-1, -1))
            if owner == part.request and index in wanted and self._is_true(held[i], request, index):
                due[i] = index
                wanted.discard(index)
        for i in sorted(order):  # what is visible and belongs to nothing else
            if wanted and i not in due and seen[past[i]]:
                due[i] = min(wanted)
                wanted.discard(due[i])
        return due

    def _is_true(self, entry: int, request: Request, index: int) -> bool:
        number, row, column = self.where[entry]
        return int(self.forwards[number].tokens[row, column]) == request.tokens[index]

    def _kv(
        self, held: list[int], due: dict[int, int], part: Part, fresh: FreshRow
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the K/V before the part's tokens, per layer (heads, slots, head size)."""
        keys, values = [], []
        layers = sorted(part.seen.forward.keys)
        for place, layer in enumerate(layers):
            some = fresh.keys[place]
            wide_keys = some.new_zeros(some.shape[0], len(held), some.shape[2])
            other = fresh.values[place]
            wide_values = other.new_zeros(other.shape[0], len(held), other.shape[2])
            for i, entry in enumerate(held):
                if i in due:
                    wide_keys[:, i] = fresh.keys[place][:, due[i]]
                    wide_values[:, i] = fresh.values[place][:, due[i]]
                elif entry >= 0:
                    number, row, column = self.where[entry]
                    source = self.forwards[number]
                    if layer in source.keys:
                        wide_keys[:, i] = source.keys[layer][row, :, column]
                        wide_values[:, i] = source.values[layer][row, :, column]
            keys.append(wide_keys)
            values.append(wide_values)
        return keys, values

    def _mask(
        self, part: Part, past: list[int], own: list[int], due: dict[int, int], is_right: bool
    ) -> Tensor:
        """Return what each token sees, (m, slots before + m)."""
        count = len(own)
        if is_right:
            before = torch.zeros(count, len(past), dtype=torch.bool)
            before[:, list(due)] = True
            return torch.cat([before, torch.ones(count, count, dtype=torch.bool).tril()], 1)
        seen = torch.from_numpy(part.seen.seen[part.row].copy())[part.columns]
        return seen[:, [*past, *own]]

    def _run(
        self,
        tokens: list[int],
        positions: list[int],
        seen: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
    ) -> Repeated:
        cache = DynamicCache()
        before = keys[0].shape[1] if keys else 0
        if before:
            for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
                cache.update(key[None], value[None], layer)
        device, dtype = self.model.device, self.model.dtype
        added = torch.zeros(seen.shape, dtype=dtype)
        added.masked_fill_(~seen, torch.finfo(dtype).min)
        output = self.model(
            torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            attention_mask=added[None, None].to(device),
            past_key_values=cache,
            use_cache=True,
        )
        new_keys = [layer.keys[0, :, before:] for layer in cache.layers]
        new_values = [layer.values[0, :, before:] for layer in cache.layers]
        return Repeated(output.logits[0].float().log_softmax(-1).cpu(), new_keys, new_values)
