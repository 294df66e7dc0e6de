"""What a view holds of one run, or of two: their films, where it opens, how the runs differ.

Contract: Traces that can be shown go in, the traits of the widget come out. Not known here: the
widget, the page.
"""

from dataclasses import asdict
from typing import Any

from specviz.record.trace import Trace
from specviz.util.text import count, harmless
from specviz.views.stepper.arguments import are_lanes
from specviz.views.stepper.difference import difference_words
from specviz.views.stepper.opening import first_fault, opening
from specviz.views.stepper.packing import packed_film

_LANES = "Two lanes of one run. No request is in both at the same time."


def name_of(trace: Trace) -> str:
    """Return the strategy and the size of a run in words."""
    strategy = harmless(trace.meta["strategy"])
    rounds = count(trace.num_rounds, "round")
    return f"{strategy}, {rounds}, {count(trace.num_requests, 'request')}"


def reel(trace: Trace, other: Trace | None, *, judge: bool) -> dict[str, Any]:
    """Return film, other, _opening and _difference, as `StepThrough` has them."""
    film, violations = packed_film(trace, judge)
    traits: dict[str, Any] = {"film": film}
    found = [violations]
    if other is not None:
        traits["other"], violations = packed_film(other, judge)
        found.append(violations)
        lanes = are_lanes(trace, other)
        traits["_difference"] = _LANES if lanes else difference_words((trace, other), found)
    faults = [first_fault(each, run) for run, each in enumerate(found)]
    return traits | {"_opening": asdict(opening(trace, other, faults))}
