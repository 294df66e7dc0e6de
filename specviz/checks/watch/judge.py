"""Find the first place where a decoder left the target, and what broke there.

Contract: `Judge` compares what the target gave in the decoder's forwards with what it gives when it
reads the same row at once. Where a query first differs by more than noise, the cause is the first
of its inputs that is not the row's own. Not known here: hooks. Rules are those of
`violations.RULES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.checks.watch.inputs import UNREAD, Difference, Inputs
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, choices
from specviz.checks.watch.settings import Reading, explain
from specviz.checks.watch.states import States
from specviz.checks.watch.windows import Windows
from specviz.engine.processors import Stops


@dataclass(frozen=True)
class Diagnosis:
    """Where a text first left the target, and why.

    Attributes:
        request, row, round: where; the round counts forwards in which tokens were decided.
        forward: the number of the forward.
        index: of the token whose choice was wrong.
        rule: one of RULES; "" if the logits were changed behind a right input.
        cause: what was found, in a sentence.
        advice: what to look at, in a line.
        size: how far the log-probabilities were off, or how far the token lay below the best.
    """

    request: int
    row: int
    round: int
    forward: int
    index: int
    rule: str
    cause: str
    advice: str
    size: float


@dataclass(frozen=True)
class Tie:
    """A token that is not the best one by less than noise.

    Attributes:
        request, index: which token.
        gap: how far it lies below the best, in nats.
    """

    request: int
    index: int
    gap: float


ADVICE = {
    "": "",
    "positions": "Give each token its index in its own row; count neither padding nor holes.",
    "mask": "Hide, or cut, all slots but those of the row's own tokens up to the query itself.",
    "lengths": "Feed the last token that was emitted, and behind it the drafts that are judged.",
    UNREAD: "Read all committed tokens but the last one before a token attends to them.",
    "kv": "After acceptance keep K/V of the committed tokens but the last one, each in its place.",
    "state": "Before a forward put back the states after the token before its first one: select "
    "them, or read accepted tokens again from a copy.",
    "window": "Let a layer with a window see the last tokens; count neither padding nor holes.",
    "acceptance": "Accept the longest run of drafts that equal the target's choices before them.",
    "column": "Behind n accepted drafts take the choice of column n: the target's after all n.",
    "bonus": "Take the token behind the accepted drafts from the target, at the first that fails.",
    "processors": "Process the scores behind each draft with its row's own text, prompt included, "
    "and the drafts before it.",
    "stop": "Cut a text at the first token that completes a stop string, within a round, too.",
    "eos": "Cut accepted drafts behind the first EOS.",
    "budget": "Stop at the budget, also within a round, and no sooner without EOS.",
}


@dataclass
class Judge:
    """Judges the requests of one run.

    Attributes:
        inputs: of the target's queries; states and windows: of layers that have them.
        rounds: {number of a forward: its round}.
        tolerance: how far log-probabilities may differ by rounding.
        drafted: says which token the draft model proposed for (request, index) before a forward;
            None if that is not known.
        is_greedy: whether the decoder takes the best tokens.
        eos: ids that end a text.
        budget: how many new tokens a request may get; None if that is not known.
        stops: what else ends a text; None for nothing.
        requests, readings: all of them, and what the target gives when it reads each at once.
    """

    inputs: Inputs
    states: States
    windows: Windows
    rounds: dict[int, int]
    tolerance: float
    drafted: Callable[[int, int, int], int | None]
    is_greedy: bool = True
    eos: frozenset[int] = frozenset()
    budget: int | None = None
    stops: Stops | None = None
    requests: Sequence[WatchedRequest] = ()
    readings: Sequence[Reading] = ()

    def judge(
        self, request: WatchedRequest, reading: Reading
    ) -> tuple[Diagnosis | None, list[Tie]]:
        """Return the first fault of a request, or None, and its near ties.

        reading: what the target gives when it reads the row at once.
        """
        ties: list[Tie] = []
        for verified in request.rounds:
            fault = (
                self._of_logits(request, verified, reading.logprobs)
                # Wrong tokens behind EOS or the budget follow from going on at all.
                or self._of_end(request, verified)
                or self._of_tokens(request, verified, reading, ties)
            )
            if fault is not None:
                return fault, ties
        return self._of_length(request), ties

    def is_own(self, request: WatchedRequest, reading: Reading) -> bool:
        """Return whether a text is the target's own, near ties apart, and ends where it must.

        reading: what the target gives when it reads the row at once.
        """
        output = request.output
        scores = reading.scores[len(request.prompt) - 1 : len(request.tokens) - 1]
        found = scores.gather(1, torch.tensor(output, dtype=torch.long)[:, None])[:, 0]
        # Written so that NaN counts as a difference.
        if not bool((scores.amax(1) - found <= self.tolerance).all()):
            return False
        if any(token in self.eos for token in output[:-1]):
            return False
        stop = self._stop(request)
        if stop is not None and stop < len(output):
            return False
        if self.budget is None:
            return True
        # A text that is not known is concluded from what was fed, which may end before it does.
        may_end = not request.is_known or (bool(output) and output[-1] in self.eos)
        may_end |= stop is not None
        return len(output) <= self.budget if may_end else len(output) == self.budget

    def _of_logits(
        self, request: WatchedRequest, verified: WatchedRound, logprobs: Tensor
    ) -> Diagnosis | None:
        """Judge what the target gave behind the pending token and the accepted drafts."""
        for step in range(min(verified.matched + 1, max(verified.gained, 1))):
            found = leading(verified, step)
            if found is None:
                continue
            ids, given = found
            due = logprobs[verified.pending + step][ids]
            off = float(torch.nan_to_num((given - due).abs(), nan=float("inf")).max())
            if off > self.tolerance:
                return self._of_inputs(request, verified, step, off)
        return None

    def _of_inputs(
        self, request: WatchedRequest, verified: WatchedRound, step: int, off: float
    ) -> Diagnosis:
        """Name what broke a query whose logits are not the target's."""
        part = verified.part
        index = verified.pending + step
        found = self._first(part, index - part.index, request.tokens)
        if found is None:
            cause = "its logits are not those that its own input gives, so they were changed"
            if part.seen.forward.unseen:
                cause = (
                    "its logits are not the target's; all that was seen of its input is right, and "
                    "its mask could not be seen, so suspect the mask"
                )
                return self._fault(verified, index + 1, "mask", cause, off)
            return self._fault(verified, index + 1, "", cause, off)
        cause = found.cause
        if found.forward != part.number:
            when = f"forward {found.forward}"
            if found.forward in self.rounds:
                when += f" (round {self.rounds[found.forward]})"
            what = "the row" if found.rule == "state" else f"K/V of token {found.index}"
            cause = f"{what} is wrong since {when}: {cause}"
        return self._fault(verified, index + 1, found.rule, cause, off, found.advice)

    def _first(self, part: Part, place: int, text: list[int]) -> Difference | None:
        """Return the first difference behind a query, of all kinds."""
        queries = self.inputs.behind(part, place, text)
        found = (
            self.states.first(part, text),
            self.inputs.first(part, place, text),
            self.windows.first(queries, text),
        )
        # What a forward leaves follows from what it was given.
        order = sorted((each for each in found if each), key=lambda each: each.is_left)
        return min(order, key=lambda each: each.forward, default=None)

    def _of_tokens(
        self,
        request: WatchedRequest,
        verified: WatchedRound,
        reading: Reading,
        ties: list[Tie],
    ) -> Diagnosis | None:
        """Judge the tokens that a round emitted, where the logits were right."""
        for step in range(verified.gained if self.is_greedy else 0):
            index = verified.pending + 1 + step
            token = request.tokens[index]
            scores = reading.scores[index - 1]
            gap = float(scores.max() - scores[token])
            if step == verified.matched + 1 and verified.matched < len(verified.drafts):
                return self._of_going_on(request, verified, gap)
            if gap <= self.tolerance:
                if gap > 0:
                    ties.append(Tie(verified.part.request, index, gap))
                continue
            explained = ""
            if reading.is_processed:
                place = verified, index
                explained = explain(self.requests, self.readings, self.tolerance, place)
            rule, what, advice = _of_emission(verified, step, token)
            if explained:
                what = "an accepted draft" if rule == "acceptance" else "the target's own token"
                advice = "processors"
            cause = (
                f"{what}, {token}, was emitted where the target's choice is {int(scores.argmax())},"
                f" which lies {gap:.3g} nats above it; the logits of that forward are right"
            )
            if explained:
                cause += f"; {token} is the best one if {explained}"
            return self._fault(verified, index, rule, cause, gap, advice)
        return None

    def _of_going_on(
        self, request: WatchedRequest, verified: WatchedRound, gap: float
    ) -> Diagnosis:
        """Say why a round kept tokens behind a draft that the row does not have.

        Either the draft was fed and failed, and what follows it was kept all the same; or the
        decoder drafted another token, which it has accepted, and fed this one in its place.
        """
        fed = verified.drafts[verified.matched]
        index = verified.pending + 1 + verified.matched
        due = request.tokens[index]
        drafted = self.drafted(verified.part.request, index, verified.part.number)
        if drafted is not None and drafted != fed:
            cause = f"token {index} of the row is {due}, and {fed} was fed in its place"
            return self._fault(verified, index + 1, "lengths", cause, gap)
        cause = (
            f"draft {fed} failed, since token {index} of the row is {due}, and what the target "
            f"wrote behind it was kept as token {index + 1}"
        )
        return self._fault(verified, index + 1, "acceptance", cause, gap)

    def _of_end(self, request: WatchedRequest, verified: WatchedRound) -> Diagnosis | None:
        """Judge whether a round went on after EOS, or beyond the budget."""
        prompt = len(request.prompt)
        stop = self._stop(request)
        for index in range(verified.pending + 1, verified.pending + 1 + verified.gained):
            if index > prompt and request.tokens[index - 1] in self.eos:
                cause = f"new token {index - prompt - 1} is EOS, and a token follows it"
                return self._fault(verified, index, "eos", cause)
            if stop is not None and index - prompt >= stop:
                cause = f"new token {stop - 1} completes a stop string, and a token follows it"
                return self._fault(verified, index, "eos", cause, advice="stop")
            if self.budget is not None and index - prompt >= self.budget:
                cause = f"the budget is {self.budget} new tokens, and there are more"
                return self._fault(verified, index, "budget", cause)
        return None

    def _of_length(self, request: WatchedRequest) -> Diagnosis | None:
        """Judge whether a text ended before its budget and without EOS."""
        count = len(request.output)
        is_cut = self.budget is not None and count < self.budget
        if not (is_cut and request.is_known and request.rounds):
            return None
        if (request.tokens[-1] in self.eos and count) or self._stop(request) is not None:
            return None
        cause = f"the text ends after {count} of {self.budget} new tokens, and not with EOS"
        cause += "" if self.stops is None else " or a stop string"
        return self._fault(request.rounds[-1], len(request.tokens), "budget", cause)

    def _stop(self, request: WatchedRequest) -> int | None:
        """Return how many new tokens come up to a stop string; None where there is none."""
        output = request.output
        if self.stops is None or not output or not self.stops.ends(output):
            return None
        return next(n for n in range(1, len(output) + 1) if self.stops.ends(output[:n]))

    def _fault(
        self,
        verified: WatchedRound,
        index: int,
        rule: str,
        cause: str,
        size: float = 0.0,
        advice: str = "",
    ) -> Diagnosis:
        part = verified.part
        return Diagnosis(
            request=part.request,
            row=part.row,
            round=self.rounds[part.number],
            forward=part.number,
            index=index,
            rule=rule,
            cause=cause,
            advice=ADVICE[advice or rule],
            size=size,
        )


def _of_emission(verified: WatchedRound, step: int, token: int) -> tuple[str, str, str]:
    """Return the rule that a wrong token breaks, what the token is, and which advice helps."""
    others = choices(verified)
    if token in others and others.index(token) != step:
        what = f"the target's choice after {others.index(token)} drafts"
        return "acceptance", what, "column"
    is_draft = verified.drafts[step : step + 1] == [token]
    # The last token of a round is the target's own, also where it is a draft's.
    if is_draft and step < verified.gained - 1:
        return "acceptance", "an accepted draft", ""
    return "bonus", "a draft's token" if is_draft else "the token behind the accepted drafts", ""


def leading(verified: WatchedRound, step: int) -> tuple[Tensor, Tensor] | None:
    """Return the leading ids and log-probabilities that a query gave; None if they are unknown."""
    forward = verified.part.seen.forward
    if forward.top_ids is None or forward.top_logprobs is None:
        return None
    column = verified.part.column(verified.pending + step)
    place = column - (verified.part.seen.tokens.shape[1] - forward.top_ids.shape[1])
    if place < 0:
        return None
    row = verified.part.row
    return forward.top_ids[row, place].cpu(), forward.top_logprobs[row, place].cpu()
