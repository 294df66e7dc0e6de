"""How many devices a load needs, so that requests end in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from specviz.simulation.costs import Costs
from specviz.simulation.policy import Policy
from specviz.simulation.serving import simulate
from specviz.simulation.workload import Workload
from specviz.util.validate import require_int, require_positive, short

_SKIP = 0.1  # of the requests, those that met an empty server
_SAMPLE = (
    1_000  # requests of a replica from which throughput, and the latency without company, are found
)


class TooSlowError(ValueError):
    """No number of devices that may be tried keeps the bound."""


@dataclass(frozen=True)
class Sizing:
    """What `size_cluster` found.

    Attributes:
        devices: the least number that keeps the bound.
        tried: one entry for each number of devices that was simulated: devices, load (the rate's share of what they can do), tokens_per_s,
            latency_p50_s, latency_s (at the percentile asked for), busy_share, enough.
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
    """The least number of devices with which `percentile` % of requests, arriving at `rate` a second, end within `latency_s` seconds.

    The first tenth of the requests is left out. More devices are taken to be no slower. A load of 1 or more of what the devices can
    do is never enough, even if this workload is short enough to end before the queue has grown: give it some hundred requests a device.

    Raises:
        ValueError: an argument cannot be used.
        TooSlowError: requests take longer than that without company, or more than `most` devices are needed.
    """
    require_positive("rate", rate)
    require_positive("latency_s", latency_s)
    if not 0 < percentile < 100:
        raise ValueError(
            f"percentile={short(percentile)} is none; pass a number between 0 and 100, 99 for instance"
        )
    require_int("most", most)
    alone = alone_s(workload, policy, costs, percentile)
    if alone > latency_s:
        raise TooSlowError(
            f"latency_s={latency_s} is too short: without company {percentile} % take up to {alone:.4g} s; allow more"
        )
    arriving, tried = workload.arriving(rate, seed), {}
    work, capacity = (
        rate * float(workload.new_tokens.mean()),
        capacity_tokens_per_s(workload, policy, costs),
    )

    def enough(devices: int) -> bool:
        found = simulate(arriving, policy, costs, devices=devices, router=router)
        summary = found.summary(_SKIP).iloc[0]
        begin = int(_SKIP * found.latency_s.shape[1])
        entry = {
            "devices": devices,
            "load": work / (devices * capacity),
            "tokens_per_s": summary["tokens_per_s"],
        }
        entry |= {
            "latency_p50_s": summary["latency_p50_s"],
            "latency_s": float(np.percentile(found.latency_s[:, begin:], percentile)),
        }
        tried[devices] = entry | {
            "busy_share": summary["busy_share"],
            "enough": entry["load"] < 1 and entry["latency_s"] <= latency_s,
        }
        return bool(tried[devices]["enough"])

    devices = _least(enough, int(work / capacity), most)
    if devices is None:
        raise TooSlowError(
            f"most={most} devices do not keep {latency_s} s at rate={rate}; pass more, or a lower rate"
        )
    return Sizing(devices, pd.DataFrame([tried[number] for number in sorted(tried)]))


def _least(enough: Callable[[int], bool], too_few: int, most: int) -> int | None:
    """The least number above `too_few` and up to `most` that is enough, by doubling the step and then halving the gap."""
    step, found = 1, None
    while found is None:
        number = min(too_few + step, most)
        if number <= too_few:
            return None
        if enough(number):
            found = number
        else:
            too_few, step = number, 2 * step
    while found - too_few > 1:
        middle = (found + too_few) // 2
        found, too_few = (middle, too_few) if enough(middle) else (found, middle)
    return found


def capacity_tokens_per_s(workload: Workload, policy: Policy, costs: Costs) -> float:
    """New tokens a second of one device that has always enough to do: of the first requests of each replica, all at once.

    Raises ValueError where rounds cost nothing.
    """
    found = float(simulate(_sample(workload), policy, costs).summary()["tokens_per_s"].item())
    if math.isnan(found):
        raise ValueError(
            f"costs={short(costs)} are all 0, so that nothing takes time; give at least one phase its seconds"
        )
    return found


def alone_s(workload: Workload, policy: Policy, costs: Costs, percentile: float) -> float:
    """Seconds that `percentile` % of requests stay below that have a device for themselves."""
    sample = _sample(workload, replicas=1)
    return float(
        np.percentile(
            simulate(sample, policy, costs, devices=sample.prompt_tokens.shape[1]).latency_s,
            percentile,
        )
    )


def _sample(workload: Workload, replicas: int | None = None) -> Workload:
    """The first requests of the first replicas (None: of all), all at once."""
    few = {
        name: getattr(workload, name)[:replicas, :_SAMPLE]
        for name in ("prompt_tokens", "new_tokens", "arrival_s", "first")
    }
    return replace(workload, **few).arriving(None)
