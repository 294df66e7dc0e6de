"""The meta data of a record: what has to be in it, and of which kind.

Contract: `checked_meta` returns plain JSON values, or raises a `TraceError` of one sentence. Not
known here: the tables.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.missing import MISSING
from specviz.record.schema import DRAFT_KV, MODELS, STATUSES, TraceError
from specviz.util.validate import is_one_of, short

MAX_WIDTH = 2**16  # draft tokens a round, recorded candidates, EOS tokens
MAX_DEPTH = 32  # of nested lists and dicts in the meta data

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
# Older records lack these.
_LATER = {
    "right_aligned": bool,
    "selector": str,
    "selector_options": dict,
    "foresees": bool,
    "draft_kv": str,
    "branches": bool,
    "missing": list,
    "unrecorded": list,
}


def head_of(meta: Mapping[str, Any]) -> str | None:
    """Return the name of the draft head that a run drafted with; None if it had none."""
    if meta.get("draft_kv", "kept") == "kept":
        return None
    # Trees grow from what their drafter's option `base` names.
    options = meta.get("drafter_options")
    base = options.get("base") if isinstance(options, Mapping) else None
    name: str | None = base if isinstance(base, str) else meta["drafter"]
    return name


def require(fits: bool | np.bool_, problem: str) -> None:
    """Raise TraceError with this problem unless it `fits`."""
    if not fits:
        raise TraceError(f"{problem}; record the run again")


def checked_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta data of a record as plain JSON values.

    Raises:
        TraceError: an entry is missing or of another kind.
    """
    plain = _plain_meta(meta)
    _check_meta(plain)
    return plain


def _plain_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta data after a trip through JSON, so that saving does not change it."""
    require(isinstance(meta, Mapping), f"meta must be a dict, got {short(meta)}")
    try:
        plain = json.loads(json.dumps(meta, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(
            f"meta does not fit into JSON ({error}); use plain str, int, float, bool, list and dict"
        ) from None
    require(isinstance(plain, dict), f"meta must be a dict, got {short(meta)}")
    _check_depth(plain)
    return dict(plain)


def _check_depth(meta: dict[str, Any]) -> None:
    """Limit the nesting, which a reader of the file would have to recurse into."""
    level: list[Any] = [meta]
    depth = 0
    while level:
        depth += 1
        require(depth <= MAX_DEPTH, f"meta is nested more than {MAX_DEPTH} deep")
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]


def _check_meta(meta: dict[str, Any]) -> None:
    missing = sorted(_META.keys() - meta.keys())
    require(not missing, f"meta lacks {', '.join(missing)}")
    for key, types in _META.items():
        wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
        require(type(meta[key]) in types, f"meta.{key} must be {wanted}, got {short(meta[key])}")
    for key in ("num_draft_tokens", "batch_size", "vocabulary_size"):
        require(meta[key] >= 0, f"meta.{key} must be an int >= 0, got {meta[key]}")
    require(meta["num_draft_tokens"] < MAX_WIDTH, f"meta.num_draft_tokens must be < {MAX_WIDTH}")

    eos = meta["eos_token_ids"]
    require(len(eos) < MAX_WIDTH, f"meta.eos_token_ids must hold fewer than {MAX_WIDTH} ids")
    eos_fit = all(type(token) is int and 0 <= token < 2**31 for token in eos)
    require(eos_fit, "meta.eos_token_ids must hold ints from 0 to 2^31 - 1")

    texts = meta["token_texts"].values()
    require(all(type(text) is str for text in texts), "meta.token_texts must hold str")
    require(all(type(name) is str for name in meta["decisions"]), "meta.decisions must hold str")
    status = meta.get("status", [])
    status_fits = isinstance(status, list) and all(each in STATUSES for each in status)
    require(status_fits, f"meta.status must be a list of {', '.join(STATUSES)}")
    if "num_threads" in meta:
        threads = meta["num_threads"]
        fits = type(threads) is int and threads >= 1
        require(fits, f"meta.num_threads must be an int >= 1, got {short(threads)}")
    for key, kind in _LATER.items():
        fits = key not in meta or type(meta[key]) is kind
        require(fits, f"meta.{key} must be {kind.__name__}, got {short(meta.get(key))}")
    unknown = [name for name in meta.get("missing", []) if not is_one_of(name, MISSING)]
    require(not unknown, f"meta.missing must hold names of what is missing, got {short(unknown)}")
    draft_kv = meta.get("draft_kv", "kept")
    require(draft_kv in DRAFT_KV, f"meta.draft_kv must be one of {', '.join(DRAFT_KV)}")
    for model in MODELS:
        kv_bytes = meta["kv_bytes_per_slot"].get(model)
        fits = type(kv_bytes) is int and 0 <= kv_bytes < 2**32
        require(fits, f"meta.kv_bytes_per_slot.{model} must be an int from 0 to 2^32 - 1")
