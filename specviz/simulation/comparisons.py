"""The same requests under several policies, at several loads, on as many devices as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.costs.rounds import RoundCosts
from specviz.simulation.policy import Policy
from specviz.simulation.serving import simulate
from specviz.simulation.workload import Workload
from specviz.util.search import smallest

_SKIP = 0.1  # of the requests: the first ones, which meet an empty server
_TRIED = (
    "devices", "load", "tokens_per_s", "latency_p50_s", "latency_s", "busy_share", "enough",
)  # fmt: skip
_SAMPLE = 1_000  # requests of a replica that throughput and the latency on a free device come from


class TooSlowError(ValueError):
    """No allowed number of devices keeps the bound."""


def compare(
    workload: Workload, policies: Sequence[Policy], costs: RoundCosts, *, skip: float = 0.0
) -> pd.DataFrame:
    """Return the `Simulation.summary` of each policy.

    The column ratio is tokens_per_s over that of the first policy.
    """
    found = [simulate(workload, policy, costs).summary(skip) for policy in policies]
    table = pd.concat(found, ignore_index=True)
    speed = table["tokens_per_s"]
    table.insert(table.columns.get_loc("tokens_per_s") + 1, "ratio", speed / speed.iloc[0])
    return table


def latency_under_load(
    workload: Workload,
    policies: Sequence[Policy],
    costs: RoundCosts,
    *,
    loads: Sequence[float] = (0.3, 0.5, 0.7, 0.8, 0.9),
    seed: int = 0,
) -> pd.DataFrame:
    """Return the latency of requests that arrive in a Poisson process, for each load.

    Columns: those of `compare`; load, the arrivals' share of what the first policy can do;
    own_load, of what this policy can do; requests_per_s. All policies have the same requests at the
    same times, of which the first tenth is left out. With an own_load of 1 or more the queue grows
    as long as requests arrive, and the latencies only show how many there were.
    """
    capacity = np.array([capacity_tokens_per_s(workload, policy, costs) for policy in policies])
    new_tokens = float(workload.new_tokens.mean())
    tables = []
    for load in loads:
        requests_per_s = load * capacity[0] / new_tokens
        table = compare(workload.arriving(requests_per_s, seed), policies, costs, skip=_SKIP)
        table.insert(0, "load", load)
        table.insert(1, "own_load", requests_per_s * new_tokens / capacity)
        table.insert(2, "requests_per_s", requests_per_s)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True)
class Sizing:
    """What `size_cluster` found.

    Attributes:
        devices: the smallest number that keeps the bound.
        tried: one entry for each number of devices that was simulated: devices, load (the rate's
            share of what they can do), tokens_per_s, latency_p50_s, latency_s (of 99 % of the
            requests), busy_share, enough.
    """

    devices: int
    tried: pd.DataFrame = field(repr=False)


def size_cluster(
    workload: Workload,
    policy: Policy,
    costs: RoundCosts,
    *,
    rate: float,
    latency_s: float,
    most: int = 1024,
    seed: int = 0,
) -> Sizing:
    """Return the smallest number of devices that keeps a bound on the latency.

    99 % of the requests, which arrive at `rate` a second, have to end within `latency_s` seconds.
    Each goes to the device with the fewest. The first tenth of the requests is left out. More
    devices are assumed to be no slower. A load of 1 or more of what the devices can do is never
    enough, even if this workload ends before the queue has grown: give it some hundred requests a
    device.

    Args:
        workload, policy, costs: see `simulate`.
        rate, latency_s: the load and the bound.
        most: the largest number of devices to try.
        seed: of the arrivals.

    Raises:
        TooSlowError: requests take longer even on a free device, or more than `most` devices are
            needed.
    """
    sample = workload.part(1, _SAMPLE).arriving(None)
    alone = simulate(sample, policy, costs, devices=sample.prompt_tokens.shape[1])
    alone_s = alone.summary()["latency_p99_s"].item()
    if alone_s > latency_s:
        raise TooSlowError(
            f"latency_s must be at least {alone_s:.4g} s, which 99 % of requests need on a free"
            f" device, got {latency_s}; allow more"
        )
    arriving = workload.arriving(rate, seed)
    tokens_per_s = rate * float(workload.new_tokens.mean())
    capacity = capacity_tokens_per_s(workload, policy, costs)
    tried = []

    def enough(devices: int) -> bool:
        served = simulate(arriving, policy, costs, devices=devices, router="shortest_queue")
        found = served.summary(_SKIP).rename(columns={"latency_p99_s": "latency_s"})
        found["load"] = tokens_per_s / (devices * capacity)
        found["enough"] = (found["load"] < 1) & (found["latency_s"] <= latency_s)
        tried.append(found[list(_TRIED)])
        return bool(found["enough"].item())

    # Fewer devices than carry the load by their capacity need not be tried.
    devices = smallest(enough, int(tokens_per_s / capacity), most)
    if devices is None:
        raise TooSlowError(
            f"most must allow enough devices to keep {latency_s} s at rate={rate}, got {most}; pass"
            " more, or a lower rate"
        )
    table = pd.concat(tried).sort_values("devices", ignore_index=True)
    return Sizing(devices, table)


def capacity_tokens_per_s(workload: Workload, policy: Policy, costs: RoundCosts) -> float:
    """Return the new tokens a second of one device that always has enough to do.

    Simulates the first requests of each replica, all at once.

    Raises:
        ValueError: rounds cost nothing.
    """
    sample = workload.part(None, _SAMPLE).arriving(None)
    found = float(simulate(sample, policy, costs).summary()["tokens_per_s"].item())
    if np.isnan(found):
        raise ValueError("costs must be above 0 in at least one phase; give a phase its seconds")
    return found
