"""What a simulation is fed with, and the command around it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main
from specviz.simulation import (
    Acceptance,
    Costs,
    Policy,
    Workload,
    compare,
    latency_under_load,
    simulate,
)

HALF = Acceptance.geometric(0.5, 3)
COSTS = Costs(
    draft=lambda rows, k, slots: 0.001 * k,
    verify=lambda rows, k, slots: 0.01 + 1e-5 * rows * slots,
    move=1e-6,
)


def test_acceptance_is_what_it_was_made_from() -> None:
    assert Acceptance.geometric(0.5, 2).probabilities.tolist() == [[0.5, 0.25, 0.25]]
    assert Acceptance.rates([0.8, 0.5]).probabilities == pytest.approx(np.array([[0.2, 0.3, 0.5]]))
    assert Acceptance.geometric([0, 1], 2).probabilities.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert Acceptance.geometric(0.5, 2).mean_acceptance_length == 1.75


def test_drawn_acceptances_are_as_frequent_as_they_should() -> None:
    """Two kinds of 100,000 rounds each: frequencies within 4 standard errors of probabilities.

    Another seed fails with odds of about 1 in 2000.
    """
    table = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    workload = Workload.drawn(200, 5, 1000, Acceptance(table))
    texts = workload.accepted.reshape(200, 1000)
    frequent = (texts == 3).mean(1) > 0.25
    for kind, of_kind in ((table[0], texts[frequent]), (table[1], texts[~frequent])):
        assert of_kind.shape[0] > 60
        found = np.bincount(of_kind.ravel(), minlength=4) / of_kind.size
        assert (np.abs(found - kind) < 4 * np.sqrt(kind * (1 - kind) / of_kind.size)).all()


def test_a_smaller_k_accepts_the_same_up_to_it() -> None:
    workload = Workload.drawn(200, 5, 60, Acceptance.geometric(0.8, 6))
    policies = [Policy(num_draft_tokens=k) for k in (1, 3, 6, 9)]
    rounds = [simulate(workload, policy, Costs()).own_rounds for policy in policies]
    assert (rounds[0] >= rounds[1]).all()
    assert (rounds[1] >= rounds[2]).all()
    assert (rounds[2] == rounds[3]).all()  # six is all that the acceptance knows


def test_workloads_keep_to_what_is_given() -> None:
    given = Workload.given([3, 9], [2, 5], HALF, replicas=2).arriving([0.5, 0.5])
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


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Acceptance.geometric(1.5), "alpha"),
        (lambda: Policy("masking"), "strategy"),
        (lambda: Policy("exspec", fallback="hope"), "fallback"),
        (lambda: Policy("exspec", 8, window=4), "window"),
        (lambda: Policy("exspec", refill=False), "refill"),
        (lambda: Policy(refill=1), "refill"),
        (lambda: Policy(batch_size=True), "batch_size"),
        (
            lambda: simulate(Workload.drawn(2, 5, 5, HALF), Policy(), Costs(), router="x"),
            "router",
        ),
    ],
)
def test_what_is_refused(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}\b.*; "):
        call()


def test_latencies_rise_with_the_load() -> None:
    workload = Workload.drawn(40, range(5, 30), 24, HALF, replicas=2)
    policies = [Policy("inplace", 4, 3), Policy("exspec", 4, 3, window=12)]
    policies.append(Policy("autoregressive", 4))
    loads = latency_under_load(workload, policies, COSTS, loads=(0.4, 0.9))
    assert loads["load"].tolist() == [0.4] * 3 + [0.9] * 3
    assert (loads["own_load"] >= loads["load"] - 1e-9).all()
    assert (loads["latency_p50_s"] <= loads["latency_p99_s"]).all()
    assert (loads["latency_p99_s"][3:].to_numpy() > loads["latency_p99_s"][:3].to_numpy()).all()
    alone = compare(workload, policies, COSTS)
    assert alone["ratio"].tolist() == pytest.approx(
        (alone["tokens_per_s"] / alone["tokens_per_s"][0]).tolist()
    )


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


def test_the_command_compares_policies_at_the_costs_of_runs(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "simulated.csv"
    asked = f"simulate --out {path} --batch-sizes 2 --max-new-tokens 10 --requests 50"
    assert main([*asked.split(), "--runs", *runs]) == 0
    table = pd.read_csv(path)
    assert len(table) == 7
    assert table["policy"][0] in capsys.readouterr().out
    assert (table["requests"] == 50).all()
    conditions = json.loads(path.with_suffix(".json").read_text())
    assert (conditions["costs"], conditions["runs"]) == ("measured", 2)
    assert str(tmp_path) not in json.dumps(conditions)


def test_runs_that_draft_alone_price_no_step_without_drafts(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["simulate", "--batch-sizes", "2", "--max-new-tokens", "10", "--requests", "20"]
    assert main([*asked, "--runs", runs[1]]) == 0
    printed = capsys.readouterr().out
    assert "autoregressive" not in printed
    assert "inplace" in printed


def test_the_command_sizes_a_cluster_from_a_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "simulate --shapes qwen3-8b/0.6b --alpha 0.5 0.9 --prompt-tokens 10 30"
    asked += " --policies inplace autoregressive --requests 60 --max-new-tokens 20 --rate 0.1"
    assert main(f"{asked} --latency 1000".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["policy", "batch_size", "devices"]
    assert {line.split()[0] for line in lines[1:3]} == {"inplace", "autoregressive"}
    assert main(f"{asked} --latency 0.01".split()) == 0
    assert "latency_s must be at least" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "--runs and --shapes say what a round costs; give one of them"),
        ("--shapes qwen3-8b/0.6b", "give --alpha and --prompt-tokens, too"),
        ("--runs missing.safetensors", "missing.safetensors: cannot be read"),
        ("--latency 1", "--latency 1.0 needs a rate"),
        ("--shapes qwen3-8b/0.6b --policies hope", "hope"),
        ("--shapes qwen3-8b/0.6b --policies exspec:speed=3", "whose options are not simulated"),
        ("--captured", "--captured"),
        ("--shapes qwen3-8b/0.6b --requests 0", "--requests must be an int >= 1, got 0"),
        ("--shapes qwen3-8b/0.6b --prompt-tokens 0", "--prompt-tokens"),
        ("--shapes qwen3-8b/0.6b --alpha 2 --prompt-tokens 9", "--alpha must be a number from 0"),
    ],
)
def test_what_the_command_refuses(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments.split()]) == 2
    said = capsys.readouterr().err
    assert re.search(re.escape(says), said)
    assert len(said.splitlines()) == 1


def test_a_k_that_was_not_measured_is_refused(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--runs", *runs, "--num-draft-tokens", "4"]) == 2
    assert "--num-draft-tokens must be one that was measured (0, 2)" in capsys.readouterr().err
