"""`simulate`: requests through devices under a policy, and what came of it as tables.

What is simplified: a round takes what its cost table says, without noise; a request's rounds accept independently of one another; its
tokens count when their round ends; prompts are read whole, in the round in which they enter, by all rows that enter together; the
router's hand-over takes no time, and of what has finished it learns once a round. Memory is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES, Array
from specviz.simulation.costs import Costs
from specviz.simulation.machine import Lanes, Totals
from specviz.simulation.policy import DECISIONS, MAX_LENGTH, MAX_QUEUE, Policy
from specviz.simulation.workload import Workload
from specviz.util.validate import require_int, short

ROUTERS = ("round_robin", "shortest_queue", "least_work")
_SHARES = tuple("sync_share" if phase == "synchronise" else f"{phase}_share" for phase in PHASES)
_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Simulation:
    """What `simulate` found. Arrays are (G, N), a row for each replica; seconds count from its first moment.

    Attributes:
        admitted_s, finished_s: when a request got a row, and its last token.
        own_rounds, pool_rounds: rounds in which it decoded, and in which it had a row: the difference was passed over.
        totals: sums over the rounds of each device, lane by lane.
        series: one entry a round, by start: lane (replica * devices + device), round, start_s, seconds, rows, live, queued (handed to the
            device and without a row, arrived or not), slots, decision, gained_tokens, realigned_slots, compacted_slots; or None.
    """

    policy: Policy
    workload: Workload = field(repr=False)
    devices: int
    router: str
    admitted_s: Array = field(repr=False)
    finished_s: Array = field(repr=False)
    own_rounds: Array = field(repr=False)
    pool_rounds: Array = field(repr=False)
    totals: Totals = field(repr=False)
    series: pd.DataFrame | None = field(repr=False)

    @property
    def latency_s(self) -> Array:
        """(G, N): from arrival to the last token."""
        return self.finished_s - self.workload.arrival_s

    @property
    def waiting_s(self) -> Array:
        """(G, N): from arrival until the request gets a row."""
        return self.admitted_s - self.workload.arrival_s

    @property
    def requests(self) -> pd.DataFrame:
        """One entry a request: replica, request, prompt_tokens, new_tokens, arrival_s, admitted_s, finished_s, waiting_s, latency_s,
        rounds (in which it decoded), passed_over_rounds (in which it had a row and did not).
        """
        columns: dict[str, Array] = dict(
            zip(("replica", "request"), np.indices(self.finished_s.shape), strict=True)
        )
        columns |= {"prompt_tokens": self.workload.prompt_tokens}
        columns |= {
            "new_tokens": self.workload.new_tokens,
            "arrival_s": self.workload.arrival_s,
            "admitted_s": self.admitted_s,
        }
        columns |= {
            "finished_s": self.finished_s,
            "waiting_s": self.waiting_s,
            "latency_s": self.latency_s,
            "rounds": self.own_rounds,
        }
        columns["passed_over_rounds"] = self.pool_rounds - self.own_rounds
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})

    def summary(self, skip: float = 0.0) -> pd.DataFrame:
        """One row: policy, batch_size, devices, replicas, requests, new_tokens, rounds, tokens_per_s (of all devices of a replica, from its
        first moment to its last token), latency_p50_s, latency_p90_s, latency_p99_s, waiting_mean_s, waiting_p99_s, longest_wait_rounds
        (passed over in one go, in a pool), grouping_rate (as in `metrics.summary`), full_batch_share (of rounds, those with batch_size
        rows), mean_rows, realigned_slots and compacted_slots (K/V moved within a row, and from row to row), busy_share (of the devices'
        time, up to the last token), and each phase's share of the time of all rounds.

        skip: share of each replica's requests, the first ones, that latencies and waiting leave out, because they met an empty server.
        """
        if not 0 <= skip < 1:
            raise ValueError(f"skip={short(skip)} is no share; pass a number from 0 to below 1")
        begin, replicas = int(skip * self.finished_s.shape[1]), len(self.finished_s)
        sums = {
            name: int(values.sum())
            for name, values in vars(self.totals).items()
            if name != "seconds"
        }
        makespan_s, seconds, rounds = (
            float(self.finished_s.max(1).sum()),
            self.totals.seconds.sum(1),
            sums["rounds"],
        )
        latency_s, waiting_s = self.latency_s[:, begin:], self.waiting_s[:, begin:]
        entry: dict[str, object] = {
            "policy": self.policy.name,
            "batch_size": self.policy.batch_size,
            "devices": self.devices,
        }
        entry |= {
            "replicas": replicas,
            "requests": self.finished_s.size,
            "new_tokens": sums["gained_tokens"],
            "rounds": rounds,
        }
        entry["tokens_per_s"] = _share(sums["gained_tokens"], makespan_s)
        for percentile, value in zip(
            _PERCENTILES, np.percentile(latency_s, _PERCENTILES), strict=True
        ):
            entry[f"latency_p{percentile}_s"] = value
        entry |= {"waiting_mean_s": waiting_s.mean(), "waiting_p99_s": np.percentile(waiting_s, 99)}
        entry["longest_wait_rounds"] = int(self.totals.longest_wait_rounds.max())
        entry["grouping_rate"] = (
            _share(sums["grouped_rounds"], rounds) if self.policy.pooled else np.nan
        )
        entry |= {
            "full_batch_share": _share(sums["full_rounds"], rounds),
            "mean_rows": _share(sums["row_rounds"], rounds),
        }
        entry |= {name: sums[name] for name in ("realigned_slots", "compacted_slots")}
        entry["busy_share"] = _share(seconds.sum(), makespan_s * self.devices)
        return pd.DataFrame(
            [
                entry
                | {
                    name: _share(spent, seconds.sum())
                    for name, spent in zip(_SHARES, seconds, strict=True)
                }
            ]
        )


def _share(part: float, whole: float) -> float:
    """part / whole, NaN where whole is 0."""
    return float(part / whole) if whole else float("nan")


def simulate(
    workload: Workload,
    policy: Policy,
    costs: Costs,
    *,
    devices: int = 1,
    router: str = "round_robin",
    series: bool = False,
) -> Simulation:
    """Let `devices` in each replica of `workload` serve its requests under `policy`; a round costs what `costs` says.

    All devices of all replicas advance together, so that the time this takes depends on rounds per device: a million requests want
    some dozens of replicas or devices.

    Args:
        router: "round_robin"; "shortest_queue", to the device with the fewest requests; "least_work", with the fewest tokens to go.
        series: keep what happened in every round.

    Raises:
        ValueError: an argument cannot be used; nothing has run.
    """
    require_int("devices", devices)
    if router not in ROUTERS:
        raise ValueError(f"router={short(router)} is unknown; choose one of {', '.join(ROUTERS)}")
    replicas, requests = workload.prompt_tokens.shape
    if workload.longest >= MAX_LENGTH or requests >= MAX_QUEUE:
        said = f"workload has {requests} requests a replica, of up to {workload.longest} tokens"
        raise ValueError(
            f"{said}; pass fewer than {MAX_QUEUE} requests of fewer than {MAX_LENGTH} tokens"
        )
    slots = 2 * workload.longest + policy.num_draft_tokens + 1
    table = costs.table(policy.capacity, slots)
    if router == "round_robin":
        queue, tail = _dealt(replicas, requests, devices)
    else:
        queue, tail = (
            np.zeros((replicas * devices, -(-requests // devices)), np.int64),
            np.zeros(replicas * devices, np.int64),
        )
    lanes = Lanes(workload, policy, table, queue, tail, series)
    if router != "round_robin":
        mean_s = float(table.phases[:, lanes.width, table.phases.shape[2] // 4].sum())
        _route(lanes, workload, devices, router, mean_s)
    lanes.run()
    by_request = ("admitted_s", "finished_s", "own_rounds", "pool_rounds")
    found = {name: getattr(lanes, name).reshape(replicas, requests) for name in by_request}
    return Simulation(
        policy, workload, devices, router, **found, totals=lanes.totals, series=_series(lanes)
    )


def _dealt(replicas: int, requests: int, devices: int) -> tuple[Array, Array]:
    """Queues (G * devices, Q) and their lengths: request i of a replica goes to device i modulo devices."""
    turns = -(-requests // devices)
    index = np.arange(turns * devices).reshape(turns, devices).T  # (devices, Q)
    queue = np.minimum(index, requests - 1) + requests * np.arange(replicas)[:, None, None]
    return queue.reshape(replicas * devices, turns), np.tile((index < requests).sum(1), replicas)


def _route(lanes: Lanes, workload: Workload, devices: int, router: str, every_s: float) -> None:
    """Hand requests over as they arrive, each to the device with least to do; what has finished is counted anew every `every_s`."""
    times, (replicas, requests) = workload.arrival_s, workload.arrival_s.shape
    weights = (
        np.ones_like(workload.new_tokens) if router == "shortest_queue" else workload.new_tokens
    )
    sent, now, passed = np.zeros(replicas, np.int64), 0.0, np.zeros((replicas, devices))
    while (sent < requests).any():
        nearest = min(times[replica, turn] for replica, turn in enumerate(sent) if turn < requests)
        now = max(now + every_s, float(nearest))
        done = (
            lanes.totals.finished if router == "shortest_queue" else lanes.totals.gained_tokens
        ).reshape(replicas, devices)
        load = passed - done
        for replica in range(replicas):
            stop = int(np.searchsorted(times[replica], now, side="right"))
            for request in range(int(sent[replica]), stop):
                device = int(load[replica].argmin())
                weight = weights[replica, request]
                load[replica, device] += weight
                passed[replica, device] += weight
                lanes.put(replica * devices + device, replica * requests + request)
            sent[replica] = stop
        lanes.run(now)


def _series(lanes: Lanes) -> pd.DataFrame | None:
    if lanes.series is None:
        return None
    table = pd.DataFrame({name: np.concatenate(values) for name, values in lanes.series.items()})
    names = np.array(DECISIONS if lanes.policy.pooled else ("batch",))
    return table.assign(decision=names[table["decision"]]).sort_values(
        ["start_s", "lane"], kind="stable", ignore_index=True
    )
