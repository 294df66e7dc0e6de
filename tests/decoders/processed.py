"""Decoders that process the target's scores by each row's text, or end it at stop strings."""

from collections.abc import Collection
from typing import Any

import torch
from transformers import LogitsProcessorList

from .base import Tokens
from .slots import Slots

PADDING = 291


class Processed(Slots):
    """Right: the scores behind each draft are processed with the row's text and the drafts before.

    The drafts are the best tokens of scores that are not processed.
    """

    def __init__(
        self, *given: Any, processors: Any = (), stops: Collection[str] = (), tokenizer: Any = None
    ) -> None:
        super().__init__(*given)
        self.processors = LogitsProcessorList(processors)
        self.stops = stops
        self.tokenizer = tokenizer
        self.prompts: dict[int, int] = {}
        self.fed: dict[int, Tokens] = {}  # by row, all that was fed, rejected drafts too
        self.drafted: dict[int, Tokens] = {}

    def enter(self, row: int, prompt: Tokens) -> None:
        super().enter(row, prompt)
        self.prompts[row] = len(prompt)
        self.fed[row] = list(prompt[:-1])

    def verify(self, live: Tokens, drafts: list[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
        self.drafted = dict(zip(live, drafts, strict=True))
        _, slots = super().verify(live, drafts)
        choices = [
            [int(self.scores(row, column).argmax()) for column in range(self.K + 1)] for row in live
        ]
        for row in live:
            self.fed[row] += [self.tokens[row][-1], *self.drafted[row]]
        return choices, slots

    def read(self, *given: Any) -> torch.Tensor:
        logits = super().read(*given)
        if given[0] is self.target:
            self.logits = dict(zip(given[2], logits, strict=True))
        return logits

    def scores(self, row: int, column: int) -> torch.Tensor:
        text = torch.tensor([self.text(row, column)])
        return self.processors(text, self.logits[row][column][None].clone())[0]

    def text(self, row: int, column: int) -> Tokens:
        """Return the text with which the scores behind a column are processed."""
        return [*self.tokens[row], *self.drafted[row][:column]]

    def finish(self, output: Tokens, new: Tokens) -> bool:
        for token in new:
            output.append(token)
            if token in self.eos or len(output) == self.max_new_tokens or self.stopped(output):
                return True
        return False

    def stopped(self, output: Tokens) -> bool:
        """Whether a text has a stop string."""
        return bool(self.stops) and any(
            each in self.tokenizer.decode(output) for each in self.stops
        )


class DraftsToo(Processed):
    """Right: the drafts are chosen from processed scores, too."""

    def propose(self, live: Tokens) -> list[Tokens]:
        self.ahead: dict[int, Tokens] = {row: [] for row in live}
        self.live = live
        return super().propose(live)

    def read(self, *given: Any) -> torch.Tensor:
        logits = super().read(*given)
        if given[0] is self.draft:
            logits = logits.clone()
            for number, row in enumerate(self.live):
                text = torch.tensor([[*self.tokens[row], *self.ahead[row]]])
                logits[number, -1] = self.processors(text, logits[number, -1:].clone())[0]
                self.ahead[row].append(int(logits[number, -1].argmax()))
        return logits


class NotProcessed(Processed, rule="bonus", affects="text"):
    """The verification does not process scores."""

    def scores(self, row: int, column: int) -> torch.Tensor:
        return self.logits[row][column]


class FirstColumnAlone(Processed, rule="bonus", affects="text"):
    """Only the scores behind the pending token are processed."""

    def scores(self, row: int, column: int) -> torch.Tensor:
        return super().scores(row, 0) if column == 0 else self.logits[row][column]


class CommittedText(Processed, rule="bonus", affects="text"):
    """All columns are processed with the text before the round."""

    def text(self, row: int, column: int) -> Tokens:
        return self.tokens[row]


class OneShort(Processed, rule="bonus", affects="text"):
    """The last token is left out."""

    def text(self, row: int, column: int) -> Tokens:
        return super().text(row, column)[:-1]


class AllDrafts(Processed, rule="bonus", affects="text"):
    """All columns are processed with all drafts of the round."""

    def text(self, row: int, column: int) -> Tokens:
        return [*self.tokens[row], *self.drafted[row]]


class RejectedKept(Processed, rule="bonus", affects="text"):
    """The text has the drafts that were rejected."""

    def text(self, row: int, column: int) -> Tokens:
        return [*self.fed[row], self.tokens[row][-1], *self.drafted[row][:column]]


class PromptLeftOut(Processed, rule="bonus", affects="text"):
    """The text begins behind the prompt."""

    def text(self, row: int, column: int) -> Tokens:
        # A text of one token at least, as processors expect it.
        return super().text(row, column)[self.prompts[row] :] or self.tokens[row][-1:]


class OtherRow(Processed, rule="bonus", affects="text", min_batch=2):
    """The text is that of the row before."""

    def text(self, row: int, column: int) -> Tokens:
        live = sorted(self.drafted)
        other = live[live.index(row) - 1]
        return super().text(other, column)


class LeftPadded(Processed, rule="bonus", affects="text", min_batch=2):
    """The texts are padded on the left with a token that stands in many texts."""

    def text(self, row: int, column: int) -> Tokens:
        return [*[PADDING] * 3, *super().text(row, column)]


class AcceptedRaw(Processed, rule="acceptance", affects="text"):
    """Drafts are judged by scores that are not processed; the bonus comes from processed ones."""

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        row = next(row for row, own in self.drafted.items() if own is drafts)
        raw = self.logits[row].argmax(-1).tolist()
        count = len(super().accept(drafts, raw)) - 1
        return [*drafts[:count], choices[count]]


class StopAtTheEnd(Processed, rule="eos", affects="text"):
    """Stop strings are looked for behind each round, not behind each token."""

    def finish(self, output: Tokens, new: Tokens) -> bool:
        output += new[: self.max_new_tokens - len(output)]
        return len(output) == self.max_new_tokens or self.stopped(output)


class StopInTheRound(Processed, rule="eos", affects="text"):
    """Stop strings are looked for in the tokens of a round alone."""

    def finish(self, output: Tokens, new: Tokens) -> bool:
        for count, token in enumerate(new, 1):
            output.append(token)
            if len(output) == self.max_new_tokens or self.stopped(new[:count]):
                return True
        return False


class StopInOneToken(Processed, rule="eos", affects="text"):
    """Stop strings are looked for in each token alone."""

    def stopped(self, output: Tokens) -> bool:
        return super().stopped(output[-1:])


class StopByIds(Processed, rule="eos", affects="text"):
    """Stop strings are encoded, and their ids are looked for."""

    def stopped(self, output: Tokens) -> bool:
        for each in self.stops:
            ids = self.tokenizer(each, add_special_tokens=False).input_ids
            if output[-len(ids) :] == ids:
                return True
        return False


class StopOneRoundLate(Processed, rule="eos", affects="text"):
    """A stop string of a round ends the text behind the next one."""

    def finish(self, output: Tokens, new: Tokens) -> bool:
        has_stopped = self.stopped(output)
        output += new[: self.max_new_tokens - len(output)]
        return has_stopped or len(output) == self.max_new_tokens


class StopTooEarly(Processed, rule="budget", affects="text"):
    """The first letters of a stop string end a text."""

    def stopped(self, output: Tokens) -> bool:
        return any(each[:-1] in self.tokenizer.decode(output) for each in self.stops)
