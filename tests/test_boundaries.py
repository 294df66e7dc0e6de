"""What must never be in specviz/ or reference/.

These are imports across the walls between rooms, unsafe loading, undocumented modules, and long
functions and files. A rule is a function from one parsed source file to the violations in it. Each
rule runs over every file it applies to, and over small bad snippets that it must reject.
"""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The rooms of specviz/, lowest first. A room imports only from rooms on the lines above its own.
LAYERS = (
    ("util",),
    ("record", "prompts", "scheduling"),
    ("metrics",),
    ("costs",),
    ("engine", "simulation"),
    ("generation",),
    ("checks",),
    ("views", "servers"),
    ("bench",),
    ("studies",),
    ("exercises", "zoo"),
    ("cli",),
)
FLOOR = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
# Modules whose names are not those of their distributions.
MODULES = {"pillow": "PIL", "ipython": "IPython"}
MAX_FUNCTION_LINES = 60
MAX_LOOP_LINES = 40
MAX_FILE_LINES = 600


@dataclass(frozen=True)
class Source:
    """One Python file: its path below specviz/, or from reference/ on, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def imports(self) -> list[str]:
        """Dotted names of all that is imported anywhere in the file.

        "a.b" stands for `import a.b`, and "a.b.c" for `from a.b import c`.
        """
        return [name for node in ast.walk(self.tree) for name in self._imported(node)]

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ["specviz", *Path(self.path).parts[:-1]]
            base = package[: len(package) - node.level + 1] if node.level else []
            yield from (
                ".".join([*base, *(node.module or "").split("."), alias.name]).replace("..", ".")
                for alias in node.names
            )

    @cached_property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    def body_lines(self, function: ast.FunctionDef) -> list[str]:
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


def room_of(module: str) -> str:
    """Return the room of a dotted name or of a path below specviz/.

    It is "" outside the project and for specviz itself.
    """
    parts = module.removeprefix("specviz.").replace("/", ".").removesuffix(".py").split(".")
    return parts[0] if parts[0] in FLOOR else ""


def rooms_import_lower_ones(source: Source) -> list[str]:
    """Imports under TYPE_CHECKING count, since a reader follows them too."""
    own = room_of(source.path)
    others = [
        name for name in source.imports if below(name, "specviz") and room_of(name) not in ("", own)
    ]
    return [name for name in others if FLOOR[room_of(name)] >= FLOOR[own]]


def record_knows_numpy_alone(source: Source) -> list[str]:
    known = {"numpy", "safetensors.numpy", "safetensors.safe_open", "safetensors.SafetensorError"}
    known |= sys.stdlib_module_names | {"specviz.record", "specviz.util"}
    return [name for name in source.imports if not below(name, *known)]


def readers_need_no_torch(source: Source) -> list[str]:
    torch = ("torch", "transformers", "safetensors.torch", "specviz.engine")
    return [name for name in source.imports if below(name, *torch)]


def engine_knows_no_costs(source: Source) -> list[str]:
    return [name for name in source.imports if below(name, "specviz.costs", "specviz.metrics")]


def probabilities_see_no_model(source: Source) -> list[str]:
    models = ("models", "kv", "batch", "state", "loop", "run", "recorder", "drafters", "strategies")
    own = [f"specviz.engine.{name}" for name in models]
    return [
        name
        for name in source.imports
        if below(name, *own) or (below(name, "transformers") and "Logits" not in name)
    ]


def caches_stay_in_one_file(source: Source) -> list[str]:
    """Find Transformers' cache module and classes: imported, as attributes, and by their names."""
    found = [name for name in source.imports if below(name, "transformers.cache_utils")]
    found += [
        name for name in source.imports if below(name, "transformers") and name.endswith("Cache")
    ]
    names = [getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(source.tree)]
    known = {"DynamicCache", "StaticCache", "EncoderDecoderCache", "cache_utils"}
    return found + [name for name in names if name in known]


