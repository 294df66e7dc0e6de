"""Simulated lanes: nothing is lost, and steps cost the longer of drafting and verifying."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import check_refusal
from test_simulate import COSTS, POLICIES, name_of, some

from specviz.simulation import Acceptance, Costs, Policy, Workload, plan_lanes, simulate

OVERLAPPING = [replace(policy, overlap=True) for policy in POLICIES]
each_policy = pytest.mark.parametrize("policy", OVERLAPPING, ids=name_of)


def equal_rounds(requests: int, rounds: int, **more: Any) -> Workload:
    """Requests of so many rounds, each of which accepts nothing."""
    none = Acceptance.geometric([1e-9], 2)
    return Workload.drawn(requests, [5], [rounds], none, seed=0, **more)


@pytest.mark.sweep(32)
@each_policy
@pytest.mark.parametrize("arrivals", [None, 20.0, 200.0])
def test_every_request_is_served_once(policy, arrivals):
    workload = some(arrivals=arrivals) if arrivals else some()
    found = simulate(workload, policy, COSTS)
    assert np.isfinite(found.finished_s).all()
    assert (found.admitted_s >= workload.arrival_s).all()
    assert (found.finished_s > found.admitted_s).all()
    assert found.rounds["gained_tokens"].sum() == int(workload.new_tokens.sum())
    assert (found.own_rounds >= 1).all()
    assert (found.pool_rounds >= found.own_rounds).all()
    # What is accepted hangs on a request alone, so its rounds are those of one lane.
    alone = simulate(workload, replace(policy, overlap=False), COSTS)
    assert found.own_rounds.tolist() == alone.own_rounds.tolist()
    assert found.rounds["rows"].max() <= policy.batch_size // 2
    assert 0 < found.summary()["busy_share"].iloc[0] <= 1


@pytest.mark.parametrize(("draft", "verify"), [(2.0, 3.0), (3.0, 2.0), (1.0, 1.0), (0.5, 4.0)])
def test_a_step_costs_the_longer_of_the_two(draft, verify):
    """Two lanes of a row and n rounds: 2n steps, and the shorter side before or behind them."""
    rounds = 7
    policy = Policy("inplace", 2, 1, overlap=True)
    found = simulate(equal_rounds(2, rounds), policy, Costs(draft=draft, verify=verify))
    steps_s = 2 * rounds * max(draft, verify) + min(draft, verify)
    assert found.finished_s.max() == pytest.approx(steps_s)
    alone = simulate(
        equal_rounds(2, rounds), replace(policy, overlap=False), Costs(draft=draft, verify=verify)
    )
    assert alone.finished_s.max() == pytest.approx(rounds * (draft + verify))


def test_prompts_are_read_while_nobody_verifies():
    """Prefills of both lanes, one after the other, then drafting and verifying in turns."""
    costs = Costs(draft=2.0, verify=3.0, prefill=5.0)
    found = simulate(equal_rounds(2, 1), Policy("inplace", 2, 1, overlap=True), costs)
    # Lane 0 reads 0-5, drafts to 7, verifies. Lane 1 begins to read when lane 0 has verified.
    assert sorted(found.finished_s.ravel()) == [10.0, 20.0]


def test_splitting_pays_where_the_criterion_says_so():
    """V = v0 + v1 b >= t: two halves beat one batch as soon as v0 < t(2m)."""
    for fixed, gains in ((1e-3, True), (8e-3, False)):
        costs = Costs(draft=4e-3, verify=lambda rows, k, slots, fixed=fixed: fixed + 1e-3 * rows)
        workload = equal_rounds(64, 20)
        times = []
        for overlap in (False, True):
            policy = Policy("inplace", 16, 1, overlap=overlap)
            times.append(simulate(workload, policy, costs).finished_s.max())
        assert (times[1] < times[0]) == gains


def test_the_rows_of_two_lanes_are_even() -> None:
    check_refusal(lambda: Policy(batch_size=5, overlap=True), "batch_size must be even", "pass 6")
    assert Policy(overlap=True).name == "inplace:overlap=true"


def test_a_plan_alternates_as_the_simulated_lanes_do():
    for draft, verify in ((2.0, 3.0), (3.0, 2.0), (0.0, 1.0)):
        table = plan_lanes(draft, verify, 7)
        policy = Policy("inplace", 2, 1, overlap=True)
        found = simulate(equal_rounds(2, 7), policy, Costs(draft=draft, verify=verify))
        assert table["stop_ms"].max() == pytest.approx(found.finished_s.max())
        ends = table[table["phase"] == "verify"].groupby("lane")["stop_ms"].max()
        assert sorted(ends) == pytest.approx(sorted(found.finished_s.ravel()))
    alone = plan_lanes(2, 3, 4, lanes=1)
    assert alone["stop_ms"].tolist() == [2, 5, 7, 10, 12, 15, 17, 20]
