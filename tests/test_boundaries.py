"""What must never be in specviz/, reference/ or figures/make/, and no library checks for us.

import-linter checks which room imports which (`make lint`, pyproject.toml).
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60  # of the body's code: docstrings, blank lines and comments do not count
MAX_LOOP_LINES = 38  # of the body, comments included: what fits one screen
MODULES = {
    "lazy-loader": "lazy_loader",
    "pillow": "PIL",
    "ipython": "IPython",
}  # whose names are not those of distributions
UNSAFE = ("pickle", "dill", "cloudpickle", "shelve", "joblib", "marshal")
# Transformers' caches, which a new release may change, stay in these files.
CACHES = ("DynamicCache", "StaticCache", "EncoderDecoderCache", "cache_utils")
CACHE_FILES = ("specviz/engine/kv/slabs.py", "specviz/engine/kv/states.py")
FILES = [
    path
    for part in ("specviz", "reference", "figures/make")
    for path in ROOT.glob(f"{part}/**/*.py")
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names of all that is imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unsafe(text: str) -> list[str]:
    """What unpickles, or runs code that comes with a model."""
    tree = ast.parse(text)
    found = [name for name in imports(tree) if name.split(".")[0] in UNSAFE]
    found += [name for name in imports(tree) if name in ("torch.load", "torch.save")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("load", "save"):
            found += [ast.unparse(node)] if ast.unparse(node.value) == "torch" else []
        if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "allow_pickle"):
            is_off = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [] if is_off else [ast.unparse(node)]
    return found


def long_functions(text: str, most: int, *, code_alone: bool = True) -> list[str]:
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        docstring = ast.get_docstring(node) is not None
        body = node.body[1:] if docstring else node.body  # a command's options are its signature
        taken = range(body[0].lineno, (node.end_lineno or 0) + 1) if body else ()
        kept = [lines[number - 1].strip() for number in taken]
        if code_alone:
            kept = [line for line in kept if line and not line.startswith("#")]
        if len(kept) > most:
            found.append(f"{node.name}: {len(kept)} lines")
    return found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_short_safe_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert unsafe(text) == []
    assert long_functions(text, MAX_FUNCTION_LINES) == []
    if name_of(path) == "specviz/engine/loop.py":
        assert long_functions(text, MAX_LOOP_LINES, code_alone=False) == []
    if path.is_relative_to(ROOT / "specviz") and name_of(path) not in CACHE_FILES:
        names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree)}
        names |= {part for name in imports(tree) for part in name.split(".")}
        assert names.isdisjoint(CACHES)


def test_all_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    distributions = [text.partition(">")[0] for text in project["dependencies"]]
    known = {MODULES.get(name, name) for name in distributions} | {"specviz"}
    for path in ROOT.glob("specviz/**/*.py"):
        names = {name.split(".")[0] for name in imports(ast.parse(path.read_text("utf-8")))}
        assert names <= known | sys.stdlib_module_names, name_of(path)
    for path in ROOT.glob("reference/*.py"):  # a decoder that is copied needs its own file alone
        names = set(imports(ast.parse(path.read_text("utf-8"))))
        public = {"transformers.DynamicCache", "transformers.PreTrainedModel"}
        assert {name for name in names if not name.startswith("torch")} <= public, name_of(path)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import torch\ntorch.save({}, 'x')",
        "from torch import load",
        "load(name, trust_remote_code=trust)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_is_unsafe_is_found(text: str) -> None:
    assert unsafe(text)
    assert unsafe("load(name, trust_remote_code=False)\ntorch.load_library") == []


def test_long_functions_are_found() -> None:
    long = "def long():\n" + "    x = 1\n\n    # why\n" * 60
    assert long_functions(long, 59)
    assert not long_functions(long, 60)
    assert long_functions('def f():\n    """' + "a\n" * 90 + '    """\n    x = 1\n', 10) == []


@pytest.mark.slow
def test_readers_load_no_torch() -> None:
    """In one fresh interpreter; the engine is the control."""
    rooms = ("specviz", "specviz.metrics", "specviz.prompts", "specviz.record.trace")
    rooms += ("specviz.simulation", "specviz.views.stepper.widget", "specviz.servers")
    rooms += ("specviz.costs.roofline", "specviz.cli.main")
    lines = [f"import {name}; assert 'torch' not in sys.modules, '{name}'" for name in rooms]
    lines.append("import specviz.engine.accept; assert 'torch' in sys.modules")
    subprocess.run([sys.executable, "-c", "\n".join(["import sys", *lines])], check=True, cwd=ROOT)
