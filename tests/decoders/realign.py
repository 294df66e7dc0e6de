"""A batch with left padding, whose K/V is right-aligned again after each round.

The draft keeps no cache: it reads the padded rows again for each token. Positions come from the
2-D mask, and the mask comes from the rows' lengths.
"""

import torch
from transformers import DynamicCache

from checks.decoders.common import left_padded, positions_of

from .base import Batch, NoBonus, Tokens, with_faults


class Realign(Batch):
    """Right."""

    def padded(self, rows: list[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask of rows with padding on the left, (rows, columns) each."""
        return left_padded(rows, self.target.device)

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        return positions_of(mask)

    def prefill(self) -> None:
        """Read all but the last token of each prompt."""
        self.cache = DynamicCache()
        self.read([row[:-1] for row in self.rows], max(map(len, self.rows)) - 1)

    def read(self, rows: list[Tokens], last: int) -> torch.Tensor:
        """Feed the last columns of the rows; return the logits."""
        ids, mask = self.padded(rows)
        return self.target(
            input_ids=ids[:, -last:],
            attention_mask=mask,
            position_ids=self.positions(mask)[:, -last:],
            past_key_values=self.cache,
        ).logits

    def propose(self) -> list[Tokens]:
        drafts: list[Tokens] = [[] for _ in self.rows]
        for _ in range(self.K):
            ids, mask = self.padded(self.longer(drafts))
            output = self.draft(ids, attention_mask=mask, position_ids=self.positions(mask))
            for row, token in zip(drafts, output.logits[:, -1].argmax(-1).tolist(), strict=True):
                row.append(token)
        return drafts

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        return self.read(self.longer(drafts), self.K + 1).float().argmax(-1).tolist()

    def align(self, new: list[Tokens]) -> None:
        """Move each row's K/V so that its last read token lies in the last slot.

        The pending token has no K/V.
        """
        before = torch.tensor(
            [len(row) - len(gained) for row, gained in zip(self.rows, new, strict=True)]
        )
        read = torch.tensor([len(row) - 1 for row in self.rows])
        width = int(read.max())
        shift = (before.max() - before) - (width - read)
        source = torch.arange(width) + shift[:, None]
        source = source.clamp(0, int(before.max()) + self.K - 1)  # padding: any slot will do
        for layer in self.cache.layers:
            layer.keys = self.moved(layer.keys, source)
            layer.values = self.moved(layer.values, source)

    def moved(self, states: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Return the slots `source`, (rows, slots), of (rows, heads, old slots, size)."""
        index = source[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
        return states.gather(2, index)

    def leave(self, staying: list[int]) -> None:
        """Keep some rows; cut padding that no row needs any more."""
        self.cache.batch_select_indices(torch.tensor(self.kept(staying)))
        surplus = self.cache.get_seq_length() - max(len(row) - 1 for row in self.rows)
        for layer in self.cache.layers:
            layer.keys = layer.keys[:, :, surplus:]
            layer.values = layer.values[:, :, surplus:]

    def kept(self, staying: list[int]) -> list[int]:
        """Return the rows of the cache that stay."""
        return staying


class PaddingHasPositionOne(Realign, odd=True):
    """Harmless: padding has position 1, as in transformers' generate()."""

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)


class ShiftedRows(Realign, odd=True):
    """Harmless: all positions of a row are shifted by a constant, which RoPE does not see."""

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        return positions_of(mask) + 3 + 2 * torch.tensor(self.requests)[:, None]


class PermutedRows(Realign, odd=True):
    """Harmless: the rows of the batch are sorted by length, and the outputs put back in order."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        outputs = super().run([prompts[row] for row in order])
        return [outputs[order.index(row)] for row in range(len(prompts))]


class PadIdMask(Realign, rule="mask", affects="text", model="target", needs_eos=True):
    """The mask is ids != pad, and EOS serves as pad, so that EOS in a prompt is not seen."""

    def padded(self, rows: list[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        pad = min(self.eos, default=0)
        ids, mask = super().padded(rows)
        ids = ids.masked_fill(mask == 0, pad)
        return ids, (ids != pad).long()


class MovesMaskAlone(Realign, rule="kv", affects="text", model="target", min_batch=2):
    """Mask and positions are right-aligned again, and K/V stays in its slots."""

    def moved(self, states: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return states[:, :, : source.shape[1]]


class MovesAllButLastLayer(Realign, rule="kv", affects="text", model="target", min_batch=2):
    """The loop over layers that moves K/V ends one layer early."""

    def align(self, new: list[Tokens]) -> None:
        last = self.cache.layers[-1]
        keys, values = last.keys, last.values
        super().align(new)
        width = last.keys.shape[2]
        last.keys, last.values = keys[:, :, :width], values[:, :, :width]


class KeepsFirstRows(Realign, rule="kv", affects="text", model="target", min_batch=2):
    """When a row leaves, the cache keeps its first rows, not those of the rows that stay."""

    def kept(self, staying: list[int]) -> list[int]:
        return list(range(len(staying)))


class FeedsFinishedRows(Realign, affects="speed", costs="tokens", min_batch=2):
    """Finished rows stay in the batch, and are drafted and verified to the end."""

    def prefill(self) -> None:
        super().prefill()
        self.unfinished = self.requests

    def commit(self, outputs: list[Tokens], new: list[Tokens]) -> list[int]:
        self.unfinished = [
            row for row in self.unfinished if not self.finish(outputs[row], new[row])
        ]
        return self.requests if self.unfinished else []

    def leave(self, staying: list[int]) -> None:
        pass


with_faults(Realign, NoBonus)
