"""A batch whose rejected drafts stay in the cache, hidden by a 2-D mask for good.

Both models have a cache and a mask of their own. Positions are counted from the mask.
"""

import torch
from torch.nn.functional import pad
from transformers import Cache, DynamicCache, PreTrainedModel, StaticCache

from .base import Decoder, WrongColumn, fault


class Model:
    """A model, its cache, and which slots of it hold committed tokens: `seen`, (rows, slots)."""

    def __init__(self, model: PreTrainedModel, rows: int, slots: int) -> None:
        self.model = model
        self.cache = self.new_cache(slots)
        self.seen = torch.zeros(rows, 0, dtype=torch.bool)

    def new_cache(self, slots: int) -> Cache:
        return DynamicCache()

    def read(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Append tokens to all rows; return the logits. `real` is False in padding."""
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
        return (self.seen.cumsum(1) - 1).clamp(min=0)

    def hide(self, count: int, kept: list[int]) -> None:
        """Of the last `count` slots, hide all but the first kept[row]."""
        width = self.seen.shape[1]
        for row, number in enumerate(kept):
            self.seen[row, width - count + number :] = False

    def keep(self, rows: list[int]) -> None:
        if rows:
            self.cache.reorder_cache(torch.tensor(rows))
            self.seen = self.seen[rows]


class Holes(Decoder):
    """Right."""

    target_model = Model
    draft_model = Model

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        requests = list(range(len(prompts)))
        slots = max(len(row) for row in rows) + self.max_new_tokens * (self.K + 1)
        target = self.target_model(self.target, len(rows), slots)
        draft = self.draft_model(self.draft, len(rows), slots)
        target.read(*left_padded([row[:-1] for row in rows]))
        draft.read(*left_padded([row[:-1] for row in rows]))
        while requests:
            drafts = self.propose(draft, rows)
            pending = torch.tensor([[row[-1]] for row in rows])
            ids = torch.cat([pending, drafts], dim=1)
            choices = target.read(ids, torch.ones_like(ids, dtype=torch.bool)).argmax(-1)
            gained, staying = [], []
            for i, request in enumerate(requests):
                new = self.accept(drafts[i].tolist(), choices[i].tolist())
                rows[i] += new
                gained.append(len(new))
                if not self.finish(outputs[request], new):
                    staying.append(i)
            target.hide(self.K + 1, gained)
            draft.hide(self.K - 1, [count - 1 for count in gained])
            target.keep(staying)
            draft.keep(staying)
            rows = [rows[i] for i in staying]
            requests = [requests[i] for i in staying]
        return outputs

    def propose(self, draft: Model, rows: list[list[int]]) -> torch.Tensor:
        """Draft K tokens, (rows, K)."""
        self.forget_last(draft, rows)
        ids = torch.tensor([row[-2:] for row in rows])
        drafts = []
        for _ in range(self.K):
            logits = draft.read(ids, torch.ones_like(ids, dtype=torch.bool))
            ids = logits[:, -1:].argmax(-1)
            drafts.append(ids)
        return torch.cat(drafts, dim=1)

    def forget_last(self, draft: Model, rows: list[list[int]]) -> None:
        """Hide the last but one token from the draft if it was read: it will be read again."""
        for i, row in enumerate(rows):
            slots = draft.seen[i].nonzero()
            if len(slots) == len(row) - 1:
                draft.seen[i, slots[-1]] = False


def left_padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids of rows with padding on the left, and which of them are real."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(longest) >= longest - lengths[:, None]


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
        if rows:
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


@fault(rule="positions", affects="text", model="target")
class ColumnPositions(Holes):
    """Positions of the target are columns without padding, so that holes count.

    Breaks "positions"; the text is wrong.
    """

    target_model = PositionsFromColumns


@fault(rule="mask", affects="text", model="target")
class RejectedSeen(Holes):
    """The target's mask shows rejected drafts, whose positions other tokens have again.

    Breaks "mask"; the text is wrong.
    """

    target_model = HidesNothing


@fault(rule="mask", affects="text", model="target")
class LastAcceptedHidden(Holes):
    """The target's mask hides one slot too many: that of the last token that is kept.

    Breaks "mask"; the text is wrong.
    """

    target_model = HidesLastAccepted


@fault(rule="mask", affects="speed", model="draft", costs="forwards")
class DraftSeesRejected(Holes):
    """The draft's mask shows rejected drafts.

    Breaks "mask"; the text is right, and takes more rounds.
    """

    draft_model = HidesNothing


@fault(rule="positions", affects="speed", model="draft", costs="forwards")
class DraftColumnPositions(Holes):
    """Positions of the draft are columns without padding, so that holes count.

    Breaks "positions"; the text is right, and takes more rounds.
    """

    draft_model = PositionsFromColumns


class WrongColumnHoles(WrongColumn, Holes):
    pass
