"""Calls and commands that cannot work, over all public names.

Each raises one sentence that names the argument, its value and, after a semicolon, the remedy. It
comes from specviz, not from inside torch or transformers, and no file is left behind, complete or
partial.
"""

import errno
import re
import traceback
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import make_pair
from tiny_run import TRACE

import specviz as sv
from specviz.bench import Grid, run_bench
from specviz.checks.check import check_invariants
from specviz.cli.main import main as cli
from specviz.costs.shapes import ModelShape
from specviz.record.replay import Replay
from specviz.util.files import save_measured, write, write_folder


def generate(**options: Any) -> object:
    return sv.generate(make_pair("llama"), [[1, 2], [3]], progress=False, **options)


def full(monkeypatch: pytest.MonkeyPatch):
    """A disk that is full when somebody writes a file."""

    def write(self: Path, *_: object, **__: object):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(Path, "write_text", write)


# What the message begins with (a pattern), and the call. What `generate` and `decode` refuse, and
# the makers of pairs, strategies, drafters and prompts, stands in test_input and its like.
OPTIONS = [
    (r"record must be a bool, got 'run\.safetensors'", lambda: generate(record="run.safetensors")),
    (r"on_interrupt='return' is unknown", lambda: generate(on_interrupt="return")),
    (r"/nowhere: cannot be read", lambda: sv.Trace.load("/nowhere")),
    (r"/nowhere/run: cannot be written", lambda: TRACE.save("/nowhere/run")),
    (r"\.: is a folder", lambda: sv.Trace.load(".")),
    (r"there is no request 99", lambda: TRACE.prompt(99)),
    (r"round=99, phase='draft' is not in the record", lambda: Replay(TRACE).frame(99, "draft")),
    (r"trace must be a Trace, got str", lambda: check_invariants("run.safetensors")),
    (r"result must be a Result or a Trace, got NoneType", lambda: sv.compare(None, None)),
    (r"trace=None", lambda: sv.step_through(None)),
    (r"other must be a Trace, got str", lambda: sv.step_through(TRACE, "other")),
    (
        r"step must be an int from 0 to \d+, got -9",
        lambda: sv.step_through(TRACE).export_svg("/tmp/never.svg", step=-9),
    ),
    (
        r"/nowhere/page\.html: cannot be written",
        lambda: sv.step_through(TRACE).export_html("/nowhere/page.html"),
    ),
    (r"model_type must be one of", lambda: ModelShape.from_config({})),
]
COMMANDS = [
    (r"--target a needs a draft", ["generate", "--target", "a"]),
    (r"--top-p 0.5 needs a temperature", ["generate", "--top-p", "0.5"]),
    (r"prompts\[0\]='' is empty", ["generate", ""]),
    (r"/nowhere: cannot be read", ["replay", "/nowhere"]),
    (
        r"--rates must be numbers from 0 to 1, got \[1\.5\]",
        ["bench", "--rates", "1.5", "--drafters", "synthetic", "--strategies", "inplace"],
    ),
    (r"--batch-sizes must be an int >= 1, got -1", ["bench", "--batch-sizes", "-1"]),
    (r"--strategies 'x' is unknown", ["bench", "--strategies", "x"]),
    (r"--shapes must be one of .*, got 'x'", ["bench", "--shapes", "x"]),
    (r"--device 'tpu' is unknown", ["generate", "--device", "tpu"]),
]


SAVERS = {
    "trace": lambda path: TRACE.save(path),
    "page": lambda path: sv.step_through(TRACE).export_html(path.with_suffix(".html")),
    "table": lambda path: save_measured(
        pd.DataFrame({"a": [1.0]}), {"device": "cpu"}, path.with_suffix(".csv")
    ),
    "file": lambda path: write(path, b"content"),
    "bench": lambda path: run_bench(
        make_pair("llama"),
        [[1]],
        Grid(["inplace"], [1], [2], [2], repetitions=1),
        path.with_suffix(".csv"),
        fresh=True,
        progress=False,
    ),
}


def check_sentence(error: BaseException, begins: str):
    message = str(error)
    assert re.match(begins, message), message
    assert "\n" not in message
    assert len(message) < 400, message
    assert message.partition("; ")[2], message


@pytest.mark.parametrize(("begins", "call"), OPTIONS, ids=[begins for begins, _ in OPTIONS])
def test_a_call_that_cannot_work(begins, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, OSError, IndexError)) as caught:
        call()
    check_sentence(caught.value, begins)
    deepest = Path(traceback.extract_tb(caught.value.__traceback__)[-1].filename)
    assert deepest.is_relative_to(Path(sv.__file__).parent), deepest
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("begins", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS]
)
def test_a_command_that_cannot_work(begins, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli(command) == 2
    said = capsys.readouterr().err.strip()
    name, _, message = said.partition(": ")
    assert name == f"specviz {command[0]}"
    check_sentence(ValueError(message), begins)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SAVERS)
def test_a_full_disk_leaves_no_part_of_a_file_and_the_old_one_as_it_was(
    name, tmp_path, monkeypatch
):
    """What a benchmark has measured by then stays in its log."""
    for old in ("run", "run.html", "run.csv"):
        (tmp_path / old).write_bytes(b"old")
    full(monkeypatch)
    with pytest.raises((OSError, ValueError)) as caught:
        SAVERS[name](tmp_path / "run")
    check_sentence(
        caught.value, rf"{tmp_path}/run\S*: cannot be written \(No space left on device\)"
    )
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    log = left.pop("run.jsonl.partial", None)
    assert left == dict.fromkeys(("run", "run.html", "run.csv"), b"old")
    assert (log is not None) == (name == "bench")


def test_a_folder_is_replaced_whole(tmp_path):
    """A half-written one never takes the name, and what was left of it does not get in the way."""
    folder = tmp_path / "target"

    def fill(partial: Path, content: str, fails: bool = False):
        partial.mkdir()
        (partial / "weights").write_text(content)
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device")

    write_folder(folder, lambda partial: fill(partial, "old"))
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, lambda partial: fill(partial, "half", fails=True))
    assert (folder / "weights").read_text() == "old"
    write_folder(folder, lambda partial: fill(partial, "new"))
    assert (folder / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
