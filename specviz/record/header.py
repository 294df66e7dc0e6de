"""The header of a log: what decoded, and with what, as a `TraceWriter` is given it."""

from datetime import UTC, datetime
from typing import Any

from specviz.record import given
from specviz.record.check import MAX_WIDTH
from specviz.record.schema import MISSING, MODELS
from specviz.util.validate import (
    is_count,
    is_finite,
    is_int,
    require_bool,
    require_choice,
    require_int,
    require_mapping,
    require_names,
    require_str,
    require_text,
    short,
)

_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "coupling": "rejection"}
# What the argument `about` may hold; None where nothing is known.
ABOUT: dict[str, Any] = {
    "target": "target",
    "draft": None,
    "device": "unknown",
    "dtype": "unknown",
    "created": None,
    "batch_size": None,
    "kv_bytes_per_slot": None,
    "right_aligned": False,
    "keep_draft": True,
    "valid": True,
}


def read_text(name: str, value: Any) -> str:
    text = require_str(name, value)
    require_text(name, text)
    return text


def read_texts(name: str, texts: Any) -> dict[str, str]:
    require_mapping(name, texts, "pass {id: text}")
    found = {}
    for token, text in texts.items():
        fits = is_int(token) or (isinstance(token, str) and token.isdecimal())
        if not fits or not 0 <= int(token) < 2**31 or not isinstance(text, str):
            raise ValueError(
                f"{name} must map token ids to str, got {short({token: text})}; pass {{id: text}}"
            )
        found[str(int(token))] = text
    return found


def read_eos(value: Any) -> list[int]:
    tokens = given.array("eos_token_ids", value, "a list of token ids")
    if tokens.ndim != 1 or tokens.size >= MAX_WIDTH:
        raise ValueError(
            f"eos_token_ids must be a list of fewer than {MAX_WIDTH} token ids, "
            f"got {short(value)}; pass ids"
        )
    found: list[int] = given.limited("eos_token_ids", tokens, 0, given.MOST_TOKENS).tolist()
    return found


def read_about(about: Any) -> dict[str, Any]:
    """Return the entries of `about` and what stands for those that are left out."""
    if about is not None:
        require_mapping("about", about, "pass {name: value}")
    for name in about or {}:
        require_choice("an entry of about", name, ABOUT)
    told = ABOUT | dict(about or {})
    # None stands for an unknown value, where one may be unknown.
    found = {k: value for k, value in told.items() if value is not None or ABOUT[k] is not None}
    found.setdefault("created", datetime.now(UTC).isoformat(timespec="seconds"))
    for name, value in found.items():
        if name == "batch_size":
            found[name] = require_int(name, value, maximum=given.MOST_TOKENS)
        elif name == "kv_bytes_per_slot":
            found[name] = _kv_bytes(value)
        elif isinstance(ABOUT[name], bool):
            require_bool(name, value)
        else:
            read_text(name, value)
    return found


def _kv_bytes(value: Any) -> dict[str, int]:
    require_mapping("kv_bytes_per_slot", value, "pass {'target': bytes, 'draft': bytes}")
    for name, size in value.items():
        if name not in MODELS or not is_count(size) or size >= 2**32:
            raise ValueError(
                f"kv_bytes_per_slot must map target and draft to ints >= 0, got {short(value)}; "
                "pass the bytes of one token's K/V in all layers"
            )
    return {model: int(value.get(model, 0)) for model in MODELS}


def read_sampling(value: Any) -> dict[str, Any]:
    require_mapping("sampling", value, "pass {'temperature': ...}, or None for greedy decoding")
    for name in value:
        require_choice("an entry of sampling", name, _SAMPLING)
    sampling = _SAMPLING | dict(value)
    for name in ("temperature", "top_k", "top_p"):
        number = sampling[name]
        if number is not None or name == "temperature":
            if not is_finite(number):
                raise ValueError(
                    f"sampling[{name!r}] must be a number, got {short(number)}; pass its value"
                )
            sampling[name] = int(number) if name == "top_k" else float(number)
    require_str("sampling['coupling']", sampling["coupling"])
    return sampling


def read_missing(names: Any) -> list[str]:
    require_names("missing", names)
    for name in names:
        if name not in MISSING:
            raise ValueError(f"missing={short(name)} is unknown; choose from {', '.join(MISSING)}")
    return sorted(set(names))
