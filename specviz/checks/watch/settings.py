"""What a decoder applies beside the target's logits: processors of scores, and stop strings.

Contract: returns what the tokens of a text are to be chosen from, and which other text explains a
token that is not the best one. Not known here: forwards of a decoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel

from specviz.checks.watch.requests import WatchedRequest, WatchedRound
from specviz.engine.batch import Request
from specviz.engine.options import Options
from specviz.engine.processors import Processors, Stops


@dataclass(frozen=True)
class Settings:
    """What is applied; None for nothing.

    Attributes:
        processors: by request.
        stops: what ends a text.
        has_config: whether they are all that the target's generation config asks for.
    """

    processors: Processors | None = None
    stops: Stops | None = None
    has_config: bool = False

    def of(self, number: int, request: WatchedRequest, budget: int | None) -> LogitsProcessorList:
        """Return the processors of a request."""
        if self.processors is None:
            return LogitsProcessorList()
        most = len(request.output) if budget is None else budget
        return self.processors.of(Request(number, tuple(request.prompt), most))


def make_settings(
    target: PreTrainedModel, tokenizer: Any, eos: Sequence[int], **given: Any
) -> Settings:
    """Return the settings for logits_processor, stop and generation_config of `Options`.

    Raises ValueError for one that cannot be used.
    """
    options = Options(**given).resolved(target, eos)
    return Settings(
        options.make_processors(target, eos),
        options.make_stops(tokenizer),
        options.generation_config is not None,
    )


class Reading:
    """What a target that reads a text at once gives, and what it is processed to.

    Attributes:
        logprobs: (n, V) float32, log-probabilities of the logits as they are.
        scores: (n, V), the same of processed logits, from the last token of the prompt on.
    """

    def __init__(
        self, logits: Tensor, request: WatchedRequest, processors: LogitsProcessorList
    ) -> None:
        # On the device that processors are made for; without any, nothing needs them.
        self._logits = logits if processors else logits[:0]
        self._processors = processors
        self.logprobs = logits.log_softmax(-1).cpu()
        self.scores = self.logprobs
        if not processors:
            return
        self.scores = self.logprobs.clone()
        # What stands behind the last token of a text chooses nothing.
        for index in range(len(request.prompt) - 1, len(request.tokens) - 1):
            self.scores[index] = self.processed(index, request.tokens[: index + 1])

    @property
    def is_processed(self) -> bool:
        """Whether there are processors."""
        return bool(self._processors)

    def processed(self, index: int, text: Sequence[int]) -> Tensor:
        """Return log-probabilities (V,) behind a token, processed as if behind this text."""
        ids = torch.tensor([list(text)], device=self._logits.device)
        scores = self._processors(ids, self._logits[index : index + 1].clone())
        return scores[0].log_softmax(-1).cpu()


# With which a token's scores may have been processed; RAW: with none, RIGHT: with its own text.
Text = Sequence[int] | None
RAW: Sequence[int] = ()
RIGHT = None
Guess = Callable[[Sequence[WatchedRequest], WatchedRound, int], Text]
MOST = 200  # tokens of all requests that are tried


def explain(
    requests: Sequence[WatchedRequest],
    readings: Sequence[Reading],
    tolerance: float,
    at: tuple[WatchedRound, int],
) -> str:
    """Say with which other text the decoder has processed scores; "" if that is not known.

    It is the one that explains most tokens, that at `at` among them.

    Args:
        requests: all of them.
        readings: of each.
        tolerance: how far below the best one a chosen token may lie.
        at: a wrong token, as its round and its index.
    """
    tokens = [
        (verified, verified.pending + 1 + step)
        for request in requests
        for verified in request.rounds
        for step in range(verified.gained)
    ]

    def fits(guess: Guess, place: tuple[WatchedRound, int]) -> bool:
        verified, index = place
        reading = readings[verified.part.request]
        text = guess(requests, verified, index)
        if text is RIGHT:
            scores = reading.scores[index - 1]
        elif text is RAW:
            scores = reading.logprobs[index - 1]
        else:
            scores = reading.processed(index - 1, text)
        token = requests[verified.part.request].tokens[index]
        return float(scores.max() - scores[token]) <= tolerance

    counts = {
        what: sum(fits(guess, place) for place in tokens[:MOST])
        for what, guess in GUESSES.items()
        if fits(guess, at)
    }
    return max(counts, key=lambda what: counts[what], default="")


def _only_first(_: object, verified: WatchedRound, index: int) -> Text:
    return RIGHT if index == verified.pending + 1 else RAW


def _only_last(_: object, verified: WatchedRound, index: int) -> Text:
    return RIGHT if index == verified.pending + verified.gained else RAW


def _committed(requests: Sequence[WatchedRequest], verified: WatchedRound, _: int) -> list[int]:
    return requests[verified.part.request].tokens[: verified.pending + 1]


def _one_short(requests: Sequence[WatchedRequest], verified: WatchedRound, index: int) -> Text:
    return requests[verified.part.request].tokens[: index - 1]


def _all_drafts(requests: Sequence[WatchedRequest], verified: WatchedRound, index: int) -> Text:
    return [*_committed(requests, verified, index), *verified.drafts]


def _rejected_too(requests: Sequence[WatchedRequest], verified: WatchedRound, index: int) -> Text:
    request = requests[verified.part.request]
    fed = list(request.prompt[:-1])
    for each in request.rounds:
        if each is verified:
            break
        fed += [request.tokens[each.pending], *each.drafts]
    return fed + request.tokens[verified.pending : index]


def _no_prompt(requests: Sequence[WatchedRequest], verified: WatchedRound, index: int) -> Text:
    request = requests[verified.part.request]
    # A decoder gives a processor one token at least.
    return request.tokens[min(len(request.prompt), index - 1) : index]


def _other(away: int) -> Guess:
    def text(requests: Sequence[WatchedRequest], verified: WatchedRound, index: int) -> Text:
        rows = [
            each
            for request in requests
            for each in request.rounds
            if each.part.number == verified.part.number
        ]
        rows.sort(key=lambda each: each.part.row)
        beside = rows[(rows.index(verified) + away) % len(rows)]
        tokens = requests[beside.part.request].tokens[: beside.pending + 1]
        ahead = index - 1 - verified.pending
        return [*tokens, *beside.drafts[:ahead]] if beside is not verified else RIGHT

    return text


# The likelier ones first: of two that explain as many tokens, the first is named.
GUESSES: dict[str, Guess] = {
    "scores are not processed": lambda *_: RAW,
    "scores are processed behind the pending token alone": _only_first,
    "drafts are judged by scores that are not processed": _only_last,
    "the processors do not see the drafts before a token": _committed,
    "the processors do not see the last token before it": _one_short,
    "the processors see all drafts of a round": _all_drafts,
    "the processors see drafts that were rejected": _rejected_too,
    "the processors do not see the prompt": _no_prompt,
    "the processors see the text of the row after it": _other(1),
    "the processors see the text of the row before it": _other(-1),
}
