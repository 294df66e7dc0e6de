"""Links lead somewhere, what a text refers to exists, and the glossary's words are spelled as the glossary spells them.

Read are the notebooks, the project's Markdown files and, for the words, what the exercises and their solutions say. Addresses on the web
are not asked for.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [
    *NOTEBOOKS,
    *sorted(
        path
        for pattern in ("*.md", "docs/*.md", "figures/*.md", "specviz/zoo/weights/*.md")
        for path in ROOT.glob(pattern)
    ),
]
SCRIPTS = sorted(
    path
    for pattern in ("specviz/exercises/*.py", "notebooks/solutions/*.py")
    for path in ROOT.glob(pattern)
)
GLOSSARY = ROOT / "docs" / "glossary.md"
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|\b(?:href|src|srcset)=\"([^\"]+)\"")
ANCHOR = re.compile(r"<a\s[^>]*\bid=\"([^\"]+)\"")
HEADING = re.compile(r"(?m)^#{1,6} +(.+?) *$")
PROJECT_PATH = re.compile(r"`((?:specviz|notebooks|tests|docs|figures)/[\w./-]*\w)/?`")
OTHER_WORDS = {  # what is not written, and what is written instead
    r"(?i)\bre-align|\brealignement|\breallign": "realignment",
    r"\bKV\b(?! (?:cache|slab)s?\b)|\bK-V\b": "K/V, of a token; KV cache, where it lies",
    r"(?i)\bkv-cach|\bk/v[- ]cach|\bkey[-/]value cach": "KV cache",
    r"(?i)\bdraftors?\b|\bdrafting models?\b|\bproposers?\b|\bspeculators?\b": "draft, the model; drafter, who proposes",
    r"(?i)\b(?:mean|average) accept(?:ed)? length|\baverage acceptance length": "mean acceptance length",
    r"(?i)\bdraft[- ]accept rate|\bacceptance ratio": "draft acceptance rate",
    r"(?i)\bposition-?wise acceptance|\bpositional acceptance": "per-position acceptance",
    r"(?i)\bgroup rate|\bgrouping ratio": "grouping rate",
    r"(?i)\bnear-ties?\b": "near tie",
    r"(?i)\bjagged\b": "ragged",
    r"(?i)\bre-fill|\bpre-fill|\bun-pad|\bre-pad|\bauto-regress": "refill, prefill, unpad, repad, autoregressive",
    r"(?i)\bin-place\b": "in place",
    r"(?i)\b(?:de)?synchroniz": "synchronise",
    r"\bposition IDs?\b|\bposition-ids?\b": "position ids",
    r"(?i)\bstepthrough": "step-through",
    r"\bE[qx][Ss]pec\b|\bE[QX]-SPEC\b": "EQSPEC and EXSPEC, the methods; `eqspec` and `exspec`, the strategies",
    r"(?i)\bbonus-token|\bpending-token": "bonus token, pending token",
}


@cache
def cells(path: Path) -> list[tuple[str, str]]:
    """(kind, source) of a notebook's cells; another file is one cell of its own kind."""
    if path.suffix != ".ipynb":
        return [("code" if path.suffix == ".py" else "markdown", path.read_text(encoding="utf-8"))]
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in found]


def prose(path: Path) -> str:
    return "\n\n".join(source for kind, source in cells(path) if kind == "markdown")


def anchors(path: Path) -> list[str]:
    """Where in a page a link may end: anchors that are written out, and headings as code hosts spell them."""
    text = CODE.sub("", prose(path))
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(text)]
    return ANCHOR.findall(text) + [title.replace(" ", "-") for title in titles]


def dead_links(text: str, path: Path) -> list[str]:
    """Links of a text in the file `path` to what is not in the project, or to places that a page does not have."""
    problems = []
    for link in (first or second for first, second in LINK.findall(CODE.sub("", text))):
        name, _, place = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or ROOT not in target.parents:
            problems.append(f"{link}: no such file")
        elif place and place not in (anchors(target) if target.suffix in {".md", ".ipynb"} else ()):
            problems.append(f"{link}: no such place")
    return problems


def dead_references(text: str, path: Path) -> list[str]:
    """Names of notebooks, of the project's files, and of the page's own exercises that do not exist."""
    stems = {notebook.stem for notebook in NOTEBOOKS}
    problems = [
        f"notebook {name}"
        for name in re.findall(r"\b0\d_[a-z][a-z_]*[a-z]\b", text)
        if name not in stems
    ]
    problems += [
        f"file {name}" for name in PROJECT_PATH.findall(text) if not (ROOT / name).exists()
    ]
    numbers = re.findall(r"(?m)^(?:\*\*|### )(\d+)\. ", prose(path))
    return problems + [
        f"exercise {number}"
        for number in re.findall(r"\bexercise (\d+)", text)
        if number not in numbers
    ]


