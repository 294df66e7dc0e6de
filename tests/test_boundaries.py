"""What must never be in specviz/: imports across its walls, unsafe loading, undocumented modules, long functions and files.

A rule is a function from one parsed source file to the violations in it. Each runs over every file it applies to, and over
small bad snippets that it must reject.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HALL = ("trace.py", "frames.py", "schema.py", "writing.py")  # the record and its file, which both wings read
MAX_FUNCTION_LINES = 40
MAX_FILE_LINES = 300


@dataclass(frozen=True)
class Source:
    """One Python file: its path below specviz/ and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def imports(self) -> list[str]:
        """Dotted names of all that is imported anywhere in the file: "a.b" for `import a.b`, "a.b.c" for `from a.b import c`."""
        return [name for node in ast.walk(self.tree) for name in self._imported(node)]

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ["specviz", *Path(self.path).parts[:-1]]
            base = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*base, *(node.module or "").split("."), alias.name]).replace("..", ".") for alias in node.names)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def body_lines(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
        """The function's lines from `def` on, without its docstring."""
        lines = dict(enumerate(self.text.splitlines(), 1))
        taken = set(range(function.lineno, (function.end_lineno or 0) + 1))
        if ast.get_docstring(function) is not None:
            docstring = function.body[0]
            taken -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
        return [lines[number] for number in sorted(taken)]


def below(name: str, *modules: str) -> bool:
    """Whether a dotted name is one of the modules or something inside one."""
    return any(name == module or name.startswith(module + ".") for module in modules)


def hall_knows_numpy_alone(source: Source) -> list[str]:
    own = [f"specviz.{name.removesuffix('.py')}" for name in HALL]
    third_party = ("numpy", "safetensors.numpy", "safetensors.safe_open", "safetensors.SafetensorError")
    return [
        name for name in source.imports if name.partition(".")[0] not in sys.stdlib_module_names and not below(name, *third_party, *own)
    ]


def readers_need_no_engine(source: Source) -> list[str]:
    return [name for name in source.imports if below(name, "torch", "transformers", "safetensors.torch", "specviz.engine")]


def engine_needs_no_reader(source: Source) -> list[str]:
    return [name for name in source.imports if below(name, "specviz.analysis", "specviz.views")]


def probabilities_see_no_model(source: Source) -> list[str]:
    models = ("pair", "compat", "cache", "batch", "state", "loop", "decode", "recorder", "drafters", "strategies")
    own = [f"specviz.engine.{name}" for name in models]
    return [name for name in source.imports if below(name, *own) or (below(name, "transformers") and "Logits" not in name)]


def caches_stay_in_one_file(source: Source) -> list[str]:
    """Transformers' cache module or classes, by import, as an attribute of a module, or by their best known names."""
    found = [name for name in source.imports if below(name, "transformers.cache_utils")]
    found += [name for name in source.imports if below(name, "transformers") and name.endswith("Cache")]
    known = {"DynamicCache", "StaticCache", "EncoderDecoderCache", "cache_utils"}
    found += [node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id in known]
    return found + [node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute) and node.attr in known]


def nothing_is_unpickled(source: Source) -> list[str]:
    unsafe = ("pickle", "cPickle", "dill", "cloudpickle", "shelve", "joblib", "torch.load", "torch.save")
    found = [name for name in source.imports if below(name, *unsafe)]
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in {"load", "save"}
            and isinstance(node.value, ast.Name)
            and node.value.id == "torch"
        ):
            found.append(f"torch.{node.attr}")
        if isinstance(node, ast.keyword) and node.arg in {"trust_remote_code", "allow_pickle"} and not is_false(node.value):
            found.append(f"{node.arg}={ast.unparse(node.value)}")
    return found


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def modules_say_what_they_are(source: Source) -> list[str]:
    return [] if ast.get_docstring(source.tree) else ["no module docstring"]


def functions_are_short(source: Source) -> list[str]:
    """Lines of code: docstring, blank lines and comments do not count."""
    code = {
        node: [line for line in source.body_lines(node) if line.strip() and not line.strip().startswith("#")] for node in source.functions
    }
    return [f"{node.name}: {len(lines)} lines of code" for node, lines in code.items() if len(lines) > MAX_FUNCTION_LINES]


def loop_fits_one_screen(source: Source) -> list[str]:
    """All lines but the docstring, since blank lines and comments take room on a screen too."""
    lines = {node.name: len(source.body_lines(node)) for node in source.functions}
    return [f"{name}: {count} lines" for name, count in lines.items() if count > MAX_FUNCTION_LINES]


def files_are_short(source: Source) -> list[str]:
    count = len(source.text.splitlines())
    return [f"{count} lines"] if count > MAX_FILE_LINES else []


def third_party_is_declared(source: Source) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {text.partition(">")[0] for text in project["dependencies"]} | {"specviz"} | sys.stdlib_module_names
    return [name for name in source.imports if name.partition(".")[0].lower() not in declared]  # the module of ipython is IPython


@dataclass(frozen=True)
class Rule:
    """A check, the files (patterns below specviz/) it holds for, and snippets (path, text) that must break it."""

    check: Callable[[Source], list[str]]
    bad: tuple[tuple[str, str], ...]
    applies: tuple[str, ...] = ("*.py",)
    exempt: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        return any(fnmatch(path, pattern) for pattern in self.applies) and path not in self.exempt


