"""The one place where a record is checked.

Contract: `validated` takes the meta data and the tables of a record and returns them normalised, or
raises a `TraceError` of one sentence. A record that passes can be replayed, tabulated and drawn
without further checks of its indices. Not known here: files, models, and whether the decoding
itself was right.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.chains import DERIVED, chain_columns
from specviz.record.header import MAX_WIDTH, checked_meta, require
from specviz.record.missing import missing_in
from specviz.record.schema import (
    COLUMNS,
    MODELS,
    PHASES,
    Array,
    Column,
    Table,
    cache_shape,
    largest,
    named,
    total,
)
from specviz.util.validate import short

# A reader allocates memory for what the record claims, so the claims are limited by what it holds.
FREE_CELLS = 2**21  # a cache of up to this many (row, slot) cells needs no evidence
CELLS_PER_FEED = 32  # a larger one needs one feed for this many of its further cells,
CELLS_PER_TOKEN = 2  # or a token of a prompt or an output for so many
FREE_SLOTS = 2**17  # a longer row needs one feed or token for each further slot
MAX_LOGPROB = 0.01  # rounding may leave so much above 0

_MAY_BE_NEGATIVE = {
    *("drafts", "parents", "path", "emitted"),
    *("target_top_ids", "draft_top_ids", "position"),
}


def validated(
    meta: Mapping[str, Any], tables: Mapping[str, Mapping[str, Array]]
) -> tuple[dict[str, Any], dict[str, Table]]:
    """Check a record. Return plain JSON meta data and read-only, contiguous tables.

    Args:
        meta: see `Trace`.
        tables: {table: {column: array}} for each table of COLUMNS.

    Raises:
        TraceError: something does not fit.
    """
    plain = checked_meta(meta)
    num_draft_tokens = plain["num_draft_tokens"]
    checked = {name: _checked_table(name, tables[name], num_draft_tokens) for name in COLUMNS}
    # In this order: each check indexes by columns that those before it have confined.
    _check_requests(checked["requests"])
    _check_ranges(checked, len(plain["decisions"]))
    _check_rows(checked, num_draft_tokens)
    _check_visibility(checked["feeds"], checked["holes"])
    _check_floats(checked["rounds"], checked["rows"], has_times="times" not in missing_in(plain))
    _check_extent(checked, num_draft_tokens)
    for name, derived in chain_columns(checked, num_draft_tokens).items():
        missing = {column: _read_only(derived[column]) for column in derived.keys() - checked[name]}
        checked[name] |= missing
    _check_shape_of_drafts(checked, num_draft_tokens)
    return plain, checked


def _checked_table(name: str, table: Mapping[str, Array], num_draft_tokens: int) -> Table:
    # The repr of a table takes longer than all checks of it, so only an error makes it.
    if not isinstance(table, Mapping):
        require(False, f"{name} must be a dict of arrays, got {short(table)}")
    wanted = COLUMNS[name]
    needed = wanted.keys() - set(DERIVED.get(name, ()))
    missing = sorted(f"{name}.{named(column)}" for column in needed - table.keys())
    unknown = sorted(f"{name}.{named(column)}" for column in table.keys() - wanted)
    require(not missing, f"columns are missing: {', '.join(missing)}")
    require(not unknown, f"columns are unknown: {', '.join(unknown[:3])}")
    sizes = {"K": num_draft_tokens}
    present = [column for column in wanted if column in table]
    for column in present:
        _check_column(f"{name}.{column}", table[column], wanted[column], sizes)
    return {column: _read_only(table[column]) for column in present}


def _check_column(name: str, values: Array, form: Column, sizes: dict[str, int]) -> None:
    """Check dtype, rank and size. A letter that is not in `sizes` yet takes the size found here."""
    require(isinstance(values, np.ndarray), f"{name} must be a numpy array")
    found = f"{values.dtype} of rank {values.ndim}"
    wanted = f"{form.dtype} of rank {len(form.shape)}"
    fits = values.dtype == np.dtype(form.dtype) and values.ndim == len(form.shape)
    require(fits, f"{name} is {found} instead of {wanted}")
    for size, symbol in zip(values.shape, form.shape, strict=True):
        letter, _, extra = symbol.partition("+")
        expected = sizes.setdefault(letter, size - int(extra or 0)) + int(extra or 0)
        entries = f"{name} has {size} entries along {symbol}"
        require(size == expected, f"{entries} instead of {expected}")
        require(size <= MAX_WIDTH or letter not in "Kkj", f"{entries}, more than {MAX_WIDTH}")


def _read_only(values: Array) -> Array:
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def _check_requests(requests: Table) -> None:
    for name, shortest in (("prompt", 1), ("output", 0)):
        tokens = requests[f"{name}_tokens"]
        offsets = requests[f"{name}_offsets"]
        inside = bool(((offsets >= 0) & (offsets <= tokens.size)).all())
        complete = offsets[0] == 0 and offsets[-1] == tokens.size and inside
        column = f"requests.{name}_offsets"
        require(complete, f"{column} does not run from 0 to the {tokens.size} {name} tokens")
        fits = (np.diff(offsets) >= shortest).all()
        require(fits, f"{column} gives a request fewer than {shortest} tokens")
        _check_range(f"requests.{name}_tokens", tokens)
    _check_range("requests.budget", requests["budget"])


def _check_range(name: str, values: Array, stop: int | None = None) -> None:
    # As Python ints: a stop may lie outside the column's dtype.
    if values.size:
        fits = int(values.min()) >= 0 and (stop is None or int(values.max()) < stop)
        require(fits, f"{name} holds values outside 0..{'' if stop is None else stop - 1}")


def _check_ranges(tables: dict[str, Table], num_decisions: int) -> None:
    """Check that counts are not negative and that references point to something that exists."""
    stops = {
        "round": tables["rounds"]["batch"].size,
        "request": tables["requests"]["budget"].size,
        "feed": tables["feeds"]["slot"].size,
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
    rounds, rows, requests = (tables[name] for name in ("rounds", "rows", "requests"))
    key = rows["round"].astype(np.int64) << 32 | rows["row"]
    is_sorted = bool((np.diff(key) > 0).all())
    require(is_sorted, "rows is not sorted by round and row, or holds one of them twice")
    counts = np.bincount(rows["round"], minlength=rounds["batch"].size)
    require(
        np.array_equal(counts, rounds["batch"]),
        "rounds.batch differs from the number of entries that rows has for a round",
    )
    _check_range("rows.drafted", rows["drafted"], num_draft_tokens + 1)
    _check_range("rows.gained", rows["gained"], num_draft_tokens + 2)
    require((rows["accepted"] <= rows["drafted"]).all(), "rows.accepted exceeds rows.drafted")
    prompt = np.diff(requests["prompt_offsets"])[rows["request"]]
    output = np.diff(requests["output_offsets"])[rows["request"]]
    require((rows["length"] >= prompt).all(), "rows.length is shorter than the request's prompt")
    require(
        (total(rows["length"], rows["gained"]) <= prompt + output).all(),
        "rows.length and rows.gained run past the request's output",
    )


def _check_shape_of_drafts(tables: dict[str, Table], num_draft_tokens: int) -> None:
    """Check what is said of the drafts that are verified and of the tree that they form."""
    rows = tables["rows"]
    require((rows["verified"] <= rows["drafted"]).all(), "rows.verified exceeds rows.drafted")
    require((rows["accepted"] <= rows["verified"]).all(), "rows.accepted exceeds rows.verified")
    number = np.arange(num_draft_tokens)
    is_before = (rows["parents"] >= -1) & (rows["parents"] < number)
    require(is_before.all(), "rows.parents names a draft that does not come before its child")
    is_draft = (rows["path"] >= -1) & (rows["path"] < num_draft_tokens)
    require(is_draft.all(), "rows.path names a draft that there is not")
    node = tables["feeds"]["node"]
    of_target = node[tables["feeds"]["model"] == MODELS.index("target")]
    _check_range("feeds.node", of_target, num_draft_tokens + 1)
    # A draft model may have read drafts that were not proposed in the end: they come behind.
    _check_range("feeds.node", node)


def _check_visibility(feeds: Table, holes: Table) -> None:
    start = feeds["visible_start"]
    stop = feeds["visible_stop"]
    require((start <= stop).all(), "feeds.visible_start exceeds feeds.visible_stop")
    feed = holes["feed"]
    fits = (start[feed] <= holes["start"]) & (holes["start"] <= holes["stop"])
    fits &= holes["stop"] <= stop[feed]
    require(fits.all(), "holes.start and holes.stop leave what the feed attends to")


def _check_floats(rounds: Table, rows: Table, *, has_times: bool) -> None:
    for phase in PHASES:
        ms = rounds[f"{phase}_ms"]
        fits = np.isfinite(ms) & (ms >= 0)
        if not has_times:
            fits |= np.isnan(ms)
        require(fits.all(), f"rounds.{phase}_ms must hold finite times >= 0")
    for name, values in rows.items():
        if "logprob" in name:
            require(not (values > MAX_LOGPROB).any(), f"rows.{name} holds probabilities above 1")


def _check_extent(tables: dict[str, Table], num_draft_tokens: int) -> None:
    """Refuse a small record that claims a huge cache, because replaying it would allocate that."""
    feeds = tables["feeds"]
    requests = tables["requests"]
    rows, slots = cache_shape(tables)
    fed = feeds["slot"].size
    tokens = requests["prompt_tokens"].size + requests["output_tokens"].size
    max_cells = FREE_CELLS + CELLS_PER_FEED * fed + CELLS_PER_TOKEN * tokens
    require(
        rows * slots <= max_cells and slots <= FREE_SLOTS + fed + tokens,
        f"a cache of {rows} rows and {slots} slots is far more than the recorded feeds can fill",
    )
    sizes = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    last = sizes[feeds["request"]] + num_draft_tokens
    require((feeds["index"] <= last).all(), "feeds.index exceeds the request's last draft")
    count = sizes.size
    longest = int(sizes.max(initial=0)) + num_draft_tokens + 1
    require(
        count * longest <= max_cells,
        f"{count} requests of up to {longest} tokens are far more than the recorded feeds can fill",
    )
    fits = _largest_step(tables["moves"]) <= max_cells
    require(fits, "moves copies more slots at once than the caches have")


def _largest_step(moves: Table) -> int:
    """Return the largest number of slots that are copied at once."""
    order = np.lexsort((moves["step"], moves["phase"], moves["round"]))
    # Both models' moves of one step together: this only limits, so it may count too many.
    keys = np.stack([moves[name][order] for name in ("round", "phase", "step")])  # (3, N)
    firsts = np.flatnonzero((np.diff(keys, axis=1, prepend=-1) != 0).any(0))
    if firsts.size == 0:
        return 0
    return largest(np.add.reduceat(moves["length"][order].astype(np.int64), firsts))
