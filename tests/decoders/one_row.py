"""One prompt after the other, both models with a DynamicCache that is cropped after rejections.

The draft reads its last two committed tokens again at the start of each round: after a full
acceptance it has never read the last but one.
"""

import torch
from transformers import DynamicCache, PreTrainedModel

from .base import Decoder, EosOnlyLast, NoBonus, OneDraftTooMany, OverBudget, fault


class OneRow(Decoder):
    """Right."""

    refed = 2  # committed tokens that the draft reads at the start of a round
    target_refed = 1  # ... and the target

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        return [self.decode_one(prompt) for prompt in prompts]

    def decode_one(self, prompt: list[int]) -> list[int]:
        output: list[int] = []
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

    def propose(self, tokens: list[int]) -> list[int]:
        """Draft K tokens greedily."""
        crop_to(self.draft_cache, len(tokens) - self.refed)
        known = self.draft_cache.get_seq_length()
        # Only a short cache needs more than the last tokens: that of a new prompt.
        unread = tokens[known:] if known == 0 else tokens[-self.refed :]
        positions = range(len(tokens) - len(unread), len(tokens))
        drafts: list[int] = []
        for _ in range(self.K):
            logits = read(self.draft, unread, positions, self.draft_cache)
            unread = [int(logits[-1].argmax())]
            positions = self.next_draft_positions(positions)
            drafts += unread
        return drafts

    def next_draft_positions(self, positions: range) -> range:
        return range(positions.stop, positions.stop + 1)

    def verify(self, tokens: list[int], drafts: list[int]) -> list[int]:
        """Return the target's choices for the drafts, and the one behind them."""
        known = self.target_cache.get_seq_length()
        first = len(tokens) - self.target_refed if known else 0
        unread = [*tokens[first:], *drafts]
        offset = first + self.target_shift()
        positions = range(offset, offset + len(unread))
        logits = read(self.target, unread, positions, self.target_cache)
        return logits[-len(drafts) - 1 :].argmax(-1).tolist()

    def target_shift(self) -> int:
        return 0

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        """Forget rejected drafts, and what will be read again.

        The last committed token has not been read yet.
        """
        crop_to(self.target_cache, length - self.target_refed)


def read(
    model: PreTrainedModel, tokens: list[int], positions: range, cache: DynamicCache
) -> torch.Tensor:
    """Feed tokens at their positions; return the logits, (tokens, V)."""
    ids = torch.tensor([tokens], device=model.device)
    position_ids = torch.tensor([list(positions)], device=model.device)
    output = model(ids, past_key_values=cache, position_ids=position_ids, use_cache=True)
    return output.logits[0].float()


def crop_to(cache: DynamicCache, length: int) -> None:
    forget(cache, cache.get_seq_length() - length)


def forget(cache: DynamicCache, count: int) -> None:
    if count > 0:
        cache.crop(-count)


class TargetReadsTwo(OneRow):
    """Harmless: the target, too, reads its last two committed tokens in each round."""

    odd = True
    target_refed = 2


@fault(rule="positions", affects="text", model="target")
class SkippedPosition(OneRow):
    """After a full acceptance, all later positions of the target are one too large.

    Breaks "positions"; the text is wrong.
    """

    def start(self) -> None:
        super().start()
        self.skipped = 0

    def target_shift(self) -> int:
        return self.skipped

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        super().roll_back(length, drafted, gained)
        self.skipped += gained > drafted


@fault(rule="mask", affects="text", model="target")
class CropsTooFew(OneRow):
    """The K/V of the first rejected draft stays in the target's cache and is seen.

    Breaks "mask"; the text is wrong.
    """

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        rejected = drafted + 1 - gained
        forget(self.target_cache, rejected - 1)


@fault(rule="kv", affects="text", model="target")
class CropsTooMany(OneRow):
    """The K/V of the last accepted token is cropped, too, and the token is not read again.

    Breaks "kv"; the text is wrong.
    """

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        rejected = drafted + 1 - gained
        forget(self.target_cache, rejected + 1)


@fault(rule="bonus", affects="text")
class DraftBonus(OneRow):
    """After a full acceptance, the token behind the drafts is the draft's own choice.

    Breaks "bonus"; the text is wrong.
    """

    def propose(self, tokens: list[int]) -> list[int]:
        drafts = super().propose(tokens)
        known = self.draft_cache.get_seq_length()
        logits = read(self.draft, drafts[-1:], range(known, known + 1), self.draft_cache)
        self.behind = int(logits[-1].argmax())
        return drafts

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        new = super().accept(drafts, choices)
        return [*drafts, self.behind] if len(new) > len(drafts) else new


@fault(rule="caches", affects="speed", model="draft", costs="forwards")
class DraftMissesLast(OneRow):
    """The draft reads only the last token, so after a full acceptance it lacks the one before.

    Breaks "caches"; the text is right, and takes more rounds.
    """

    refed = 1


@fault(rule="positions", affects="speed", model="draft", costs="forwards")
class DraftPositionsStand(OneRow):
    """All drafts of a round have one position in the draft model.

    Breaks "positions"; the text is right, and takes more rounds.
    """

    def next_draft_positions(self, positions: range) -> range:
        return range(positions.stop - 1, positions.stop)


@fault(affects="speed", costs="tokens")
class PrefillsEachRound(OneRow):
    """The target's cache is thrown away each round, and all tokens are read again.

    Breaks no rule; the text is right, and the target reads more tokens.
    """

    def roll_back(self, length: int, drafted: int, gained: int) -> None:
        self.target_cache = DynamicCache()


class NoBonusOneRow(NoBonus, OneRow):
    pass


class OneDraftTooManyOneRow(OneDraftTooMany, OneRow):
    pass


class EosOnlyLastOneRow(EosOnlyLast, OneRow):
    pass


class OverBudgetOneRow(OverBudget, OneRow):
    pass
