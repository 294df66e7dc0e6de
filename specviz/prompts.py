"""Load prompts: the bundled ones, SpecBench's, or your own from a file of JSON or plain lines.

Runs no model and loads no torch.
"""

import codecs
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from specviz.util.files import is_file
from specviz.util.jsonvalues import json_values
from specviz.util.validate import (
    is_list,
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
    "jsonl": "a file of JSON objects, one a line or a list",
    "text": "a file of lines",
}
SOURCES = ("bundled", *FILES)
_HUMANS = ("human", "user")  # what ShareGPT's files call them

T = TypeVar("T")
Messages = list[dict[str, Any]]  # a chat up to where the answer begins


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
            JSONL file at `path`. "jsonl": the text under the key `field` of each JSON object, one a
            line or a list; or, where there is none, the `prompt` or `messages` of a request of an
            OpenAI batch, the first human turn of a ShareGPT conversation (one that begins with
            another turn is left out), a list `messages`, or the first of SpecBench's `turns`.
            "text": one prompt a line. Blank lines are skipped. Files are UTF-8.
        path: the file, for all sources but "bundled".
        categories: SpecBench categories to keep; all by default.
        limit: the number of prompts to return at most, from the first on.
        field: the key of the prompts, for "jsonl".
        chat_template: whether each prompt becomes a user's message in the tokenizer's chat
            template, up to where the answer begins. Messages of a file are taken as they are;
            without a template, only one message of a user is a prompt. The result is token ids,
            because a template brings special tokens that encoding a string would add a second time.
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
    prompts = _read(source, path, categories, field)[:limit]
    if tokenizer is None:
        return [_as_text(where, prompt) for where, prompt in prompts]
    return [_as_chat(where, tokenizer, prompt) for where, prompt in prompts]


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


def _as_text(where: str, prompt: str | Messages) -> str:
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0].get("role") == "user":
        content = prompt[0].get("content")
        parts = content if is_list(content) else [{"text": content}]
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    roles = ", ".join(str(message.get("role")) for message in prompt)
    raise ValueError(
        f"{where} is a chat ({roles}) that is not one text of a user; pass chat_template=True and "
        "a tokenizer"
    )


def _as_chat(where: str, tokenizer: Any, prompt: str | Messages) -> list[int]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # a template may raise whatever it wants
        raise ValueError(
            f"{where}: the tokenizer's chat template fails ({short(error)}); leave the prompt out"
        ) from error
    return list(ids)


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
) -> list[tuple[str, str | Messages]]:
    """Return all prompts of a source with their places, in its order."""
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
    path = Path(path)
    if not is_file(path):
        raise FileNotFoundError(
            f"path={quoted_path(path)} is not a file; pass the path of {FILES[source]}"
        )
    found: list[tuple[str, str | Messages]] = []
    if source == "text":
        found += _lines(path)
    else:
        items = list(json_values(path))
        if source == "spec_bench" and items:
            items = _of_categories(path, items, categories)
            field = "turns"
        for where, item in items:
            prompt = _prompt(where, item, field)
            if prompt:
                found.append((where, prompt))
    if not found:
        raise ValueError(f"path={str(path)!r} holds no prompt; pass {FILES[source]}")
    return found


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


def _lines(path: Path) -> list[tuple[str, str]]:
    # Bytes, because str.splitlines also splits at characters inside a prompt, such as U+2028.
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        where = f"line {number} of {shown_path(path)}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{where} is not UTF-8; save the file in that encoding") from None
        if line.strip():
            found.append((where, text))
    return found


def _prompt(where: str, item: Any, field: str) -> str | Messages:
    """Return the prompt of an object; "" for a conversation that a human does not begin."""
    keys = item if isinstance(item, Mapping) else {}
    body = keys.get("body")
    request = body if isinstance(body, Mapping) else {}
    turns = keys.get("turns")
    texts = (keys.get(field), request.get("prompt"), turns[0] if is_list(turns) and turns else None)
    for text in texts:
        if text and isinstance(text, str):
            return text
    for messages in (request.get("messages"), keys.get("messages")):
        if is_list(messages) and messages and all(isinstance(each, Mapping) for each in messages):
            return [dict(message) for message in messages]
    turns = keys.get("conversations")
    if is_list(turns) and all(isinstance(turn, Mapping) for turn in turns):
        first = turns[0] if turns else {}
        value = first.get("value")
        return value if first.get("from") in _HUMANS and isinstance(value, str) else ""
    shown = ", ".join(repr(str(key)[:20]) for key in list(keys)[:5]) or "no keys"
    if field in keys:
        shown = short(keys[field])
    raise ValueError(
        f"{where} has no text under {field!r}, but {shown}; name the key of the prompts with field="
    )


def _of_categories(
    path: Path, items: list[tuple[str, Any]], categories: Collection[str] | None
) -> list[tuple[str, Any]]:
    """Return the questions of these categories; all without."""
    for where, item in items:
        category = item.get("category") if isinstance(item, Mapping) else None
        turns = item.get("turns") if isinstance(item, Mapping) else None
        is_turns = is_list(turns) and turns and isinstance(turns[0], str)
        if not isinstance(category, str) or not is_turns:
            raise ValueError(
                f"{where} is not a SpecBench question; each is an object with category, a text, "
                "and turns, a list of texts"
            )
    known = {item["category"] for _, item in items}
    unknown = sorted(set(categories or ()) - known)
    if unknown:
        raise ValueError(
            f"categories names {unknown[0]!r}, which {path} does not have; "
            f"it has {', '.join(sorted(known))}"
        )
    return [each for each in items if categories is None or each[1]["category"] in categories]
