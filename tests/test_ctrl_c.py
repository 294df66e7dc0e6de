"""Ctrl-C, as a real SIGINT: received also when it comes in a finalizer, and on the command line.

A command that is interrupted ends with status 130. One sentence says what is kept and how to go on.
There is no traceback and no half-written file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import run_program

from specviz.record.trace import Trace
from specviz.util.interrupt import interruptions_go_to


class InterruptsWhenDeleted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def not_here(error: KeyboardInterrupt) -> None:
    raise AssertionError(error)


def test_an_interruption_in_a_finalizer_is_received(capfd: pytest.CaptureFixture[str]) -> None:
    received: list[KeyboardInterrupt] = []
    with interruptions_go_to(received.append):
        InterruptsWhenDeleted()
    assert len(received) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capfd.readouterr().err == ""


def test_outside_the_block_it_is_raised_again() -> None:
    with interruptions_go_to(not_here):
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_handler_of_the_program_is_kept() -> None:
    mine: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: mine.append(number))
    try:
        with interruptions_go_to(not_here):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert mine == [signal.SIGINT]


def test_another_thread_leaves_the_handler_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with interruptions_go_to(not_here):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def last(report: dict[str, Any]) -> str:
    """The sentence; behind the bars, which end in their own ways."""
    return re.split(r"[\r\n]+", report["said"].strip())[-1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_long_command_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    done = run_program([sys.executable, "interrupted.py", str(tmp_path)])
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    found = report["found"]
    for name, each in found.items():
        assert each["status"] == 130, (name, each["said"][-2000:])
        assert "Traceback" not in each["said"], each["said"]
        assert last(each).startswith(f"specviz {name}: interrupted; "), last(each)
        partial = {file for file in each["files"] if file.endswith(".partial")}
        assert partial <= {"bench.jsonl.partial"}, name
    check_generate(found["generate"], tmp_path)
    # While models are loaded, or in a round; when none of it was asked for.
    for number, each in enumerate(report["early"]):
        assert each["status"] == 130, (number, each["said"][-2000:])
        assert "Traceback" not in each["said"]
        assert set(each["files"]) <= {"run.safetensors"}
    log = tmp_path / "bench/bench.jsonl.partial"
    assert last(found["bench"]).endswith(
        f"measurements so far are kept in {log}, and the same command goes on there"
    )
    assert report["again"] == {"bench": 0}
    assert len(pd.read_csv(tmp_path / "bench/bench.csv")) == 4


def check_generate(report: dict[str, Any], folder: Path) -> None:
    assert re.search(
        r"interrupted; \d+ of 32 prompts had not ended; "
        r"their partial texts are above; run it again$",
        last(report),
    )
    trace = Trace.load(folder / "generate/run.safetensors")
    assert report["printed"].count("[interrupted]") == trace.meta["status"].count("interrupted") > 0
    assert set(trace.meta["status"]) > {"interrupted"}
