"""The one place where a record is checked.

`validated` returns meta data and tables normalised, or raises a `TraceError` of one sentence. A
record that passes can be replayed, tabulated and drawn without further checks of its indices.
Whether the decoding itself was right is not judged here.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from specviz.record.missing import MISSING, missing_in
from specviz.record.schema import (
    COLUMNS,
    DRAFT_KV,
    MODELS,
    PHASES,
    STATUSES,
    Array,
    Column,
    Table,
    TraceError,
    cache_shape,
    largest,
    named,
    total,
)
from specviz.record.trees import DERIVED, chain_columns
from specviz.util.validate import is_one_of, short

MAX_WIDTH = 2**16  # draft tokens a round, recorded candidates, EOS tokens
MAX_DEPTH = 32  # of nested lists and dicts in the meta data
# A reader allocates memory for what the record claims, so the claims are limited by what it holds.
FREE_CELLS = 2**21  # a cache of up to this many (row, slot) cells needs no evidence
CELLS_PER_FEED = 32  # a larger one needs one feed for this many of its further cells,
CELLS_PER_TOKEN = 2  # or a token of a prompt or an output for so many
FREE_SLOTS = 2**17  # a longer row needs one feed or token for each further slot
MAX_LOGPROB = 0.01  # rounding may leave so much above 0

NULL = type(None)
# {entry of the meta data: its types}, of those that must be there and of those that later releases
# have added.
_NEEDED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("strategy", "device", "dtype", "created", "target"), (str,)),
    **dict.fromkeys(("drafter", "draft"), (str, NULL)),
    **dict.fromkeys(("num_draft_tokens", "batch_size", "vocabulary_size"), (int,)),
    **dict.fromkeys(("strategy_options", "versions", "kv_bytes_per_slot", "token_texts"), (dict,)),
    **dict.fromkeys(("eos_token_ids", "decisions"), (list,)),
    "valid": (bool,),
    "seed": (int, NULL),
    "sampling": (dict, NULL),
}
_LATER: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("right_aligned", "foresees", "branches"), (bool,)),
    **dict.fromkeys(("selector", "draft_kv"), (str,)),
    **dict.fromkeys(("missing", "unrecorded", "status"), (list,)),
    "selector_options": (dict,),
    "num_threads": (int,),
}
_MAY_BE_NEGATIVE = {
    *("drafts", "parents", "path", "emitted"),
    *("target_top_ids", "draft_top_ids", "position"),
}
_Rules = Iterator[tuple[Any, str]]  # whether it holds, and the problem if not


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
    plain = _plain(meta)
    _require(_rules_of_meta(plain))
    K = plain["num_draft_tokens"]
    checked = {name: _checked_table(name, tables[name], K) for name in COLUMNS}
    # In this order: each rule indexes by columns that those before it have confined.
    _require(_rules_of_requests(checked["requests"]))
    _require(_rules_of_ranges(checked, len(plain["decisions"])))
    _require(_rules_of_rows(checked, K))
    _require(_rules_of_numbers(checked, has_times="times" not in missing_in(plain)))
    _require(_rules_of_extent(checked, K))
    for name, derived in chain_columns(checked, K).items():
        lacking = derived.keys() - checked[name]
        checked[name] |= {column: _read_only(derived[column]) for column in lacking}
    _require(_rules_of_drafts(checked, K))
    return plain, checked


def _require(rules: _Rules) -> None:
    for fits, problem in rules:
        if not fits:
            raise TraceError(f"{problem}; record the run again")


def _plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta data after a trip through JSON, so that saving does not change it."""
    if not isinstance(meta, Mapping):
        raise TraceError(f"meta must be a dict, got {short(meta)}; record the run again")
    try:
        plain = json.loads(json.dumps(meta, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(
            f"meta does not fit into JSON ({error}); use plain str, int, float, bool, list and dict"
        ) from None
    return dict(plain)


def _rules_of_meta(meta: dict[str, Any]) -> _Rules:
    # A reader of the file recurses into what is nested.
    level: list[Any] = [meta]
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    yield not level, f"meta is nested more than {MAX_DEPTH} deep"
    lacking = sorted(_NEEDED.keys() - meta.keys())
    yield not lacking, f"meta lacks {', '.join(lacking)}"
    for key, types in (_NEEDED | _LATER).items():
        wanted = " or ".join("null" if kind is NULL else kind.__name__ for kind in types)
        fits = key not in meta or type(meta[key]) in types
        yield fits, f"meta.{key} must be {wanted}, got {short(meta.get(key))}"
    for key, least in {
        **dict.fromkeys(("num_draft_tokens", "batch_size", "vocabulary_size"), 0),
        "num_threads": 1,
    }.items():
        value = meta.get(key, least)
        yield value >= least, f"meta.{key} must be an int >= {least}, got {value}"
    yield meta["num_draft_tokens"] < MAX_WIDTH, f"meta.num_draft_tokens must be < {MAX_WIDTH}"
    eos = meta["eos_token_ids"]
    yield len(eos) < MAX_WIDTH, f"meta.eos_token_ids must hold fewer than {MAX_WIDTH} ids"
    fits = all(type(token) is int and 0 <= token < 2**31 for token in eos)
    yield fits, "meta.eos_token_ids must hold ints from 0 to 2^31 - 1"
    texts = meta["token_texts"].values()
    yield all(type(text) is str for text in texts), "meta.token_texts must hold str"
    yield all(type(name) is str for name in meta["decisions"]), "meta.decisions must hold str"
    known = all(is_one_of(each, STATUSES) for each in meta.get("status", []))
    yield known, f"meta.status must be a list of {', '.join(STATUSES)}"
    unknown = [name for name in meta.get("missing", []) if not is_one_of(name, MISSING)]
    yield not unknown, f"meta.missing must hold names of what is missing, got {short(unknown)}"
    fits = meta.get("draft_kv", "kept") in DRAFT_KV
    yield fits, f"meta.draft_kv must be one of {', '.join(DRAFT_KV)}"
    for model in MODELS:
        kv_bytes = meta["kv_bytes_per_slot"].get(model)
        fits = type(kv_bytes) is int and 0 <= kv_bytes < 2**32
        yield fits, f"meta.kv_bytes_per_slot.{model} must be an int from 0 to 2^32 - 1"


def _checked_table(name: str, table: Mapping[str, Array], num_draft_tokens: int) -> Table:
    def rules() -> _Rules:
        # The repr of a table takes longer than all checks of it, so only an error makes it.
        if not isinstance(table, Mapping):
            yield False, f"{name} must be a dict of arrays, got {short(table)}"
        needed = COLUMNS[name].keys() - set(DERIVED.get(name, ()))
        lacking = sorted(f"{name}.{named(column)}" for column in needed - table.keys())
        unknown = sorted(f"{name}.{named(column)}" for column in table.keys() - COLUMNS[name])
        yield not lacking, f"columns are missing: {', '.join(lacking)}"
        yield not unknown, f"columns are unknown: {', '.join(unknown[:3])}"
        sizes = {"K": num_draft_tokens}
        for column, form in COLUMNS[name].items():
            if column in table:
                yield from _rules_of_column(f"{name}.{column}", table[column], form, sizes)

    _require(rules())
    return {column: _read_only(table[column]) for column in COLUMNS[name] if column in table}


def _rules_of_column(name: str, values: Array, form: Column, sizes: dict[str, int]) -> _Rules:
    """Check dtype, rank and size. A letter that is not in `sizes` yet takes the size found here."""
    yield isinstance(values, np.ndarray), f"{name} must be a numpy array"
    found, wanted = (values.dtype, values.ndim), (np.dtype(form.dtype), len(form.shape))
    ranks = [f"{dtype} of rank {rank}" for dtype, rank in (found, wanted)]
    yield found == wanted, f"{name} is {ranks[0]} instead of {ranks[1]}"
    for size, symbol in zip(values.shape, form.shape, strict=True):
        letter, _, extra = symbol.partition("+")
        expected = sizes.setdefault(letter, size - int(extra or 0)) + int(extra or 0)
        entries = f"{name} has {size} entries along {symbol}"
        yield size == expected, f"{entries} instead of {expected}"
        yield size <= MAX_WIDTH or letter not in "Kkj", f"{entries}, more than {MAX_WIDTH}"


def _read_only(values: Array) -> Array:
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def _rules_of_requests(requests: Table) -> _Rules:
    for name, shortest in (("prompt", 1), ("output", 0)):
        count = requests[f"{name}_tokens"].size
        offsets = requests[f"{name}_offsets"]
        column = f"requests.{name}_offsets"
        complete = offsets[0] == 0 and offsets[-1] == count and _within(offsets, count + 1)
        yield complete, f"{column} does not run from 0 to the {count} {name} tokens"
        is_long = (np.diff(offsets) >= shortest).all()
        yield is_long, f"{column} gives a request fewer than {shortest} tokens"
    for column in ("prompt_tokens", "output_tokens", "budget"):
        fits = _within(requests[column])
        yield fits, f"requests.{column} holds values outside 0.."


def _within(values: Array, stop: int | None = None) -> bool:
    # As Python ints: a stop may lie outside the column's dtype.
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    return not values.size or (least >= 0 and (stop is None or most < stop))


def _rules_of_ranges(tables: dict[str, Table], num_decisions: int) -> _Rules:
    """Counts are not negative, and references point to something that exists."""
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
                stop = stops.get(column)
                last = "" if stop is None else stop - 1
                fits = _within(values, stop)
                yield fits, f"{table}.{column} holds values outside 0..{last}"


def _rules_of_rows(tables: dict[str, Table], num_draft_tokens: int) -> _Rules:
    rounds, rows, requests = (tables[name] for name in ("rounds", "rows", "requests"))
    key = rows["round"].astype(np.int64) << 32 | rows["row"]
    is_sorted = bool((np.diff(key) > 0).all())
    yield is_sorted, "rows is not sorted by round and row, or holds one of them twice"
    counts = np.bincount(rows["round"], minlength=rounds["batch"].size)
    fits: Any = np.array_equal(counts, rounds["batch"])
    yield fits, "rounds.batch differs from the number of entries that rows has for a round"
    for column, most in {"drafted": num_draft_tokens, "gained": num_draft_tokens + 1}.items():
        fits = _within(rows[column], most + 1)
        yield fits, f"rows.{column} holds values outside 0..{most}"
    yield (rows["accepted"] <= rows["drafted"]).all(), "rows.accepted exceeds rows.drafted"
    prompt = np.diff(requests["prompt_offsets"])[rows["request"]]
    output = np.diff(requests["output_offsets"])[rows["request"]]
    yield (rows["length"] >= prompt).all(), "rows.length is shorter than the request's prompt"
    fits = (total(rows["length"], rows["gained"]) <= prompt + output).all()
    yield fits, "rows.length and rows.gained run past the request's output"


def _rules_of_numbers(tables: dict[str, Table], *, has_times: bool) -> _Rules:
    rounds, rows, feeds, holes = (tables[name] for name in ("rounds", "rows", "feeds", "holes"))
    start, stop = feeds["visible_start"], feeds["visible_stop"]
    yield (start <= stop).all(), "feeds.visible_start exceeds feeds.visible_stop"
    feed = holes["feed"]
    fits: Any = (start[feed] <= holes["start"]) & (holes["start"] <= holes["stop"])
    fits &= holes["stop"] <= stop[feed]
    yield fits.all(), "holes.start and holes.stop leave what the feed attends to"
    for phase in PHASES:
        ms = rounds[f"{phase}_ms"]
        fits = np.isfinite(ms) & (ms >= 0)
        if not has_times:
            fits |= np.isnan(ms)
        yield fits.all(), f"rounds.{phase}_ms must hold finite times >= 0"
    for name, values in rows.items():
        if "logprob" in name:
            fits = not (values > MAX_LOGPROB).any()
            yield fits, f"rows.{name} holds probabilities above 1"


def _rules_of_extent(tables: dict[str, Table], num_draft_tokens: int) -> _Rules:
    """A small record does not claim a huge cache, because replaying it would allocate that."""
    feeds, requests, moves = (tables[name] for name in ("feeds", "requests", "moves"))
    rows, slots = cache_shape(tables)
    fed = feeds["slot"].size
    tokens = requests["prompt_tokens"].size + requests["output_tokens"].size
    most = FREE_CELLS + CELLS_PER_FEED * fed + CELLS_PER_TOKEN * tokens
    fits: Any = rows * slots <= most and slots <= FREE_SLOTS + fed + tokens
    yield (
        fits,
        f"a cache of {rows} rows and {slots} slots is far more than the recorded feeds can fill",
    )
    sizes = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    fits = (feeds["index"] <= sizes[feeds["request"]] + num_draft_tokens).all()
    yield fits, "feeds.index exceeds the request's last draft"
    longest = int(sizes.max(initial=0)) + num_draft_tokens + 1
    yield (
        sizes.size * longest <= most,
        f"{sizes.size} requests of up to {longest} tokens are far more than the recorded feeds "
        "can fill",
    )
    # Both models' moves of one step together: this only limits, so it may count too many.
    order = np.lexsort((moves["step"], moves["phase"], moves["round"]))
    keys = np.stack([moves[name][order] for name in ("round", "phase", "step")])  # (3, N)
    firsts = np.flatnonzero((np.diff(keys, axis=1, prepend=-1) != 0).any(0))
    lengths = moves["length"][order].astype(np.int64)
    step = largest(np.add.reduceat(lengths, firsts)) if firsts.size else 0
    yield step <= most, "moves copies more slots at once than the caches have"


def _rules_of_drafts(tables: dict[str, Table], num_draft_tokens: int) -> _Rules:
    """What is said of the drafts that are verified, and of the tree that they form."""
    rows = tables["rows"]
    yield (rows["verified"] <= rows["drafted"]).all(), "rows.verified exceeds rows.drafted"
    yield (rows["accepted"] <= rows["verified"]).all(), "rows.accepted exceeds rows.verified"
    is_before = (rows["parents"] >= -1) & (rows["parents"] < np.arange(num_draft_tokens))
    yield is_before.all(), "rows.parents names a draft that does not come before its child"
    is_draft = (rows["path"] >= -1) & (rows["path"] < num_draft_tokens)
    yield is_draft.all(), "rows.path names a draft that there is not"
    node = tables["feeds"]["node"]
    # A draft model may have read drafts that were not proposed in the end: they come behind.
    of_target = node[tables["feeds"]["model"] == MODELS.index("target")]
    fits = _within(of_target, num_draft_tokens + 1)
    yield fits, f"feeds.node holds values outside 0..{num_draft_tokens}"
    yield _within(node), "feeds.node holds values outside 0.."
