"""The tables of a record, column by column; the names of their codes, and of what may be missing.

Letters in shapes: R requests, N entries of a table, K draft tokens a round, k and j recorded
candidates of the target and the draft.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PHASES = ("schedule", "draft", "verify", "accept", "synchronise")
MODELS = ("target", "draft")
# What the caches of a drafter's models hold of its drafts. "kept": K/V of all but the last, which
# stays right when they are accepted. "provisional": the same, but it was made from guesses, so that
# accepted drafts are read again. "none": drafts are not read before they are accepted. "masks": a
# block of the pending token and entries that stand for drafts which are not known yet; all of it is
# read again.
DRAFT_KV = ("kept", "provisional", "none", "masks")
# What a pool does when no batch of equal length can be formed, and how a round found its rows.
FALLBACKS = ("realign", "partial", "wait")
DECISIONS = ("grouped", "realigned", "partial", "overdue")
# How a request ended. "not_finite" and "interrupted" ended it before EOS or its budget. In the
# record of a lane, "elsewhere" is a request of the other one.
STATUSES = ("eos", "budget", "not_finite", "interrupted", "elsewhere", "stop")
STATES = ("empty", "padding", "prompt", "accepted", "bonus", "drafted", "stale", "pending")
EMPTY, PADDING, PROMPT, ACCEPTED, BONUS, DRAFTED, STALE, PENDING = (
    np.uint8(code) for code in range(len(STATES))
)

Array = NDArray[Any]
Table = dict[str, Array]


class TraceError(ValueError):
    """A record cannot be read, written or believed.

    The message says what is wrong, and the remedy.
    """


@dataclass(frozen=True)
class Column:
    """dtype and shape of one column. Letters stand for sizes; "K+1" is one more than "K"."""

    dtype: str
    shape: tuple[str, ...] = ("N",)


def _columns(
    names: str, dtype: str = "int32", shape: tuple[str, ...] = ("N",)
) -> dict[str, Column]:
    return {name: Column(dtype, shape) for name in names.split()}


COLUMNS: dict[str, dict[str, Column]] = {
    "requests": {
        **_columns("budget", "int32", ("R",)),
        **_columns("prompt_tokens", "int32", ("prompt",)),
        **_columns("prompt_offsets output_offsets", "int64", ("R+1",)),
        **_columns("output_tokens", "int32", ("output",)),
    },
    "rounds": {
        **_columns("batch slots capacity"),
        **_columns("schedule_ms draft_ms verify_ms accept_ms synchronise_ms", "float32"),
        **_columns("decision", "uint8"),
    },
    "rows": {
        **_columns(
            "round row request length drafted verified accepted gained discarded "
            "start start_after pending pending_after"
        ),
        **_columns("finished", "uint8"),
        **_columns("drafts parents path", "int32", ("N", "K")),
        **_columns("emitted", "int32", ("N", "K+1")),
        **_columns("draft_logprob target_logprob scores", "float32", ("N", "K")),
        **_columns("target_top_ids", "int32", ("N", "K+1", "k")),
        **_columns("target_top_logprobs", "float32", ("N", "K+1", "k")),
        **_columns("draft_top_ids", "int32", ("N", "K", "j")),
        **_columns("draft_top_logprobs", "float32", ("N", "K", "j")),
    },
    "feeds": {
        **_columns(
            "round step row request token index node position slot visible_start visible_stop "
            "window_offset"
        ),
        **_columns("phase model", "uint8"),
    },
    "holes": _columns("feed start stop"),
    "moves": {
        **_columns("round step from_row from_slot to_row to_slot length"),
        **_columns("phase model", "uint8"),
    },
    "pool": {
        **_columns("round row request length waited"),
        **_columns("chosen", "uint8"),
    },
    "states": {**_columns("round step row feed"), **_columns("phase model", "uint8")},
}
# What the record of another engine's run may lack: {name: what it is called in a sentence, without
# an article}. The header lists names under "missing"; what then stands in the tables is no
# measurement. A name with a dot is about one model.
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
    return not missing_in(meta) & {f"feeds.{model}", f"slots.{model}", f"visible.{model}", "moves"}


def has_slots(meta: Mapping[str, Any]) -> bool:
    """Return whether a record says in which slots the target's K/V lies."""
    return not missing_in(meta) & {"feeds.target", "slots.target"}


def says_layout(meta: Mapping[str, Any]) -> bool:
    """Return whether a record says where the target's K/V lies, and how it is moved."""
    return has_slots(meta) and "moves" not in missing_in(meta)


def unknown_columns(meta: Mapping[str, Any]) -> list[str]:
    """Return the columns of the tables of `metrics` that are not known; times are NaN anyway."""
    found = [] if has_slots(meta) else ["cache_slots", "hole_share", "padding_share"]
    if missing_in(meta) & {"moves", "kv_bytes"}:
        found += ["compacted_bytes", "realigned_bytes"]
    return sorted(found)


def named(name: str) -> str:
    """Return a name from a file as an error message shows it: escaped, at most 60 characters."""
    shown = repr(name)[1:-1]
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
