"""Repeat one row of a watched forward, as it was or with something put right.

Contract: `repeat` computes what the model would have computed for one row with other positions,
another mask, other K/V or other tokens. Not known here: which of them is the fault.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.labels import Labels
from specviz.checks.watch.origins import NOTHING
from specviz.checks.watch.requests import Part, WatchedRequest
from specviz.engine.kv.slabs import plain_cache, states_of

States = list[tuple[Tensor, Tensor]]
REPAIRS = ("positions", "mask", "inputs", "kv")


@dataclass
class Repeated:
    """What a repeated row gave. m tokens.

    Attributes:
        logprobs: (m, V) float32.
        states: keys and values (heads, m, head size) of each layer.
    """

    logprobs: Tensor
    states: States


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
    forwards: dict[int, CapturedForward]
    where: list[tuple[int, int, int]]
    labels: Labels

    @torch.inference_mode()
    def repeat(
        self, part: Part, request: WatchedRequest, fresh: FreshRow, repairs: Collection[str] = ()
    ) -> Repeated:
        """Repeat a part with these repairs, of REPAIRS.

        Args:
            part: the row.
            request: whose tokens it should have read.
            fresh: the same tokens, read at once.
            repairs: what to put right.
        """
        past, own = self.slots(part)
        due = self.due(part, request)
        missing = []
        if "mask" in repairs:
            missing = sorted(set(range(part.index)) - set(due.values()))
        states = self._states(part, past, due if "kv" in repairs else {}, missing, fresh)
        seen = self._mask(part, past, own, due, len(missing), "mask" in repairs)
        tokens = part.tokens
        if "inputs" in repairs:
            known = request.tokens[part.index : part.index + len(tokens)]
            # Behind the known output are rejected drafts, which have no right token.
            tokens = known + tokens[len(known) :]
        positions = [int(part.seen.positions[part.row, column]) for column in part.columns]
        if "positions" in repairs:
            positions = list(range(part.index, part.index + len(tokens)))
        return self._run(tokens, positions, seen, states)

    def slots(self, part: Part) -> tuple[list[int], list[int]]:
        """Return the slots that held K/V of other tokens, and those of the part's own tokens."""
        own = [int(part.seen.slots[part.row, column]) for column in part.columns]
        held = part.seen.held[part.row]
        # Slots without K/V count only where a query sees them: their scores are 0, not nothing.
        counts = (held != NOTHING) | part.seen.seen[part.row, part.columns].any(0)
        past = [slot for slot in range(len(held)) if slot not in own and counts[slot]]
        return past, own

    def due(self, part: Part, request: WatchedRequest) -> dict[int, int]:
        """Return {slot: index whose K/V belongs there}, for what the row should see."""
        past, _ = self.slots(part)
        seen = part.seen.seen[part.row, part.columns[0]]
        held = part.seen.held[part.row]
        due: dict[int, int] = {}
        wanted = set(range(part.index))

        def rank(slot: int) -> tuple[bool, bool, int]:
            """Put first what is seen, then what the row read itself, then what was read last."""
            label = self.labels.get(int(held[slot]))
            is_borrowed = label is None or label[0] != part.request
            return not seen[slot], is_borrowed, -int(held[slot])

        for slot in sorted(past, key=rank):
            label = self.labels.of(int(held[slot]), part.request)
            owner, index = label or (-1, -1)
            is_own = owner == part.request and index in wanted
            if is_own and self.is_true(int(held[slot]), request, index):
                due[slot] = index
                wanted.discard(index)
        for slot in past:  # what is visible and belongs to nothing else
            if wanted and slot not in due and seen[slot]:
                due[slot] = min(wanted)
                wanted.discard(due[slot])
        return due

    def is_true(self, entry: int, request: WatchedRequest, index: int) -> bool:
        """Return whether a token that was read is the one that the request has at this index."""
        number, row, column = self.where[entry]
        return int(self.forwards[number].tokens[row, column]) == request.tokens[index]

    def _states(
        self,
        part: Part,
        past: list[int],
        due: dict[int, int],
        missing: list[int],
        fresh: FreshRow,
    ) -> States:
        """Return the K/V before the part's tokens, that of `missing` indices last."""
        states = []
        layers = sorted(part.seen.forward.keys)
        for layer, pair in zip(layers, fresh.states, strict=True):
            both = []
            for which, right in enumerate(pair):
                wide = right.new_zeros(right.shape[0], len(past) + len(missing), right.shape[2])
                for i, slot in enumerate(past):
                    entry = int(part.seen.held[part.row, slot])
                    if slot in due:
                        wide[:, i] = right[:, due[slot]]
                    elif entry >= 0:
                        number, row, column = self.where[entry]
                        source = self.forwards[number]
                        kept = (source.keys, source.values)[which].get(layer)
                        if kept is not None:
                            wide[:, i] = kept[row, :, column]
                wide[:, len(past) :] = right[:, missing]
                both.append(wide)
            states.append((both[0], both[1]))
        return states

    def _mask(
        self,
        part: Part,
        past: list[int],
        own: list[int],
        due: dict[int, int],
        missing: int,
        is_right: bool,
    ) -> Tensor:
        """Return what each token sees, (m, slots before + m)."""
        count = len(own)
        if not is_right:
            seen = torch.from_numpy(part.seen.seen[part.row].copy())[part.columns]
            return seen[:, [*past, *own]]
        before = torch.tensor([slot in due for slot in past] + [True] * missing, dtype=torch.bool)
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        return torch.cat([before.expand(count, -1), causal], 1)

    def _run(
        self, tokens: list[int], positions: list[int], seen: Tensor, states: States
    ) -> Repeated:
        cache = plain_cache([(keys[None], values[None]) for keys, values in states])
        before = states[0][0].shape[1] if states else 0
        device, dtype = self.model.device, self.model.dtype
        # A mask that is added is applied alike by all attention functions.
        added = torch.zeros(seen.shape, dtype=dtype)
        added.masked_fill_(~seen, torch.finfo(dtype).min)
        output = self.model(
            torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            attention_mask=added[None, None].to(device),
            past_key_values=cache,
            use_cache=True,
        )
        new = [(keys[0], values[0]) for keys, values in states_of(cache, before)]
        return Repeated(output.logits[0].float().log_softmax(-1).cpu(), new)