def reference_stands_alone(source: Source) -> list[str]:
    """A decoder that is copied needs its own file, and of transformers what is public."""
    known = {"torch", "transformers.DynamicCache", "transformers.PreTrainedModel"}
    return [name for name in source.imports if not below(name, *known)]


def nothing_is_unpickled(source: Source) -> list[str]:
    unsafe = (
        "pickle",
        "cPickle",
        "dill",
        "cloudpickle",
        "shelve",
        "joblib",
        "torch.load",
        "torch.save",
    )
    found = [name for name in source.imports if below(name, *unsafe)]
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in {"load", "save"}
            and isinstance(node.value, ast.Name)
            and node.value.id == "torch"
        ):
            found.append(f"torch.{node.attr}")
        if (
            isinstance(node, ast.keyword)
            and node.arg in {"trust_remote_code", "allow_pickle"}
            and not is_false(node.value)
        ):
            found.append(f"{node.arg}={ast.unparse(node.value)}")
    return found


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def modules_say_what_they_are(source: Source) -> list[str]:
    return [] if ast.get_docstring(source.tree) else ["no module docstring"]


def functions_are_short(source: Source) -> list[str]:
    """Lines of code: docstring, blank lines and comments do not count."""
    found = []
    for node in source.functions:
        lines = [line.strip() for line in source.body_lines(node)]
        count = sum(line != "" and not line.startswith("#") for line in lines)
        if count > MAX_FUNCTION_LINES:
            found.append(f"{node.name}: {count} lines of code")
    return found


def loop_fits_one_screen(source: Source) -> list[str]:
    """All lines but the docstring, since blank lines and comments take room on a screen too."""
    lines = {node.name: len(source.body_lines(node)) for node in source.functions}
    return [f"{name}: {count} lines" for name, count in lines.items() if count > MAX_LOOP_LINES]


def files_are_short(source: Source) -> list[str]:
    count = len(source.text.splitlines())
    return [f"{count} lines"] if count > MAX_FILE_LINES else []


@cache
def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = [text.partition(">")[0] for text in project["dependencies"]]
    return {MODULES.get(name, name) for name in distributions}


def third_party_is_declared(source: Source) -> list[str]:
    known = declared() | {"specviz"} | sys.stdlib_module_names
    return [name for name in source.imports if name.partition(".")[0] not in known]


@dataclass(frozen=True)
class Rule:
    """A check, the files that it holds for, and snippets that must break it.

    Files are patterns below specviz/, or from reference/ on; a snippet is its path and its text.
    """

    check: Callable[[Source], list[str]]
    bad: tuple[tuple[str, str], ...]
    applies: tuple[str, ...] = ("*.py",)
    exempt: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        excused = any(fnmatch(path, pattern) for pattern in self.exempt)
        return not excused and any(fnmatch(path, pattern) for pattern in self.applies)


