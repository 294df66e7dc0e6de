"""A benchmark and a training, killed ten times at random moments.

No work is lost or done twice, and no file is damaged. The moments are drawn with a fixed seed.
The machine decides where in the work they fall; the assertions hold wherever that is.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import killed
import pandas as pd
import pytest
import torch
from conftest import run_program
from safetensors.torch import load_file

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def run(kind: str, folder: Path) -> dict[str, object]:
    done = run_program([sys.executable, "killed.py", kind, str(folder), "7"])
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (folder / "errors.txt").exists(), (folder / "errors.txt").read_text()
    return json.loads(done.stdout)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.slow
def test_bench_loses_no_cell_and_runs_none_twice(tmp_path):
    report = run("bench", tmp_path)
    begun, added = (Counter(lines(tmp_path / name)) for name in ("begun.txt", "added.txt"))
    wanted = {
        json.dumps(cell.key, sort_keys=True): killed.GRID.repetitions
        for cell in killed.GRID.cells("own")
    }
    logged = sum(added.values())
    assert set(begun) == set(wanted)
    assert all(begun[cell] >= count for cell, count in wanted.items())
    # Beyond those asked for, only the one that each kill hit.
    assert sum(begun.values()) <= sum(wanted.values()) + report["killed"]
    # A kill may fall between the log's line and ours.
    assert 0 <= sum(wanted.values()) - logged <= report["killed"]
    table = pd.read_csv(tmp_path / "bench.csv")
    assert len(table) == len(wanted)
    assert table["repetitions"].tolist() == [killed.GRID.repetitions] * len(wanted)
    assert (table["exact_match"] == 1).all()
    json.loads((tmp_path / "bench.json").read_text())
    assert not list(tmp_path.glob("*.partial"))
    assert report["killed"] >= 3


@pytest.mark.slow
def test_training_goes_on_at_its_checkpoint(tmp_path):
    """The weights equal those of an uninterrupted training, bit by bit.

    Each kill costs the steps since the last checkpoint.
    """
    report = run("train", tmp_path)
    assert report["damaged"] == []
    assert report["killed"] >= 3
    steps = len(lines(tmp_path / "begun.txt"))
    assert 120 <= steps <= 120 + 6 * report["killed"]
    (calm := tmp_path / "calm").mkdir()
    threads = torch.get_num_threads()
    killed.training(calm)
    assert torch.get_num_threads() == threads
    ours, theirs = (load_file(folder / "tiny.safetensors") for folder in (tmp_path, calm))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
