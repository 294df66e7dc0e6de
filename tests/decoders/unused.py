"""A batch in which the draft model reads a token that some rows do not need.

After a full acceptance a row's draft model lacks the last draft's K/V, so it reads that and the
pending token. The other rows need the pending token alone, and get a filler behind it.
"""

import torch

from .base import Tokens
from .slots import Slots

FILLER = 0


class Unused(Slots):
    """Right: the filler's K/V is overwritten by the first draft's, before anything reads it."""

    def propose(self, live: Tokens) -> list[Tokens]:
        rows = [self.unread(self.tokens[row], row) for row in live]
        width = max(len(row) for row in rows)
        counts = torch.tensor([[len(row)] for row in rows])
        ids = torch.tensor([[*row, *[FILLER] * (width - len(row))] for row in rows])
        ends = torch.tensor([[len(self.tokens[row])] for row in live])
        positions = ends - counts + torch.arange(width)
        drafts = []
        for _ in range(self.K):
            seen = torch.arange(self.size) <= positions[:, :, None]
            logits = self.read(self.draft, self.draft_cache, live, ids, positions, positions, seen)
            ids = logits.argmax(-1).gather(1, self.deciding(counts, logits.shape[1]))
            positions = self.behind(positions, ends + len(drafts))
            counts = torch.ones_like(counts)
            drafts.append(ids)
        self.drafted = {row: len(self.tokens[row]) + self.K - 1 for row in live}
        return torch.cat(drafts, dim=1).tolist()

    def unread(self, tokens: Tokens, row: int) -> Tokens:
        """Return the tokens whose K/V the draft model lacks."""
        return tokens[-2:] if len(tokens) - 1 > self.drafted.get(row, 0) else tokens[-1:]

    def enter(self, row: int, prompt: Tokens) -> None:
        super().enter(row, prompt)
        self.drafted = getattr(self, "drafted", {}) | {row: len(prompt) - 1}

    def deciding(self, counts: torch.Tensor, width: int) -> torch.Tensor:
        """Return the columns behind which drafts are chosen, (rows, 1)."""
        return counts - 1

    def behind(self, positions: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return the position of the next draft, (rows, 1), behind `ends` tokens."""
        return ends


class FillerDecides(Unused, rule="kv", affects="speed", model="draft", costs="forwards"):
    """The first draft of a round is chosen behind the last column, which may be the filler."""

    def deciding(self, counts: torch.Tensor, width: int) -> torch.Tensor:
        return torch.full_like(counts, width - 1)


class FillerStays(Unused, rule="kv", affects="speed", model="draft", costs="forwards"):
    """Drafts are read behind the filler, so that they see its K/V."""

    def behind(self, positions: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return positions[:, -1:] + 1


class LastDraftRead(Unused):
    """Right: after verification the draft model reads each row's last draft.

    Where a draft was rejected, nothing reads its K/V before it is overwritten.
    """

    def unread(self, tokens: Tokens, row: int) -> Tokens:
        return tokens[-1:]

    def verify(self, live: Tokens, drafts: list[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
        found = super().verify(live, drafts)
        ids = torch.tensor([[self.last(row)] for row in drafts])
        slots = torch.tensor([[len(self.tokens[row]) + self.K - 1] for row in live])
        seen = torch.arange(self.size) <= slots[:, :, None]
        self.read(self.draft, self.draft_cache, live, ids, slots, slots, seen)
        return found

    def last(self, drafts: Tokens) -> int:
        return drafts[-1]


class FillerReadForLastDraft(
    LastDraftRead, rule="kv", affects="speed", model="draft", costs="forwards"
):
    """A filler is read in the place of the last draft, also where that was accepted."""

    def last(self, drafts: Tokens) -> int:
        return FILLER
