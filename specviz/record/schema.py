"""The tables of a record, column by column, and the names of the codes in them.

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
# accepted drafts are read again. "none": drafts are not read before they are accepted. "masks":
# entries that stand for drafts which are not known yet.
DRAFT_KV = ("kept", "provisional", "none", "masks")
# What a pool does when no batch of equal length can be formed, and how a round found its rows.
FALLBACKS = ("realign", "partial", "wait")
DECISIONS = ("grouped", "realigned", "partial", "overdue")
# How a request ended. "not_finite" and "interrupted" ended it before EOS or its budget. In the
# record of a lane, "elsewhere" is a request of the other one.
STATUSES = ("eos", "budget", "not_finite", "interrupted", "elsewhere")
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
    """dtype and shape of one column. A shape is spelled with letters.

    "K+1" is one more than "K".
    """

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
            "round step row request token index node position slot visible_start visible_stop"
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
}


def cache_shape(tables: Mapping[str, Table]) -> tuple[int, int]:
    """Return (rows, slots) of a cache that holds every row and every slot in a record."""
    rounds, rows, feeds, moves = (tables[name] for name in ("rounds", "rows", "feeds", "moves"))
    row_ids = (rows["row"], feeds["row"], moves["from_row"], moves["to_row"])
    start = np.maximum(rows["start"], rows["start_after"])
    pending = np.maximum(rows["pending"], rows["pending_after"])
    moved = np.maximum(moves["from_slot"], moves["to_slot"])
    stops = (
        rounds["slots"],
        feeds["visible_stop"],
        total(feeds["slot"], 1),
        total(start, rows["length"], rows["gained"]),
        total(pending, rows["gained"], 1),
        total(moved, moves["length"]),
    )
    return 1 + max(largest(ids) for ids in row_ids), max(largest(stop) for stop in stops)


def total(values: Array, *more: Array | int) -> Array:
    """Return the sum of int32 columns as int64."""
    # A damaged record may hold numbers whose sum overflows int32, and so passes for a small one.
    result = values.astype(np.int64)
    for other in more:
        result = result + other
    return result


def largest(values: Array) -> int:
    """Return the largest value, 0 for an empty column."""
    return int(values.max(initial=0))


def named(name: str) -> str:
    """Return a name from a file as an error message shows it: escaped, at most 60 characters."""
    shown = repr(name)[1:-1]
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
