"""The step-through's own files: one valid module, in which no text can become markup or code, and a style sheet that keeps to itself."""

import re
import shutil
import subprocess
from importlib.resources import files

import pytest

from specviz.views.stepper.assets import FIGURE, PAGE, SCRIPTS, script, style

FOLDER = files("specviz.views.stepper") / "static"
NAMES = sorted(
    each.name.removesuffix(".js") for each in FOLDER.iterdir() if each.name.endswith(".js")
)
FORBIDDEN = {
    "markup from text": r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML)\b",
    "code from text": r"\beval\b|\bnew Function\b|\bFunction\(|set(Timeout|Interval)\(\s*[\"'`]",
    "the network": r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\b",
    "other modules": r"^\s*import\b|\bimport\(|\bfrom\s+[\"']",
    "an address": r"https?://(?!www\.w3\.org/2000/svg\b)",
    "a style from text": r"setAttribute\(\s*[\"']style|cssText",
    "storage": r"\b(localStorage|sessionStorage|indexedDB|document\.cookie)\b",
}
BAD = {
    "markup from text": "box.innerHTML = text", "code from text": "setTimeout('go()', 3)", "the network": "await fetch(path)",
    "other modules": "import { a } from './a.js'", "an address": 'load("https://cdn.example/x.js")',
    "a style from text": 'x.setAttribute("style", y)', "storage": "localStorage.step = 3",
}  # fmt: skip


def code_of(source: str) -> str:
    """Without comments; strings stay."""
    return re.sub(r"(?m)(^|\s)//.*$", "", source)


def test_every_file_is_joined():
    assert sorted([*SCRIPTS, PAGE, FIGURE]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_it_is(name):
    assert re.match(r"// \w.{20}", (FOLDER / f"{name}.js").read_text(encoding="utf-8"))


@pytest.mark.parametrize("more", [(), (PAGE,), (FIGURE,)], ids=["widget", "page", "figure"])
def test_the_module_is_valid(more, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH to read the module with")
    path = tmp_path / "module.mjs"
    path.write_text(script(*more), encoding="utf-8")
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_no_text_becomes_markup_or_code(name):
    code = code_of((FOLDER / f"{name}.js").read_text(encoding="utf-8"))
    assert {
        what: found
        for what, pattern in FORBIDDEN.items()
        if (found := re.findall(pattern, code, re.MULTILINE))
    } == {}


def test_what_is_forbidden_is_found():
    assert [
        what
        for what, code in BAD.items()
        if not re.search(FORBIDDEN[what], code_of(code), re.MULTILINE)
    ] == []


@pytest.mark.parametrize(
    "text", [script(PAGE), script(FIGURE), style()], ids=["page", "figure", "style"]
)
def test_nothing_ends_the_block_that_it_stands_in(text):
    assert not re.search(r"</(script|style)|<!--|-->|]]>", text, re.IGNORECASE)


def test_there_is_one_export():
    assert re.findall(r"^export\b.*$", script(), re.MULTILINE) == ["export default { render };"]


def selectors() -> list[str]:
    """Of all rules, those inside of @-rules too."""
    text = re.sub(r"/\*.*?\*/", "", style(), flags=re.DOTALL)
    heads = (head.strip() for head in re.findall(r"[^{};]+(?=\{)", text))
    lists = (re.split(r",(?![^(]*\))", head) for head in heads if not head.startswith("@"))
    return [each.strip() for some in lists for each in some]


def test_the_style_touches_nothing_else():
    """But for the picture of the widget that lies under it in a notebook."""
    assert len(selectors()) > 60
    others = [each for each in selectors() if not re.match(r"\.specviz(-body)?(?![\w-])", each)]
    assert [
        each for each in others if not each.startswith(".jp-OutputArea-child:has(.specviz) + ")
    ] == []


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_lines_are_as_short_as_elsewhere(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 140] == []
    assert len(lines) <= (400 if path.name.endswith(".css") else 300)


def test_the_style_loads_nothing():
    assert not re.search(r"@import|url\(|image-set|@font-face", style())


def test_both_themes_have_all_colours():
    light, dark = (
        re.search(rf"{head} \{{(.*?)\}}", style(), re.DOTALL)[1]
        for head in (r"\.specviz", r'\.specviz\[data-theme="dark"\]')
    )
    names = [set(re.findall(r"--sv-([\w-]+):", block)) for block in (light, dark)]
    listed = re.search(
        r"const PALETTE = \[(.*?)\]", (FOLDER / "pen.js").read_text(encoding="utf-8"), re.DOTALL
    )[1]
    wanted = {
        re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", name)
        for name in re.findall(r'"(\w+)"', listed)
    }
    assert names[0] == names[1] == wanted
