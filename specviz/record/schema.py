"""What a recorded run consists of, column by column, and the one place where a record is checked.

Contract: `validated` takes the meta data and the tables of a record and returns them normalised, or raises a
`TraceError` that says in one sentence what does not fit. A record that passes can be replayed, tabulated and drawn
without further checks of its indices. Not known here: files, models, and whether the decoding itself was right.

Letters in shapes: R requests, N entries of a table, K draft tokens a round, k and j kept candidates of target and draft.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PHASES = ("schedule", "draft", "verify", "accept", "synchronise")
MODELS = ("target", "draft")
STATUSES = (
    "eos",
    "budget",
    "not_finite",
    "interrupted",
)  # how a request ended: the last two before EOS or its budget
STATES = ("empty", "padding", "prompt", "accepted", "bonus", "drafted", "stale", "pending")
EMPTY, PADDING, PROMPT, ACCEPTED, BONUS, DRAFTED, STALE, PENDING = (
    np.uint8(code) for code in range(len(STATES))
)

Array = NDArray[Any]
Table = dict[str, Array]

# What a reader may have to allocate grows with what the file holds, not with what it claims.
FREE_CELLS = 2**21  # a cache of this many (row, slot) cells is always believed
CELLS_PER_FEED = 32  # beyond that, a record has to hold this much evidence for a large cache
FREE_SLOTS = 2**17  # likewise of one row; beyond that, a feed for each slot
MAX_WIDTH = 2**16  # drafts a round, kept candidates, EOS tokens
MAX_DEPTH = 32  # of nested lists and dicts in the meta data
MAX_LOGPROB = 0.01  # what rounding may leave above 0


class TraceError(ValueError):
    """A record that cannot be read, written or believed; the message names what is wrong and the remedy."""


@dataclass(frozen=True)
class Column:
    """dtype and shape of one column; a shape is spelled with letters, "K+1" being one more than "K"."""

    dtype: str
    shape: tuple[str, ...] = ("N",)

    def __post_init__(self) -> None:
        np.dtype(self.dtype)


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
        **_columns("batch slots"),
        **_columns("schedule_ms draft_ms verify_ms accept_ms synchronise_ms", "float32"),
        **_columns("decision", "uint8"),
    },
    "rows": {
        **_columns(
            "round row request length drafted accepted gained discarded start start_after pending pending_after"
        ),
        **_columns("finished", "uint8"),
        **_columns("drafts", "int32", ("N", "K")),
        **_columns("emitted", "int32", ("N", "K+1")),
        **_columns("draft_logprob target_logprob", "float32", ("N", "K")),
        **_columns("target_top_ids", "int32", ("N", "K+1", "k")),
        **_columns("target_top_logprobs", "float32", ("N", "K+1", "k")),
        **_columns("draft_top_ids", "int32", ("N", "K", "j")),
        **_columns("draft_top_logprobs", "float32", ("N", "K", "j")),
    },
    "feeds": {
        **_columns("round step row request token index position slot visible_start visible_stop"),
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
_MAY_BE_NEGATIVE = {"drafts", "emitted", "target_top_ids", "draft_top_ids", "position"}

_META: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("strategy", "device", "dtype", "created", "target"), (str,)),
    **dict.fromkeys(("drafter", "draft"), (str, type(None))),
    **dict.fromkeys(("num_draft_tokens", "batch_size", "vocabulary_size"), (int,)),
    **dict.fromkeys(("strategy_options", "versions", "kv_bytes_per_slot", "token_texts"), (dict,)),
    **dict.fromkeys(("eos_token_ids", "decisions"), (list,)),
    "valid": (bool,),
    "seed": (int, type(None)),
    "sampling": (dict, type(None)),
}


def validated(
    meta: Mapping[str, Any], tables: Mapping[str, Mapping[str, Array]]
) -> tuple[dict[str, Any], dict[str, Table]]:
    """Check a record; return its meta data as plain JSON values and its tables as read-only, contiguous arrays.

    meta: see `Trace`; tables: {table: {column: array}} for each table of COLUMNS. Raises TraceError.
    """
    plain = _plain_meta(meta)
    _check_meta(plain)
    checked = {
        name: _checked_table(name, tables[name], plain["num_draft_tokens"]) for name in COLUMNS
    }
    _check_requests(checked["requests"])
    _check_ranges(checked, len(plain["decisions"]))
    _check_rows(checked, plain["num_draft_tokens"])
    _check_visibility(checked["feeds"], checked["holes"])
    _check_numbers(checked["rounds"], checked["rows"])
    _check_extent(checked, plain["num_draft_tokens"])
    return plain, checked


def ledger_shape(tables: Mapping[str, Table]) -> tuple[int, int]:
    """(rows, slots) of a cache that holds every row and every slot that a record speaks of."""
    rounds, rows, feeds, moves = (tables[name] for name in ("rounds", "rows", "feeds", "moves"))
    row_ids = (rows["row"], feeds["row"], moves["from_row"], moves["to_row"])
    stops = (
        rounds["slots"],
        feeds["visible_stop"],
        _total(feeds["slot"], 1),
        _total(np.maximum(rows["start"], rows["start_after"]), rows["length"], rows["gained"]),
        _total(np.maximum(rows["pending"], rows["pending_after"]), rows["gained"], 1),
        _total(np.maximum(moves["from_slot"], moves["to_slot"]), moves["length"]),
    )
    return 1 + max(_largest(ids) for ids in row_ids), max(_largest(stop) for stop in stops)


def _total(values: Array, *more: Array | int) -> Array:
    """Sum of int32 columns as int64, which a damaged record cannot make overflow."""
    total = values.astype(np.int64)
    for other in more:
        total = total + other
    return total


def _largest(values: Array) -> int:
    return int(values.max(initial=0))


def _require(fits: bool | np.bool_, problem: str) -> None:
    if not fits:
        raise TraceError(f"{problem}; record the run again")


def _plain_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Meta data after a trip through JSON, so that a record compares equal before and after it was saved."""
    try:
        plain = json.loads(json.dumps(meta, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(
            f"meta does not fit into JSON ({error}); use plain str, int, float, bool, list and dict"
        ) from None
    _require(isinstance(plain, dict), "meta is no dict")
    level, depth = [plain], 0
    while level:
        depth += 1
        _require(depth <= MAX_DEPTH, f"meta is nested more than {MAX_DEPTH} deep")
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return dict(plain)


def _check_meta(meta: dict[str, Any]) -> None:
    missing = sorted(_META.keys() - meta.keys())
    _require(not missing, f"meta lacks {', '.join(missing)}")
    for key, types in _META.items():
        wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
        _require(type(meta[key]) in types, f"meta.{key} is no {wanted}")
    for key in ("num_draft_tokens", "batch_size", "vocabulary_size"):
        _require(meta[key] >= 0, f"meta.{key} is negative")
    _require(
        meta["num_draft_tokens"] < MAX_WIDTH, f"meta.num_draft_tokens is not below {MAX_WIDTH}"
    )
    _require(
        len(meta["eos_token_ids"]) < MAX_WIDTH, f"meta.eos_token_ids are not fewer than {MAX_WIDTH}"
    )
    fits = all(type(token) is int and 0 <= token < 2**31 for token in meta["eos_token_ids"])
    _require(fits, "meta.eos_token_ids holds something else than int of 0 to 2^31")
    _require(
        all(type(text) is str for text in meta["token_texts"].values()),
        "meta.token_texts holds something else than str",
    )
    status = meta.get("status", [])
    _require(
        isinstance(status, list) and all(each in STATUSES for each in status),
        "meta.status holds something else than how prompts end",
    )
    _require(
        all(type(name) is str for name in meta["decisions"]),
        "meta.decisions holds something else than str",
    )
    kv_bytes = meta["kv_bytes_per_slot"]
    fits = all(
        type(kv_bytes.get(model)) is int and 0 <= kv_bytes[model] < 2**32 for model in MODELS
    )
    _require(
        fits, f"meta.kv_bytes_per_slot holds no sensible int for each of {' and '.join(MODELS)}"
    )


def _checked_table(name: str, table: Mapping[str, Array], num_draft_tokens: int) -> Table:
    wanted = COLUMNS[name]
    missing, foreign = (
        sorted(f"{name}.{named(column)}" for column in rest)
        for rest in (wanted.keys() - table, table.keys() - wanted)
    )
    _require(not missing, f"columns are missing: {', '.join(missing)}")
    _require(not foreign, f"columns are unknown: {', '.join(foreign[:3])}")
    sizes = {"K": num_draft_tokens}
    for column, form in wanted.items():
        _check_column(f"{name}.{column}", table[column], form, sizes)
    return {column: _read_only(table[column]) for column in wanted}


def _check_column(name: str, values: Array, form: Column, sizes: dict[str, int]) -> None:
    """Check dtype, rank and size; a letter that `sizes` does not know yet takes the size found here."""
    _require(isinstance(values, np.ndarray), f"{name} is no numpy array")
    found, wanted = (
        f"{values.dtype} of rank {values.ndim}",
        f"{form.dtype} of rank {len(form.shape)}",
    )
    _require(
        values.dtype == np.dtype(form.dtype) and values.ndim == len(form.shape),
        f"{name} is {found} instead of {wanted}",
    )
    for size, symbol in zip(values.shape, form.shape, strict=True):
        letter, _, extra = symbol.partition("+")
        expected = sizes.setdefault(letter, size - int(extra or 0)) + int(extra or 0)
        _require(
            size == expected, f"{name} has {size} entries along {symbol} where {expected} belong"
        )
        _require(
            size <= MAX_WIDTH or letter not in "Kkj",
            f"{name} has {size} entries along {symbol}, more than {MAX_WIDTH}",
        )


def _read_only(values: Array) -> Array:
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def _check_requests(requests: Table) -> None:
    for name, shortest in (("prompt", 1), ("output", 0)):
        tokens, offsets = requests[f"{name}_tokens"], requests[f"{name}_offsets"]
        inside = (
            offsets[0] == 0
            and offsets[-1] == tokens.size
            and bool(((offsets >= 0) & (offsets <= tokens.size)).all())
        )
        _require(
            inside,
            f"requests.{name}_offsets does not run from 0 to the {tokens.size} {name} tokens",
        )
        _require(
            (np.diff(offsets) >= shortest).all(),
            f"requests.{name}_offsets gives a request fewer than {shortest} tokens",
        )
        _check_range(f"requests.{name}_tokens", tokens)
    _check_range("requests.budget", requests["budget"])


def _check_range(name: str, values: Array, stop: int | None = None) -> None:
    fits = values.size == 0 or (
        int(values.min()) >= 0 and (stop is None or int(values.max()) < stop)
    )
    _require(fits, f"{name} holds values outside 0..{'' if stop is None else stop - 1}")


def _check_ranges(tables: dict[str, Table], num_decisions: int) -> None:
    """Check that whatever counts is not negative, and that whatever refers to something refers to what exists."""
    stops = {
        "round": tables["rounds"]["batch"].size,
        "request": tables["requests"]["budget"].size,
        "feed": tables["feeds"]["slot"].size,
    }
    stops |= {
        "phase": len(PHASES),
        "model": len(MODELS),
        "decision": num_decisions,
        "finished": 2,
        "chosen": 2,
    }
    for table in ("rounds", "rows", "feeds", "holes", "moves", "pool"):
        for column, values in tables[table].items():
            if values.dtype != np.float32 and column not in _MAY_BE_NEGATIVE:
                _check_range(f"{table}.{column}", values, stops.get(column))


def _check_rows(tables: dict[str, Table], num_draft_tokens: int) -> None:
    rounds, rows, requests = tables["rounds"], tables["rows"], tables["requests"]
    key = rows["round"].astype(np.int64) << 32 | rows["row"]
    _require(
        (np.diff(key) > 0).all(), "rows is not sorted by round and row, or holds one of them twice"
    )
    counts = np.bincount(rows["round"], minlength=rounds["batch"].size)
    _require(
        np.array_equal(counts, rounds["batch"]),
        "rounds.batch differs from the number of entries that rows has for a round",
    )
    _check_range("rows.drafted", rows["drafted"], num_draft_tokens + 1)
    _check_range("rows.gained", rows["gained"], num_draft_tokens + 2)
    _require((rows["accepted"] <= rows["drafted"]).all(), "rows.accepted exceeds rows.drafted")
    prompt, output = (
        np.diff(requests[f"{name}_offsets"])[rows["request"]] for name in ("prompt", "output")
    )
    _require((rows["length"] >= prompt).all(), "rows.length is shorter than the request's prompt")
    _require(
        (_total(rows["length"], rows["gained"]) <= prompt + output).all(),
        "rows.length and rows.gained run past the request's output",
    )


def _check_visibility(feeds: Table, holes: Table) -> None:
    _require(
        (feeds["visible_start"] <= feeds["visible_stop"]).all(),
        "feeds.visible_start lies behind feeds.visible_stop",
    )
    inside = (feeds["visible_start"][holes["feed"]] <= holes["start"]) & (
        holes["stop"] <= feeds["visible_stop"][holes["feed"]]
    )
    _require(
        (inside & (holes["start"] <= holes["stop"])).all(),
        "holes.start and holes.stop leave what the feed attends to",
    )


def _check_numbers(rounds: Table, rows: Table) -> None:
    for phase in PHASES:
        ms = rounds[f"{phase}_ms"]
        _require(
            (np.isfinite(ms) & (ms >= 0)).all(),
            f"rounds.{phase}_ms holds something else than times",
        )
    for name, values in rows.items():
        if "logprob" in name:
            _require(not (values > MAX_LOGPROB).any(), f"rows.{name} holds probabilities above 1")


def _check_extent(tables: dict[str, Table], num_draft_tokens: int) -> None:
    """Refuse a small record that claims a huge cache, because replaying it would allocate that cache."""
    feeds, moves, requests = tables["feeds"], tables["moves"], tables["requests"]
    rows, slots = ledger_shape(tables)
    evidence = feeds["slot"].size
    limit = FREE_CELLS + CELLS_PER_FEED * evidence
    fits = rows * slots <= limit and slots <= FREE_SLOTS + evidence
    _require(
        fits,
        f"a cache of {rows} rows and {slots} slots is far more than the recorded feeds can fill",
    )
    sizes = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    last = sizes[feeds["request"]] + num_draft_tokens
    _require((feeds["index"] <= last).all(), "feeds.index lies behind the request's last draft")
    count, longest = sizes.size, int(sizes.max(initial=0)) + num_draft_tokens + 1
    _require(
        count * longest <= limit,
        f"{count} requests of up to {longest} tokens are far more than the recorded feeds can fill",
    )
    order = np.lexsort((moves["step"], moves["phase"], moves["round"]))
    keys = np.stack([moves[name][order] for name in ("round", "phase", "step")])
    firsts = np.flatnonzero((np.diff(keys, axis=1, prepend=-1) != 0).any(0))
    copied = (
        np.add.reduceat(moves["length"][order].astype(np.int64), firsts)
        if firsts.size
        else np.zeros(0, np.int64)
    )
    _require(_largest(copied) <= limit, "moves copies more slots at once than the caches have")


def named(name: str) -> str:
    """A name out of a file as it can stand in a message: nothing in it that a terminal obeys, and not endless."""
    shown = repr(name)[1:-1]
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
