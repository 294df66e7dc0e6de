"""Find what a decoder does that leaves its text right and should be mended.

Contract: counts, from what was followed. Not known here: models, and times.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from specviz.checks.watch.drafting import Drafting
from specviz.checks.watch.drafts import DraftFault
from specviz.checks.watch.requests import WatchedRequest, common

NOISE = 0.05  # up to this share of all tokens, reading again is filling of a rectangle
OFTEN = 0.8  # in a larger share of forwards it is what the decoder does in each round


@dataclass(frozen=True)
class Cost:
    """One way in which work was done for nothing, or in which the text is right by luck.

    Attributes:
        name: "draft cache", "drafter", "positions", "read again", "finished rows", "thrown away" or
            "bonus dropped".
        count: how often, in the unit that the sentence names.
        sentence: what was found.
    """

    name: str
    count: int
    sentence: str


def find_costs(
    requests: Sequence[WatchedRequest],
    faults: Mapping[int, DraftFault],
    rounds: Mapping[int, int],
    wrong: Collection[int],
    drafting: Drafting | None = None,
) -> list[Cost]:
    """Return what was done for nothing, the draft's faults first.

    Args:
        requests: what became of each prompt.
        faults: the draft's first fault in each request.
        rounds: {number of a forward of the target: its round}.
        wrong: the requests whose texts are not the target's own.
        drafting: of a drafter that reads the target's hidden states.
    """
    costs = []
    if faults:
        what = "the draft model reads a wrong context"
        costs.append(_of_drafts("draft cache", what, faults, requests, rounds))
    if drafting is not None and drafting.faults:
        what = "no text suffers, but drafts are worse than they could be"
        cost = _of_drafts("drafter", what, drafting.faults, requests, rounds)
        if drafting.judged:
            count = f"{drafting.lost} of {drafting.judged} drafts are not what is due"
            cost = replace(cost, sentence=f"{cost.sentence}; {count}")
        costs.append(cost)
    costs += [*_shifted(requests), *_twice(requests)]
    idle = sum(len(request.idle) for request in requests)
    if idle:
        costs.append(
            Cost("finished rows", idle, f"rows were fed {_times(idle)} after they had finished")
        )
    lost = _lost(requests)
    if wrong:  # drafts that equal a wrong text are not right
        lost = [cost for cost in lost if cost.name != "thrown away"]
    return costs + lost


def _of_drafts(
    name: str,
    what: str,
    faults: Mapping[int, DraftFault],
    requests: Sequence[WatchedRequest],
    rounds: Mapping[int, int],
) -> Cost:
    """Return what drafts suffer from: the first of these faults, by request."""
    first = min(faults.values(), key=lambda fault: fault.forward)
    number = min(rounds[after] for after in rounds if after > first.forward)
    sentence = (
        f"{what} in {len(faults)} of {len(requests)} requests, first in round {number}, forward "
        f"{first.forward}, row {first.row}: {first.cause}"
    )
    return Cost(name, len(faults), sentence)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _shifted(requests: Sequence[WatchedRequest]) -> list[Cost]:
    """Find requests of which all positions are too large or too small by the same number."""
    found = [shift for request in requests if (shift := _shift(request))]
    if not found:
        return []
    least, most = min(found, key=abs), max(found, key=abs)
    by = f"{abs(least)}" if least == most else f"{abs(least)} to {abs(most)}"
    way = "large" if min(found) > 0 else "small" if max(found) < 0 else "large or small"
    sentence = (
        f"in {len(found)} of {len(requests)} requests every position is {by} too {way}; rotary "
        "positions hide that, and a model with learned positions will differ"
    )
    return [Cost("positions", len(found), sentence)]


def _shift(request: WatchedRequest) -> int:
    """Return by how much all positions of a request are too large; 0 if they differ in that."""
    shifts = set()
    for part in request.parts:
        for index, column in enumerate(part.columns, start=part.index):
            shifts.add(int(part.seen.positions[part.row, column]) - index)
    return shifts.pop() if len(shifts) == 1 else 0


def _twice(requests: Sequence[WatchedRequest]) -> list[Cost]:
    """Find committed tokens that were read after they had been read once."""
    again = [count for request in requests for count in _read_again(request)]
    everything = sum(len(request.tokens) for request in requests)
    often = sum(count > 0 for count in again)
    is_rule = often > OFTEN * len(again)
    if sum(again) <= NOISE * everything and not is_rule:
        return []
    sentence = f"the target read {sum(again)} tokens again that it had read"
    if is_rule:
        sentence += (
            f", in {often} of {len(again)} forwards behind the first of a request; keep K/V of all "
            "committed tokens but the last one"
        )
    return [Cost("read again", sum(again), sentence)]


def _read_again(request: WatchedRequest) -> list[int]:
    """Count committed tokens that were read again, in each part but the first."""
    seen = 0
    again = []
    for part in request.parts:
        committed = kept = part.index + common(part.tokens, request.tokens[part.index :])
        for verified in request.rounds:
            if verified.part is part:
                committed = verified.pending + 1
                kept = committed + verified.accepted
        again.append(max(min(seen, committed) - part.index, 0))
        seen = max(seen, kept)
    # The first part reads the prompt, which nothing read before.
    return again[1:]


def _lost(requests: Sequence[WatchedRequest]) -> list[Cost]:
    """Find right tokens that were verified and not kept."""
    dropped = 0
    thrown = 0
    full = 0
    for request in requests:
        # In its last round a row throws tokens away because of EOS or the budget, rightly.
        for verified in request.rounds[:-1]:
            is_full = bool(verified.drafts) and verified.matched == len(verified.drafts)
            full += is_full
            lost = verified.matched + 1 - verified.gained
            if is_full and lost == 1:
                dropped += 1
            elif lost > 0:
                thrown += lost
    costs = []
    if full and dropped == full:
        costs.append(
            Cost(
                "bonus dropped",
                dropped,
                f"the target's own token behind all drafts was dropped in {dropped} rounds",
            )
        )
    else:
        thrown += dropped
    if thrown:
        costs.append(
            Cost("thrown away", thrown, f"{thrown} right tokens were verified and not kept")
        )
    return costs
