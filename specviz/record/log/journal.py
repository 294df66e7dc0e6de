"""The events of a log as they come: their rounds, their steps, and their lines.

Contract: takes the arguments of a `TraceWriter`'s calls, checks them, and keeps an event of each.
What a call leaves out about time follows from the order of the calls. Not known here: how lines are
spelled, and how events become tables.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from specviz.record.log.arrays import as_array, check_limits, integers, plain
from specviz.record.log.events import Forward, Limits, Moves, Placed, RoundEnd
from specviz.record.log.forward import read_forward, read_moves
from specviz.record.log.lines import (
    Line,
    LogFile,
    event_line,
    header_line,
    request_line,
    texts_line,
)
from specviz.record.log.requests import Requests
from specviz.record.log.roundend import read_round
from specviz.record.log.tables import to_trace
from specviz.record.log.texts import Texts
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace
from specviz.util.validate import is_list, require_int, short

_LATE = ("verify", "accept", "synchronise")  # phases in which a round's verification has run
_CANDIDATES = ("choices", "target_top_ids", "draft_top_ids")
_MOST = 2**31 - 1


class Journal:
    """The events of one log.

    Attributes:
        header: as JSON values.
        requests: their prompts, and how far each has come.
        rounds: those that have ended.
    """

    def __init__(self, header: Line, texts: Texts, file: LogFile | None) -> None:
        self.header = header
        self.requests = Requests()
        self.rounds: list[RoundEnd] = []
        self._texts = texts
        self._file = file
        self._forwards: list[Placed] = []
        self._moves: list[Placed] = []
        self._lines: list[Line | Forward | Moves | RoundEnd] = []  # as they came
        self._steps: dict[tuple[int, str, str], int] = {}
        self._latest = ""  # the latest phase of the round that is going on, "" for none
        self._put(header_line(header))
        if texts.known:
            self._put(texts_line(dict(texts.known)))

    def request(self, prompt: Any, budget: Any) -> int:
        """Add a request; return its number."""
        tokens = check_prompt("prompt", prompt, self.header["vocabulary_size"])
        if budget is not None:
            budget = require_int("budget", budget, maximum=_MOST)
        self._tell_texts(tokens)
        self._put(request_line(tokens, budget))
        return self.requests.add(tokens, budget)

    def texts(self, texts: Any) -> None:
        """Add texts of tokens."""
        self._put(texts_line(self._texts.add(texts)))

    def forward(self, given: dict[str, Any]) -> None:
        """Add a forward."""
        event = read_forward(self._limits, given["model"], given)
        if given["phase"] is None and event.phase == "draft" and self._latest in _LATE:
            # The draft reads what was accepted, once the target has judged it.
            event = replace(event, phase="synchronise")
        self._check_order(event.phase)
        self._tell_texts(event.token)
        self._place(event, self._forwards, len(self.rounds))

    def move(self, given: dict[str, Any]) -> None:
        """Add blocks that were copied at once."""
        number = len(self.rounds)
        may_follow = number > 0 and not self._latest  # right behind the end of a round
        phase = given["phase"]
        if phase is None:
            within = np.array_equal(
                np.ravel(plain(given["from_row"])), np.ravel(plain(given["to_row"]))
            )
            is_late = self._latest in _LATE or (may_follow and within)
            phase = "synchronise" if is_late else "schedule"
        event = read_moves(given["model"], phase, given)
        if may_follow and phase == "synchronise":
            number -= 1
        else:
            self._check_order(phase)
        self._place(event, self._moves, number)

    def round(self, given: dict[str, Any]) -> None:
        """End a round."""
        event = read_round(self._limits, given)
        names = ("drafts", "emitted", *_CANDIDATES)
        self._tell_texts(*(event.values[name] for name in names if name in event.values))
        self._put(event)
        self.rounds.append(event)
        self.requests.extend(event)
        self._latest = ""

    def trace(self) -> Trace:
        """Return the record of all rounds that have ended, one or more."""
        events = self._forwards, self._moves, self.rounds
        return to_trace(self.header, self.requests, *events, self._texts.known)

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the log."""
        for each in self._lines:
            yield each if isinstance(each, dict) else event_line(each)

    @property
    def _limits(self) -> Limits:
        lengths = np.array(self.requests.lengths, np.int64)
        return Limits(lengths, self.header["num_draft_tokens"], self.header["vocabulary_size"])

    def _check_order(self, phase: str) -> None:
        """Check that the phases of a round follow one another, as the record replays them."""
        if self._latest and PHASES.index(phase) < PHASES.index(self._latest):
            raise ValueError(
                f"phase must not be before {self._latest}, which this round has reached, "
                f"got {phase!r}; call round(...) at the end of each round"
            )
        self._latest = phase

    def _place(self, event: Forward | Moves, events: list[Placed], number: int) -> None:
        key = (number, event.phase, event.model)
        step = self._steps.get(key, 0)
        self._steps[key] = step + 1
        events.append(Placed(event, number, step))
        self._put(event)

    def _tell_texts(self, *tokens: Array) -> None:
        new = self._texts.new(*tokens)
        if new:
            self._put(texts_line(new))

    def _put(self, line: Line | Forward | Moves | RoundEnd) -> None:
        self._lines.append(line)
        if self._file is not None:
            self._file.append(line if isinstance(line, dict) else event_line(line))


def check_prompt(name: str, value: Any, vocabulary_size: int) -> Array:
    """Return the tokens of a prompt, one or more."""
    tokens = as_array(name, value, "iu", "a list of token ids")
    if tokens.ndim != 1 or tokens.size == 0:
        raise ValueError(f"{name} must hold one token id or more, got {short(value)}; pass ids")
    check_limits(name, tokens, 0, vocabulary_size - 1)
    return tokens


def check_prompts(prompts: Any, vocabulary_size: int) -> list[Array]:
    """Return the tokens of each prompt."""
    if not is_list(prompts) and getattr(prompts, "ndim", 0) < 2:
        raise ValueError(
            f"prompts must be a list of lists of token ids, got {short(prompts)}; pass ids"
        )
    return [
        check_prompt(f"prompts[{i}]", prompt, vocabulary_size) for i, prompt in enumerate(prompts)
    ]


def check_budgets(budget: Any, count: int) -> list[int | None]:
    """Return the budget of each of `count` prompts."""
    if budget is None:
        return [None] * count
    if not hasattr(budget, "__len__"):
        return [require_int("budget", budget, maximum=_MOST)] * count
    return [int(each) for each in integers("budget", budget, (count,), least=1)]
