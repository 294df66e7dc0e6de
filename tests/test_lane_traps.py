"""Mistakes that two lanes, and measurements of them, fall into: each is planted, and found.

Every check that finds a mistake here holds without it.
"""

import copy
from typing import Any

import numpy as np
from bench_rows import row
from conftest import make_pair
from test_simulate_overlap import equal_rounds

from specviz.bench import check, make_table
from specviz.bench.measuring import places
from specviz.simulation import Costs, Policy, Simulation, Tetris, Workload, simulate

# V = 8 + b ms and t = 4 ms: the fixed part of a verification is above t, so splitting costs time.
SPLITTING_COSTS = Costs(draft=4e-3, verify=lambda rows, k, slots: 8e-3 + 1e-3 * rows)


def served(rows: int, *, overlap: bool) -> Simulation:
    """64 requests of 20 rounds each."""
    policy = Policy("inplace", rows, 1, overlap=overlap)
    return simulate(equal_rounds(64, 20), policy, SPLITTING_COSTS)


def broken(line: str, **sides: dict[str, Any]) -> list[str]:
    """What `line` says of two methods, each with its speed and what it uses."""
    rows = []
    for name, used in sides.items():
        given = {"tokens_per_s": 1.0, **used}
        speed = given.pop("tokens_per_s")
        rows.append(row(f"inplace:how={name}", speed, 16, **given))
    found = check(make_table(rows))
    return sorted(set(found.loc[(found["line"] == line) & (found["state"] == "broken"), "why"]))


def test_twice_the_requests_in_flight_make_a_loss_look_like_a_gain() -> None:
    """The published protocol gives two lanes 2m rows, and the single one m."""
    found = {
        "two": served(16, overlap=True),
        "one": served(16, overlap=False),
        "half": served(8, overlap=False),
    }
    speeds = {name: each.summary()["tokens_per_s"].iloc[0] for name, each in found.items()}
    assert speeds["half"] < speeds["two"] < speeds["one"]
    used = {"one": 16.0, "two": 16.0, "half": 8.0}
    sides = {
        name: {"tokens_per_s": speeds[name], "in_flight": count} for name, count in used.items()
    }
    assert broken("requests in flight", two=sides["two"], one=sides["one"]) == []
    found_why = broken("requests in flight", two=sides["two"], half=sides["half"])
    assert found_why == ["in_flight: 16 against 8", "in_flight: 8 against 16"]


def test_a_gain_in_throughput_is_none_in_latency() -> None:
    """A round of two lanes takes a request 2 max(V, t), one of a lane with half the rows V + t."""
    latency_s = {}
    for name, rows, overlap in (("two", 16, True), ("half", 8, False)):
        found = served(rows, overlap=overlap)
        latency_s[name] = np.median(found.finished_s - found.admitted_s)
    assert latency_s["two"] > 1.2 * latency_s["half"]


def test_a_draft_on_a_device_of_its_own_is_not_equal_work() -> None:
    pair = make_pair("llama")
    elsewhere = copy.deepcopy(pair.draft).to("meta")
    count = {"one": len(places(pair, [pair.draft])), "more": len(places(pair, [elsewhere]))}
    assert count == {"one": 1, "more": 2}
    same = {"threads": 2, "devices": 1.0}
    assert broken("devices", two=same, one=same) == []
    found = broken("devices", two=same | {"devices": float(count["more"])}, one=same)
    assert found == ["devices: 1 against 2", "devices: 2 against 1"]


def bimodal(requests: int) -> Workload:
    """Texts whose drafts are all right or all wrong, as their q says."""
    right = np.random.default_rng(0).random(requests * 24) < 0.5
    accepted = np.where(right, 4, 0).astype(np.int8)
    log_q = np.repeat(np.where(right, -0.01, -3.0)[:, None], 4, 1)
    return Workload(
        prompt_tokens=np.full((1, requests), 5),
        new_tokens=np.full((1, requests), 24),
        arrival_s=np.zeros((1, requests)),
        accepted=accepted,
        first=24 * np.arange(requests)[None],
        by_position=True,
        log_q=log_q,
    )


def selection_gain(*, overlap: bool, extra_is_free: bool = False) -> float:
    """Tokens a second of K = 2 and two extra drafts over K = 2, at equally many verified tokens."""
    seconds = []
    for policy in (
        Policy("inplace", 8, 2, overlap=overlap),
        Policy("inplace", 8, 2, overlap=overlap, selector=Tetris(extra=2)),
    ):
        drafted = 2 if extra_is_free else policy.drafted
        costs = Costs(draft=2e-3 * drafted, verify=9e-3)
        seconds.append(float(simulate(bimodal(64), policy, costs).finished_s.max()))
    return seconds[0] / seconds[1]


def test_a_gain_of_selection_with_drafting_hidden_is_not_one_without_lanes() -> None:
    """Behind a longer verification, extra drafts take no time: selection's best case."""
    hidden = selection_gain(overlap=True)
    counted = selection_gain(overlap=False)
    assert counted < 1 < hidden
    # One lane whose extra drafts are not counted gains as much as two lanes do, and is marked.
    left_out = selection_gain(overlap=False, extra_is_free=True)
    assert left_out > 1
    fair = {"tokens_per_s": 1.0, "uncounted_s": 0.0}
    assert broken("drafting time", plain=fair, tetris=fair | {"tokens_per_s": counted}) == []
    unfair = {"tokens_per_s": left_out, "uncounted_s": 0.4}
    assert broken("drafting time", plain=fair, tetris=unfair) == [
        "uncounted_s: 0 against 0.4",
        "uncounted_s: 0.4 against 0",
    ]
