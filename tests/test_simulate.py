"""The simulation by itself: nothing is lost, none is overtaken, bounds and closed formulas hold.

Whatever is random here has a fixed seed: a test that passes once passes always. The odds of a test
are those that another seed fails.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specviz.record.schema import FALLBACKS, PHASES
from specviz.simulation import (
    Acceptance,
    Costs,
    Policy,
    Workload,
    simulate,
    size_cluster,
)
from specviz.simulation.comparisons import TooSlowError
from specviz.simulation.policy import STRATEGIES
from specviz.simulation.serving import ROUTERS

COSTS = Costs(
    schedule=1e-5,
    draft=lambda rows, k, slots: 2e-3 + 1e-5 * rows,
    verify=lambda rows, k, slots: 4e-3 + 2e-4 * rows + 1e-8 * rows * slots,
    accept=1e-4,
    synchronise=1e-5,
    prefill=lambda rows, k, tokens: 1e-4 + 1e-5 * rows * tokens,
    move=1e-7,
)
POLICIES = [Policy(name, 4, refill=refill) for refill in (True, False) for name in STRATEGIES[:3]]
POLICIES += [Policy("exspec", 4, window=12, fallback=how, max_wait=3) for how in FALLBACKS]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Policy) else str(value)


each_policy = pytest.mark.parametrize("policy", POLICIES, ids=name_of)
GEOMETRIC = Acceptance.geometric([0.3, 0.7, 0.95], 5)


def some(requests: int = 40, **options: Any) -> Workload:
    asked: dict[str, Any] = {"replicas": 3, "seed": 1} | options
    return Workload.drawn(requests, range(3, 40), range(1, 60), GEOMETRIC, **asked)


SERVED = [  # each policy meets all arrivals and all routers, and the routers meet all arrivals
    (policy, arrivals, ROUTERS[(i + j) % 2], 1 + 2 * (j % 2))
    for i, policy in enumerate(POLICIES)
    for j, arrivals in enumerate([None, 20.0, 200.0])
]


@pytest.mark.parametrize(("policy", "arrivals", "router", "devices"), SERVED, ids=name_of)
def test_every_request_ends_with_the_tokens_that_it_asked_for(
    policy: Policy, arrivals: float | None, router: str, devices: int
) -> None:
    workload = some(arrivals=arrivals)
    found = simulate(workload, policy, COSTS, devices=devices, router=router)
    rounds = found.rounds
    assert np.isfinite(found.finished_s).all()
    assert (found.admitted_s >= workload.arrival_s).all()
    assert (found.finished_s > found.admitted_s).all()
    tokens = workload.new_tokens.sum()
    assert rounds["gained_tokens"].sum() == tokens
    assert (found.own_rounds <= found.pool_rounds).all()
    assert (found.own_rounds >= -(-workload.new_tokens // (policy.drafted + 1))).all()
    assert (found.own_rounds <= workload.new_tokens).all()
    assert rounds["rows"].between(1, policy.batch_size).all()
    assert rounds["live"].between(1, policy.window if policy.pooled else policy.batch_size).all()
    # A request is live from its admission to its end, so live rows times seconds is the time that
    # requests have a row. In a static batch they keep it for longer.
    seconds = rounds[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    live_s = (rounds["live"] * seconds).sum()
    held_s = (found.finished_s - found.admitted_s).sum()
    assert live_s >= held_s - 1e-9
    assert not policy.refill or live_s == pytest.approx(held_s)


def test_acceptance_belongs_to_the_request_not_to_the_policy() -> None:
    own = [simulate(some(), policy, COSTS).own_rounds for policy in POLICIES if policy.drafted]
    assert all((rounds == own[0]).all() for rounds in own)


@pytest.mark.sweep(2)
@each_policy
def test_replicas_and_devices_know_nothing_of_each_other(policy: Policy) -> None:
    """A device's own requests alone end when they end among those of other devices."""
    workload = some(arrivals=50.0)
    found = simulate(workload, policy, COSTS, devices=3)
    parts = ("prompt_tokens", "new_tokens", "arrival_s", "first")
    for replica, device in ((0, 0), (1, 2), (2, 1)):
        mine = np.s_[replica : replica + 1, device::3]
        own = {name: getattr(workload, name)[mine] for name in parts}
        alone = simulate(replace(workload, **own), policy, COSTS)
        # The slab is as wide as the longest request needs, which a pool's moves depend on a little.
        np.testing.assert_allclose(alone.finished_s, found.finished_s[mine], rtol=1e-4)