LONG = "def long():\n" + "    x = 1\n" * 40
LONG_WITH_COMMENTS = "def long():\n" + "    x = 1\n\n    # why\n" * 14
RULES = (
    Rule(
        hall_knows_numpy_alone,
        applies=HALL,
        bad=(
            ("trace.py", "import pandas"),
            ("trace.py", "from safetensors.torch import save_file"),
            ("frames.py", "import numpy, torch.nn as nn"),
            ("frames.py", "from specviz.engine.events import Event"),
            ("schema.py", "from .analysis import metrics"),
        ),
    ),
    Rule(
        readers_need_no_engine,
        applies=("analysis/*.py", "views/*.py"),
        bad=(
            ("analysis/metrics.py", "import torch"),
            ("analysis/metrics.py", "def f():\n    from torch import nn"),
            ("views/charts.py", "from specviz.engine.pair import Pair"),
            ("views/charts.py", "from ..engine import pair"),
            ("views/charts.py", "from specviz import engine"),
        ),
    ),
    Rule(
        engine_needs_no_reader,
        applies=("engine/*.py",),
        bad=(
            ("engine/loop.py", "from specviz.analysis import metrics"),
            ("engine/recorder.py", "import specviz.views.charts"),
            ("engine/strategies/eqspec.py", "from ...views import charts"),
        ),
    ),
    Rule(
        probabilities_see_no_model,
        applies=("engine/accept.py", "engine/sampling.py"),
        bad=(
            ("engine/accept.py", "from specviz.engine.cache import CachedModel"),
            ("engine/accept.py", "from .pair import Pair"),
            ("engine/sampling.py", "from transformers import PreTrainedModel"),
        ),
    ),
    Rule(
        caches_stay_in_one_file,
        exempt=("engine/cache.py",),
        bad=(
            ("engine/loop.py", "from transformers.cache_utils import Cache"),
            ("engine/loop.py", "from transformers import StaticCache"),
            ("zoo/train.py", "import transformers\ncache = transformers.DynamicCache()"),
            ("zoo/train.py", "import transformers\ntransformers.cache_utils.Cache"),
        ),
    ),
    Rule(
        nothing_is_unpickled,
        bad=(
            ("zoo/train.py", "import pickle"),
            ("zoo/train.py", "import torch\ntorch.save({}, 'x')"),
            ("zoo/train.py", "from torch import load"),
            ("engine/pair.py", "load(name, trust_remote_code=True)"),
            ("engine/pair.py", "load(name, trust_remote_code=trust)"),
            ("trace.py", "np.load(path, allow_pickle=True)"),
        ),
    ),
    Rule(modules_say_what_they_are, bad=(("engine/loop.py", "x = 1"), ("zoo/__init__.py", ""))),
    Rule(
        functions_are_short,
        bad=(("engine/loop.py", LONG), ("cli.py", "class A:\n" + "".join(f"    {line}\n" for line in LONG.splitlines()))),
    ),
    Rule(loop_fits_one_screen, applies=("engine/loop.py",), bad=(("engine/loop.py", LONG), ("engine/loop.py", LONG_WITH_COMMENTS))),
    Rule(files_are_short, bad=(("cli.py", "x = 1\n" * 301),)),
    Rule(third_party_is_declared, bad=(("cli.py", "import requests"), ("views/charts.py", "from matplotlib import pyplot"))),
)
GOOD = (
    ("trace.py", '"""Doc."""\nimport json\nimport numpy as np\nfrom safetensors import safe_open\nfrom specviz.frames import Frame\n'),
    ("analysis/metrics.py", '"""Doc."""\nimport pandas as pd\nfrom specviz.trace import Trace\n'),
    ("engine/loop.py", '"""Doc."""\nimport torch\nfrom specviz.engine.cache import CachedModel\ntorch.load_library\n'),
    ("engine/sampling.py", '"""Doc."""\nimport torch\nfrom transformers import LogitsProcessorList\n'),
    ("engine/cache.py", '"""Doc."""\nfrom transformers.cache_utils import Cache\nfrom transformers import DynamicCache\n'),
    ("engine/pair.py", '"""Doc."""\nload(name, trust_remote_code=False)\n'),
    ("cli.py", '"""Doc."""\ndef long():\n    """' + "Long.\n" * 60 + '    """\n' + "    x = 1\n" * 39),
)


def sources() -> list[Source]:
    folder = ROOT / "specviz"
    return [Source(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]


def rule_id(rule: Rule) -> str:
    return rule.check.__name__


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_rule_holds(rule):
    files = [source for source in sources() if rule.covers(source.path)]
    assert {source.path: found for source in files if (found := rule.check(source))} == {}


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_rule_rejects_what_it_should(rule):
    assert all(rule.covers(path) for path, _ in rule.bad)
    assert [(path, text) for path, text in rule.bad if not rule.check(Source(path, text))] == []


@pytest.mark.parametrize(("path", "text"), GOOD, ids=[path for path, _ in GOOD])
def test_rules_accept_what_they_should(path, text):
    assert {rule_id(rule): found for rule in RULES if rule.covers(path) and (found := rule.check(Source(path, text)))} == {}


def torch_free_modules() -> list[str]:
    """specviz itself, the hall, and everything in the wing that reads."""
    paths = [Path(source.path) for source in sources() if source.path in HALL or source.path.startswith(("analysis/", "views/"))]
    names = [".".join(["specviz", *path.with_suffix("").parts]).removesuffix(".__init__") for path in paths]
    return ["specviz", *names]


@pytest.mark.parametrize(("module", "expected"), [*((name, "False") for name in torch_free_modules()), ("specviz.engine.accept", "True")])
def test_import_brings_no_torch(module, expected):
    """In a fresh interpreter; the engine's module shows that the question can be answered with yes."""
    code = f"import sys, {module}; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.strip() == expected
