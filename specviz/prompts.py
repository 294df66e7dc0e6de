"""Prompts: the bundled ones, and those of SpecBench from a file that the reader has. Runs no model."""

import json
from collections.abc import Collection
from importlib import resources
from numbers import Integral
from pathlib import Path

SOURCES = ("bundled", "spec_bench")


def load_prompts(
    source: str = "bundled", path: str | Path | None = None, *, categories: Collection[str] | None = None, limit: int | None = None
) -> list[str]:
    """Prompts as strings.

    Args:
        source: "bundled": 32 beginnings of functions and classes, 10 to 300 tokens long, from files that the embedded pair was not
            trained on. "spec_bench": the first turns in SpecBench's JSONL file at `path`, without a chat template.
        path: the file, for "spec_bench".
        categories: SpecBench categories to keep, all by default.
        limit: how many to return at most, the first ones.

    Raises:
        ValueError: an unknown source or category, a missing path, a line that is no SpecBench question (its number is named).
        FileNotFoundError: there is no file at `path`.
    """
    if source not in SOURCES:
        raise ValueError(f"source={source!r} is unknown; choose one of {', '.join(SOURCES)}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 1):
        raise ValueError(f"limit={limit!r} is no positive whole number; pass at least 1, or None for all")
    if source == "bundled":
        if path is not None or categories is not None:
            raise ValueError("path and categories belong to source='spec_bench'; leave them out for the bundled prompts")
        lines = (resources.files("specviz") / "zoo" / "weights" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines][:limit]
    if not isinstance(path, str | Path):
        raise ValueError(f"path={path!r} for source='spec_bench'; pass the path of SpecBench's question.jsonl")
    if isinstance(categories, str):
        raise ValueError(f"categories={categories!r} is no list; pass a list of categories, even for one")
    return _spec_bench(Path(path), categories)[:limit]


def _spec_bench(path: Path, categories: Collection[str] | None) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"path={str(path)!r} is no file; pass the path of SpecBench's question.jsonl")
    lines = path.read_bytes().splitlines()  # bytes: in text, signs inside a question would count as ends of lines, too
    questions = [_question(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    known = {category for category, _ in questions}
    unknown = sorted(set(categories or ()) - known)
    if unknown:
        raise ValueError(f"categories names {unknown[0]!r}, which {path} does not have; it has {', '.join(sorted(known))}")
    return [text for category, text in questions if categories is None or category in categories]


def _question(path: Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        item = json.loads(line)
        category, text = item["category"], item["turns"][0]
    except (ValueError, KeyError, TypeError, IndexError):
        raise ValueError(f"line {number} of {path} is no SpecBench question; each line is an object with category and turns") from None
    if not isinstance(category, str) or not isinstance(text, str) or isinstance(item["turns"], str):
        raise ValueError(f"line {number} of {path} is no SpecBench question; category must be text, turns a list of texts")
    return category, text
