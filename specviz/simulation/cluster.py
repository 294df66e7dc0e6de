"""How many devices a load needs, so that requests end in time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from specviz.simulation.arguments import check_devices, check_served
from specviz.simulation.costs import Costs
from specviz.simulation.policy import Policy
from specviz.simulation.result import Simulation
from specviz.simulation.serving import simulate
from specviz.simulation.workload import Workload
from specviz.util.search import smallest
from specviz.util.validate import is_finite, require_int, require_positive, short

_SKIP = 0.1  # of the requests: the first ones, which meet an empty server
_SAMPLE = 1_000  # requests of a replica that throughput and the latency on a free device come from


class TooSlowError(ValueError):
    """No allowed number of devices keeps the bound."""


@dataclass(frozen=True)
class Sizing:
    """What `size_cluster` found.

    Attributes:
        devices: the smallest number that keeps the bound.
        tried: one entry for each number of devices that was simulated: devices, load (the rate's
            share of what they can do), tokens_per_s, latency_p50_s, latency_s (at the given
            percentile), busy_share, enough.
    """

    devices: int
    tried: pd.DataFrame = field(repr=False)


def size_cluster(
    workload: Workload,
    policy: Policy,
    costs: Costs,
    *,
    rate: float,
    latency_s: float,
    percentile: float = 99,
    router: str = "shortest_queue",
    most: int = 1024,
    seed: int = 0,
) -> Sizing:
    """Return the smallest number of devices that keeps a bound on the latency.

    `percentile` % of requests, which arrive at `rate` a second, have to end within `latency_s`
    seconds. The first tenth of the requests is left out. More devices are assumed to be no slower.
    A load of 1 or more of what the devices can do is never enough, even if this workload ends
    before the queue has grown: give it some hundred requests a device.

    Args:
        workload, policy, costs, router: see `simulate`.
        rate, latency_s, percentile: the load and the bound.
        most: the largest number of devices to try.
        seed: of the arrivals.

    Raises:
        ValueError: an argument is out of range.
        TooSlowError: requests take longer even on a free device, or more than `most` devices are
            needed.
    """
    check_served(workload, policy, costs)
    check_devices(1, router)
    require_int("seed", seed, minimum=0)
    require_int("most", most)
    _check_bound(rate, latency_s, percentile)
    _require_reachable(latency_s, alone_s(workload, policy, costs, percentile), percentile)
    arriving = workload.arriving(rate, seed)
    tokens_per_s = rate * float(workload.new_tokens.mean())
    capacity = capacity_tokens_per_s(workload, policy, costs)
    tried: dict[int, dict[str, object]] = {}

    def enough(devices: int) -> bool:
        found = simulate(arriving, policy, costs, devices=devices, router=router)
        load = tokens_per_s / (devices * capacity)
        latency = _latency_s(found, percentile)
        keeps_bound = load < 1 and latency <= latency_s
        tried[devices] = _entry(found, load, latency, keeps_bound)
        return keeps_bound

    # Fewer devices than carry the load by their capacity need not be tried.
    devices = smallest(enough, int(tokens_per_s / capacity), most)
    if devices is None:
        raise TooSlowError(
            f"most must allow enough devices to keep {latency_s} s at rate={rate}, got {most}; pass"
            " more, or a lower rate"
        )
    return Sizing(devices, pd.DataFrame([tried[number] for number in sorted(tried)]))


def _check_bound(rate: object, latency_s: object, percentile: object) -> None:
    require_positive("rate", rate)
    require_positive("latency_s", latency_s)
    if not is_finite(percentile) or not 0 < percentile < 100:
        raise ValueError(
            f"percentile must be between 0 and 100, got {short(percentile)}; pass for instance 99"
        )


def _require_reachable(latency_s: float, alone: float, percentile: float) -> None:
    if alone > latency_s:
        raise TooSlowError(
            f"latency_s must be at least {alone:.4g} s, which {percentile} % of requests need on a"
            f" free device, got {latency_s}; allow more"
        )


def _latency_s(found: Simulation, percentile: float) -> float:
    # The first requests meet an empty server, which flatters the latency.
    begin = int(_SKIP * found.latency_s.shape[1])
    return float(np.percentile(found.latency_s[:, begin:], percentile))


def _entry(found: Simulation, load: float, latency_s: float, enough: bool) -> dict[str, object]:
    """Return one entry of `Sizing.tried`."""
    summary = found.summary(_SKIP).iloc[0]
    return {
        "devices": found.devices,
        "load": load,
        "tokens_per_s": summary["tokens_per_s"],
        "latency_p50_s": summary["latency_p50_s"],
        "latency_s": latency_s,
        "busy_share": summary["busy_share"],
        "enough": enough,
    }


def capacity_tokens_per_s(workload: Workload, policy: Policy, costs: Costs) -> float:
    """Return the new tokens a second of one device that always has enough to do.

    Simulates the first requests of each replica, all at once.

    Raises:
        ValueError: rounds cost nothing.
    """
    found = float(simulate(_sample(workload), policy, costs).summary()["tokens_per_s"].item())
    if math.isnan(found):
        raise ValueError(
            f"costs must be above 0 in at least one phase, got {short(costs)}; give a phase its"
            " seconds"
        )
    return found


def alone_s(workload: Workload, policy: Policy, costs: Costs, percentile: float) -> float:
    """Return the latency that `percentile` % of requests keep, each on a device of its own."""
    sample = _sample(workload, replicas=1)
    found = simulate(sample, policy, costs, devices=sample.prompt_tokens.shape[1])
    return float(np.percentile(found.latency_s, percentile))


def _sample(workload: Workload, replicas: int | None = None) -> Workload:
    """Return the first requests of the first replicas (None: of all), all at once."""
    part = np.s_[:replicas, :_SAMPLE]
    sample = replace(
        workload,
        prompt_tokens=workload.prompt_tokens[part],
        new_tokens=workload.new_tokens[part],
        arrival_s=workload.arrival_s[part],
        first=workload.first[part],
    )
    return sample.arriving(None)
