"""Serve requests by simulated devices under a policy.

Simplifications: a round takes what its costs say, without noise. The rounds of a request accept
independently of each other. Its tokens count when their round ends. Prompts are read whole, in the
round in which they enter, by all rows that enter together. Routing takes no time, and the router
knows of the rounds that have begun. Memory is not limited.

A plain loop: a thousand requests of 64 tokens take some tenths of a second, ten thousand some
seconds. Every round is kept in a table, which limits a simulation to a few million rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd

from specviz.costs.rounds import RoundCosts
from specviz.record.schema import PHASES, Array
from specviz.simulation.device import Device, Request
from specviz.simulation.policy import Policy
from specviz.simulation.workload import Workload
from specviz.util.validate import require_choice

ROUTERS = ("round_robin", "shortest_queue")


@dataclass(frozen=True)
class Simulation:
    """What `simulate` found.

    Arrays are (G, N), a row for each replica. Seconds count from the replica's first moment.

    Attributes:
        policy, workload, devices, router: what was simulated.
        admitted_s, finished_s: when a request got a row, and its last token.
        own_rounds, pool_rounds: rounds in which it decoded, and in which it had a row. In the
            difference it was passed over.
        rounds: one entry a round, by start: lane (replica * devices + device; two for each device
            with overlap), round, start_s, rows, live, queued (sent to the device and without a row,
            arrived or not), slots, decision, gained_tokens, verified_tokens (drafts),
            realigned_slots and compacted_slots (K/V moved within a row, and from row to row),
            longest_wait_rounds (in a pool), schedule_s, draft_s, verify_s, accept_s, synchronise_s.
    """

    policy: Policy
    workload: Workload = field(repr=False)
    devices: int
    router: str
    admitted_s: Array = field(repr=False)
    finished_s: Array = field(repr=False)
    own_rounds: Array = field(repr=False)
    pool_rounds: Array = field(repr=False)
    rounds: pd.DataFrame = field(repr=False)

    @property
    def latency_s(self) -> Array:
        """(G, N): from arrival to the last token."""
        return self.finished_s - self.workload.arrival_s

    @property
    def waiting_s(self) -> Array:
        """(G, N): from arrival until the request gets a row."""
        return self.admitted_s - self.workload.arrival_s

    def summary(self, skip: float = 0.0) -> pd.DataFrame:
        """Return one row.

        Columns: policy, batch_size, devices, replicas, requests, new_tokens, rounds, tokens_per_s
        (of all devices of a replica, from its first moment to its last token), tokens_per_round (of
        a row that decodes), latency_p50_s, latency_p90_s, latency_p99_s, waiting_mean_s,
        waiting_p99_s, longest_wait_rounds (passed over in a row, in a pool), grouping_rate (as in
        `metrics.summary`), full_batch_share (of rounds, those with batch_size rows), mean_rows,
        realigned_slots and compacted_slots (K/V moved within a row, and from row to row),
        busy_share (of the devices' time, up to the last token; with overlap, of the time of their
        drafting and verifying sides), and each phase's share of the time of all rounds.

        Args:
            skip: share of each replica's requests, the first ones, that latencies and waiting
                leave out: they met an empty server.
        """
        late = slice(int(skip * self.finished_s.shape[1]), None)
        latency_s = np.percentile(self.latency_s[:, late], (50, 90, 99))
        waiting_s = self.waiting_s[:, late]
        rounds = self.rounds
        total = rounds.sum(numeric_only=True)
        sides = 2 if self.policy.overlap else 1
        is_full = rounds["rows"] == self.policy.batch_size // sides
        is_grouped = is_full & (rounds["decision"] == "grouped")
        makespan_s = float(self.finished_s.max(1).sum())
        phase_s = {phase: float(total[f"{phase}_s"]) for phase in PHASES}
        busy_s = sum(phase_s.values())
        entry: dict[str, object] = {
            "policy": self.policy.name,
            "batch_size": self.policy.batch_size,
            "devices": self.devices,
            "replicas": len(self.finished_s),
            "requests": self.finished_s.size,
            "new_tokens": int(total["gained_tokens"]),
            "rounds": len(rounds),
            "tokens_per_s": _ratio(total["gained_tokens"], makespan_s),
            "tokens_per_round": total["gained_tokens"] / self.own_rounds.sum(),
            "latency_p50_s": latency_s[0],
            "latency_p90_s": latency_s[1],
            "latency_p99_s": latency_s[2],
            "waiting_mean_s": waiting_s.mean(),
            "waiting_p99_s": np.percentile(waiting_s, 99),
            "longest_wait_rounds": int(rounds["longest_wait_rounds"].max()),
            "grouping_rate": is_grouped.mean() if self.policy.pooled else np.nan,
            "full_batch_share": is_full.mean(),
            "mean_rows": rounds["rows"].mean(),
            "realigned_slots": int(total["realigned_slots"]),
            "compacted_slots": int(total["compacted_slots"]),
            "busy_share": _ratio(busy_s, makespan_s * self.devices * sides),
        }
        for phase, seconds in phase_s.items():
            name = "sync" if phase == "synchronise" else phase
            entry[f"{name}_share"] = _ratio(seconds, busy_s)
        return pd.DataFrame([entry])


def _ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN where whole is 0."""
    return float(part / whole) if whole else float("nan")


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
        router: "round_robin", or "shortest_queue", to the device with the fewest requests.

    Raises:
        ValueError: there is no such router, or the workload lacks what the selector reads.
    """
    require_choice("router", router, ROUTERS)
    selector = policy.selector
    if policy.drafted and selector is not None and getattr(workload, selector.reads) is None:
        name = "q" if selector.reads == "log_q" else selector.reads
        raise ValueError(
            f"selector must do without {name} for this workload, got {selector.name}; "
            "take the workload from an acceptance table that has it"
        )
    costs = cache(costs)  # those of a roofline take long
    columns = (workload.prompt_tokens, workload.new_tokens, workload.arrival_s, workload.first)
    notes: list[dict[str, object]] = []
    served = []
    for replica in range(len(workload.arrival_s)):
        own = [
            Device(replica * devices + number, workload, policy, costs) for number in range(devices)
        ]
        values = zip(*(column[replica].tolist() for column in columns), strict=True)
        requests = [Request(number, *each) for number, each in enumerate(values)]
        _route(requests, own, router)
        served.append(requests)
        for device in own:
            notes += device.notes
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
        rounds=pd.DataFrame(notes).sort_values(
            ["start_s", "lane", "round"], kind="stable", ignore_index=True
        ),
    )


def _route(requests: Sequence[Request], devices: Sequence[Device], router: str) -> None:
    """Send each request to a device when it arrives, and let all of them end."""
    for request in requests:
        if router == "round_robin":
            device = devices[request.number % len(devices)]
        else:
            for each in devices:
                each.run(request.arrival_s)
            device = min(devices, key=lambda each: each.requests)
        device.put(request)
    for device in devices:
        device.run()