LONG = "def long():\n" + "    x = 1\n" * 60
LONG_WITH_COMMENTS = "def long():\n" + "    x = 1\n\n    # why\n" * 14
RULES = (
    Rule(
        rooms_import_lower_ones,
        exempt=("__init__.py", "__main__.py", "reference/*.py"),
        bad=(
            ("util/files.py", "from specviz.record.trace import Trace"),
            ("record/trace.py", "from specviz import metrics"),
            ("engine/loop.py", "from specviz.generation.generate import generate"),
            ("engine/loop.py", "from ..checks import check"),
            ("views/lab.py", "def f():\n    from specviz.studies import survey"),
            (
                "views/lab.py",
                "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    from specviz.bench import Grid",
            ),
            ("bench/grid.py", "import specviz.cli.main"),
            ("costs/fit.py", "from specviz.engine.state import State"),
            ("simulation/policy.py", "from ..engine.strategies import scheduler"),
            ("servers/log.py", "from specviz.views import theme"),
        ),
    ),
    Rule(
        record_knows_numpy_alone,
        applies=("record/*.py",),
        bad=(
            ("record/trace.py", "import pandas"),
            ("record/trace.py", "from safetensors.torch import save_file"),
            ("record/replay.py", "import numpy, torch.nn as nn"),
            ("record/replay.py", "from specviz.engine.events import Event"),
        ),
    ),
    Rule(
        readers_need_no_torch,
        applies=(
            "record/*.py",
            "metrics.py",
            "costs/*.py",
            "simulation/*.py",
            "views/*.py",
            "servers/*.py",
        ),
        exempt=("views/lab.py",),  # a form that runs models
        bad=(
            ("metrics.py", "import torch"),
            ("metrics.py", "def f():\n    from torch import nn"),
            ("costs/fit.py", "from specviz.engine.models.pair import Pair"),
            ("views/charts/stages.py", "from specviz import engine"),
            ("servers/fetch.py", "import transformers"),
        ),
    ),
    Rule(
        engine_knows_no_costs,
        applies=("engine/*.py",),
        bad=(
            ("engine/loop.py", "from specviz import metrics"),
            ("engine/recorder.py", "import specviz.costs.shapes"),
        ),
    ),
    Rule(
        probabilities_see_no_model,
        applies=(
            "engine/accept.py",
            "engine/chooser.py",
            "engine/gumbel.py",
            "engine/rejection.py",
            "engine/sampling.py",
            "engine/trees/*.py",
            "engine/typical.py",
        ),
        bad=(
            ("engine/accept.py", "from specviz.engine.kv.cache import CachedModel"),
            ("engine/accept.py", "from .models.pair import Pair"),
            ("engine/sampling.py", "from transformers import PreTrainedModel"),
        ),
    ),
    Rule(
        caches_stay_in_one_file,
        # ... with states beside it, and the decoders that readers debug or copy, which know nothing
        # of specviz.
        exempt=(
            "engine/kv/slabs.py",
            "engine/kv/states.py",
            "exercises/decoders/*.py",
            "reference/*.py",
        ),
        bad=(
            ("engine/loop.py", "from transformers.cache_utils import Cache"),
            ("engine/loop.py", "from transformers import StaticCache"),
            ("zoo/train.py", "import transformers\ncache = transformers.DynamicCache()"),
            ("zoo/train.py", "import transformers\ntransformers.cache_utils.Cache"),
        ),
    ),
    Rule(
        reference_stands_alone,
        applies=("reference/*.py",),
        bad=(
            ("reference/inplace.py", "import specviz as sv"),
            ("reference/inplace.py", "from realign import accept"),
            ("reference/inplace.py", "from .realign import accept"),
            ("reference/inplace.py", "from transformers.cache_utils import DynamicLayer"),
            ("reference/inplace.py", "from transformers import StaticCache"),
        ),
    ),
    Rule(
        nothing_is_unpickled,
        bad=(
            ("zoo/train.py", "import pickle"),
            ("zoo/train.py", "import torch\ntorch.save({}, 'x')"),
            ("zoo/train.py", "from torch import load"),
            ("engine/models/pair.py", "load(name, trust_remote_code=True)"),
            ("engine/models/pair.py", "load(name, trust_remote_code=trust)"),
            ("record/trace.py", "np.load(path, allow_pickle=True)"),
        ),
    ),
    Rule(modules_say_what_they_are, bad=(("engine/loop.py", "x = 1"), ("zoo/__init__.py", ""))),
    Rule(
        functions_are_short,
        bad=(
            ("engine/loop.py", LONG),
            ("cli/main.py", "class A:\n" + "".join(f"    {line}\n" for line in LONG.splitlines())),
        ),
    ),
    Rule(
        loop_fits_one_screen,
        applies=("engine/loop.py",),
        bad=(("engine/loop.py", LONG), ("engine/loop.py", LONG_WITH_COMMENTS)),
    ),
    Rule(files_are_short, bad=(("cli/main.py", "x = 1\n" * 601),)),
    Rule(
        third_party_is_declared,
        bad=(
            ("cli/main.py", "import requests"),
            ("views/charts/charts.py", "from matplotlib import pyplot"),
        ),
    ),
)
GOOD = (
    (
        "record/trace.py",
        '"""Doc."""\nimport json\nimport numpy as np\nfrom specviz.record.replay import Frame\n',
    ),
    ("metrics.py", '"""Doc."""\nimport pandas as pd\nfrom specviz.record.trace import Trace\n'),
    (
        "engine/loop.py",
        '"""Doc."""\nimport torch\n'
        "from specviz.engine.kv.cache import CachedModel\ntorch.load_library\n",
    ),
    (
        "engine/sampling.py",
        '"""Doc."""\nimport torch\nfrom transformers import LogitsProcessorList\n',
    ),
    (
        "engine/kv/slabs.py",
        '"""Doc."""\nfrom transformers.cache_utils import Cache\n'
        "from transformers import DynamicCache\n",
    ),
    (
        "reference/realign.py",
        '"""Doc."""\nfrom torch import Tensor\nfrom transformers import DynamicCache\n',
    ),
    ("engine/models/pair.py", '"""Doc."""\nload(name, trust_remote_code=False)\n'),
    (
        "cli/main.py",
        '"""Doc."""\ndef long():\n    """' + "Long.\n" * 60 + '    """\n' + "    x = 1\n" * 39,
    ),
)


