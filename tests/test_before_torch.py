"""Wrong options are refused before torch is imported, which alone takes seconds.

A process in which torch and transformers cannot be imported gives the same refusals.
"""

import json
import subprocess
import sys
from pathlib import Path

from bad_values import NOWHERE
from test_bad_options import FITS, arguments_of, options

from specviz.bench.baselines import BASELINES
from specviz.bench.equal_lines import LINES
from specviz.cli.bench import BASELINE_NAMES
from specviz.cli.bench_check import LINE_NAMES
from specviz.engine.auto import Auto
from specviz.engine.drafters import DRAFTERS
from specviz.engine.names import AUTO, DRAFTER_NAMES, SELECTOR_NAMES, STRATEGY_NAMES
from specviz.engine.selectors import SELECTORS
from specviz.engine.strategies import STRATEGIES

TEXTS = ("", "a\nb", "-1", "nan", str(NOWHERE))
# What looks like a hub id can only be refused by the hub.
HUB_IDS = {"nan"}
SCRIPT = """
import argparse, contextlib, io, json, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Blocked())
argparse._ = str  # for each text of a parser gettext looks for its files
from specviz.cli.main import main

found = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code
    if status == 0 or "is imported" in said.getvalue():
        found.append([arguments, said.getvalue()])
json.dump(found, sys.stdout)
"""


def late(calls: list[list[str]], folder: Path) -> list[list[object]]:
    """Those of the calls that import torch or transformers, or do not fail, with what they say."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout)
    return found


def test_wrong_options_are_refused_before_torch_is_imported(tmp_path):
    calls = []
    for command, option, action in options():
        fits = FITS.get(f"{command} {option}", FITS.get(option, set()))
        names_a_model = action.dest in ("target", "draft")
        for text in TEXTS:
            if text not in fits and not (names_a_model and text in HUB_IDS):
                calls.append(arguments_of(command, option, action, text))
    assert len(calls) > 1000
    assert late(calls, tmp_path) == []


def test_a_call_that_needs_torch_is_found(tmp_path):
    calls = [["generate", "x", "--strategy", "nosuch"], ["generate", "x"]]
    ((arguments, said),) = late(calls, tmp_path)
    assert arguments == ["generate", "x"]
    assert "is imported" in said


def test_names_that_commands_know_without_torch_are_those_that_are_registered():
    assert set(STRATEGY_NAMES) == set(STRATEGIES)
    assert set(DRAFTER_NAMES) == set(DRAFTERS)
    assert set(SELECTOR_NAMES) == set(SELECTORS)
    assert set(BASELINE_NAMES) == set(BASELINES)
    assert set(LINE_NAMES) == set(LINES)
    assert Auto.name == AUTO
