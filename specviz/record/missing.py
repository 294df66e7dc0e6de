"""What a record does not hold, by name: of another engine's run, much may be unknown.

A record lists the names in its header, under "missing"; one without that entry lacks nothing. What
stands in the tables in place of what is missing is no measurement.
"""

from collections.abc import Mapping
from typing import Any

from specviz.record.schema import MODELS

# {name: what it is called in a sentence, without an article}. A name with a dot is about one model.
MISSING = {
    **{f"feeds.{model}": f"forwards of the {model} model" for model in MODELS},
    **{f"positions.{model}": f"position ids of the {model} model" for model in MODELS},
    **{f"slots.{model}": f"slots of the {model} model's K/V" for model in MODELS},
    **{f"visible.{model}": f"what the {model} model's queries saw" for model in MODELS},
    "candidates.target": "the target's choices",
    "candidates.draft": "the draft model's choices",
    "logprobs.target": "probabilities of the target",
    "logprobs.draft": "probabilities of the draft model",
    "moves": "moves of K/V",
    "times": "times of the phases",
    "kv_bytes": "the size of K/V in bytes",
    "budget": "token budgets",
    "finished": "which rows finished",
}


def missing_in(meta: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of what a record with this header lacks."""
    return frozenset(meta.get("missing", ()))


def sees(meta: Mapping[str, Any], model: str) -> bool:
    """Return whether a record says what each query of a model saw, and what lay there."""
    needed = {f"{name}.{model}" for name in ("feeds", "slots", "visible")}
    return not missing_in(meta) & {*needed, "moves"}


def says_layout(meta: Mapping[str, Any]) -> bool:
    """Return whether a record says where the target's K/V lies, and how it is moved."""
    return has_slots(meta) and "moves" not in missing_in(meta)


def has_slots(meta: Mapping[str, Any]) -> bool:
    """Return whether a record says in which slots the target's K/V lies."""
    return not missing_in(meta) & {"feeds.target", "slots.target"}


_OF_LAYOUT = ("cache_slots", "padding_share", "hole_share")
_OF_MOVES = ("realigned_bytes", "compacted_bytes")
# {name: columns of tables that cannot be computed without it}.
_COLUMNS = {
    "feeds.target": _OF_LAYOUT,
    "slots.target": _OF_LAYOUT,
    "moves": _OF_MOVES,
    "kv_bytes": _OF_MOVES,
}


def unknown_columns(meta: Mapping[str, Any]) -> list[str]:
    """Return the columns of the tables of `metrics` that are not known; times are NaN anyway."""
    columns = (_COLUMNS.get(name, ()) for name in missing_in(meta))
    return sorted({column for each in columns for column in each})