@pytest.mark.parametrize("router", ROUTERS)
def test_with_one_device_there_is_nothing_to_route(router: str) -> None:
    workload = some(arrivals=30.0)
    expected = simulate(workload, POLICIES[0], COSTS).finished_s
    routed = simulate(workload, POLICIES[0], COSTS, router=router)
    assert np.array_equal(routed.finished_s, expected)


@each_policy
def test_none_is_overtaken_in_the_queue(policy: Policy) -> None:
    found = simulate(some(arrivals=100.0), policy, COSTS)
    assert (np.diff(found.admitted_s, axis=1) >= 0).all()


def test_requests_of_one_length_end_in_the_order_of_arrival_without_speculation() -> None:
    workload = Workload.drawn(200, 8, 20, GEOMETRIC, arrivals=30.0)
    found = simulate(workload, Policy("autoregressive", 4), COSTS)
    assert (np.diff(found.finished_s, axis=1) >= 0).all()


def test_a_round_costs_what_the_table_says() -> None:
    """One request of 100 tokens without speculation, by hand.

    The prompt is read, then 3 rounds see 100, 101 and 102 slots.
    """
    costs = Costs(
        verify=lambda rows, k, slots: 0.01 * rows + 0.001 * slots,
        accept=0.5,
        prefill=lambda rows, k, tokens: 0.1 * rows + tokens,
    )
    found = simulate(Workload.given([100], [3], GEOMETRIC), Policy("autoregressive", 1), costs)
    seconds = [0.1 + 99, 0, 3 * 0.01 + 0.001 * (100 + 101 + 102), 3 * 0.5, 0]
    assert found.finished_s.item() == pytest.approx(sum(seconds), rel=1e-6)
    of_phases = found.rounds[[f"{phase}_s" for phase in PHASES]].sum()
    assert of_phases.tolist() == pytest.approx(seconds)


def test_realignment_by_hand() -> None:
    """Two rows of 4 tokens: the first gains 3, the second 1.

    The second moves its 4 slots to end where the first does, then stays.
    """
    drawn = Workload.given([4, 4], [4, 2], GEOMETRIC)
    told = np.array([2, 0, 0, 0], np.int8)
    workload = replace(drawn, accepted=told, first=np.array([[0, 1]]))
    found = simulate(workload, Policy("eqspec", 2, 3), Costs(move=1.0))
    assert found.rounds["gained_tokens"].tolist() == [4, 2]
    assert found.rounds["realigned_slots"].tolist() == [4, 0]
    assert found.rounds["slots"].tolist() == [4 + 3, 7 + 3]
    assert found.finished_s.tolist() == [[4.0, 4.0]]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("max_wait", [1, 5])
def test_the_bound_on_waiting_is_kept(batch_size: int, max_wait: int) -> None:
    policy = Policy("exspec", batch_size, window=24, fallback="wait", max_wait=max_wait)
    for arrivals in (None, 60.0):
        found = simulate(some(80, arrivals=arrivals), policy, COSTS)
        longest = found.summary()["longest_wait_rounds"].item()
        assert 0 < longest <= max_wait + policy.window / batch_size


def test_refill_never_needs_more_rounds_and_in_place_never_moves() -> None:
    policies = (Policy("inplace", 4), Policy("eqspec", 4), Policy("eqspec", 4, refill=False))
    inplace, eqspec, static = (
        simulate(some(), policy, COSTS).summary().iloc[0] for policy in policies
    )
    assert inplace["rounds"] == eqspec["rounds"] <= static["rounds"]
    assert inplace["realigned_slots"] == 0 < eqspec["realigned_slots"]
    assert inplace["tokens_per_s"] > eqspec["tokens_per_s"] > static["tokens_per_s"]


