"""What a simulation is fed with, what it refuses, and the command around it."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main
from specviz.costs.shapes import SHAPES
from specviz.simulation import (
    Acceptance,
    Costs,
    Policy,
    Workload,
    compare,
    grouping_rates,
    latency_under_load,
    refill_or_grouping,
    simulate,
)
from specviz.studies.simulation_inputs import from_runs, record_runs
from specviz.studies.simulation_plan import POLICIES, SimulationPlan, answer

HALF = Acceptance.geometric(0.5, 3)
COSTS = {
    0: Costs(verify=0.01),
    3: Costs(draft=0.004, verify=lambda rows, slots: 0.01 + 1e-5 * rows * slots, move=1e-6),
}


def test_acceptance_is_what_it_was_made_from() -> None:
    assert Acceptance.geometric(0.5, 2).probabilities.tolist() == [[0.5, 0.25, 0.25]]
    assert Acceptance.rates([0.8, 0.5]).probabilities == pytest.approx(np.array([[0.2, 0.3, 0.5]]))
    assert Acceptance.geometric([0, 1], 2).probabilities.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert Acceptance.geometric(0.5, 2).mean_acceptance_length == 1.75


def test_drawn_acceptances_are_as_frequent_as_they_should() -> None:
    """A million rounds: each frequency within 4 standard errors of its probability.

    Another seed fails with odds of about 1 in 4000.
    """
    table = np.array([0.1, 0.2, 0.3, 0.4])
    accepted = Workload.drawn(10, 5, 5, Acceptance(table)).accepted
    found = np.bincount(accepted, minlength=4) / len(accepted)
    assert (np.abs(found - table) < 4 * np.sqrt(table * (1 - table) / len(accepted))).all()


def test_a_smaller_k_accepts_the_same_up_to_it() -> None:
    workload = Workload.drawn(200, 5, 60, Acceptance.geometric(0.8, 6))
    policies = [Policy(num_draft_tokens=k) for k in (1, 3, 6, 9)]
    rounds = [simulate(workload, policy, Costs()).own_rounds for policy in policies]
    assert (rounds[0] >= rounds[1]).all()
    assert (rounds[1] >= rounds[2]).all()
    assert (rounds[2] == rounds[3]).all()  # six is all that the acceptance knows


def test_workloads_keep_to_what_is_given() -> None:
    given = Workload.given([3, 9], [2, 5], HALF, arrivals=[0.5, 0.5], replicas=2)
    assert given.prompt_tokens.tolist() == [[3, 9], [3, 9]]
    assert given.arrival_s.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    drawn = Workload.drawn(500, [3, 9], range(1, 4), HALF, arrivals=10.0)
    assert set(drawn.prompt_tokens.ravel().tolist()) == {3, 9}
    assert set(drawn.new_tokens.ravel().tolist()) == {1, 2, 3}
    faster = drawn.arriving(20.0)
    assert faster.arrival_s == pytest.approx(drawn.arrival_s / 2)
    assert (faster.arriving(None).arrival_s == 0).all()
    mean_s = np.diff(Workload.drawn(20_000, 3, 3, HALF, arrivals=10.0).arrival_s).mean()
    # 4 standard errors: another seed fails once in 15 000.
    assert mean_s == pytest.approx(0.1, rel=4 / np.sqrt(20_000))


def test_joined_workloads_come_out_as_they_did_alone() -> None:
    kinds = (HALF, Acceptance.geometric(0.9, 5))
    single = [Workload.drawn(30, 8, 20, acceptance, replicas=2) for acceptance in kinds]
    policy, together = Policy("exspec", 2, window=8), Workload.joined(single)
    alone = [simulate(workload, policy, COSTS[3]).finished_s for workload in single]
    assert np.array_equal(simulate(together, policy, COSTS[3]).finished_s, np.concatenate(alone))


def test_a_round_costs_what_the_table_says() -> None:
    """One request of 100 tokens without speculation, by hand.

    The prompt is read, then 3 rounds see 100, 101 and 102 slots.
    """
    costs = Costs(
        verify=lambda rows, slots: 0.01 * rows + 0.001 * slots,
        accept=0.5,
        prefill=lambda rows, tokens: 0.1 * rows + tokens,
    )
    found = simulate(Workload.given([100], [3], HALF), Policy("autoregressive", 1), costs)
    seconds = [0.1 + 99, 0, 3 * 0.01 + 0.001 * (100 + 101 + 102), 3 * 0.5, 0]
    assert found.finished_s.item() == pytest.approx(sum(seconds), rel=1e-6)
    assert found.totals.seconds[:, 0].tolist() == pytest.approx(seconds)


def test_realignment_by_hand() -> None:
    """Two rows of 4 tokens: the first gains 3, the second 1.

    The second moves its 4 slots to end where the first does, then stays.
    """
    drawn = Workload.given([4, 4], [4, 2], HALF)
    told = np.array([2, 0, 0, 0], np.int8)
    workload = replace(drawn, accepted=told, first=np.array([[0, 1]]), longest=8)
    found = simulate(workload, Policy("eqspec", 2, 3), Costs(move=1.0), series=True)
    assert found.series is not None
    assert found.series["gained_tokens"].tolist() == [4, 2]
    assert found.series["realigned_slots"].tolist() == [4, 0]
    assert found.series["slots"].tolist() == [4 + 3, 7 + 3]
    assert found.finished_s.tolist() == [[4.0, 4.0]]


def drawn(requests: Any = 2, prompt: Any = 5, new: Any = 5, **more: Any) -> Workload:
    return Workload.drawn(requests, prompt, new, HALF, **more)


def served(**asked: Any) -> Any:
    return simulate(drawn(), Policy(), Costs(), **asked)


@pytest.mark.parametrize(
    ("call", "begins"),
    [
        (lambda: Acceptance([0.5, 0.6]), "probabilities must be numbers >= 0 that sum to 1 in "),
        (lambda: Acceptance.rates([0.5, 0.6]), "rates must be numbers from 0 to 1 that never rise"),
        (lambda: Acceptance.rates([]), "rates must be numbers from 0 to 1 that never rise, got []"),
        (lambda: Acceptance.geometric(1.5), "alpha must be a number from 0 to 1, or several, got "),
        (lambda: drawn(0), "requests must be an int >= 1, got 0; "),
        (lambda: drawn(prompt=0), "prompt_tokens must be an int >= 1, or several, got 0; "),
        (lambda: drawn(new=[]), "new_tokens must be an int >= 1, or several, got []; "),
        (lambda: drawn(replicas=0), "replicas must be an int >= 1, got 0; "),
        (lambda: drawn(seed=-1), "seed must be an int >= 0, got -1; "),
        (lambda: drawn(arrivals=0.0), "arrivals must be a finite number > 0, got 0.0; "),
        (lambda: drawn(arrivals=[1.0]), "arrivals must be 2 times >= 0 s in order, got [1.0]; "),
        (lambda: drawn(arrivals=[2.0, 1.0]), "arrivals must be 2 times >= 0 s in order, got [2.0"),
        (
            lambda: Workload.given([5], [5, 5], HALF),
            "new_tokens must have one length for each of 1 prompts, got 2; ",
        ),
        (
            lambda: Workload.joined([drawn(2), drawn(3)]),
            "workloads must have the same number of requests a replica, got [2, 3]; ",
        ),
        (lambda: Costs(draft=-1), "draft must be seconds >= 0, got -1; "),
        (lambda: Costs(move=lambda: 0), "move must be seconds >= 0, got <function"),
        (
            lambda: Costs(verify=lambda rows, slots: -1.0).table(2, 10),
            "verify(1, ...) must return seconds >= 0 for any slots, got -1; ",
        ),
        (lambda: Policy("masking"), "strategy must be one of autoregressive, inplace, eqspec, exs"),
        (lambda: Policy("exspec", fallback="hope"), "fallback must be one of realign, partial, w"),
        (lambda: Policy("exspec", 8, window=4), "window must be from batch_size=8 to 4096, got 4"),
        (lambda: Policy("exspec", refill=False), "refill must be True for exspec, got False: "),
        (lambda: Policy(refill=1), "refill must be a bool, got 1; "),
        (lambda: Policy(batch_size=True), "batch_size must be an int >= 1, got True; "),
        (lambda: served(devices=0), "devices must be an int >= 1, got 0; "),
        (lambda: served(router="x"), "router must be one of round_robin, shortest_queue, least_w"),
        (
            lambda: simulate(drawn(prompt=2**26), Policy(), Costs()),
            "workload must have fewer than 16777216 requests a replica, ",
        ),
        (lambda: served().summary(1.0), "skip must be >= 0 and < 1, got 1.0; "),
        (
            lambda: compare(drawn(), [], COSTS),
            "policies must be a list of Policy objects, got []; ",
        ),
        (
            lambda: compare(drawn(), [Policy()], COSTS),
            "costs must hold those of 5 drafts a round for inplace, got those of 0, 3; ",
        ),
        (
            lambda: latency_under_load(drawn(), [Policy("autoregressive")], COSTS, loads=[0]),
            "loads must be numbers > 0, got [0]; ",
        ),
        (
            lambda: SimulationPlan(("exspec:speed=3",)),
            "policies names 'exspec:speed=3', whose options are ",
        ),
        (lambda: SimulationPlan(latency_s=1.0), "latency_s=1.0 needs a rate; "),
        (lambda: SimulationPlan(requests=0), "requests must be an int >= 1, got 0; "),
    ],
)
def test_what_is_refused(call: Any, begins: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(begins)}"):
        call()


@pytest.mark.slow
def test_studies_say_what_they_promise() -> None:
    workload = Workload.drawn(40, range(5, 30), 24, HALF, replicas=2)
    refill = refill_or_grouping(workload, COSTS, batch_size=4, num_draft_tokens=3, window=12)
    assert refill["moves"].tolist() == ["measured"] * 6 + ["free"] * 6
    assert refill["policy"][:2].tolist() == ["eqspec:refill=false", "eqspec"]
    measured, free = refill[:6], refill[6:].reset_index(drop=True)
    assert measured["rounds"].equals(free["rounds"])
    assert (free["tokens_per_s"] >= measured["tokens_per_s"]).all()
    # Realignment is all that tells them apart.
    speeds = free.set_index("policy")["tokens_per_s"]
    assert speeds["eqspec"] == pytest.approx(speeds["inplace"])

    policies = [Policy("inplace", 4, 3), Policy("exspec", 4, 3, window=12)]
    policies.append(Policy("autoregressive", 4))
    loads = latency_under_load(workload, policies, COSTS, loads=(0.4, 0.9))
    assert loads["load"].tolist() == [0.4] * 3 + [0.9] * 3
    assert (loads["own_load"] >= loads["load"] - 1e-9).all()
    assert (loads["latency_p50_s"] <= loads["latency_p99_s"]).all()
    assert (loads["latency_p99_s"][3:].to_numpy() > loads["latency_p99_s"][:3].to_numpy()).all()

    rates = grouping_rates(
        {"half": HALF, "all": Acceptance.geometric(1, 3)},
        {"equal": 8, "mixed": range(5, 30)},
        windows=(4, 16),
        batch_sizes=(2, 8),
        requests=48,
        replicas=4,
    )
    assert len(rates) == 2 * 2 * 3
    rates = rates[rates["window"] == 16].set_index(["acceptance", "prompts", "batch_size"])
    grouped = rates["grouping_rate"].sort_index()
    assert (grouped["all", "equal"] > 0.9).all()  # who starts together stays together
    assert grouped["half", "equal", 2] > grouped["half", "mixed", 2] > grouped["half", "mixed", 8]


@pytest.mark.slow
def test_recorded_runs_become_costs_and_acceptance(pair: sv.Pair, prompts: list[list[int]]) -> None:
    asked: dict[str, Any] = {"num_draft_tokens": 3, "max_new_tokens": 4, "progress": False}
    traces = record_runs(pair, prompts[:4], batch_size=2, **asked)
    names = ("autoregressive", "inplace", "eqspec", "exspec")
    recorded = {(trace.meta["strategy"], trace.meta["batch_size"]) for trace in traces}
    assert recorded == set(product(names, (1, 2)))
    inputs = from_runs(traces)
    assert set(inputs.costs) == {0, 3}
    assert inputs.prompt_tokens == [len(prompt) for prompt in prompts[:4]]
    halves = record_runs(pair, prompts[:4], batch_size=4, halves=True, **asked)
    assert [trace.meta["batch_size"] for trace in halves] == [1, 2, 4] * 8
    firsts = [[trace.prompt(i) for i in (0, 1)] for trace in halves[::12]]
    assert firsts == [prompts[:4:2], prompts[1:4:2]]
    plan = SimulationPlan(requests=240, batch_size=2, num_draft_tokens=3, new_tokens=12, window=4)
    table, conditions = answer(plan, inputs)
    assert len(table) == len(POLICIES)
    assert table["requests"].unique().tolist() == [240]
    assert (table["simulated_cpu_s"] > 0).all()
    assert conditions["costs"] == "measured"
    held, conditions = answer(SimulationPlan(batch_size=2, num_draft_tokens=3), inputs, "held_out")
    strategies = held["policy"].str.partition(":")[0]
    found = zip(strategies, held["batch_size"], strict=True)
    assert list(found) == list(product(names, (1, 2)))
    ratios = held["simulated_tokens_per_s"] / held["tokens_per_s"]
    assert held["deviation"].tolist() == pytest.approx((ratios - 1).tolist())
    assert (conditions["simulated"], conditions["runs"]) == ("held_out", 8)
    message = "^question='held_out' compares with recorded runs; leave out --ceilings$"
    with pytest.raises(ValueError, match=message):
        answer(SimulationPlan(), replace(inputs, runs=()), "held_out")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two records of a tiny pair, by their files."""
    folder = tmp_path_factory.mktemp("runs")
    asked: dict[str, Any] = {"num_draft_tokens": 2, "batch_size": 2, "max_new_tokens": 6}
    paths = []
    for name in ("autoregressive", "eqspec"):
        prompts = make_prompts()[2:5]
        trace = sv.generate(
            make_pair("llama"), prompts, strategy=name, record=True, progress=False, **asked
        ).trace
        assert trace is not None
        paths.append(str(folder / f"{name}.safetensors"))
        trace.save(paths[-1])
    return paths


