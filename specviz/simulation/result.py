"""What a simulation found, as arrays and tables."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES, Array
from specviz.simulation.policy import Policy
from specviz.simulation.workload import Workload


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
            with overlap), round, start_s, rows, live, queued (sent to the lane and without a row,
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

    def late(self, values: Array, skip: float) -> Array:
        """Return values (G, N) without the first requests, which met an empty server.

        skip: their share of each replica.
        """
        return values[:, int(skip * values.shape[1]) :]

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
                leave out.
        """
        latency_s = np.percentile(self.late(self.latency_s, skip), (50, 90, 99))
        waiting_s = self.late(self.waiting_s, skip)
        rounds = self.rounds
        sides = 2 if self.policy.overlap else 1
        is_full = rounds["rows"] == self.policy.batch_size // sides
        makespan_s = float(self.finished_s.max(1).sum())
        phase_s = {phase: float(rounds[f"{phase}_s"].sum()) for phase in PHASES}
        busy_s = sum(phase_s.values())
        grouping_rate = np.nan
        if self.policy.pooled:
            grouping_rate = float((is_full & (rounds["decision"] == "grouped")).mean())
        entry: dict[str, object] = {
            "policy": self.policy.name,
            "batch_size": self.policy.batch_size,
            "devices": self.devices,
            "replicas": len(self.finished_s),
            "requests": self.finished_s.size,
            "new_tokens": int(rounds["gained_tokens"].sum()),
            "rounds": len(rounds),
            "tokens_per_s": _ratio(rounds["gained_tokens"].sum(), makespan_s),
            "tokens_per_round": rounds["gained_tokens"].sum() / self.own_rounds.sum(),
            "latency_p50_s": latency_s[0],
            "latency_p90_s": latency_s[1],
            "latency_p99_s": latency_s[2],
            "waiting_mean_s": waiting_s.mean(),
            "waiting_p99_s": np.percentile(waiting_s, 99),
            "longest_wait_rounds": int(rounds["longest_wait_rounds"].max()),
            "grouping_rate": grouping_rate,
            "full_batch_share": is_full.mean(),
            "mean_rows": rounds["rows"].mean(),
            "realigned_slots": int(rounds["realigned_slots"].sum()),
            "compacted_slots": int(rounds["compacted_slots"].sum()),
            "busy_share": _ratio(busy_s, makespan_s * self.devices * sides),
        }
        for phase, seconds in phase_s.items():
            name = "sync" if phase == "synchronise" else phase
            entry[f"{name}_share"] = _ratio(seconds, busy_s)
        return pd.DataFrame([entry])


def _ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN where whole is 0."""
    return float(part / whole) if whole else float("nan")
