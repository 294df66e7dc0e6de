"""Which rules a record leaves open, because it lacks what they need.

Contract: `unchecked` takes the header of a record and returns sentences. A run of specviz has none,
unless layers select tokens or have windows of several widths. Not known here: the rules.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from specviz.record.schema import MISSING, MODELS, missing_in

# What layers of some kinds do, and not every record says.
_UNRECORDED = {
    "windows": "mask ({}): which of the visible tokens its layers with a window or a chunk read",
    "selection": "mask ({}): which of the visible tokens its layers select",
    "states": "states ({}): from which states its convolutions or recurrences read on",
}
_LAYOUT = ("feeds", "slots", "visible")


def unchecked(meta: Mapping[str, Any]) -> list[str]:
    """Return what was not checked and why, a sentence without an end for each."""
    lacking = missing_in(meta)
    found = []
    for what, needed in _needs(meta):
        # Without any forwards, that alone is the reason.
        reasons = [name for name in MISSING if name in lacking and name in needed]
        if reasons:
            found.append(f"{what}: {MISSING[reasons[0]]} not logged")
    for model in MODELS:
        for kind, what in _UNRECORDED.items():
            if f"{kind}.{model}" in meta.get("unrecorded", ()):
                found.append(f"{what.format(model)} is not recorded")
    return found


def _needs(meta: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield each rule, or part of one, with the names of what it needs."""
    for model, kv in (("target", "kv"), ("draft", "caches")):
        yield f"positions ({model})", {f"feeds.{model}", f"positions.{model}"}
        yield f"mask, {kv} ({model})", {*(f"{name}.{model}" for name in _LAYOUT), "moves"}
    yield "rectangle", {"feeds.target", "slots.target", "moves"}
    if meta["sampling"] is None:
        yield "acceptance, bonus (against the target's choices)", {"candidates.target"}
    yield "drafts (against the draft model's choices)", {"candidates.draft"}
    for model in ("target", "draft"):
        yield f"scores ({model})", {f"logprobs.{model}"}
    yield "budget", {"budget"}
    yield "budget, eos (whether a row finishes in time)", {"finished"}
