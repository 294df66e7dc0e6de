"""Find what a decoder does that leaves its text right and costs time.

Contract: counts, from what was followed. Not known here: models, and times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specviz.checks.watch.drafts import DraftFault
from specviz.checks.watch.requests import Request, common

NOISE = 0.05  # up to this share of all tokens, reading again is filling of a rectangle


@dataclass(frozen=True)
class Cost:
    """One way in which work was done for nothing.

    Attributes:
        name: "draft cache", "read again", "finished rows", "thrown away" or "bonus dropped".
        count: how often, in the unit that the sentence names.
        sentence: what was found.
    """

    name: str
    count: int
    sentence: str


def find_costs(
    requests: Sequence[Request], faults: Mapping[int, DraftFault], rounds: Mapping[int, int]
) -> list[Cost]:
    """Return what was done for nothing, the draft's faults first.

    Args:
        requests: what became of each prompt.
        faults: the draft's first fault in each request.
        rounds: {number of a forward of the target: its round}.
    """
    costs = []
    if faults:
        first = min(faults.values(), key=lambda fault: fault.forward)
        number = min(rounds[after] for after in rounds if after > first.forward)
        costs.append(
            Cost(
                "draft cache",
                len(faults),
                f"the draft model reads a wrong context in {len(faults)} of {len(requests)} "
                f"requests, first in round {number}, forward {first.forward}, row {first.row}: "
                f"{first.cause}",
            )
        )
    again = sum(_read_again(request) for request in requests)
    everything = sum(len(request.tokens) for request in requests)
    if again > NOISE * everything:
        costs.append(
            Cost("read again", again, f"the target read {again} tokens again that it had read")
        )
    idle = sum(len(request.idle) for request in requests)
    if idle:
        costs.append(
            Cost("finished rows", idle, f"rows were fed {_times(idle)} after they had finished")
        )
    return costs + _lost(requests)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _read_again(request: Request) -> int:
    """Count committed tokens that were read after they had been read once."""
    seen = 0
    again = 0
    for part in request.parts:
        committed = part.index + common(part.tokens, request.tokens[part.index :])
        for verified in request.rounds:
            if verified.part is part:
                committed = verified.pending + 1
        again += max(min(seen, committed) - part.index, 0)
        seen = max(seen, committed)
    return again


def _lost(requests: Sequence[Request]) -> list[Cost]:
    """Find right tokens that were verified and not kept."""
    dropped = 0
    thrown = 0
    full = 0
    for request in requests:
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
