"""Find the first place where a decoder left the target, and what broke there.

Contract: `Judge` compares what the target gave in the decoder's forwards with what it gives when it
reads the same row at once. For the first forward that differs by more than noise it repeats that
forward with one thing put right after the other: what mends it is the cause. Not known here: hooks.

Rules are those of `violations.RULES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from specviz.checks.watch.follow import Part, Request, Verified
from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.origins import NOTHING, UNKNOWN
from specviz.checks.watch.repair import REPAIRS, Bench


@dataclass(frozen=True)
class Fault:
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
    "mask": "Hide all slots but those of the row's own tokens up to the query itself.",
    "lengths": "Feed the last token that was emitted as the first one of the next round.",
    "kv": "After acceptance keep K/V of the committed tokens but the last one, each in its place.",
    "acceptance": "Accept the longest run of drafts that equal the target's choices before them.",
    "bonus": "Take the token behind the accepted drafts from the target, at the first that fails.",
    "eos": "Cut accepted drafts behind the first EOS.",
    "budget": "Stop at the budget, also within a round.",
}


@dataclass
class Judge:
    """Judges the requests of one run.

    Attributes:
        bench: repeats forwards of the target.
        parts: what the target read, row by row.
        rounds: {number of a forward: its round}.
        tolerance: how far log-probabilities may differ by rounding.
        is_greedy: whether the decoder takes the best tokens.
    """

    bench: Bench
    parts: Sequence[Part]
    rounds: dict[int, int]
    tolerance: float
    is_greedy: bool = True

    def judge(
        self, number: int, request: Request, fresh: FreshRow
    ) -> tuple[Fault | None, list[Tie]]:
        """Return the first fault of a request, or None, and its near ties."""
        ties: list[Tie] = []
        for verified in request.rounds:
            steps = min(verified.matched + 1, max(verified.gained, 1))
            for step in range(steps):
                off = self._off(verified, step, fresh)
                if off is not None and not off <= self.tolerance:
                    return self._diagnose(number, request, verified, step, fresh, off), ties
            if self.is_greedy:
                fault = self._emitted(number, request, verified, fresh, ties)
                if fault is not None:
                    return fault, ties
        return None, ties

    def _off(self, verified: Verified, step: int, fresh: FreshRow) -> float | None:
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
        request: Request,
        verified: Verified,
        fresh: FreshRow,
        ties: list[Tie],
    ) -> Fault | None:
        """Judge the tokens that a round emitted, where the logits were right."""
        for step in range(verified.gained):
            index = verified.pending + 1 + step
            token = request.tokens[index]
            scores = fresh.logprobs[index - 1]
            gap = float(scores.max() - scores[token])
            if gap <= self.tolerance:
                if gap > 0:
                    ties.append(Tie(number, index, gap))
                continue
            is_draft = verified.drafts[step : step + 1] == [token]
            # The last token of a round is the target's own, also where it is a draft's.
            rule = "acceptance" if is_draft and step < verified.gained - 1 else "bonus"
            best = int(scores.argmax())
            what = "an accepted draft" if is_draft else "the token behind the accepted drafts"
            cause = (
                f"{what} is {token}, and the target's choice is {best}, which lies {gap:.3g} nats "
                "above it; the logits of that forward are right"
            )
            return self._fault(number, verified, index, rule, (), cause, gap)
        return None

    def _diagnose(
        self,
        number: int,
        request: Request,
        verified: Verified,
        step: int,
        fresh: FreshRow,
        off: float,
    ) -> Fault:
        """Name what broke a forward, by repairing it."""
        part = verified.part
        place = verified.pending + step - part.index

        def mends(repairs: Sequence[str]) -> bool:
            found = self.bench.repeat(part, request, fresh, repairs)
            due = fresh.logprobs[verified.pending + step]
            top = due.topk(min(8, len(due))).indices
            change = (found.logprobs[place][top] - due[top]).abs().max()
            return float(change) <= self.tolerance

        index = verified.pending + step + 1
        for count in range(len(REPAIRS) + 1):
            for repairs in combinations(REPAIRS, count):
                if mends(repairs):
                    rule, cause = self._cause(part, request, fresh, step, place, repairs)
                    return self._fault(number, verified, index, rule, repairs, cause, off)
        cause = "its logits are not the target's, and no repair of its input mends them"
        return self._fault(number, verified, index, "", (), cause, off)

    def _cause(
        self,
        part: Part,
        request: Request,
        fresh: FreshRow,
        step: int,
        place: int,
        repairs: tuple[str, ...],
    ) -> tuple[str, str]:
        """Return the rule and what was found."""
        if not repairs:
            return "", "its logits are not those that its own input gives; another module changed them"
        if "kv" in repairs:
            return self._kv_cause(part, request, fresh)
        if "mask" in repairs:
            return "mask", self._mask_cause(part, request, fresh)
        if "inputs" in repairs:
            due = request.tokens[part.index]
            return "lengths", (
                f"token {part.index} of the row is {due}, and {part.tokens[0]} was fed in its place"
            )
        column = part.columns[place]
        given = int(part.seen.positions[part.row, column])
        return "positions", f"token {part.index + place} was given position {given}"

    def _mask_cause(self, part: Part, request: Request, fresh: FreshRow) -> str:
        past, own = self.bench._slots(part)
        held = [int(part.seen.held[part.row, slot]) for slot in past]
        due = self.bench._due(part, request, held, fresh)
        seen = part.seen.seen[part.row, part.columns[0]]
        extra = [i for i in range(len(past)) if seen[past[i]] and i not in due]
        hidden = [i for i in due if not seen[past[i]]]
        if extra:
            what = self._content(held[extra[0]], part.request, request)
            return f"token {part.index} sees slot {past[extra[0]]}, which holds {what}"
        if hidden:
            return (
                f"token {part.index} does not see slot {past[hidden[0]]}, which holds K/V of token "
                f"{due[hidden[0]]} of its row"
            )
        missing = sorted(set(range(part.index)) - set(due.values()))
        if missing:
            return f"K/V of token {missing[0]} of the row is nowhere in the cache"
        for column, slot in zip(part.columns, own, strict=True):
            sees = part.seen.seen[part.row, column]
            for i, other in enumerate(own):
                is_due = i <= own.index(slot)
                if sees[other] != is_due:
                    verb = "does not see" if is_due else "sees"
                    at = part.index + own.index(slot)
                    return f"token {at} {verb} slot {other}, which holds token {part.index + i}"
        return "what its tokens see is wrong"

    def _kv_cause(self, part: Part, request: Request, fresh: FreshRow) -> tuple[str, str]:
        """Follow wrong K/V back to the forward or the move after which it was wrong."""
        past, _ = self.bench._slots(part)
        held = [int(part.seen.held[part.row, slot]) for slot in past]
        due = self.bench._due(part, request, held, fresh)
        seen = part.seen.seen[part.row, part.columns[0]]
        for i in sorted(due, key=lambda i: due[i]):
            if not seen[past[i]]:
                continue
            label = self.bench.labels.get(held[i])
            is_own = label == (part.request, due[i])
            if not is_own or not self.bench._is_true(held[i], request, due[i]):
                what = self._content(held[i], part.request, request)
                return "kv", (
                    f"slot {past[i]} should hold K/V of token {due[i]} of the row, and holds "
                    f"{what}{self._since(part, past[i], due[i])}"
                )
        for i in sorted(due, key=lambda i: due[i]):
            if seen[past[i]] and held[i] >= 0 and not self._is_right(held[i], due[i], fresh):
                return self._computed(held[i], request, fresh, past[i], due[i])
        return "kv", "K/V that it reads is wrong"

    def _is_right(self, entry: int, index: int, fresh: FreshRow) -> bool:
        """Return whether a token's K/V, in the last layer, is what its row gives at once."""
        number, row, column = self.bench.where[entry]
        forward = self.bench.forwards[number]
        last = max(forward.keys)
        place = sorted(forward.keys).index(last)
        keys = close(forward.keys[last][row, :, column], fresh.keys[place][:, index])
        return keys and close(forward.values[last][row, :, column], fresh.values[place][:, index])

    def _computed(
        self, entry: int, request: Request, fresh: FreshRow, slot: int, index: int
    ) -> tuple[str, str]:
        """Name what broke the forward that computed wrong K/V."""
        number, row, column = self.bench.where[entry]
        part = next(p for p in self.parts if p.number == number and p.row == row)
        place = part.columns.index(column)
        when = f"forward {number}"
        if number in self.rounds:
            when += f" (round {self.rounds[number]})"

        def mends(repairs: Sequence[str]) -> bool:
            found = self.bench.repeat(part, request, fresh, repairs)
            keys = close(found.keys[-1][:, place], fresh.keys[-1][:, index])
            return keys and close(found.values[-1][:, place], fresh.values[-1][:, index])

        for count in range(1, len(REPAIRS) + 1):
            for repairs in combinations(REPAIRS, count):
                if not mends(repairs):
                    continue
                if "kv" in repairs:
                    rule, cause = self._kv_cause(part, request, fresh)
                else:
                    rule, cause = self._cause(part, request, fresh, 0, place, repairs)
                return rule, f"K/V of token {index} in slot {slot} is wrong since {when}: {cause}"
        return "kv", f"K/V of token {index} in slot {slot} was computed wrongly in {when}"

    def _since(self, part: Part, slot: int, index: int) -> str:
        """Say between which forwards a slot lost the K/V of a token."""
        before = None
        for other in self.parts:
            if other.number >= part.number:
                break
            if other.request == part.request and other.seen.forward.cache:
                before = other
        if before is None:
            return ""
        return f"; it was moved or cut there after forward {before.number}"

    def _content(self, entry: int, number: int, request: Request) -> str:
        """Say what a slot holds."""
        if entry == NOTHING:
            return "nothing"
        if entry == UNKNOWN or entry not in self.bench.labels:
            return "K/V that no forward computed" if entry == UNKNOWN else "padding"
        owner, index = self.bench.labels[entry]
        if owner != number:
            return f"K/V of token {index} of request {owner}"
        if not (index < len(request.tokens) and self.bench._is_true(entry, request, index)):
            return f"K/V of a rejected draft for index {index}"
        return f"K/V of token {index}"

    def _fault(
        self,
        number: int,
        verified: Verified,
        index: int,
        rule: str,
        repairs: tuple[str, ...],
        cause: str,
        size: float,
    ) -> Fault:
        part = verified.part
        return Fault(
            number, part.row, self.rounds[part.number], part.number, index, rule, repairs, cause,
            ADVICE.get(rule, ""), size,
        )  # fmt: skip


def leading(verified: Verified, step: int) -> tuple[Tensor, Tensor] | None:
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


def close(found: Tensor, due: Tensor) -> bool:
    """Return whether K/V are equal but for rounding."""
    slack = float(torch.finfo(due.dtype).eps ** 0.5)
    due = due.float()
    scale = float(due.abs().max()) + 1e-9
    return float((found.float() - due.to(found.device)).abs().max()) <= slack * scale
