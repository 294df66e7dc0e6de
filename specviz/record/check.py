"""The one place where a record is checked.

`validated` returns meta data and tables normalised, or raises a `TraceError` of one sentence. A
record that passes can be replayed, tabulated and drawn without further checks of its indices.
Whether the decoding itself was right is not judged here.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from specviz.record.index import RecordIndex, by_step
from specviz.record.schema import (
    COLUMNS,
    DRAFT_KV,
    MISSING,
    MODELS,
    PHASES,
    STATUSES,
    Array,
    Table,
    TraceError,
    missing_in,
    named,
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
    **dict.fromkeys(("missing", "unrecorded", "status", "logits_processor", "stop"), (list,)),
    **dict.fromkeys(("selector_options", "layers", "windows", "bytes_per_state"), (dict,)),
    **dict.fromkeys(("num_threads", "block"), (int,)),
}
_MAY_BE_NEGATIVE = {"drafts", "emitted", "target_top_ids", "draft_top_ids", "position"}
_FROM_MINUS_ONE = {("rows", "path"), ("rows", "parents"), ("states", "feed")}
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
    try:
        # A trip through JSON, so that saving does not change it.
        plain = dict(json.loads(json.dumps(meta, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(
            f"meta must be a dict that JSON can hold, got {short(meta)} ({error}); "
            "use plain str, int, float, bool, list and dict"
        ) from None
    _require(_rules_of_meta(plain))
    K = plain["num_draft_tokens"]
    # The block of a head may be longer than the drafts that are taken from it.
    most = max(K, plain.get("block", 0))
    # In this order: each rule indexes by columns that those before it have confined.
    _require(_rules_of_columns(tables, K))
    checked = {name: _read_only(name, tables[name]) for name in COLUMNS}
    _require(_rules_of_ranges(checked, K, len(plain["decisions"])))
    for name, derived in chain_columns(checked, K).items():
        checked[name] = _read_only(name, derived | checked[name])
    _require(_rules_of_rows(checked, has_times="times" not in missing_in(plain)))
    _require(_rules_of_feeds(checked, K, most))
    _require(_rules_of_extent(checked, most))
    return plain, checked


def _require(rules: _Rules) -> None:
    for fits, problem in rules:
        if not fits:
            raise TraceError(f"{problem}; record the run again")


def _read_only(name: str, table: Mapping[str, Array]) -> Table:
    found = {}
    for column in COLUMNS[name].keys() & table.keys():
        found[column] = np.ascontiguousarray(table[column]).view()
        found[column].flags.writeable = False
    return {column: found[column] for column in COLUMNS[name] if column in found}


def _is_int(value: Any, least: int = 0, stop: int = 2**31) -> bool:
    return type(value) is int and least <= value < stop


def _is_by_type(entry: tuple[str, Any]) -> bool:
    """Return whether this is a model, and a number for some types of its layers."""
    model, numbers = entry
    is_known = model in MODELS and type(numbers) is dict
    return is_known and all(_is_int(number, 1) for number in numbers.values())


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
    texts = meta["token_texts"].values()
    eos, kv_bytes = meta["eos_token_ids"], meta["kv_bytes_per_slot"]
    by_type = [*meta.get("layers", {}).items(), *meta.get("windows", {}).items()]
    values = {  # {entry: whether it fits, and what it must be}
        "num_draft_tokens": (_is_int(meta["num_draft_tokens"], 0, MAX_WIDTH), "from 0 to 65535"),
        "batch_size": (meta["batch_size"] >= 0, ">= 0"),
        "vocabulary_size": (meta["vocabulary_size"] >= 0, ">= 0"),
        "num_threads": (meta.get("num_threads", 1) >= 1, ">= 1"),
        "block": (_is_int(meta.get("block", 0), 0, MAX_WIDTH), "from 0 to 65535"),
        "eos_token_ids": (
            len(eos) < MAX_WIDTH and all(map(_is_int, eos)),
            f"a list of fewer than {MAX_WIDTH} ids from 0 to 2^31 - 1",
        ),
        "token_texts": (all(type(text) is str for text in texts), "{id: str}"),
        "decisions": (all(type(name) is str for name in meta["decisions"]), "a list of str"),
        "status": (
            all(is_one_of(each, STATUSES) for each in meta.get("status", ())),
            f"a list of {', '.join(STATUSES)}",
        ),
        "missing": (
            all(is_one_of(each, MISSING) for each in meta.get("missing", ())),
            "a list of names of what may be missing",
        ),
        "draft_kv": (meta.get("draft_kv", "kept") in DRAFT_KV, f"one of {', '.join(DRAFT_KV)}"),
        "layers": (
            all(map(_is_by_type, by_type)),
            "{model: {type of layer: an int >= 1}}, and so must meta.windows",
        ),
        "bytes_per_state": (
            all(map(_is_int, meta.get("bytes_per_state", {}).values())),
            "{model: an int >= 0}",
        ),
        "kv_bytes_per_slot": (
            all(_is_int(kv_bytes.get(model), 0, 2**32) for model in MODELS),
            "{target, draft: an int from 0 to 2^32 - 1}",
        ),
    }
    for key, (fits, wanted) in values.items():
        yield fits, f"meta.{key} must be {wanted}, got {short(meta.get(key))}"


def _rules_of_columns(tables: Mapping[str, Mapping[str, Array]], num_draft_tokens: int) -> _Rules:
    """Names, dtypes, ranks and sizes."""
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            yield False, f"{name} must be a dict of arrays, got {short(table)}"
        derived = () if name == "states" and table else DERIVED.get(name, ())
        needed = COLUMNS[name].keys() - set(derived)
        for what, columns in (
            ("missing", needed - table.keys()),
            ("unknown", table.keys() - COLUMNS[name]),
        ):
            found = ", ".join(sorted(f"{name}.{named(column)}" for column in columns)[:3])
            yield not columns, f"columns are {what}: {found}"
        sizes = {"K": num_draft_tokens}  # a letter that is not in it takes the size found first
        for column, form in COLUMNS[name].items():
            if column not in table:
                continue
            values, place = table[column], f"{name}.{column}"
            yield isinstance(values, np.ndarray), f"{place} must be a numpy array"
            fits = values.dtype == form.dtype and values.ndim == len(form.shape)
            wanted = f"{form.dtype} of rank {len(form.shape)}"
            yield fits, f"{place} is {values.dtype} of rank {values.ndim} instead of {wanted}"
            for size, symbol in zip(values.shape, form.shape, strict=True):
                letter, _, extra = symbol.partition("+")
                expected = sizes.setdefault(letter, size - int(extra or 0)) + int(extra or 0)
                entries = f"{place} has {size} entries along {symbol}"
                yield size == expected, f"{entries} instead of {expected}"
                yield size <= MAX_WIDTH or letter not in "Kkj", f"{entries}, more than {MAX_WIDTH}"


def _rules_of_ranges(tables: dict[str, Table], num_draft_tokens: int, num_decisions: int) -> _Rules:
    """Counts are not negative, and references point to something that exists."""
    requests = tables["requests"]
    for name, shortest in (("prompt", 1), ("output", 0)):
        count = requests[f"{name}_tokens"].size
        offsets = requests[f"{name}_offsets"]
        fits = offsets[0] == 0 and offsets[-1] == count and (offsets <= count).all()
        fits = fits and (np.diff(offsets) >= shortest).all()
        yield (
            fits,
            f"requests.{name}_offsets does not run from 0 to the {count} {name} tokens, in steps "
            f"of at least {shortest}",
        )
    stops = {
        "round": tables["rounds"]["batch"].size,
        "request": requests["budget"].size,
        "feed": tables["feeds"]["slot"].size,
        "phase": len(PHASES),
        "model": len(MODELS),
        "decision": num_decisions,
        "finished": 2,
        "chosen": 2,
        "drafted": num_draft_tokens + 1,
        "gained": num_draft_tokens + 2,
        "path": num_draft_tokens,
        "parents": num_draft_tokens,
    }
    for table, columns in tables.items():
        for column, values in columns.items():
            if values.dtype == np.float32 or column in _MAY_BE_NEGATIVE or not values.size:
                continue
            least = -1 if (table, column) in _FROM_MINUS_ONE else 0
            stop = stops.get(column)
            # As Python ints: a stop may lie outside the column's dtype.
            fits = values.min() >= least and (stop is None or int(values.max()) < stop)
            last = "" if stop is None else stop - 1
            yield fits, f"{table}.{column} holds values outside {least}..{last}"


def _rules_of_rows(tables: dict[str, Table], *, has_times: bool) -> _Rules:
    rounds, rows, requests = (tables[name] for name in ("rounds", "rows", "requests"))
    key = rows["round"].astype(np.int64) << 32 | rows["row"]
    is_sorted = (np.diff(key) > 0).all()
    yield is_sorted, "rows is not sorted by round and row, or holds one of them twice"
    counts = np.bincount(rows["round"], minlength=rounds["batch"].size)
    fits: Any = np.array_equal(counts, rounds["batch"])
    yield fits, "rounds.batch differs from the number of entries that rows has for a round"
    for less, more in (
        ("accepted", "drafted"),
        ("verified", "drafted"),
        ("accepted", "verified"),
    ):
        yield (rows[less] <= rows[more]).all(), f"rows.{less} exceeds rows.{more}"
    is_before = rows["parents"] < np.arange(rows["parents"].shape[1])
    yield is_before.all(), "rows.parents names a draft that does not come before its child"
    prompt = np.diff(requests["prompt_offsets"])[rows["request"]]
    output = np.diff(requests["output_offsets"])[rows["request"]]
    yield (rows["length"] >= prompt).all(), "rows.length is shorter than the request's prompt"
    fits = (rows["length"].astype(np.int64) + rows["gained"] <= prompt + output).all()
    yield fits, "rows.length and rows.gained run past the request's output"
    for phase in PHASES:
        ms = tables["rounds"][f"{phase}_ms"]
        fits = (np.isfinite(ms) & (ms >= 0)) | (np.isnan(ms) & (not has_times))
        yield fits.all(), f"rounds.{phase}_ms must hold finite times >= 0"
    for name, values in tables["rows"].items():
        fits = "logprob" not in name or not (values > MAX_LOGPROB).any()
        yield fits, f"rows.{name} holds probabilities above 1"


def _rules_of_feeds(tables: dict[str, Table], num_draft_tokens: int, most: int) -> _Rules:
    """Rules of the table `feeds`. most: how far a feed may lie behind what is committed."""
    feeds, holes, requests = (tables[name] for name in ("feeds", "holes", "requests"))
    start, stop = feeds["visible_start"], feeds["visible_stop"]
    yield (start <= stop).all(), "feeds.visible_start exceeds feeds.visible_stop"
    fits: Any = feeds["window_offset"] <= stop - start
    yield fits.all(), "feeds.window_offset leaves what the feed attends to"
    feed = holes["feed"]
    fits = (start[feed] <= holes["start"]) & (holes["start"] <= holes["stop"])
    fits &= holes["stop"] <= stop[feed]
    yield fits.all(), "holes.start and holes.stop leave what the feed attends to"
    sizes = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    fits = (feeds["index"] <= sizes[feeds["request"]] + most).all()
    yield fits, "feeds.index exceeds the request's last draft"
    # A draft model may have read drafts that were not proposed in the end: they come behind.
    fits = (feeds["node"] <= num_draft_tokens) | (feeds["model"] == MODELS.index("draft"))
    yield fits.all(), f"feeds.node holds values outside 0..{num_draft_tokens}"


def _rules_of_extent(tables: dict[str, Table], most_ahead: int) -> _Rules:
    """A small record does not claim a huge cache, because replaying it would allocate that."""
    requests, moves = tables["requests"], tables["moves"]
    rows, slots = RecordIndex(tables).cache_shape
    fed = tables["feeds"]["slot"].size
    tokens = requests["prompt_tokens"].size + requests["output_tokens"].size
    most = FREE_CELLS + CELLS_PER_FEED * fed + CELLS_PER_TOKEN * tokens
    behind = "far more than the recorded feeds can fill"
    fits = rows * slots <= most and slots <= FREE_SLOTS + fed + tokens
    yield fits, f"a cache of {rows} rows and {slots} slots is {behind}"
    sizes = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    longest = int(sizes.max(initial=0)) + most_ahead + 1
    fits = sizes.size * longest <= most
    yield fits, f"{sizes.size} requests of up to {longest} tokens are {behind}"
    copied = [moves["length"][at].sum(dtype=np.int64) for at in by_step(moves).values()]
    yield max(copied, default=0) <= most, "moves copies more slots at once than the caches have"
