"""Cells as tasks of Ray: two workers on this machine, one of them killed in the middle of work."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from conftest import make_pair, make_prompts

from specviz.bench import Grid, OnRay, StoredPair, on_ray, run_bench
from specviz.bench.log import Log
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


def grid(*strategies: Any) -> Grid:
    return Grid(strategies, (1, 3), (3,), (6,), repetitions=2)


@pytest.mark.usefixtures("two_workers")
def test_a_killed_worker_costs_a_retry_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, deadly, rows = tmp_path / "bench.csv", Deadly(marker=str(tmp_path / "deaths")), []
    add = Log.add
    monkeypatch.setattr(Log, "add", lambda self, row: (rows.append(row), add(self, row))[1])
    table, _ = run_bench(
        make_pair("llama"),
        make_prompts()[:4],
        grid("autoregressive", "hf_generate", deadly),
        path,
        runner=OnRay(cpus=1),
        progress=False,
    )
    assert (tmp_path / "deaths").read_text() == "x"
    identities = [
        (row["cell"]["strategy"].partition(":")[0], row["cell"]["batch_size"], row["repetition"])
        for row in rows
    ]
    expected = [
        (name, size, i)
        for name in ("autoregressive", "hf_generate", "deadly")
        for size in (1, 3)
        for i in range(2)
    ]
    assert sorted(identities) == sorted(expected)
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
    deadly, both = (
        Deadly(marker=str(tmp_path / "deaths"), lives=100),
        Grid(("inplace", "eqspec"), (3,), (3,), (6,), repetitions=2),
    )
    grids = [both, Grid((deadly,), (3,), (3,), (6,), repetitions=2)]
    table, _ = run_bench(
        make_pair("llama"), make_prompts()[:4], grids, runner=OnRay(cpus=1), progress=False
    )
    assert (tmp_path / "deaths").read_text() == "xx"  # tried once, and once again
    failed = table[table["strategy"].str.startswith("deadly")]
    assert failed["failure"].str.startswith("WorkerCrashedError: ").all()
    assert failed["tokens_per_s"].isna().all()
    assert (table[~table["strategy"].str.startswith("deadly")]["repetitions"] == 2).all()


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
    options = [
        "--strategies",
        "autoregressive",
        "inplace",
        "--batch-sizes",
        "2",
        "--limit",
        "2",
        "--repetitions",
        "1",
        "--max-new-tokens",
        "2",
    ]
    options += [
        "--device",
        "cpu",
        "--ray",
        ray.get_runtime_context().gcs_address,
        "--cpus",
        "1",
        "--out",
        str(tmp_path),
    ]
    run = subprocess.run(
        [sys.executable, "-m", "specviz.cli.main", "bench", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert pd.read_csv(tmp_path / "bench.csv")["exact_match"].tolist() == [1, 1]
    assert "| `inplace` | " in run.stdout


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({"gpus": 0}, "gpus must be an int >= 1, got 0; "),
        ({"cpus": 0}, "cpus must be an int >= 1, got 0; "),
    ],
    ids=str,
)
def test_numbers_that_are_none(arguments: dict[str, int], begins: str) -> None:
    with pytest.raises(ValueError, match=f"^{begins}"):
        OnRay(**arguments)


def test_ray_hands_out_gpus_itself() -> None:
    with pytest.raises(
        ValueError,
        match=r"^device='cuda:1' names one GPU, but Ray assigns them; pass device='cuda'",
    ):
        run_bench(
            StoredPair(),
            ["x"],
            Grid(("inplace",), devices=("cuda", "cuda:1")),
            runner=OnRay(),
            progress=False,
        )
