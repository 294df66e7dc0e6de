"""Cells as tasks of Ray: two workers on this machine, one of them killed in the middle of work."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from conftest import make_pair, make_prompts

from specviz.bench import Grid, OnRay, StoredPair, on_ray, run_bench
from specviz.bench.running import Log
from specviz.engine.state import State
from specviz.engine.strategies.inplace import InPlace

ray: Any = pytest.importorskip("ray", reason='needs Ray: pip install "specviz[ray]"')
# Ray's own code leaves processes and sockets to its end and warns of changes to come.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
    ),
]


@dataclass(frozen=True)
class Deadly(InPlace):
    """Kills its process in its third round, as often as `marker` says that it has lives."""

    marker: str = ""
    lives: int = 1

    name: ClassVar[str] = "deadly"

    def synchronise(self, state: State) -> None:
        deaths = len(Path(self.marker).read_text()) if Path(self.marker).exists() else 0
        if state.round == 2 and deaths < self.lives:
            Path(self.marker).write_text("x" * (deaths + 1))
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[None]:
    """A Ray with two CPUs, and so two workers at a time, who find this file's strategies."""
    environment = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    for _ in range(3):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                runtime_env={"env_vars": environment},
            )
            break
        except Exception as error:  # of no class of its own
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
    else:
        pytest.skip(
            "Ray gives up if its own processes take more than 15 s to start, as on a busy machine; "
            "run this file alone"
        )
    yield
    ray.shutdown()


def grid(*strategies: Any, sizes: tuple[int, ...] = (1, 3)) -> Grid:
    return Grid(strategies, sizes, (3,), (6,), repetitions=2)


def run(cells: Grid, path: Path | None = None) -> pd.DataFrame:
    runner = OnRay(cpus=1)
    pair = make_pair("llama")
    return run_bench(pair, make_prompts()[:4], cells, path, runner=runner, progress=False)[0]


@pytest.mark.usefixtures("two_workers")
def test_a_killed_worker_costs_a_retry_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.csv"
    deadly = Deadly(marker=str(tmp_path / "deaths"))
    names = ("autoregressive", "hf_generate", "deadly")
    ended = []
    add = Log.add

    def watched(self: Log, row: dict[str, Any]) -> None:
        name = row["cell"]["strategy"].partition(":")[0]
        ended.append((name, row["cell"]["batch_size"], row["repetition"]))
        add(self, row)

    monkeypatch.setattr(Log, "add", watched)
    table = run(grid(*names[:2], deadly), path)
    assert (tmp_path / "deaths").read_text() == "x"
    assert sorted(ended) == sorted(product(names, (1, 3), range(2)))
    assert (table["failure"] == "").all()
    assert (table["exact_match"] == 1).all()
    assert (table["repetitions"] == 2).all()
    assert (table["threads"] == 1).all()
    assert len(pd.read_csv(path)) == 6


@pytest.mark.usefixtures("two_workers")
def test_a_cell_whose_workers_all_die_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "RETRIES", 1)
    deadly = Deadly(marker=str(tmp_path / "deaths"), lives=100)
    table = run(grid("inplace", "eqspec", deadly, sizes=(3,)))
    assert (tmp_path / "deaths").read_text() == "xx"  # tried once, and once again
    died = table["strategy"].str.startswith("deadly")
    assert table["failure"].str.startswith("WorkerCrashedError: ").equals(died)
    assert table["tokens_per_s"].isna().equals(died)
    assert (table["repetitions"][~died] == 2).all()


@pytest.mark.usefixtures("two_workers")
def test_what_a_worker_cannot_load_is_raised_as_it_would_be_here(tmp_path: Path) -> None:
    for source, begins in (
        (StoredPair(str(tmp_path), str(tmp_path)), "target=.* is not a folder that holds a model"),
        (StoredPair(), "prompts="),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=f"^{begins}"):
            run_bench(source, [], grid("inplace"), runner=OnRay(cpus=1), progress=False)


@pytest.mark.usefixtures("two_workers")
def test_the_command_runs_on_the_cluster_at_an_address(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    command = (
        "-m specviz.cli.main bench --strategies autoregressive inplace --batch-sizes 2 --limit 2 "
        f"--repetitions 1 --max-new-tokens 2 --device cpu --ray {address} --cpus 1 --out {tmp_path}"
    )
    run = subprocess.run(
        [sys.executable, *command.split()], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert pd.read_csv(tmp_path / "bench.csv")["exact_match"].tolist() == [1, 1]
    assert "| `inplace` | " in run.stdout
