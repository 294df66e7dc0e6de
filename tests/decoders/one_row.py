"""One prompt after the other, both models with a DynamicCache that is cropped after rejections.

The draft reads its last two committed tokens again at the start of each round: after a full
acceptance it has never read the last but one.
"""

import torch
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.crop import forget

from .base import (
    Decoder,
    EosOnlyLast,
    NoBonus,
    OneDraftTooMany,
    OverBudget,
    Tokens,
    with_faults,
)


class OneRow(Decoder):
    """Right."""

    refed = 2  # committed tokens that the draft reads at the start of a round
    target_refed = 1  # ... and the target

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        return [self.decode_one(prompt) for prompt in prompts]

    def decode_one(self, prompt: Tokens) -> Tokens:
        output: Tokens = []
        done = False
        self.start()
        while not done:
            tokens = prompt + output
            drafts = self.propose(tokens)
            choices = self.verify(tokens, drafts)
            new = self.accept(drafts, choices)
            done = self.finish(output, new)
            self.roll_back(len(prompt + output), len(drafts), len(new))
        return output

    def start(self) -> None:
        self.target_cache = DynamicCache()
        self.draft_cache = DynamicCache()

    def propose(self, tokens: Tokens) -> Tokens:
        """Return K drafts."""
        crop_to(self.draft_cache, len(tokens) - self.refed)
        known = self.draft_cache.get_seq_length()
        # Only a short cache needs more than the last tokens: that of a new prompt.
        unread = tokens[known:] if known == 0 else tokens[-self.refed :]
        positions = range(len(tokens) - len(unread), len(tokens))
        drafts: Tokens = []
        for _ in range(self.K):
            logits = read(self.draft, unread, positions, self.draft_cache)
            unread = [self.choose(logits[-1])]
            positions = self.next_draft_positions(positions)
            drafts += unread
        return drafts

    def choose(self, logits: torch.Tensor) -> int:
        """Return a draft."""
        return int(logits.argmax())

    def next_draft_positions(self, positions: range) -> range:
        return range(positions.stop, positions.stop + 1)

    def verify(self, tokens: Tokens, drafts: Tokens) -> Tokens:
        """Return the target's choices for the drafts, and the one behind them."""
        return self.judged(tokens, drafts).argmax(-1).tolist()

    def judged(self, tokens: Tokens, drafts: Tokens) -> torch.Tensor:
        """Read what the target lacks; return the logits for the drafts and behind them."""
        known = self.target_cache.get_seq_length()
        first = len(tokens) - self.target_refed if known else 0
        unread = [*tokens[first:], *drafts]
        offset = first + self.target_shift()
        positions = range(offset, offset + len(unread))
        return read(self.target, unread, positions, self.target_cache)[-len(drafts) - 1 :]

    def target_shift(self) -> int:
        return 0

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        """Forget rejected drafts, and what will be read again.

        The last committed token has not been read yet.
        """
        crop_to(self.target_cache, length - self.target_refed)


def read(
    model: PreTrainedModel, tokens: Tokens, positions: range, cache: DynamicCache
) -> torch.Tensor:
    """Feed tokens at their positions; return the logits, (tokens, V)."""
    ids = torch.tensor([tokens], device=model.device)
    position_ids = torch.tensor([list(positions)], device=model.device)
    output = model(ids, past_key_values=cache, position_ids=position_ids, use_cache=True)
    return output.logits[0].float()


def crop_to(cache: DynamicCache, length: int) -> None:
    forget(cache, cache.get_seq_length() - length)


class TargetReadsTwo(OneRow, odd=True):
    """Harmless: the target, too, reads its last two committed tokens in each round."""

    target_refed = 2


class SkippedPosition(OneRow, rule="positions", affects="text", model="target"):
    """After a full acceptance, all later positions of the target are one too large."""

    def start(self) -> None:
        super().start()
        self.skipped = 0

    def target_shift(self) -> int:
        return self.skipped

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        super().roll_back(length, drafted, gained)
        self.skipped += gained > drafted


class CropsTooFew(OneRow, rule="mask", affects="text", model="target"):
    """The K/V of the first rejected draft stays in the target's cache and is seen."""

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        rejected = drafted + 1 - gained
        forget(self.target_cache, rejected - 1)


class CropsTooMany(OneRow, rule="kv", affects="text", model="target"):
    """The K/V of the last accepted token is cropped, too, and the token is not read again."""

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        rejected = drafted + 1 - gained
        forget(self.target_cache, rejected + 1)


class DraftBonus(OneRow, rule="bonus", affects="text"):
    """After a full acceptance, the token behind the drafts is the draft's own choice."""

    def propose(self, tokens: Tokens) -> Tokens:
        drafts = super().propose(tokens)
        known = self.draft_cache.get_seq_length()
        logits = read(self.draft, drafts[-1:], range(known, known + 1), self.draft_cache)
        self.behind = int(logits[-1].argmax())
        return drafts

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        new = super().accept(drafts, choices)
        return [*drafts, self.behind] if len(new) > len(drafts) else new


class DraftMissesLast(OneRow, rule="caches", affects="speed", model="draft", costs="forwards"):
    """The draft reads only the last token, so after a full acceptance it lacks the one before."""

    refed = 1


class DraftPositionsStand(
    OneRow, rule="positions", affects="speed", model="draft", costs="forwards"
):
    """All drafts of a round have one position in the draft model."""

    def next_draft_positions(self, positions: range) -> range:
        return range(positions.stop - 1, positions.stop)


class PrefillsEachRound(OneRow, affects="speed", costs="tokens"):
    """The target's cache is thrown away each round, and all tokens are read again."""

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        self.target_cache = DynamicCache()


with_faults(OneRow, NoBonus, OneDraftTooMany, EosOnlyLast, OverBudget)
