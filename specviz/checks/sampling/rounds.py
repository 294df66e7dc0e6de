"""What a decoder drafted and judged, taken from the forwards that were seen.

Contract: forwards, prompts and outputs of one run go in; drafts, judgements and the tokens behind
them come out, each with the logits that the decoder itself computed. Not known here: how tokens
are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.drafts import DraftFollower
from specviz.checks.watch.follow import TargetFollower
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, common
from specviz.record.schema import Array

UNSEEN = -1
MOST_LOST = 0.25  # of texts: of more, what is left may differ from the rest


@dataclass(frozen=True)
class DraftQuery:
    """A query of the draft model behind which a draft may have been drawn.

    Attributes:
        run, row: where.
        depth: of the draft in its round, from 1.
        prefix: the tokens before it.
        logits: (V,), of the draft model.
        token: the draft; UNSEEN if neither model read one.
        is_verified: whether the target read it.
    """

    run: int
    row: int
    depth: int
    prefix: tuple[int, ...]
    logits: Array
    token: int
    is_verified: bool


@dataclass(frozen=True)
class Judged:
    """A draft that the target judged, since all before it were accepted.

    Attributes:
        draft: the draft.
        target_logits: (V,), of the query that judges it.
        accepted: whether it was.
    """

    draft: DraftQuery
    target_logits: Array
    accepted: bool


@dataclass(frozen=True)
class Behind:
    """The token that follows the accepted drafts of a round.

    Attributes:
        draft: the draft that was rejected; None if all were accepted.
        before, target_logits, after: (V,), of the target's queries at the place before, at the
            token's own, and at the next one; None where there is none.
        token: what was emitted.
    """

    draft: DraftQuery | None
    before: Array | None
    target_logits: Array
    after: Array | None
    token: int


@dataclass
class Seen:
    """What was seen of all runs.

    Attributes:
        size: V; logits beyond it are padding of an embedding, and are cut.
        texts: how many there were.
        lost: in how many of them it is not certain where each round began. They are left out.
        full, bonus: how many rounds gained all drafts and no more, and one more.
    """

    size: int
    drafted: list[DraftQuery] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    behind: list[Behind] = field(default_factory=list)
    texts: int = 0
    lost: int = 0
    full: int = 0
    bonus: int = 0

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
            settle(request, parts)
            self.texts += 1
            if not is_followed(request, parts):
                self.lost += 1
                continue
            since = -1
            for found in request.rounds:
                verified = replace(found, drafts=_without_filling(found))
                self._count(request, verified)
                queries = _queries(parts, since, verified, run, row, request, self.size)
                self.drafted += queries
                by_depth = {query.depth: query for query in queries}
                self._judge(request, verified, by_depth)
                since = verified.part.number

    def why_unknown(self) -> str:
        """Return why drafts and judgements are not known, in a sentence; "" if they are."""
        if self.lost > MOST_LOST * self.texts:
            why = f"The rounds of {self.lost} of {self.texts} texts could not be followed"
        elif self.full and not self.bonus:
            why = "The target's token behind all drafts is never kept"
        else:
            return ""
        return f"{why}, so nothing is said of how drafts are drawn and judged."

    def _count(self, request: WatchedRequest, verified: WatchedRound) -> None:
        """Count a round that kept all its drafts, as far as the budget shows it."""
        count = len(verified.drafts)
        if count and verified.matched == count:
            self.bonus += verified.gained > count
            is_cut = verified.pending + count == len(request.tokens) - 1
            self.full += verified.gained == count and not is_cut

    def _judge(
        self, request: WatchedRequest, verified: WatchedRound, queries: dict[int, DraftQuery]
    ) -> None:
        """Add what became of the drafts of a round, as far as the budget shows it.

        Draft j was accepted if the round gained more than j tokens. If the budget ends the text
        with that very token, the text does not show it.
        """
        room = len(request.tokens) - 1 - verified.pending
        count = len(verified.drafts)
        for step in range(min(count, room)):
            query, logits = queries.get(step + 1), self._target(verified, step)
            if query is None or logits is None:
                return
            token = request.tokens[verified.pending + 1 + step]
            if step + 1 == room:
                return
            accepted = verified.gained > step + 1
            self.judged.append(Judged(query, logits, accepted))
            if not accepted:
                self._behind(verified, step, query, logits, token)
                return
        logits = self._target(verified, count)
        if count and room > count and logits is not None:
            token = request.tokens[verified.pending + 1 + count]
            self._behind(verified, count, None, logits, token)

    def _behind(
        self, verified: WatchedRound, step: int, draft: DraftQuery | None, logits: Array, token: int
    ) -> None:
        before = self._target(verified, step - 1) if step else None
        after = self._target(verified, step + 1) if step < len(verified.drafts) else None
        self.behind.append(Behind(draft, before, logits, after, token))

    def _target(self, verified: WatchedRound, step: int) -> Array | None:
        """Return the logits (V,) of the target behind the pending token and `step` drafts."""
        return _logits(verified.part, verified.pending + step, self.size)


def settle(request: WatchedRequest, parts: Sequence[Part]) -> None:
    """Let each round of a request begin where its first draft was chosen.

    A draft that a wrong decoder rejects and draws again looks as if it had been accepted. But the
    draft model chooses the first draft of a round behind the last token of the text.

    Args:
        request: what the target read.
        parts: what the draft model read of it.
    """
    kept = [*request.rounds, *request.dropped]
    known = {verified.part.number: verified for verified in kept}
    read = {part.number: part for part in (*(each.part for each in kept), *request.idle)}
    rounds: list[WatchedRound] = []
    since = -1
    for number in sorted(read):
        part, ends = read[number], _ends(parts, since, number)
        pending = min((end for end in ends if end >= len(request.prompt) - 1), default=-1)
        if not part.index <= pending < part.index + len(part.columns):
            pending = known[number].pending if number in known else len(request.tokens)
        if pending < len(request.tokens) - 1:
            rounds.append(WatchedRound(part, pending, part.tokens[pending - part.index + 1 :]))
        since = number
    ends = [*(each.pending for each in rounds[1:]), len(request.tokens) - 1][: len(rounds)]
    for verified, following in zip(rounds, ends, strict=True):
        verified.gained = following - verified.pending
        verified.matched = common(verified.drafts, request.tokens[verified.pending + 1 :])
    request.rounds, request.dropped = rounds, []


def is_followed(request: WatchedRequest, parts: Sequence[Part]) -> bool:
    """Return whether it is certain which tokens were drafts in each round of a request.

    Args:
        request: what the target read, with rounds that were settled.
        parts: what the draft model read of it.
    """
    if not request.rounds:
        return False
    since = -1
    for verified in request.rounds:
        number, pending = verified.part.number, verified.pending
        ends = set(_ends(parts, since, number))
        if since < 0:  # the first of them may read the prompt alone
            ends = {end for end in ends if end >= pending}
        is_alone = verified.part.index == pending or not verified.drafts or since < 0
        is_chain = ends == set(range(pending, pending + len(ends)))
        is_possible = 1 <= verified.gained <= len(verified.drafts) + 1
        if not (is_possible and is_chain and (ends or is_alone)):
            return False
        for part in (verified.part, *_between(parts, since, number)):
            due = request.tokens[part.index : pending + 1]
            if part.tokens[: len(due)] != due[: len(part.tokens)]:
                return False
        since = number
    # Rows that have finished may be read on.
    last = len(request.tokens) - 1
    return all(part.index + len(part.columns) > last for part in parts if part.number > since)


def _between(parts: Sequence[Part], since: int, number: int) -> list[Part]:
    return [part for part in parts if since < part.number < number]


def _ends(parts: Sequence[Part], since: int, number: int) -> list[int]:
    """Return the index of the last token of each part between two forwards."""
    return [part.index + len(part.columns) - 1 for part in _between(parts, since, number)]


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
    place = index - part.index
    if logits is None or not 0 <= place < len(part.columns):
        return None
    left_out = part.seen.tokens.shape[1] - logits.shape[1]
    column = part.columns[place] - left_out
    if column < 0:
        return None
    found: Array = logits[part.row, column, :size].float().cpu().numpy()
    return found


def _queries(
    parts: Sequence[Part],
    since: int,
    verified: WatchedRound,
    run: int,
    row: int,
    request: WatchedRequest,
    size: int,
) -> list[DraftQuery]:
    """Return the draft model's queries of one round, by the index that they draw."""
    mine = _between(parts, since, verified.part.number)
    pending = verified.pending
    logits: dict[int, Array] = {}
    tokens = dict(enumerate(verified.drafts, start=pending + 1))
    for part in mine:
        for place, token in enumerate(part.tokens):
            index = part.index + place
            # A beam search reads several continuations, of which one is verified.
            if index > pending and tokens.setdefault(index, token) != token:
                break
            found = _logits(part, index, size)
            if index >= pending and found is not None:
                logits[index] = found
    queries = []
    for depth in range(1, len(logits) + 1):
        index = pending + depth
        if index - 1 not in logits:
            break
        known = [tokens[place] for place in range(pending + 1, index) if place in tokens]
        if len(known) < depth - 1:
            break
        query = DraftQuery(
            run=run,
            row=row,
            depth=depth,
            prefix=(*request.tokens[: pending + 1], *known),
            logits=logits[index - 1],
            token=tokens.get(index, UNSEEN),
            is_verified=depth <= len(verified.drafts),
        )
        queries.append(query)
    return queries


def stacked(logits: Sequence[Array]) -> Array:
    """Return (N, V) of N logits."""
    return np.stack(logits) if logits else np.zeros((0, 1), np.float32)
