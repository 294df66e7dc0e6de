"""Load prompts: the bundled ones, SpecBench's, or your own from a file of JSON or plain lines.

Runs no model and loads no torch.
"""

import codecs
import json
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from specviz.util.files import is_file
from specviz.util.validate import (
    quoted_path,
    require_choice,
    require_int,
    short,
    shown_path,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILES = {
    "spec_bench": "SpecBench's question.jsonl",
    "jsonl": "a file with a JSON object in each line",
    "text": "a file of lines",
}
SOURCES = ("bundled", *FILES)

T = TypeVar("T")
# Where the line stands ("line 3 of prompts.txt"), and its bytes without the line end.
Line = tuple[str, bytes]


@overload
def load_prompts(
    source: str = ...,
    path: str | Path | None = ...,
    *,
    categories: Collection[str] | None = ...,
    limit: int | None = ...,
    field: str = ...,
    chat_template: Literal[False] = ...,
    tokenizer: None = ...,
) -> list[str]: ...
@overload
def load_prompts(
    source: str = ...,
    path: str | Path | None = ...,
    *,
    categories: Collection[str] | None = ...,
    limit: int | None = ...,
    field: str = ...,
    chat_template: Literal[True],
    tokenizer: "PreTrainedTokenizerBase",
) -> list[list[int]]: ...
def load_prompts(
    source: str = "bundled",
    path: str | Path | None = None,
    *,
    categories: Collection[str] | None = None,
    limit: int | None = None,
    field: str = "text",
    chat_template: bool = False,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
) -> list[str] | list[list[int]]:
    """Return prompts as strings, or as token ids with a chat template.

    Args:
        source: "bundled": 32 beginnings of functions and classes, 10 to 300 tokens long, from files
            that the embedded pair was not trained on. "spec_bench": the first turns in SpecBench's
            JSONL file at `path`. "jsonl": the text under the key `field` of the JSON object in each
            line. "text": one prompt a line. Blank lines are skipped. Files are UTF-8.
        path: the file, for all sources but "bundled".
        categories: SpecBench categories to keep; all by default.
        limit: the number of prompts to return at most, from the first on.
        field: the key of the prompts, for "jsonl".
        chat_template: whether each prompt becomes a user's message in the tokenizer's chat
            template, up to where the answer begins. The result is token ids, because a template
            brings special tokens that encoding a string would add a second time.
        tokenizer: the tokenizer with the template, for instance `pair.tokenizer`; only with
            `chat_template=True`.

    Raises:
        ValueError: an unknown source or category, a missing path, a tokenizer without a template, a
            line without a prompt (the message names file and number), or a file without one.
        FileNotFoundError: there is no file at `path`.
    """
    require_choice("source", source, SOURCES)
    _check_limit(limit)
    _check_template(chat_template, tokenizer)
    texts = _read(source, path, categories, field)[:limit]
    if tokenizer is None:
        return texts
    return [_as_chat(tokenizer, text) for text in texts]


def _check_template(chat_template: object, tokenizer: object) -> None:
    if not isinstance(chat_template, bool):
        raise ValueError(
            f"chat_template must be a bool, got {type(chat_template).__name__}; "
            "pass chat_template=True and tokenizer=pair.tokenizer"
        )
    if not chat_template and tokenizer is not None:
        raise ValueError(
            "tokenizer is given, but chat_template=False does not use it, got "
            f"{type(tokenizer).__name__}; pass chat_template=True, or leave it out"
        )
    if chat_template and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"tokenizer={type(tokenizer).__name__} has no chat template; pass the tokenizer of a "
            "chat model, for instance pair.tokenizer, or leave chat_template=True out"
        )


def _as_chat(tokenizer: Any, text: str) -> list[int]:
    messages = [{"role": "user", "content": text}]
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    )


