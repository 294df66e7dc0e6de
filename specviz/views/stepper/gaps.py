"""What the step-through cannot show because a log lacks it: a sentence for each panel.

Contract: reads the header of a record; plain data out. Not known here: what panels draw.
"""

from typing import Any

from specviz.record.schema import MODELS, missing_in
from specviz.record.trace import Trace

Json = dict[str, Any]
_SIGHT = {
    "feeds": "Forwards of the {} model were not logged, so there is no mask to show.",
    "slots": "Slots of the {} model's K/V were not logged, so there is no mask to show.",
    "visible": "What the {} model's queries saw was not logged.",
}
_BATCH = {
    "feeds.target": "forwards of the target were not logged: tokens stand in order, without K/V",
    "feeds.draft": "forwards of the draft model were not logged: its lane stays empty",
    "slots.target": "slots of the target's K/V were not logged: each token stands at its index",
    "slots.draft": "slots of the draft's K/V were not logged: each stands at its index",
    "positions.target": "position ids were not logged",
    "moves": "moves of K/V were not logged",
}


def gaps(trace: Trace, unchecked: list[str]) -> Json | None:
    """Return what a record lacks, by panel; None for one that lacks nothing.

    Keys: time, bytes and cards, a sentence or null; masks, a sentence or null for each model;
    choices, whether the target's are lacking; draft, whether there is K/V of a draft model; batch,
    clauses; unchecked, as in `Violations`.
    """
    lacking = missing_in(trace.meta)
    if not lacking:
        return None
    return {
        "time": "Times of the phases were not logged." if "times" in lacking else None,
        "bytes": _bytes(lacking),
        "cards": _cards(lacking),
        "masks": [_mask(lacking, model) for model in MODELS],
        "choices": "candidates.target" in lacking,
        "draft": bool((trace.feeds["model"] == MODELS.index("draft")).any()),
        "batch": [words for name, words in _BATCH.items() if name in lacking],
        "unchecked": unchecked,
    }


def _bytes(lacking: frozenset[str]) -> str | None:
    if "moves" in lacking:
        return "Moves of K/V were not logged."
    if "kv_bytes" in lacking:
        return "How many bytes a token's K/V takes was not logged."
    return None


def _cards(lacking: frozenset[str]) -> str | None:
    """Return what is not known of what the models said."""
    names = {"target": "the target's", "draft": "the draft's"}
    unsaid = [names[model] for model in MODELS if f"logprobs.{model}" in lacking]
    if not unsaid:
        return None
    return f"{' and '.join(unsaid)} probabilities were not logged"


def _mask(lacking: frozenset[str], model: str) -> str | None:
    for name, words in _SIGHT.items():
        if f"{name}.{model}" in lacking:
            return words.format(model)
    return None
