"""A batch with left padding, whose K/V is right-aligned again after each round.

The draft keeps no cache: it reads the padded rows again for each token. Positions come from the
2-D mask, and the mask comes from the rows' lengths.
"""

import torch
from transformers import DynamicCache

from .base import Decoder, NoBonus, fault


class Realign(Decoder):
    """Right."""

    pad = 0

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        self.tokens = [list(prompt) for prompt in prompts]
        self.requests = list(range(len(prompts)))  # of the rows of the batch
        outputs: list[list[int]] = [[] for _ in prompts]
        unfinished = set(self.requests)
        self.prefill()
        while unfinished:
            drafts = self.propose()
            choices = self.verify(drafts)
            before = [len(row) for row in self.tokens]
            for row, request in enumerate(self.requests):
                new = self.accept(drafts[row], choices[row])
                self.tokens[row] += new
                if request in unfinished and self.finish(outputs[request], new):
                    unfinished.remove(request)
            self.align(before)
            self.leave([row for row, name in enumerate(self.requests) if name in unfinished])
        return outputs

    def padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask of rows with padding on the left, (rows, columns) each."""
        longest = max(len(row) for row in rows)
        ids = torch.tensor([[self.pad] * (longest - len(row)) + row for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        return ids, self.mask(ids, lengths)

    def mask(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        columns = torch.arange(ids.shape[1])
        return (columns >= ids.shape[1] - lengths[:, None]).long()

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        return (mask.cumsum(-1) - 1).clamp(min=0)

    def prefill(self) -> None:
        """Read all but the last token of each prompt."""
        self.cache = DynamicCache()
        ids, mask = self.padded([row[:-1] for row in self.tokens])
        self.target(
            input_ids=ids,
            attention_mask=mask,
            position_ids=self.positions(mask),
            past_key_values=self.cache,
        )

    def propose(self) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in self.tokens]
        for _ in range(self.K):
            rows = [row + new for row, new in zip(self.tokens, drafts, strict=True)]
            ids, mask = self.padded(rows)
            output = self.draft(ids, attention_mask=mask, position_ids=self.positions(mask))
            for row, token in zip(drafts, output.logits[:, -1].argmax(-1).tolist(), strict=True):
                row.append(token)
        return drafts

    def verify(self, drafts: list[list[int]]) -> list[list[int]]:
        rows = [row + new for row, new in zip(self.tokens, drafts, strict=True)]
        ids, mask = self.padded(rows)
        output = self.target(
            input_ids=ids[:, -self.K - 1 :],
            attention_mask=mask,
            position_ids=self.positions(mask)[:, -self.K - 1 :],
            past_key_values=self.cache,
        )
        return output.logits.float().argmax(-1).tolist()

    def align(self, before: list[int]) -> None:
        """Move each row's K/V so that its last read token lies in the last slot.

        `before` has the rows' lengths before the round; the pending token has no K/V.
        """
        old_width = max(before) + self.K
        old_start = max(before) - torch.tensor(before)
        read = torch.tensor([len(row) - 1 for row in self.tokens])
        new_width = int(read.max())
        new_start = new_width - read
        source = torch.arange(new_width) - new_start[:, None] + old_start[:, None]
        source = source.clamp(0, old_width - 1)  # padding: any slot will do
        for layer in self.cache.layers:
            layer.keys = self.moved(layer.keys, source)
            layer.values = self.moved(layer.values, source)

    def moved(self, states: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Return the slots `source`, (rows, slots), of (rows, heads, old slots, size)."""
        index = source[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
        return states.gather(2, index)

    def leave(self, staying: list[int]) -> None:
        """Keep some rows; cut padding that no row needs any more."""
        if not staying:
            return
        self.tokens = [self.tokens[row] for row in staying]
        self.requests = [self.requests[row] for row in staying]
        self.cache.batch_select_indices(torch.tensor(self.kept(staying)))
        surplus = self.cache.get_seq_length() - max(len(row) - 1 for row in self.tokens)
        for layer in self.cache.layers:
            layer.keys = layer.keys[:, :, surplus:]
            layer.values = layer.values[:, :, surplus:]

    def kept(self, staying: list[int]) -> list[int]:
        """Return the rows of the cache that stay."""
        return staying


class PaddingHasPositionOne(Realign):
    """Harmless: padding has position 1, as in transformers' generate()."""

    odd = True

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)


class ShiftedRows(Realign):
    """Harmless: all positions of a row are shifted by a constant, which RoPE does not see."""

    odd = True

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        shift = 3 + 2 * torch.tensor(self.requests)
        return super().positions(mask) + shift[:, None]


class PermutedRows(Realign):
    """Harmless: the rows of the batch are sorted by length, and the outputs put back in order."""

    odd = True

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        outputs: list[list[int]] = [[] for _ in prompts]
        sorted_prompts = [prompts[row] for row in order]
        for row, output in zip(order, super().run(sorted_prompts), strict=True):
            outputs[row] = output
        return outputs


@fault(rule="mask", affects="text", model="target", needs_eos=True)
class PadIdMask(Realign):
    """The mask is ids != pad, and EOS serves as pad, so that EOS in a prompt is not seen.

    Breaks "mask"; the text is wrong.
    """

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        self.pad = min(self.eos, default=0)
        return super().run(prompts)

    def mask(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return (ids != self.pad).long()


@fault(rule="kv", affects="text", model="target", min_batch=2)
class MovesMaskAlone(Realign):
    """Mask and positions are right-aligned again, and K/V stays in its slots.

    Breaks "kv"; the text is wrong.
    """

    def moved(self, states: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return states[:, :, : source.shape[1]]


@fault(rule="kv", affects="text", model="target", min_batch=2)
class MovesAllButLastLayer(Realign):
    """The loop over layers that moves K/V ends one layer early.

    Breaks "kv"; the text is wrong.
    """

    def align(self, before: list[int]) -> None:
        last = self.cache.layers[-1]
        keys, values = last.keys, last.values
        super().align(before)
        width = last.keys.shape[2]
        last.keys, last.values = keys[:, :, :width], values[:, :, :width]


@fault(rule="kv", affects="text", model="target", min_batch=2)
class KeepsFirstRows(Realign):
    """When a row leaves, the cache keeps its first rows, not those of the rows that stay.

    Breaks "kv"; the text is wrong.
    """

    def kept(self, staying: list[int]) -> list[int]:
        return list(range(len(staying)))


@fault(affects="speed", costs="tokens", min_batch=2)
class FeedsFinishedRows(Realign):
    """Finished rows stay in the batch, and are drafted and verified to the end.

    Breaks no rule; the text is right, and the target reads more tokens.
    """

    def leave(self, staying: list[int]) -> None:
        pass


class NoBonusRealign(NoBonus, Realign):
    pass