@cache
def sources() -> list[Source]:
    folder = ROOT / "specviz"
    return [
        Source(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


@cache
def every_source() -> list[Source]:
    """Return the files of specviz/, and those of reference/."""
    return sources() + [
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "reference").rglob("*.py"))
    ]


def rule_id(rule: Rule) -> str:
    return rule.check.__name__


@pytest.mark.sweep(2)
@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_rule_holds(rule):
    files = [source for source in every_source() if rule.covers(source.path)]
    assert files
    assert {source.path: found for source in files if (found := rule.check(source))} == {}


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_rule_rejects_what_it_should(rule):
    assert all(rule.covers(path) for path, _ in rule.bad)
    assert [(path, text) for path, text in rule.bad if not rule.check(Source(path, text))] == []


@pytest.mark.parametrize(("path", "text"), GOOD, ids=[path for path, _ in GOOD])
def test_rules_accept_what_they_should(path, text):
    assert {
        rule_id(rule): found
        for rule in RULES
        if rule.covers(path) and (found := rule.check(Source(path, text)))
    } == {}


def module_name(path: str) -> str:
    return ".".join(["specviz", *Path(path).with_suffix("").parts]).removesuffix(".__init__")


@cache
def import_graph() -> dict[str, set[str]]:
    """Return each module of specviz/ and the modules that it imports.

    Imports under TYPE_CHECKING and inside functions count too.
    """
    files = {module_name(source.path): source for source in sources()}
    graph = {}
    for module, source in files.items():
        names = {name if name in files else name.rpartition(".")[0] for name in source.imports}
        graph[module] = {
            name for name in names if name in files and name not in (module, "specviz")
        }
    return graph


def test_no_import_goes_in_a_circle():
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_a_circle_is_found():
    graph = import_graph() | {"specviz.record.schema": {"specviz.metrics"}}
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


TORCH_FREE = ("record", "metrics", "costs", "simulation", "views", "servers", "util", "prompts")


@pytest.mark.slow
def test_readers_import_no_torch():
    """All at once, in one fresh interpreter; the engine is the control."""
    names = [module_name(source.path) for source in sources() if room_of(source.path) in TORCH_FREE]
    names.remove("specviz.views.lab")
    lines = [
        f"import {name}; loaded['{name}'] = 'torch' in sys.modules"
        for name in ["specviz", *sorted(names), "specviz.engine.accept"]
    ]
    code = "\n".join(["import json, sys", "loaded = {}", *lines, "print(json.dumps(loaded))"])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = json.loads(run.stdout)
    assert len(loaded) == len(names) + 2
    assert [name for name, torch in loaded.items() if torch] == ["specviz.engine.accept"]
