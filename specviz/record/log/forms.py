"""The form of a line's entries: how deep their lists are, and what is in them.

Contract: `check_line` says the same as docs/log.schema.json. A `TraceWriter` takes more forms than
a file has: a file has flat lists, one entry a token or a row. Not known here: what entries mean.
"""

from collections.abc import Mapping
from typing import Any

from specviz.util.validate import is_int, is_real, short

# By kind of line and entry: how deep the lists are, and what is in them.
Form = tuple[tuple[int, ...], str]
_FLAT: Form = ((1,), "int")
_OF_ROWS: Form = ((2,), "int")
_ONE_OR_MANY: Form = ((0, 1), "int")
_LOGPROBS: Form = ((2,), "logprob")
_TOP: Form = ((4,), "logprob")
_NAME: Form = ((0,), "str")
_HEADER_INTS = ("version", "vocabulary_size", "num_draft_tokens", "batch_size")
_COUNTS = ("verified", "discarded", "starts", "pending", "starts_after", "pending_after")
FORMS: dict[str, dict[str, Form | None]] = {
    "header": {
        **dict.fromkeys(_HEADER_INTS, ((0,), "int")),
        **dict.fromkeys(("right_aligned", "keep_draft", "valid"), ((0,), "bool")),
        **dict.fromkeys(("decoder", "target", "draft", "device", "dtype", "created"), _NAME),
        "drafter": ((0,), "str or null"),
        "eos_token_ids": _FLAT,
        "missing": ((1,), "str"),
        **dict.fromkeys(("sampling", "kv_bytes_per_slot"), None),
    },
    "request": {"prompt": _FLAT, "budget": ((0,), "int")},
    "texts": {"texts": None},
    "forward": {
        **dict.fromkeys(("model", "phase"), _NAME),
        **dict.fromkeys(("rows", "requests", "tokens", "indices"), _FLAT),
        **dict.fromkeys(("positions", "slots", "nodes"), _FLAT),
        "visible": ((3,), "int"),
    },
    "move": {
        **dict.fromkeys(("model", "phase"), _NAME),
        **dict.fromkeys(("from_row", "from_slot", "to_row", "to_slot", "length"), _ONE_OR_MANY),
    },
    "round": {
        **dict.fromkeys(("rows", "requests", "accepted", *_COUNTS), _FLAT),
        **dict.fromkeys(("drafts", "emitted", "choices", "parents", "path"), _OF_ROWS),
        **dict.fromkeys(("draft_logprobs", "target_logprobs"), _LOGPROBS),
        **dict.fromkeys(("target_top", "draft_top"), _TOP),
        "finished": ((1,), "bool"),
        "slots": ((0,), "int"),
        "ms": None,
    },
}
NEEDED = {
    "header": ("version", "vocabulary_size", "num_draft_tokens"),
    "request": ("prompt",),
    "texts": ("texts",),
    "forward": ("model", "rows", "requests", "tokens", "indices"),
    "move": ("model", "from_row", "from_slot", "to_row", "to_slot", "length"),
    "round": ("rows", "requests", "drafts", "accepted", "emitted"),
}


def check_line(kind: str, line: Mapping[str, Any]) -> None:
    """Raise ValueError unless a line of this kind has the entries that it must and may have."""
    forms = FORMS[kind]
    for name in line:
        if name not in forms:
            raise ValueError(
                f"{short(name)} is unknown in a {kind}; choose from {', '.join(forms)}"
            )
    lacking = [name for name in NEEDED[kind] if name not in line]
    if lacking:
        raise ValueError(f"{lacking[0]} must be given in a {kind}, got nothing; add it")
    for name, value in line.items():
        form = forms[name]
        if form is not None:
            _check(name, value, *form)
        elif not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {short(value)}; pass {{name: value}}")


def _check(name: str, value: Any, depths: tuple[int, ...], leaf: str) -> None:
    if not any(_fits(value, depth, leaf) for depth in depths):
        lists = [("lists of " * (depth - 1) + "a list of ") if depth else "" for depth in depths]
        forms = " or ".join(f"{each}{leaf}" for each in lists)
        raise ValueError(
            f"{name} must be {forms}, got {short(value)}; write it as docs/debug.md says"
        )


def _fits(value: Any, depth: int, leaf: str) -> bool:
    """Return whether `value` is lists in lists, so many deep, around what `leaf` names."""
    level = [value]
    for _ in range(depth):
        if not all(isinstance(each, list) for each in level):
            return False
        level = [inner for each in level for inner in each]
    return all(_is_leaf(each, leaf) for each in level)


def _is_leaf(value: Any, leaf: str) -> bool:
    if leaf == "int":
        return is_int(value)
    if leaf == "bool":
        return isinstance(value, bool)
    if leaf == "logprob":
        return value is None or value == "-inf" or is_real(value)
    return isinstance(value, str) or (value is None and leaf == "str or null")