def errors(values: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of independent values lies off."""
    return float(abs(values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


@pytest.mark.parametrize("new_tokens", [2, [1, 2, 6]], ids=["M/D/1", "M/G/1"])
def test_one_row_without_speculation_waits_as_pollaczek_and_khinchine_say(new_tokens: Any) -> None:
    """Mean wait = rate * E[S^2] / (2 (1 - load)), S = new tokens * 10 ms, at a load of 0.7.

    Independent replicas of 300 requests, the first third left out; another seed fails with odds of
    about 1 in 15 000 (4 standard errors, each below 6 % of the mean).
    """
    lengths = np.atleast_1d(np.asarray(new_tokens)) * 0.01
    rate = 0.7 / lengths.mean()
    expected = rate * (lengths**2).mean() / (2 * (1 - 0.7))
    workload = Workload.drawn(300, 4, new_tokens, GEOMETRIC, arrivals=rate, replicas=100)
    found = simulate(workload, Policy("autoregressive", 1), Costs(verify=0.01))
    waits = found.waiting_s[:, 100:].mean(1)
    assert waits.std(ddof=1) / math.sqrt(100) < 0.06 * expected
    assert errors(waits, expected) < 4


def test_littles_law_at_a_steady_load() -> None:
    """Live rows on average = arrivals a second * seconds in a row, from the second half on.

    Independent replicas; another seed fails with odds of about 1 in 15 000 (4 standard errors).
    """
    rate, policy = 25.0, Policy("exspec", 4, window=16)
    workload = Workload.drawn(400, 20, 40, Acceptance.geometric(0.7), arrivals=rate, replicas=20)
    found = simulate(workload, policy, COSTS)
    begin_s, end_s = workload.arrival_s[:, 200], workload.arrival_s[:, -1]
    lane, start_s = found.rounds["lane"], found.rounds["start_s"]
    late = found.rounds[start_s.between(begin_s[lane], end_s[lane])]
    seconds = late[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    live_s = (late["live"] * seconds).groupby(late["lane"]).sum().to_numpy()
    live = live_s / (end_s - begin_s)
    held = (found.finished_s - found.admitted_s)[:, 200:].mean(1)
    assert live.mean() == pytest.approx(rate * held.mean(), rel=0.1)
    assert errors(live - rate * held, 0.0) < 4


def test_a_router_that_looks_waits_less_than_one_that_does_not() -> None:
    """Long and short requests on 4 devices at a load of 0.85.

    Waits differ by a factor of 1.5 and more, so the odds are negligible.
    """
    workload = Workload.drawn(600, 8, [8, 8, 8, 160], Acceptance.geometric(0.7), replicas=4)
    alone = simulate(workload, Policy("inplace", 4), COSTS).summary()["tokens_per_s"].item()
    arriving = workload.arriving(0.85 * 4 * alone / workload.new_tokens.mean())
    waits = [
        simulate(arriving, Policy("inplace", 4), COSTS, devices=4, router=router)
        .summary(0.1)["waiting_mean_s"]
        .item()
        for router in ("shortest_queue", "round_robin")
    ]
    assert waits[0] < waits[1] / 1.5


WORK = Workload.drawn(500, range(10, 50), 40, Acceptance.geometric(0.7), replicas=2)
POLICY = Policy("inplace", 4)


def test_a_cluster_is_large_enough_and_not_larger() -> None:
    found = size_cluster(WORK, POLICY, COSTS, rate=300.0, latency_s=0.3)
    tried = found.tried.set_index("devices")

    def p99(devices: int) -> float:
        arriving = WORK.arriving(300.0)
        served = simulate(arriving, POLICY, COSTS, devices=devices, router="shortest_queue")
        return float(np.percentile(served.latency_s[:, 50:], 99))

    assert p99(found.devices) <= 0.3
    fewer = found.devices - 1
    overloaded = tried["load"].iloc[0] * tried.index[0] / fewer >= 1
    assert p99(fewer) > 0.3 or (fewer not in tried.index and overloaded)
    assert tried.index.is_monotonic_increasing
    assert tried["enough"][found.devices]
    more = size_cluster(WORK, POLICY, COSTS, rate=300.0, latency_s=0.2).devices
    assert more >= found.devices


def test_a_load_of_one_is_never_enough() -> None:
    """However short the run and however generous the bound."""
    found = size_cluster(WORK, POLICY, COSTS, rate=300.0, latency_s=1e6)
    assert found.tried["load"].max() < 1
    assert found.tried["load"].max() * found.devices / (found.devices - 1) >= 1


def test_rounds_that_cost_nothing_have_no_size() -> None:
    with pytest.raises(ValueError, match=r"^costs must be above 0 in at least one phase; "):
        size_cluster(WORK, POLICY, Costs(), rate=10.0, latency_s=1.0)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"rate": 10.0, "latency_s": 0.01}, "latency_s"),
        ({"rate": 300.0, "latency_s": 0.3, "most": 2}, "most"),
    ],
)
def test_bounds_that_no_cluster_keeps(asked: dict[str, Any], name: str) -> None:
    with pytest.raises(TooSlowError, match=f"^{name} must "):
        size_cluster(WORK, POLICY, COSTS, **asked)