def spread(items: Sequence[T], limit: int | None) -> list[T]:
    """Return `limit` of the items at equal distances, beginning with the first; None means all.

    Items that are sorted by kind so stay mixed.

    Raises:
        ValueError: the limit is below 1, or `items` is not a sequence.
    """
    if not isinstance(items, Sequence):
        raise ValueError(f"items must be a list, got {short(items)}; pass a list")
    _check_limit(limit)
    count = len(items) if limit is None else min(limit, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _check_limit(limit: int | None) -> None:
    if limit is not None:
        require_int("limit", limit, remedy="pass 1 or more, or None for all")


def _read(
    source: str, path: str | Path | None, categories: Collection[str] | None, field: Any
) -> list[str]:
    """Return all prompts of a source, in its order."""
    _check_field(field, source)
    if source == "bundled":
        if path is not None or categories is not None:
            raise ValueError(
                "path and categories belong to source='spec_bench', a path also to 'jsonl' and "
                "'text'; name that source, or leave them out for the bundled prompts"
            )
        path = Path(str(resources.files("specviz") / "zoo" / "weights" / "prompts.jsonl"))
        source = "jsonl"
    if not isinstance(path, str | Path) or not str(path):
        raise ValueError(
            f"path must be a str or a Path with source={source!r}, got {short(path)}; "
            f"pass the path of {FILES[source]}"
        )
    _check_categories(categories, source)
    lines = _lines(Path(path), source)
    if source == "spec_bench":
        return _spec_bench(Path(path), lines, categories)
    if source == "jsonl":
        return [_field(where, line, field) for where, line in lines]
    return [_text(where, line) for where, line in lines]


def _check_field(field: object, source: str) -> None:
    if not isinstance(field, str) or (field != "text" and source != "jsonl"):
        raise ValueError(
            f"field must be a str, and only with source='jsonl', got {short(field)} with "
            f"source={source!r}; pass source='jsonl' and the key of the prompts, or leave it out"
        )


def _check_categories(categories: object, source: str) -> None:
    if isinstance(categories, str):
        raise ValueError(
            f"categories must be a list of strings, got {categories!r}; "
            f"pass categories=[{categories!r}]"
        )
    if categories is not None and not isinstance(categories, Collection):
        raise ValueError(
            f"categories must be a list of strings, got {short(categories)}; "
            "pass for instance categories=['math']"
        )
    if categories is not None and source != "spec_bench":
        raise ValueError(
            f"categories must be None with source={source!r}, got {short(categories)}; "
            "pass source='spec_bench', or leave them out"
        )


def _lines(path: Path, source: str) -> list[Line]:
    if not is_file(path):
        raise FileNotFoundError(
            f"path={quoted_path(path)} is not a file; pass the path of {FILES[source]}"
        )
    # Bytes, because str.splitlines also splits at characters inside a prompt, such as U+2028.
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append((f"line {number} of {shown_path(path)}", line))
    if not found:
        raise ValueError(f"path={str(path)!r} holds no prompt; pass {FILES[source]}")
    return found


def _text(where: str, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8; save the file in that encoding") from None


def _field(where: str, line: bytes, field: str) -> str:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(
            f"{where} is not JSON; each line must be an object with the prompt under {field!r}"
        ) from None
    text = item.get(field) if isinstance(item, dict) else None
    if not isinstance(text, str) or not text:
        keys = list(item)[:5] if isinstance(item, dict) else []
        shown = ", ".join(repr(key[:20]) for key in keys) or "no keys"
        raise ValueError(
            f"{where} has no text under {field!r}, but {shown}; name the key of the prompts with "
            "field="
        )
    return text


def _spec_bench(path: Path, lines: list[Line], categories: Collection[str] | None) -> list[str]:
    questions = [_question(*line) for line in lines]
    known = {category for category, _ in questions}
    unknown = sorted(set(categories or ()) - known)
    if unknown:
        raise ValueError(
            f"categories names {unknown[0]!r}, which {path} does not have; "
            f"it has {', '.join(sorted(known))}"
        )
    return [text for category, text in questions if categories is None or category in categories]


def _question(where: str, line: bytes) -> tuple[str, str]:
    try:
        item = json.loads(line)
        category, text = item["category"], item["turns"][0]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise ValueError(
            f"{where} is not a SpecBench question; each line is an object with category and turns"
        ) from None
    if not isinstance(category, str) or not isinstance(text, str) or isinstance(item["turns"], str):
        raise ValueError(
            f"{where} is not a SpecBench question; category must be text, turns a list of texts"
        )
    return category, text
