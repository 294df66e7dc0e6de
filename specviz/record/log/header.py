"""The header of a log: what decoded, and with what.

Contract: `checked_header` returns plain JSON values, or raises a ValueError of one sentence;
`to_meta` makes the header of a record of them. Not known here: events.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from specviz.record.header import MAX_WIDTH
from specviz.record.log.arrays import as_array, check_limits
from specviz.record.missing import MISSING
from specviz.record.schema import MODELS
from specviz.util.validate import (
    is_count,
    is_finite,
    require_bool,
    require_int,
    require_mapping,
    require_names,
    require_str,
    require_text,
    short,
)

VERSION = 1
_MOST_TOKENS = 2**31 - 1
_TEXTS = ("decoder", "target", "device", "dtype", "created")
_TEXTS_OR_NONE = ("draft", "drafter")
_BOOLS = ("right_aligned", "keep_draft", "valid")
_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "coupling": "rejection"}


def checked_header(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header's entries as JSON values; what is None is left out."""
    values = {name: value for name, value in given.items() if value is not None}
    require_int("vocabulary_size", given["vocabulary_size"], maximum=_MOST_TOKENS)
    K = given["num_draft_tokens"]
    require_int("num_draft_tokens", K, minimum=0, maximum=MAX_WIDTH - 1)
    for name in ("vocabulary_size", "num_draft_tokens"):
        values[name] = int(values[name])
    values["eos_token_ids"] = _eos(given["eos_token_ids"])
    for name in (*_TEXTS, *_TEXTS_OR_NONE):
        if name in values or name in _TEXTS:
            require_text(name, require_str(name, values.get(name)))
    for name in _BOOLS:
        require_bool(name, values.get(name))
    if "batch_size" in values:
        values["batch_size"] = require_int("batch_size", values["batch_size"], maximum=_MOST_TOKENS)
    if "sampling" in values:
        values["sampling"] = _sampling(values["sampling"])
    if "kv_bytes_per_slot" in values:
        values["kv_bytes_per_slot"] = _kv_bytes(values["kv_bytes_per_slot"])
    values["drafter"] = given["drafter"]  # None: nothing drafts
    values["missing"] = _missing(given["missing"])
    return values


def now() -> str:
    """Return the time as a header has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _eos(value: Any) -> list[int]:
    tokens = as_array("eos_token_ids", value, "iu", "a list of token ids")
    if tokens.ndim != 1:
        raise ValueError(f"eos_token_ids must be a list of token ids, got {short(value)}; pass ids")
    if tokens.size >= MAX_WIDTH:
        raise ValueError(
            f"eos_token_ids must be fewer than {MAX_WIDTH}, got {tokens.size}; pass fewer"
        )
    check_limits("eos_token_ids", tokens, 0, _MOST_TOKENS)
    return [int(token) for token in tokens]


def _sampling(value: Any) -> dict[str, Any]:
    require_mapping("sampling", value, "pass {'temperature': ...}, or None for greedy decoding")
    unknown = sorted(map(str, value.keys() - _SAMPLING.keys()))
    if unknown:
        raise ValueError(
            f"sampling has the unknown entry {short(unknown[0])}; "
            f"choose from {', '.join(_SAMPLING)}"
        )
    sampling = _SAMPLING | dict(value)
    for name in ("temperature", "top_k", "top_p"):
        number = sampling[name]
        if not (number is None and name != "temperature") and not is_finite(number):
            raise ValueError(
                f"sampling[{name!r}] must be a number, got {short(number)}; pass its value"
            )
        if number is not None:
            sampling[name] = int(number) if name == "top_k" else float(number)
    require_str("sampling['coupling']", sampling["coupling"])
    return sampling


def _kv_bytes(value: Any) -> dict[str, int]:
    require_mapping("kv_bytes_per_slot", value, "pass {'target': bytes, 'draft': bytes}")
    for name, size in value.items():
        if name not in MODELS or not is_count(size) or size >= 2**32:
            raise ValueError(
                f"kv_bytes_per_slot must map target and draft to ints >= 0, got {short(value)}; "
                "pass the bytes of one token's K/V in all layers"
            )
    return {model: int(value.get(model, 0)) for model in MODELS}


def _missing(value: Any) -> list[str]:
    require_names("missing", value)
    for name in value:
        if name not in MISSING:
            raise ValueError(f"missing={short(name)} is unknown; choose from {', '.join(MISSING)}")
    return sorted(set(value))


def to_meta(header: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
    """Return the header of a record, without what depends on the events."""
    return {
        "strategy": header["decoder"],
        "strategy_options": {},
        "valid": header["valid"],
        "drafter": header.get("drafter"),
        "drafter_options": {},
        "num_draft_tokens": header["num_draft_tokens"],
        "keep_draft": header["keep_draft"],
        "right_aligned": header["right_aligned"],
        "batch_size": header.get("batch_size", batch_size),
        "device": header["device"],
        "dtype": header["dtype"],
        "versions": {},
        "created": header["created"],
        "target": header["target"],
        "draft": header.get("draft"),
        "vocabulary_size": header["vocabulary_size"],
        "eos_token_ids": header["eos_token_ids"],
        "sampling": header.get("sampling"),
        "seed": None,
        "kv_bytes_per_slot": header.get("kv_bytes_per_slot", dict.fromkeys(MODELS, 0)),
        "decisions": ["as logged"],
    }
