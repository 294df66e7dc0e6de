"""Serve requests by simulated devices under a policy.

Simplifications: a round takes what its cost table says, without noise. The rounds of a request
accept independently of each other. Its tokens count when their round ends. Prompts are read whole,
in the round in which they enter, by all rows that enter together. Routing takes no time, and the
router learns once a round what has finished. Memory is not limited.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specviz.record.schema import DECISIONS, Array
from specviz.simulation.arguments import check_devices, check_served
from specviz.simulation.costs import Costs
from specviz.simulation.fleet import Fleet
from specviz.simulation.overlap import OverlappingFleet
from specviz.simulation.policy import MAX_LENGTH, MAX_QUEUE, Policy
from specviz.simulation.result import Simulation
from specviz.simulation.workload import Workload
from specviz.util.validate import require_bool


def simulate(
    workload: Workload,
    policy: Policy,
    costs: Costs,
    *,
    devices: int = 1,
    router: str = "round_robin",
    series: bool = False,
) -> Simulation:
    """Let `devices` in each replica of `workload` serve its requests under `policy`.

    All devices of all replicas advance together, so the time this takes depends on the rounds of
    one device: spread a million requests over some dozens of replicas or devices.

    Args:
        workload, policy, costs: the requests, the strategy, and what a round costs.
        devices: in each replica.
        router: "round_robin"; "shortest_queue", to the device with the fewest requests;
            "least_work", to the one with the fewest tokens to go.
        series: whether to keep what happened in every round.

    Raises:
        ValueError: an argument is out of range; nothing has run.
    """
    check_served(workload, policy, costs)
    check_devices(devices, router)
    require_bool("series", series)
    _check(workload, policy)
    if policy.overlap and router != "round_robin":
        raise ValueError(
            f"router must be 'round_robin' for a policy with overlap=True, got {router!r}; "
            "leave router out, or pass overlap=False"
        )
    fleet = _fleet(workload, policy, costs, devices, router, series)
    fleet.run()
    shape = workload.prompt_tokens.shape
    return Simulation(
        policy=policy,
        workload=workload,
        devices=devices,
        router=router,
        admitted_s=fleet.admitted_s.reshape(shape),
        finished_s=fleet.finished_s.reshape(shape),
        own_rounds=fleet.own_rounds.reshape(shape),
        pool_rounds=fleet.pool_rounds.reshape(shape),
        totals=fleet.totals,
        series=_series(fleet),
    )


def _check(workload: Workload, policy: Policy) -> None:
    """Raise ValueError if the workload lacks what the policy needs, or is too large."""
    column = policy.selector.reads
    if policy.drafted and column is not None and getattr(workload, column) is None:
        name = "q" if column == "log_q" else column
        raise ValueError(
            f"selector must do without {name} for this workload, got {policy.selector.name}; "
            "take the workload from an AcceptanceTable of `specviz study tables`"
        )
    requests = workload.prompt_tokens.shape[1]
    if workload.longest >= MAX_LENGTH or requests >= MAX_QUEUE:
        raise ValueError(
            f"workload must have fewer than {MAX_QUEUE} requests a replica, of fewer than"
            f" {MAX_LENGTH} tokens, got {requests} of up to {workload.longest}; pass fewer"
        )


def _fleet(
    workload: Workload, policy: Policy, costs: Costs, devices: int, router: str, series: bool
) -> Fleet:
    """Return the fleet with all requests sent to their devices.

    A router that looks at the devices' load has let the fleet run up to the last arrival.
    """
    replicas, requests = workload.prompt_tokens.shape
    slots = 2 * workload.longest + policy.num_draft_tokens + 1
    table = costs.table(policy.capacity, slots)
    if router == "round_robin":
        queue, tail = _dealt(replicas, requests, devices)
    else:
        queue = np.zeros((replicas * devices, -(-requests // devices)), np.int64)
        tail = np.zeros(replicas * devices, np.int64)
    kind = OverlappingFleet if policy.overlap else Fleet
    fleet = kind(workload, policy, table, queue, tail, series)
    if router != "round_robin":
        # How long a round takes says how often the router learns what has finished. It need not be
        # exact: a full batch at a quarter of the slots will do.
        typical_column = table.phases.shape[2] // 4
        round_s = float(table.phases[:, fleet.batch_size, typical_column].sum())
        _route(fleet, workload, devices, router, round_s)
    return fleet


def _dealt(replicas: int, requests: int, devices: int) -> tuple[Array, Array]:
    """Return queues (G * devices, Q) and their lengths.

    Request i of a replica goes to device i modulo devices.
    """
    turns = -(-requests // devices)
    index = np.arange(turns * devices).reshape(turns, devices).T  # (devices, Q)
    begin = requests * np.arange(replicas)[:, None, None]
    queue = begin + np.minimum(index, requests - 1)
    tail = np.tile((index < requests).sum(1), replicas)
    return queue.reshape(replicas * devices, turns), tail


def _route(fleet: Fleet, workload: Workload, devices: int, router: str, every_s: float) -> None:
    """Send requests as they arrive, each to the device with the least load.

    What has finished is looked up every `every_s` seconds.
    """
    times = workload.arrival_s
    replicas, requests = times.shape
    if router == "shortest_queue":
        weights = np.ones_like(workload.new_tokens)
        finished = fleet.totals.finished.reshape(replicas, devices)
    else:
        weights = workload.new_tokens
        finished = fleet.totals.gained_tokens.reshape(replicas, devices)
    sent = np.zeros(replicas, np.int64)
    passed_on = np.zeros((replicas, devices))
    now = 0.0
    while (sent < requests).any():
        # Where nothing arrives for long, skip to the next request of any replica.
        next_arrivals = [
            times[replica, turn] for replica, turn in enumerate(sent) if turn < requests
        ]
        now = max(now + every_s, float(min(next_arrivals)))
        load = passed_on - finished
        for replica in range(replicas):
            stop = int(np.searchsorted(times[replica], now, side="right"))
            for request in range(int(sent[replica]), stop):
                device = int(load[replica].argmin())
                weight = weights[replica, request]
                load[replica, device] += weight
                passed_on[replica, device] += weight
                fleet.put(replica * devices + device, replica * requests + request)
            sent[replica] = stop
        fleet.run(now)


def _series(fleet: Fleet) -> pd.DataFrame | None:
    if fleet.series is None:
        return None
    table = fleet.series.table()
    decisions = np.array(DECISIONS if fleet.policy.pooled else ("batch",))
    table["decision"] = decisions[table["decision"]]
    return table
