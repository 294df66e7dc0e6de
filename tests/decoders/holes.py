"""A batch whose rejected drafts stay in the cache, hidden by a 2-D mask for good.

Both models have a cache and a mask of their own. Positions are counted from the mask.
"""

import torch
from torch.nn.functional import pad
from transformers import Cache, DynamicCache, PreTrainedModel, StaticCache

from checks.decoders.common import left_padded, positions_of

from .base import Batch, Tokens, WrongColumn, with_faults


class Model:
    """A model, its cache, and which slots of it hold committed tokens: `seen`, (rows, slots)."""

    def __init__(self, model: PreTrainedModel, rows: int, slots: int) -> None:
        self.model = model
        self.cache = self.new_cache(slots)
        self.seen = torch.zeros(rows, 0, dtype=torch.bool)

    def new_cache(self, slots: int) -> Cache:
        return DynamicCache()

    def read(self, ids: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
        """Append tokens to all rows; return the logits. `real` is False in padding."""
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        self.seen = torch.cat([self.seen, real], dim=1)
        with torch.no_grad():
            output = self.model(
                ids,
                attention_mask=self.mask().long(),
                position_ids=self.positions()[:, -ids.shape[1] :],
                past_key_values=self.cache,
            )
        return output.logits.float()

    def mask(self) -> torch.Tensor:
        return self.seen

    def positions(self) -> torch.Tensor:
        return positions_of(self.seen)

    def hide(self, count: int, kept: list[int]) -> None:
        """Of the last `count` slots, hide all but the first kept[row]."""
        width = self.seen.shape[1]
        for row, number in enumerate(kept):
            self.seen[row, width - count + number :] = False

    def keep(self, rows: list[int]) -> None:
        self.cache.reorder_cache(torch.tensor(rows))
        self.seen = self.seen[rows]


class Holes(Batch):
    """Right."""

    target_model = Model
    draft_model = Model

    def prefill(self) -> None:
        rows = self.rows
        slots = max(len(row) for row in rows) + self.max_new_tokens * (self.K + 1)
        self.models = (
            self.target_model(self.target, len(rows), slots),
            self.draft_model(self.draft, len(rows), slots),
        )
        ids, mask = left_padded([row[:-1] for row in rows], self.target.device)
        for model in self.models:
            model.read(ids, mask.bool())

    def propose(self) -> list[Tokens]:
        draft = self.models[1]
        # Hide the last but one token if it was read: it will be read again.
        for i, row in enumerate(self.rows):
            slots = draft.seen[i].nonzero()
            if len(slots) == len(row) - 1:
                draft.seen[i, slots[-1]] = False
        ids = torch.tensor([row[-2:] for row in self.rows])
        drafts = []
        for _ in range(self.K):
            ids = draft.read(ids)[:, -1:].argmax(-1)
            drafts.append(ids)
        return torch.cat(drafts, dim=1).tolist()

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        ids = torch.tensor([row[-self.K - 1 :] for row in self.longer(drafts)])
        return self.models[0].read(ids).argmax(-1).tolist()

    def align(self, new: list[Tokens]) -> None:
        self.models[0].hide(self.K + 1, [len(row) for row in new])
        self.models[1].hide(self.K - 1, [len(row) - 1 for row in new])

    def leave(self, staying: list[int]) -> None:
        for model in self.models:
            model.keep(staying)


class StaticModel(Model):
    def new_cache(self, slots: int) -> Cache:
        return StaticCache(config=self.model.config, max_cache_len=slots)


class HolesInStaticCache(Holes):
    """Right, with K/V in a StaticCache."""

    target_model = StaticModel
    draft_model = StaticModel


class WrongMask(Model):
    """A model that is given a mask in which some slots, `flipped`, are not as they should be."""

    def __init__(self, model: PreTrainedModel, rows: int, slots: int) -> None:
        super().__init__(model, rows, slots)
        self.flipped = self.seen

    def mask(self) -> torch.Tensor:
        new = self.seen.shape[1] - self.flipped.shape[1]
        self.flipped = pad(self.flipped, (0, new))
        return self.seen ^ self.flipped

    def keep(self, rows: list[int]) -> None:
        super().keep(rows)
        self.flipped = self.flipped[rows]


class HidesNothing(WrongMask):
    def hide(self, count: int, kept: list[int]) -> None:
        before = self.seen.clone()
        super().hide(count, kept)
        self.flipped = self.flipped | (before & ~self.seen)


class HidesLastAccepted(WrongMask):
    def hide(self, count: int, kept: list[int]) -> None:
        super().hide(count, kept)
        for row in range(len(kept)):
            last = self.seen[row].nonzero()[-1]
            self.flipped[row, last] = True


class PositionsFromColumns(Model):
    def positions(self) -> torch.Tensor:
        padding = self.seen.int().argmax(1)
        return (torch.arange(self.seen.shape[1]) - padding[:, None]).clamp(min=0)


class ColumnPositions(Holes, rule="positions", affects="text", model="target"):
    """Positions of the target are columns without padding, so that holes count."""

    target_model = PositionsFromColumns


class RejectedSeen(Holes, rule="mask", affects="text", model="target"):
    """The target's mask shows rejected drafts, whose positions other tokens have again."""

    target_model = HidesNothing


class LastAcceptedHidden(Holes, rule="mask", affects="text", model="target"):
    """The target's mask hides one slot too many: that of the last token that is kept."""

    target_model = HidesLastAccepted


class DraftSeesRejected(Holes, rule="mask", affects="speed", model="draft", costs="forwards"):
    """The draft's mask shows rejected drafts."""

    draft_model = HidesNothing


class DraftColumnPositions(
    Holes, rule="positions", affects="speed", model="draft", costs="forwards"
):
    """Positions of the draft are columns without padding, so that holes count."""

    draft_model = PositionsFromColumns


with_faults(Holes, WrongColumn)
