"""Find the first place where a decoder left the target, and what broke there.

Contract: `Judge` compares what the target gave in the decoder's forwards with what it gives when it
reads the same row at once. For the first forward that differs by more than noise it repeats that
forward with one thing put right after the other: what mends it is the cause. Not known here: hooks.

Rules are those of `violations.RULES`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specviz.checks.watch.causes import UNREAD, Cause, Causes, smallest_repair
from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.requests import WatchedRequest, WatchedRound, choices


@dataclass(frozen=True)
class Diagnosis:
    """Where a text first left the target, and why.

    Attributes:
        request, row, round: where; the round counts forwards in which tokens were decided.
        forward: the number of the forward.
        index: of the token whose choice was wrong.
        rule: one of RULES; "" if no repair mends it.
        repairs: what had to be put right, of REPAIRS; () where the logits were right.
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
    repairs: tuple[str, ...]
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
    "positions": "Give each token its index in its own row; count neither padding nor holes.",
    "mask": "Hide, or cut, all slots but those of the row's own tokens up to the query itself.",
    "lengths": "Feed the last token that was emitted, and behind it the drafts that are judged.",
    UNREAD: "Read all committed tokens but the last one before a token attends to them.",
    "kv": "After acceptance keep K/V of the committed tokens but the last one, each in its place.",
    "acceptance": "Accept the longest run of drafts that equal the target's choices before them.",
    "column": "Behind n accepted drafts take the choice of column n: the target's after all n.",
    "bonus": "Take the token behind the accepted drafts from the target, at the first that fails.",
    "eos": "Cut accepted drafts behind the first EOS.",
    "budget": "Stop at the budget, also within a round, and no sooner without EOS.",
}


