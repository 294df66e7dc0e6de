"""Serve requests by simulated devices under a policy.

Simplifications: a round takes what its costs say, without noise. The rounds of a request accept
independently of each other. Its tokens count when their round ends. Prompts are read whole, in the
round in which they enter, by all rows that enter together. Routing takes no time, and the router
knows of the rounds that have begun. Memory is not limited.

A plain loop: a thousand requests of 64 tokens take some tenths of a second, ten thousand some
seconds. Every round is kept in a table, which limits a simulation to a few million rounds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specviz.costs.rounds import RoundCosts
from specviz.simulation.device import COLUMNS, Device, Request
from specviz.simulation.policy import Policy
from specviz.simulation.prices import Prices
from specviz.simulation.result import Simulation
from specviz.simulation.workload import Workload
from specviz.util.validate import require_choice, require_int

ROUTERS = ("round_robin", "shortest_queue", "least_work")


def simulate(
    workload: Workload,
    policy: Policy,
    costs: RoundCosts,
    *,
    devices: int = 1,
    router: str = "round_robin",
) -> Simulation:
    """Let `devices` in each replica of `workload` serve its requests under `policy`.

    Args:
        workload, policy, costs: the requests, the strategy, and what a round costs.
        devices: in each replica.
        router: "round_robin"; "shortest_queue", to the device with the fewest requests;
            "least_work", to the one with the fewest tokens to go.

    Raises:
        ValueError: an argument is out of range, or the workload lacks what the selector reads.
    """
    require_int("devices", devices)
    require_choice("router", router, ROUTERS)
    selector = policy.selector
    if policy.drafted and selector is not None and getattr(workload, selector.reads) is None:
        name = "q" if selector.reads == "log_q" else selector.reads
        raise ValueError(
            f"selector must do without {name} for this workload, got {selector.name}; "
            "take the workload from an acceptance table that has it"
        )
    prices = Prices(costs, policy.drafted, 2 * workload.longest + policy.drafted + 1)
    served = []
    fleet: list[Device] = []
    for replica in range(len(workload.arrival_s)):
        numbers = range(replica * devices, (replica + 1) * devices)
        own = [Device(number, workload, policy, prices) for number in numbers]
        requests = _requests(workload, replica)
        _route(requests, own, router)
        served.append(requests)
        fleet += own
    notes = [note for device in fleet for lane in device.lanes for note in lane.notes]
    rounds = pd.DataFrame(notes, columns=list(COLUMNS))
    met = {
        name: np.array([[getattr(each, name) for each in requests] for requests in served])
        for name in ("admitted_s", "finished_s", "own_rounds", "pool_rounds")
    }
    return Simulation(
        policy=policy,
        workload=workload,
        devices=devices,
        router=router,
        **met,
        rounds=rounds.sort_values(["start_s", "lane"], kind="stable", ignore_index=True),
    )


def _requests(workload: Workload, replica: int) -> list[Request]:
    names = ("prompt_tokens", "new_tokens", "arrival_s", "first")
    columns = [getattr(workload, name)[replica].tolist() for name in names]
    return [Request(i, *values) for i, values in enumerate(zip(*columns, strict=True))]


def _route(requests: list[Request], devices: list[Device], router: str) -> None:
    """Send each request to a device when it arrives, and let all of them end."""
    for request in requests:
        if router == "round_robin":
            device = devices[request.number % len(devices)]
        else:
            for each in devices:
                each.run(request.arrival_s)
            load = "requests" if router == "shortest_queue" else "tokens"
            device = min(devices, key=lambda each: getattr(each, load))
        device.put(request)
    for device in devices:
        device.run()
