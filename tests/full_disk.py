"""Write each kind of file over an earlier one on a full disk, then again once there is room.

Run as `python full_disk.py FOLDER [LIMIT]`. FOLDER lies on a small file system of its own, which
is filled up. With LIMIT, no file may grow beyond that many bytes instead (RLIMIT_FSIZE): its error
differs, but the same calls raise it.

Print one line of JSON. For each kind it holds the message, whether the earlier file is intact,
which other files exist, and whether writing works once there is room.
"""

import json
import os
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import torch
from conftest import make_config, make_pair, make_prompts
from tiny_run import TRACE
from transformers import LlamaForCausalLM

import specviz as sv
from specviz.bench import Grid, run_bench
from specviz.cli.main import main as cli
from specviz.engine.heads import build_head
from specviz.util.files import save_measured
from specviz.zoo.heads.export import export_head
from specviz.zoo.training import load_checkpoint, optimisers_for, save_checkpoint

GRID = Grid(["inplace", "eqspec"], [1, 2], [2], [2], repetitions=2)
MODEL = LlamaForCausalLM(make_config("llama"))
OPTIMISERS = optimisers_for(MODEL)


def bench(path: Path):
    run_bench(make_pair("llama"), make_prompts()[:3], GRID, path, progress=False)


KINDS = {
    "trace": ("run.safetensors", TRACE.save),
    "page": ("run.html", lambda path: sv.step_through(TRACE).export_html(path)),
    "table": (
        "table.csv",
        lambda path: save_measured(pd.DataFrame({"a": range(2000)}), {"device": "cpu"}, path),
    ),
    "checkpoint": (
        "target.safetensors",
        lambda path: save_checkpoint(path, MODEL, OPTIMISERS, 7, [], 9),
    ),
    "weights": ("head", lambda path: export_head(build_head("medusa", MODEL), path)),
    "bench": ("bench.csv", bench),
    "command": (
        "demo.safetensors",
        lambda path: command(
            ["generate", "def f(", "--max-new-tokens", "4", "--record", str(path)]
        ),
    ),
}


def command(arguments: list[str]):
    """The command line, whose exit status and sentence become an error here."""
    told = []
    with patch("builtins.print", lambda *words, **_: told.append(" ".join(map(str, words)))):
        status = cli(arguments)
    if status:
        raise OSError(f"{status} {told[-1]}")


@contextmanager
def full(folder: Path, limit: int | None):
    """No room, but for a page or two, or for files that small."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return
    ballast = folder.parent / "ballast"
    left = os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, left.f_bavail - 1) * left.f_bsize))
    yield
    ballast.unlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tried(name: str, folder: Path, limit: int | None) -> dict[str, object]:
    file, save = KINDS[name]
    path = folder / name / file
    path.parent.mkdir()
    if name != "bench":
        save(path)  # the earlier one
    before, said = contents(path.parent), None
    with full(folder, limit):
        try:
            save(path)
        except OSError as error:
            said = str(error)
    after = contents(path.parent)
    extra = sorted(after.keys() - before.keys())
    whole = all(after.get(name) == content for name, content in before.items())
    save(path)
    if name == "checkpoint":
        whole = whole and load_checkpoint(path, MODEL, OPTIMISERS)[0] == 7
    return {"said": said, "whole": whole, "extra": extra, "later": sorted(contents(path.parent))}


def main(folder: Path, limit: int | None):
    torch.set_num_threads(1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    MODEL(torch.zeros(1, 2, dtype=torch.long)).logits.sum().backward()
    for optimiser in OPTIMISERS:
        optimiser.step()
    folder = folder / "work"
    folder.mkdir()
    sys.stdout.write(json.dumps({name: tried(name, folder, limit) for name in KINDS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