@dataclass
class Judge:
    """Judges the requests of one run.

    Attributes:
        causes: says what is wrong with a forward.
        tolerance: how far log-probabilities may differ by rounding.
        drafted: says which token the draft model proposed for (request, index) before a forward;
            None if that is not known.
        is_greedy: whether the decoder takes the best tokens.
        eos: ids that end a text.
        budget: how many new tokens a request may get; None if that is not known.
    """

    causes: Causes
    tolerance: float
    drafted: Callable[[int, int, int], int | None]
    is_greedy: bool = True
    eos: frozenset[int] = frozenset()
    budget: int | None = None

    def judge(
        self, number: int, request: WatchedRequest, fresh: FreshRow
    ) -> tuple[Diagnosis | None, list[Tie]]:
        """Return the first fault of a request, or None, and its near ties."""
        ties: list[Tie] = []
        for verified in request.rounds:
            steps = min(verified.matched + 1, max(verified.gained, 1))
            for step in range(steps):
                off = self._off(verified, step, fresh)
                # Written so that NaN counts as a difference.
                if off is not None and not off <= self.tolerance:
                    return self._diagnose(number, request, verified, step, fresh, off), ties
            # Wrong tokens behind EOS or the budget follow from going on at all.
            fault = self._end(number, request, verified)
            if fault is None and self.is_greedy:
                fault = self._emitted(number, request, verified, fresh, ties)
            if fault is not None:
                return fault, ties
        return self._too_short(number, request), ties

    def _off(self, verified: WatchedRound, step: int, fresh: FreshRow) -> float | None:
        """Return how far the leading log-probabilities of one query are off; None if unknown."""
        found = leading(verified, step)
        if found is None:
            return None
        ids, logprobs = found
        due = fresh.logprobs[verified.pending + step][ids]
        return float(torch.nan_to_num((logprobs - due).abs(), nan=float("inf")).max())

    def _emitted(
        self,
        number: int,
        request: WatchedRequest,
        verified: WatchedRound,
        fresh: FreshRow,
        ties: list[Tie],
    ) -> Diagnosis | None:
        """Judge the tokens that a round emitted, where the logits were right."""
        for step in range(verified.gained):
            index = verified.pending + 1 + step
            token = request.tokens[index]
            scores = fresh.logprobs[index - 1]
            gap = float(scores.max() - scores[token])
            if step == verified.matched + 1 and _goes_on(verified, request):
                found = self._of_going_on(number, request, verified)
                return self._fault(number, verified, index, found.rule, (), found.cause, gap)
            if gap <= self.tolerance:
                if gap > 0:
                    ties.append(Tie(number, index, gap))
                continue
            rule, what, advice = self._of_emission(verified, step, token)
            best = int(scores.argmax())
            cause = (
                f"{what}, {token}, was emitted where the target's choice is {best}, which lies "
                f"{gap:.3g} nats above it; the logits of that forward are right"
            )
            fault = self._fault(number, verified, index, rule, (), cause, gap)
            return replace(fault, advice=ADVICE[advice]) if advice else fault
        return None

    def _of_going_on(self, number: int, request: WatchedRequest, verified: WatchedRound) -> Cause:
        """Say why a round kept tokens behind a draft that the row does not have.

        Either the draft was fed and failed, and what follows it was kept all the same; or the
        decoder drafted another token, which it has accepted, and fed this one in its place.
        """
        fed = verified.drafts[verified.matched]
        index = verified.pending + 1 + verified.matched
        due = request.tokens[index]
        drafted = self.drafted(number, index, verified.part.number)
        if drafted is not None and drafted != fed:
            what = f"token {index} of the row is {due}, and {fed} was fed in its place"
            return Cause("lengths", what)
        return Cause(
            "acceptance",
            f"draft {fed} failed, since token {index} of the row is {due}, and what the target "
            f"wrote behind it was kept as token {index + 1}",
        )

    def _of_emission(self, verified: WatchedRound, step: int, token: int) -> Cause:
        """Return the rule that a wrong token breaks, and what the token is."""
        others = choices(verified)
        if token in others and others.index(token) != step:
            what = f"the target's choice after {others.index(token)} drafts"
            return Cause("acceptance", what, "column")
        is_draft = verified.drafts[step : step + 1] == [token]
        # The last token of a round is the target's own, also where it is a draft's.
        if is_draft and step < verified.gained - 1:
            return Cause("acceptance", "an accepted draft")
        what = "a draft's token" if is_draft else "the token behind the accepted drafts"
        return Cause("bonus", what)

    def _end(
        self, number: int, request: WatchedRequest, verified: WatchedRound
    ) -> Diagnosis | None:
        """Judge whether a round went on after EOS, or beyond the budget."""
        prompt = len(request.prompt)
        for step in range(verified.gained):
            index = verified.pending + 1 + step
            before = request.tokens[index - 1]
            if index > prompt and before in self.eos:
                cause = f"new token {index - prompt - 1} is EOS, and a token follows it"
                return self._fault(number, verified, index, "eos", (), cause, 0.0)
            if self.budget is not None and index - prompt >= self.budget:
                cause = f"the budget is {self.budget} new tokens, and there are more"
                return self._fault(number, verified, index, "budget", (), cause, 0.0)
        return None

    def _too_short(self, number: int, request: WatchedRequest) -> Diagnosis | None:
        """Judge whether a text ended before its budget and without EOS."""
        count = len(request.output)
        is_cut = self.budget is not None and count < self.budget
        if not (is_cut and request.is_known and request.rounds):
            return None
        if request.tokens[-1] in self.eos and count:
            return None
        last = request.rounds[-1]
        cause = f"the text ends after {count} of {self.budget} new tokens, and not with EOS"
        return self._fault(number, last, len(request.tokens), "budget", (), cause, 0.0)

    def _diagnose(
        self,
        number: int,
        request: WatchedRequest,
        verified: WatchedRound,
        step: int,
        fresh: FreshRow,
        off: float,
    ) -> Diagnosis:
        """Name what broke a forward, by repairing it."""
        part = verified.part
        place = verified.pending + step - part.index
        due = fresh.logprobs[verified.pending + step]
        top = due.topk(min(8, len(due))).indices

        def mends(repairs: Collection[str]) -> bool:
            found = self.causes.bench.repeat(part, request, fresh, repairs)
            change = (found.logprobs[place][top] - due[top]).abs().max()
            return float(change) <= self.tolerance

        index = verified.pending + step + 1
        repairs = smallest_repair(mends)
        if repairs is None:
            cause = "its logits are not the target's, and no repair of its input mends them"
            return self._fault(number, verified, index, "", (), cause, off)
        found = self.causes.find(part, request, fresh, place, repairs)
        fault = self._fault(number, verified, index, found.rule, repairs, found.cause, off)
        return replace(fault, advice=ADVICE[found.advice]) if found.advice else fault

    def _fault(
        self,
        number: int,
        verified: WatchedRound,
        index: int,
        rule: str,
        repairs: tuple[str, ...],
        cause: str,
        size: float,
    ) -> Diagnosis:
        part = verified.part
        return Diagnosis(
            request=number,
            row=part.row,
            round=self.causes.rounds[part.number],
            forward=part.number,
            index=index,
            rule=rule,
            repairs=repairs,
            cause=cause,
            advice=ADVICE.get(rule, ""),
            size=size,
        )


def _goes_on(verified: WatchedRound, request: WatchedRequest) -> bool:
    """Return whether a round gained tokens behind a draft that was not what the target read there.

    They are the target's choices, the last one, and before it either drafts or choices as well.
    """
    first, last = verified.matched + 1, verified.gained - 1
    emitted = request.tokens[verified.pending + 1 :][: verified.gained]
    chosen = choices(verified)
    is_known = first <= last <= len(verified.drafts) and last < len(chosen)
    return (
        is_known
        and emitted[first:last] in (verified.drafts[first:last], chosen[first:last])
        and emitted[last] == chosen[last]
    )


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
