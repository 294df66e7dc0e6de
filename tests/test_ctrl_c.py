"""Ctrl-C on the command line, as a real SIGINT.

The status is 130. One sentence says what is kept and how to go on. There is no traceback and no
half-written file.
"""

import json
import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from conftest import run_program

from specviz.record.trace import Trace

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def last(report: dict[str, str]) -> str:
    """The sentence; behind the bars, which end in their own ways."""
    return re.split(r"[\r\n]+", report["said"].strip())[-1]


@pytest.mark.slow
def test_every_long_command_says_what_is_kept_and_how_to_go_on(tmp_path):
    done = run_program([sys.executable, "interrupted.py", str(tmp_path)])
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    found = report["found"]
    for name, each in found.items():
        assert each["status"] == 130, (name, each["said"][-2000:])
        assert "Traceback" not in each["said"], each["said"]
        command = f"study {name}" if name in ("agreement", "survey") else name
        assert last(each).startswith(f"specviz {command}: interrupted; "), last(each)
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
    assert last(found["agreement"]).endswith(
        f"are kept in {tmp_path}/agreement/a.csv, and the same command goes on there"
    )
    assert last(found["train"]).endswith(
        f"checkpoints are kept in {tmp_path}/train/checkpoints, and the same command goes on there"
    )
    assert last(found["survey"]).endswith("nothing else is kept; run it again")
    assert found["survey"]["files"] == []
    assert report["again"] == {"bench": 0, "agreement": 0}
    assert len(pd.read_csv(tmp_path / "bench/bench.csv")) == 4
    assert len(pd.read_csv(tmp_path / "agreement/a.csv")) == 4
    # Measured once: its speed is the same.
    after = (tmp_path / "agreement/a.csv").read_text().splitlines()
    assert set(found["agreement"]["before"].splitlines()) <= set(after)


def check_generate(report: dict[str, str], folder: Path):
    assert re.search(
        r"interrupted; \d+ of 32 prompts had not ended; "
        r"their partial texts are above; run it again$",
        last(report),
    )
    trace = Trace.load(folder / "generate/run.safetensors")
    assert report["printed"].count("[interrupted]") == trace.meta["status"].count("interrupted") > 0
    assert set(trace.meta["status"]) > {"interrupted"}