def other_words(text: str, path: Path) -> list[str]:
    """Spellings that are not the glossary's; in prose outside code, links and addresses, in Python everywhere."""
    bare = (
        text
        if path.suffix == ".py"
        else re.sub(r"\]\([^)]*\)|https?://\S+|<[a-z][^>]*>", " ", CODE.sub(" ", text))
    )
    return [
        f"{found[0]!r}: write {word}"
        for pattern, word in OTHER_WORDS.items()
        for found in re.finditer(pattern, bare)
    ]


CHECKS: tuple[Callable[[str, Path], list[str]], ...] = (dead_links, dead_references, other_words)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path, check):
    if check is other_words and path.name == "CHANGELOG.md":
        return  # history keeps the words of its time
    assert check(prose(path), path) == []


@pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *SCRIPTS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_words_in_code(path):
    code = "\n".join(source for kind, source in cells(path) if kind == "code")
    assert other_words(code, path.with_suffix(".py")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_links_to_the_glossary(path):
    assert "](../docs/glossary.md" in prose(path)


def test_every_entry_of_the_glossary_has_a_place_of_its_own():
    places = ANCHOR.findall(prose(GLOSSARY))
    assert len(places) == len(set(places))
    assert {"slot", "position", "near-tie", "mean-acceptance-length"} <= set(places)


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (dead_links, GLOSSARY, "[a run](no-such-page.md)"),
        (dead_links, GLOSSARY, "[a word](#no-such-word)"),
        (dead_links, GLOSSARY, "[a panel](step-through.md#no-such-panel)"),
        (dead_links, GLOSSARY, '<img src="../figures/no-such-picture.png">'),
        (dead_links, GLOSSARY, "[outside](../../elsewhere.md)"),
        (dead_links, NOTEBOOKS[0], "[slot](../docs/glossary.md#slots)"),
        (dead_links, NOTEBOOKS[0], "[next](01_one_row.ipynb#no-such-section)"),
        (dead_links, NOTEBOOKS[0], "[solutions](solutions/00_quick.py)"),
        (dead_references, NOTEBOOKS[0], "as in 00_no_such_notebook"),
        (dead_references, NOTEBOOKS[0], "measured in `figures/data/no-such-table.csv`"),
        (dead_references, NOTEBOOKS[0], "you will meet it in exercise 9"),
    ],
)
def test_dead_links_and_references_are_found(check, path, text):
    assert check(text, path)


def test_live_links_and_references_pass():
    text = "[a](#slot) [b](../README.md) [c](step-through.md#keys) <https://example.org/x#y> `[d](e.md)` 01_one_row `figures/data/bench.csv`"
    assert (
        dead_links(text, GLOSSARY)
        + dead_references(text, GLOSSARY)
        + dead_references("see exercise 1", NOTEBOOKS[0])
        == []
    )


WRONG = """re-alignment, realignement; its KV is stale; K-V; a KV-cache; the K/V cache; key-value cache; draftor; drafting model; proposer;
average acceptance length; mean accepted length; draft accept rate; acceptance ratio; positional acceptance; group rate; a near-tie; jagged;
re-fill; un-pad; auto-regressive; written in-place; synchronize; position IDs; stepthrough; EqSpec; EX-SPEC; the bonus-token"""
RIGHT = """Realignment moves K/V in the KV cache; ragged rows; a near tie ([why](glossary.md#near-tie)); mean acceptance length; draft
acceptance rate; per-position acceptance; grouping rate; the draft and its drafter; `KV`; `EqSpec`; EQSPEC; in place; synchronised;
position ids; a step-through; autoregressive; unpad, repad, refill; KV slabs"""


@pytest.mark.parametrize("path", [GLOSSARY, SCRIPTS[0]], ids=["in prose", "in code"])
def test_other_words_are_found(path):
    assert [text for text in re.split("[;,]", WRONG) if not other_words(text, path)] == []
    assert [pattern for pattern in OTHER_WORDS if not re.search(pattern, WRONG)] == []


def test_the_glossarys_own_words_pass():
    assert other_words(RIGHT, GLOSSARY) == []
    assert other_words('kv = {"kv": 1}  # K/V of a token, in the KV cache', SCRIPTS[0]) == []
