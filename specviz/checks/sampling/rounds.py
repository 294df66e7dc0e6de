"""What a decoder drafted and judged, taken from the forwards that were seen.

Each draft and each token behind drafts has the logits that the decoder itself computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.drafts import DraftFollower
from specviz.checks.watch.follow import TargetFollower
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, common
from specviz.record.schema import Array

MOST_LOST = 0.25  # of texts: of more, what is left may differ from the rest


class DraftQuery(NamedTuple):
    """A query of the draft model behind which a draft may have been drawn."""

    run: int
    depth: int  # of the draft in its round, from 1
    prefix: tuple[int, ...]  # the tokens before it
    logits: Array  # (V,)
    token: int | None  # the draft; None if neither model read one
    is_verified: bool  # whether the target read it


class TargetQuery(NamedTuple):
    """A query of the target that was asked for a token, since all drafts before were accepted."""

    draft: int | None  # the one that it judges; None behind all drafts
    depth: int  # of the draft in its round, from 1
    draft_logits: Array | None  # (V,), of the draft model
    is_accepted: bool
    token: int  # what was emitted
    logits: Array  # (V,)
    before: Array | None  # (V,), one place before; None where there is none
    after: Array | None  # one place behind


@dataclass
class Seen:
    """What was seen of all runs."""

    size: int  # V; logits beyond it are padding of an embedding, and are cut
    drafted: list[DraftQuery] = field(default_factory=list)
    judged: list[TargetQuery] = field(default_factory=list)
    texts: int = 0
    lost: int = 0  # of these, where it is not certain where each round began; they are left out
    full: int = 0  # rounds that gained all drafts and no more
    bonus: int = 0  # rounds that gained one more

    def read(
        self,
        run: int,
        forwards: Sequence[CapturedForward],
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
    ) -> None:
        """Add one run."""
        target = TargetFollower(prompts, outputs)
        for forward in forwards:
            if forward.model == "target":
                target.read(forward)
        target.finish()
        draft = DraftFollower(target.requests)
        for forward in forwards:
            if forward.model == "draft":
                draft.read(forward)
        for row, request in enumerate(target.requests):
            parts = [part for part in draft.parts if part.request == row]
            rounds = settled(request, parts)
            self.texts += 1
            if not rounds:
                self.lost += 1
            for found, mine in rounds:
                verified = replace(found, drafts=_without_filling(found))
                drafted = _drafted(mine, verified, run, request, self.size)
                self.drafted += drafted
                self._judge(request, verified, drafted)

    def why_unknown(self) -> str:
        """Return why drafts and judgements are not known, in a sentence; "" if they are."""
        if self.lost > MOST_LOST * self.texts:
            why = f"The rounds of {self.lost} of {self.texts} texts could not be followed"
        elif self.full and not self.bonus:
            why = "The target's token behind all drafts is never kept"
        else:
            return ""
        return f"{why}, so nothing is said of how drafts are drawn and judged."

    def _judge(
        self, request: WatchedRequest, verified: WatchedRound, drafted: Sequence[DraftQuery]
    ) -> None:
        """Add what became of the drafts of a round, as far as the budget shows it.

        Draft j was accepted if the round gained more than j tokens. If the budget ends the text
        with that very token, the text does not show it.
        """
        pending, count = verified.pending, len(verified.drafts)
        emitted = request.tokens[pending + 1 :]
        if not count:
            return
        if verified.matched == count:
            self.bonus += verified.gained > count
            self.full += verified.gained == count and len(emitted) > count
        indices = range(pending, pending + count + 1)
        logits = [_logits(verified.part, index, self.size) for index in indices]
        for step, token in enumerate(emitted[: count + 1]):
            is_bonus = step == count
            is_known = step < len(drafted) and step + 1 < len(emitted)
            here = logits[step]
            if here is None or not (is_bonus or is_known):
                return
            query = TargetQuery(
                draft=None if is_bonus else drafted[step].token,
                depth=step + 1,
                draft_logits=None if is_bonus else drafted[step].logits,
                is_accepted=not is_bonus and verified.gained > step + 1,
                token=token,
                logits=here,
                before=logits[step - 1] if step else None,
                after=None if is_bonus else logits[step + 1],
            )
            self.judged.append(query)
            if not query.is_accepted:
                return


def settled(
    request: WatchedRequest, parts: Sequence[Part]
) -> list[tuple[WatchedRound, list[Part]]]:
    """Return the rounds of a request, each with what the draft model read for it, of `parts`.

    A round begins where its first draft was chosen. A draft that a wrong decoder rejects and draws
    again looks as if it had been accepted. But the draft model chooses the first draft behind the
    last token of the text. There are no rounds where it is not certain which tokens were drafts.
    """
    kept = [*request.rounds, *request.dropped]
    known = {verified.part.number: verified.pending for verified in kept}
    read = {part.number: part for part in (*(each.part for each in kept), *request.idle)}
    last = len(request.tokens) - 1
    found: list[tuple[WatchedRound, list[Part]]] = []
    since = -1
    for number in sorted(read):
        part = read[number]
        mine = [each for each in parts if since < each.number < number]
        ends = [end for end in map(_end, mine) if end >= len(request.prompt) - 1]
        pending = min(ends, default=-1)
        if not part.index <= pending <= _end(part):
            pending = known.get(number, last)
        if pending < last:
            drafts = part.tokens[pending - part.index + 1 :]
            found.append((WatchedRound(part, pending, drafts), mine))
            since = number
    following = [*(verified.pending for verified, _ in found[1:]), last]
    for (verified, _), end in zip(found, following, strict=False):
        verified.gained = end - verified.pending
        verified.matched = common(verified.drafts, request.tokens[verified.pending + 1 :])
    is_certain = all(_is_certain(*each, request, is_first=i == 0) for i, each in enumerate(found))
    # Rows that have finished may be read on.
    is_read = all(_end(part) >= last for part in parts if part.number > since)
    return found if is_certain and is_read else []


def _is_certain(
    verified: WatchedRound, mine: Sequence[Part], request: WatchedRequest, is_first: bool
) -> bool:
    """Return whether it is certain which tokens were drafts in a round."""
    pending = verified.pending
    ends = set(map(_end, mine))
    if is_first:  # the draft model may read the prompt alone
        ends = {end for end in ends if end >= pending}
    is_alone = verified.part.index == pending or not verified.drafts or is_first
    is_chain = ends == set(range(pending, pending + len(ends)))
    is_possible = 1 <= verified.gained <= len(verified.drafts) + 1
    if not (is_possible and is_chain and (ends or is_alone)):
        return False
    for part in (verified.part, *mine):
        due = request.tokens[part.index : pending + 1]
        if part.tokens[: len(due)] != due[: len(part.tokens)]:
            return False
    return True


def _end(part: Part) -> int:
    """Return the index of the last token of a part."""
    return part.index + len(part.columns) - 1


def _without_filling(verified: WatchedRound) -> list[int]:
    """Return the drafts of a round without what fills a row of a rectangle.

    Filling reads a token again that the row has read in this forward, so both are one entry.
    """
    part = verified.part
    columns = part.columns[verified.pending - part.index :]
    entries = part.seen.entries[part.row, columns].tolist()
    for count, entry in enumerate(entries):
        if entry in entries[:count]:
            return verified.drafts[: count - 1]
    return verified.drafts


def _logits(part: Part, index: int, size: int) -> Array | None:
    """Return the logits (V,) of the query that reads a token, given its index."""
    logits = part.seen.forward.logits
    if logits is None or not part.index <= index < part.index + len(part.columns):
        return None
    left_out = part.seen.tokens.shape[1] - logits.shape[1]
    column = part.column(index) - left_out
    if column < 0:
        return None
    found: Array = logits[part.row, column, :size].float().cpu().numpy()
    return found


def _drafted(
    parts: Sequence[Part], verified: WatchedRound, run: int, request: WatchedRequest, size: int
) -> list[DraftQuery]:
    """Return the draft model's queries of one round, in order: of `parts`, which it read for it."""
    pending = verified.pending
    logits: dict[int, Array] = {}
    tokens = dict(enumerate(verified.drafts, start=pending + 1))
    for part in parts:
        for index, token in enumerate(part.tokens, start=part.index):
            # A beam search reads several continuations, of which one is verified.
            if index > pending and tokens.setdefault(index, token) != token:
                break
            found = _logits(part, index, size)
            if index >= pending and found is not None:
                logits[index] = found
    queries = []
    prefix = list(request.tokens[: pending + 1])
    while len(prefix) - 1 in logits:
        index = len(prefix)
        query = DraftQuery(
            run=run,
            depth=index - pending,
            prefix=tuple(prefix),
            logits=logits[index - 1],
            token=tokens.get(index),
            is_verified=index - pending <= len(verified.drafts),
        )
        queries.append(query)
        if query.token is None:
            break
        prefix.append(query.token)
    return queries
