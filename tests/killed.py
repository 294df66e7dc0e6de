"""Start a job ten times, kill it each time at a random moment, then let it end.

Run as `python killed.py bench|train FOLDER SEED`. Each attempt is a child process, forked from
this one so that libraries are loaded once, and is killed with SIGKILL.

Print one line of JSON: the number of kills, how many of them hit a running job, and what the
checks of each attempt found damaged.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from conftest import make_config, make_pair, make_prompts
from safetensors import safe_open
from transformers import LlamaForCausalLM

from specviz.bench import Grid, measuring, run_bench
from specviz.bench.running import Log
from specviz.zoo.training import TrainingJob, train_on

KILLS = 10
STEPS = 120
STRATEGIES = ("autoregressive", "eqspec", "inplace")
GRID = Grid(
    STRATEGIES, batch_sizes=[1, 4], num_draft_tokens=[2, 3], max_new_tokens=[6], repetitions=2
)


def note(path: Path, line: str) -> None:
    """One write, so that a line is there or is not."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, line.encode() + b"\n")
    os.close(handle)


def bench(folder: Path) -> None:
    """Run a small grid; list the started cells in begun.txt, the logged runs in added.txt."""
    plain_measure = measuring.measure_in_turns
    plain_add = Log.add

    def measure(work: object, cell: object, **options: object) -> object:
        note(folder / "begun.txt", json.dumps(cell.key, sort_keys=True))  # type: ignore[attr-defined]
        return plain_measure(work, cell, **options)  # type: ignore[arg-type]

    def add(self: Log, row: dict[str, object]) -> None:
        plain_add(self, row)
        note(folder / "added.txt", json.dumps(row["cell"], sort_keys=True))

    measuring.measure_in_turns = measure  # type: ignore[assignment]
    Log.add = add  # type: ignore[method-assign]
    run_bench(make_pair("llama"), make_prompts()[:4], GRID, folder / "bench.csv", progress=False)


def batches(start: int) -> Iterator[tuple[int, torch.Tensor, int]]:
    """Batches that depend on the step alone, and take their time."""
    for step in range(start, STEPS):
        time.sleep(0.004)
        generator = torch.Generator().manual_seed(step)
        yield step, torch.randint(0, 97, (2, 17), generator=generator), 34


def training(folder: Path) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(make_config("llama"))

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        note(folder / "begun.txt", "step")
        return model(tokens, labels=tokens, use_cache=False).loss

    settings = {"progress": False, "checkpoint_every": 6}
    job = TrainingJob("tiny", folder, STEPS, torch.device("cpu"), **settings)
    train_on(job, model, loss, batches)


def whole_files(folder: Path) -> list[str]:
    """Return what is damaged among the files with final names.

    Only files with other names may be incomplete.
    """
    damaged = []
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as file:
                int(file.metadata()["step"])
                sum(file.get_tensor(name).sum() for name in file.keys())  # noqa: SIM118
        except Exception as error:
            damaged.append(f"{path.name}: {error}")
    return damaged


def attempt(work: Callable[[Path], None], folder: Path, seconds: float | None) -> bool:
    """Run the work in a child; kill it after so many seconds. Returns whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work(folder)
        except BaseException as error:
            note(folder / "errors.txt", repr(error))
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(kind: str, folder: Path, seed: int) -> None:
    (work, longest), dice = (
        {"bench": (bench, 0.9), "train": (training, 0.5)}[kind],
        random.Random(seed),
    )
    killed, damaged = 0, []
    for _ in range(KILLS):
        killed += attempt(work, folder, dice.uniform(0.05, longest))
        damaged += whole_files(folder)
    attempt(work, folder, None)
    sys.stdout.write(json.dumps({"killed": killed, "damaged": damaged + whole_files(folder)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
