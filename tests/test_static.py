"""The step-through's bundle is current and valid, and its style keeps to itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import skip_without

from specviz.views.stepper.assets import script, style

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "js"
FORBIDDEN = {
    "markup from text": r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write"
    r"|createContextualFragment|DOMParser|setHTML)\b",
    "code from text": r"\beval\b|\bnew Function\b|\bFunction\(|set(Timeout|Interval)\(\s*[\"'`]",
    "the network": r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\b",
    "other modules": r"^\s*import\b|\bimport\(|\bfrom\s+[\"']",
    "an address": r"https?://(?!www\.w3\.org/2000/svg\b)",
    "a style from text": r"setAttribute\(\s*[\"']style|cssText",
    "storage": r"\b(localStorage|sessionStorage|indexedDB|document\.cookie)\b",
}
BAD = {
    "markup from text": "box.innerHTML = text",
    "code from text": "setTimeout('go()', 3)",
    "the network": "await fetch(path)",
    "other modules": "import { a } from './a.js'",
    "an address": 'load("https://cdn.example/x.js")',
    "a style from text": 'x.setAttribute("style", y)',
    "storage": "localStorage.step = 3",
}


def code_of(source: str) -> str:
    """Return the source without its comments; strings stay."""
    return re.sub(r"(?m)(^|\s)//.*$", "", source)


@pytest.mark.programs
def test_the_bundle_is_what_its_sources_make(tmp_path):
    """Skipped where the JavaScript tools are not installed; `make js` installs them."""
    esbuild = SOURCES / "node_modules" / ".bin" / "esbuild"
    npm = shutil.which("npm")
    if npm is None or not esbuild.exists():
        skip_without("npm, or js/node_modules,")
    bundle = tmp_path / "stepper.js"
    command = [npm, "run", "--silent", "bundle", "--", f"--outfile={bundle}"]
    subprocess.run(command, cwd=SOURCES, check=True, capture_output=True)
    assert bundle.read_text(encoding="utf-8") == script()


def test_the_sources_are_short():
    """The limit is that of the Python files."""
    lengths = {}
    for path in (SOURCES / "src").rglob("*.js"):
        lengths[path.name] = len(path.read_text(encoding="utf-8").splitlines())
    assert lengths
    assert [name for name, count in lengths.items() if count > 300] == []


@pytest.mark.programs
def test_the_module_is_valid(tmp_path):
    node = shutil.which("node")
    if node is None:
        skip_without("node")
    path = tmp_path / "module.mjs"
    path.write_text(script(), encoding="utf-8")
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_text_becomes_markup_or_code():
    code = code_of(script())
    found = {what: re.findall(rule, code, re.MULTILINE) for what, rule in FORBIDDEN.items()}
    assert {what: places for what, places in found.items() if places} == {}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_forbidden_is_found(what):
    assert re.search(FORBIDDEN[what], code_of(BAD[what]), re.MULTILINE)


@pytest.mark.parametrize("text", [script(), style()], ids=["script", "style"])
def test_nothing_ends_the_block_that_it_stands_in(text):
    assert not re.search(r"</(script|style)|<!--|-->|]]>", text, re.IGNORECASE)


def test_there_is_one_export():
    exports = re.findall(r"\bexport\b\s*[\w{*][^;]*;", script())
    assert len(exports) == 1
    assert re.fullmatch(r"export\s*\{\s*\w+ as default\s*\};", exports[0])


def selectors() -> list[str]:
    """Return the selectors of all rules, those inside of @-rules too."""
    text = re.sub(r"/\*.*?\*/", "", style(), flags=re.DOTALL)
    heads = (head.strip() for head in re.findall(r"[^{};]+(?=\{)", text))
    lists = (re.split(r",(?![^(]*\))", head) for head in heads if not head.startswith("@"))
    return [each.strip() for some in lists for each in some]


def test_the_style_touches_nothing_else():
    """Apart from the static picture under the widget in a notebook, and the output around it."""
    assert len(selectors()) > 60
    others = [each for each in selectors() if not re.match(r"\.specviz(-body)?(?![\w-])", each)]
    picture = ".jp-OutputArea-child:has(.specviz) + "
    around = ".jp-OutputArea-output:has(.specviz)"  # or the header would not stay in sight
    rest = [each for each in others if each != around and not each.startswith(picture)]
    assert rest == []


def test_the_style_loads_nothing():
    assert not re.search(r"@import|url\(|image-set|@font-face", style())


def test_both_themes_have_all_colours():
    heads = (r"\.specviz", r'\.specviz\[data-theme="dark"\]')
    blocks = [re.search(rf"{head} \{{(.*?)\}}", style(), re.DOTALL)[1] for head in heads]
    light, dark = (set(re.findall(r"--sv-([\w-]+):", block)) for block in blocks)
    listed = re.search(r"PALETTE ?= ?\[(.*?)\]", script(), re.DOTALL)[1]
    wanted = {
        re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", name)
        for name in re.findall(r'"(\w+)"', listed)
    }
    assert light == dark == wanted


def test_a_source_says_what_it_is():
    paths = sorted((SOURCES / "src").rglob("*.js"))
    assert len(paths) > 20
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert re.match(r"// [A-Z].{20}", text), f"{path.name} does not say what it is"
