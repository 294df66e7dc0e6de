"""What a simulation found, as arrays and tables."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES, Array
from specviz.simulation.policy import Policy
from specviz.simulation.totals import Totals
from specviz.simulation.workload import Workload
from specviz.util.validate import is_finite, short


@dataclass(frozen=True)
class Simulation:
    """What `simulate` found.

    Arrays are (G, N), a row for each replica. Seconds count from the replica's first moment.

    Attributes:
        policy, workload, devices, router: what was simulated.
        admitted_s, finished_s: when a request got a row, and its last token.
        own_rounds, pool_rounds: rounds in which it decoded, and in which it had a row. In the
            difference it was passed over.
        totals: sums over the rounds of each device.
        series: one entry a round, by start, or None: lane (replica * devices + device), round,
            start_s, seconds, rows, live, queued (sent to the device and without a row, arrived or
            not), slots, decision, gained_tokens, verified_tokens (drafts), realigned_slots,
            compacted_slots.
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
        """One entry a request.

        Columns: replica, request, prompt_tokens, new_tokens, arrival_s, admitted_s, finished_s,
        waiting_s, latency_s, rounds (in which it decoded), passed_over_rounds (in which it had a
        row and did not).
        """
        index: Array = np.indices(self.finished_s.shape)
        columns: dict[str, Array] = {
            "replica": index[0],
            "request": index[1],
            "prompt_tokens": self.workload.prompt_tokens,
            "new_tokens": self.workload.new_tokens,
            "arrival_s": self.workload.arrival_s,
            "admitted_s": self.admitted_s,
            "finished_s": self.finished_s,
            "waiting_s": self.waiting_s,
            "latency_s": self.latency_s,
            "rounds": self.own_rounds,
            "passed_over_rounds": self.pool_rounds - self.own_rounds,
        }
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})

    def summary(self, skip: float = 0.0) -> pd.DataFrame:
        """Return one row.

        Columns: policy, batch_size, devices, replicas, requests, new_tokens, rounds, tokens_per_s
        (of all devices of a replica, from its first moment to its last token), latency_p50_s,
        latency_p90_s, latency_p99_s, waiting_mean_s, waiting_p99_s, longest_wait_rounds (passed
        over in a row, in a pool), grouping_rate (as in `metrics.summary`), full_batch_share (of
        rounds, those with batch_size rows), mean_rows, realigned_slots and compacted_slots (K/V
        moved within a row, and from row to row), busy_share (of the devices' time, up to the last
        token; with overlap, of the time of their drafting and verifying sides), and each phase's
        share of the time of all rounds.

        Args:
            skip: share of each replica's requests, the first ones, that latencies and waiting
                leave out, because these requests met an empty server.
        """
        if not is_finite(skip) or not 0 <= skip < 1:
            raise ValueError(f"skip must be >= 0 and < 1, got {short(skip)}; pass such a share")
        begin = int(skip * self.finished_s.shape[1])
        latency_p50_s, latency_p90_s, latency_p99_s = np.percentile(
            self.latency_s[:, begin:], (50, 90, 99)
        )
        waiting_s = self.waiting_s[:, begin:]
        totals = self.totals
        rounds = int(totals.rounds.sum())
        new_tokens = int(totals.gained_tokens.sum())
        makespan_s = float(self.finished_s.max(1).sum())
        phase_s = totals.seconds.sum(1)
        busy_s = phase_s.sum()
        entry: dict[str, object] = {
            "policy": self.policy.name,
            "batch_size": self.policy.batch_size,
            "devices": self.devices,
            "replicas": len(self.finished_s),
            "requests": self.finished_s.size,
            "new_tokens": new_tokens,
            "rounds": rounds,
            "tokens_per_s": _ratio(new_tokens, makespan_s),
            "latency_p50_s": latency_p50_s,
            "latency_p90_s": latency_p90_s,
            "latency_p99_s": latency_p99_s,
            "waiting_mean_s": waiting_s.mean(),
            "waiting_p99_s": np.percentile(waiting_s, 99),
            "longest_wait_rounds": int(totals.longest_wait_rounds.max()),
            "grouping_rate": np.nan,
            "full_batch_share": _ratio(totals.full_rounds.sum(), rounds),
            "mean_rows": _ratio(totals.row_rounds.sum(), rounds),
            "realigned_slots": int(totals.realigned_slots.sum()),
            "compacted_slots": int(totals.compacted_slots.sum()),
            "busy_share": _ratio(busy_s, makespan_s * self.devices * (1 + self.policy.overlap)),
        }
        if self.policy.pooled:
            entry["grouping_rate"] = _ratio(totals.grouped_rounds.sum(), rounds)
        return pd.DataFrame([entry | _phase_shares(phase_s)])


def _phase_shares(phase_s: Array) -> dict[str, float]:
    """Return each phase's share of the time of all rounds, from its seconds (5,)."""
    total_s = phase_s.sum()
    shares = {}
    for phase, seconds in zip(PHASES, phase_s, strict=True):
        name = "sync" if phase == "synchronise" else phase
        shares[f"{name}_share"] = _ratio(seconds, total_s)
    return shares


def _ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN where whole is 0."""
    return float(part / whole) if whole else float("nan")