@pytest.mark.sweep(8)
@pytest.mark.parametrize("question", [None, "grouping", "latency", "refill"])
def test_the_command_prints_and_writes(
    question: str | None,
    runs: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fewer(*given: Any, **asked: Any) -> pd.DataFrame:
        return grouping_rates(*given, **asked | {"windows": (8,), "replicas": 2, "requests": 24})

    monkeypatch.setattr("specviz.studies.simulation_plan.grouping_rates", fewer)
    path = tmp_path / "simulated.csv"
    asked = "--batch-size 2 --max-new-tokens 10"
    if question != "grouping":  # which does not use these
        asked += " --requests 120 --window 4"
    if question is not None:
        asked += f" --question {question}"
    if question == "latency":
        asked += " --policies autoregressive inplace"
    command = ["study", "simulate", "--out", str(path), *asked.split(), "--runs", *runs]
    assert main(command) == 0
    printed, table = capsys.readouterr().out, pd.read_csv(path)
    columns = {None: "policy", "grouping": "acceptance", "latency": "load", "refill": "moves"}
    column = columns[question]
    assert column in printed
    assert column in table
    conditions = json.loads(path.with_suffix(".json").read_text())
    assert conditions["simulated"] == (question or "policies")
    assert (conditions["num_draft_tokens"], conditions["costs"]) == (2, "measured")
    assert ("window" in conditions) == (question != "grouping")
    assert ("rate" in conditions) == (question is None)
    assert conditions["prompt_tokens"]
    assert str(tmp_path) not in json.dumps(conditions)


@pytest.mark.slow
def test_the_command_sizes_a_cluster_from_a_roofline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [
        ("copy", "", 0, 1e9, 1.0, 2e12),
        ("read", "", 0, 1e9, 1.0, 2e12),
        ("matmul", "bfloat16", 64, 0, 1.0, 5e14),
        ("launch", "", 0, 0, 1.0, 2e5),
    ]
    columns = ["quantity", "dtype", "rows", "bytes", "seconds", "rate"]
    path = tmp_path / "ceilings.csv"
    pd.DataFrame(rates, columns=columns).to_csv(path, index=False)
    asked = f"study simulate --ceilings {path} --shapes {next(iter(SHAPES))} --alpha 0.5 0.9"
    asked += " --prompt-tokens 100 300 --policies inplace autoregressive"
    asked += " --requests 1000 --max-new-tokens 40 --rate 30 --latency"
    assert main(f"{asked} 1.2".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["policy", "devices"]
    fewest = {line.split()[0]: line.split()[1] for line in lines[1:3]}
    assert 1 <= float(fewest["inplace"]) <= 30
    assert main(f"{asked} 0.01".split()) == 0
    assert "latency_s must be at least" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--shapes qwen3-8b/0.6b", "--ceilings and --shapes belong together"),
        (
            "--ceilings x.csv --shapes qwen3-8b/0.6b",
            "says nothing of acceptance and prompts; give --alpha and --prompt-tokens",
        ),
        ("--runs missing.safetensors", "missing.safetensors: cannot be read"),
        ("--latency 1", "latency_s=1.0 needs a rate"),
        ("--policies hope", "inplace, eqspec, exspec to be simulated, got 'hope'"),
        ("--captured", "--captured needs --ceilings"),
        (
            "--question grouping --window 64",
            "--window 64 is not used by question grouping; leave it",
        ),
        (
            "--question refill --policies inplace",
            "--policies ['inplace'] is not used by question re",
        ),
        (
            "--question held_out --requests 9",
            "--requests 9 is not used by question held_out; leave",
        ),
        ("--question latency --rate 3", "--rate 3.0 is not used by question latency; leave it out"),
    ],
)
def test_what_the_command_refuses(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "simulate", *arguments.split()]) == 2
    assert says in capsys.readouterr().err


def test_k_is_that_of_the_runs(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "simulate", "--runs", *runs, "--num-draft-tokens", "4"]) == 2
    assert "--num-draft-tokens 4 is not that of --runs, 2; leave it out" in capsys.readouterr().err
