"""Studies: the same requests under several policies, as tables. What each says and does not say stands with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from specviz import metrics
from specviz.record.trace import Trace
from specviz.simulation.cluster import capacity_tokens_per_s
from specviz.simulation.costs import Costs
from specviz.simulation.policy import Policy
from specviz.simulation.serving import simulate
from specviz.simulation.workload import Acceptance, Workload
from specviz.util.validate import short

CostsByK = Mapping[int, Costs]  # by drafts a round: 0 is autoregressive decoding


def compare(
    workload: Workload,
    policies: Sequence[Policy],
    costs: CostsByK,
    *,
    devices: int = 1,
    router: str = "round_robin",
    skip: float = 0.0,
) -> pd.DataFrame:
    """One entry a policy: its `Simulation.summary`, and ratio: its tokens_per_s over the first policy's."""
    _check_policies(policies)
    found = [
        simulate(workload, policy, costs_of(costs, policy), devices=devices, router=router).summary(
            skip
        )
        for policy in policies
    ]
    table = pd.concat(found, ignore_index=True)
    table.insert(
        table.columns.get_loc("tokens_per_s") + 1,
        "ratio",
        table["tokens_per_s"] / table["tokens_per_s"].iloc[0],
    )
    return table


def refill_or_grouping(
    workload: Workload,
    costs: CostsByK,
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    window: int = 32,
) -> pd.DataFrame:
    """Is EXSPEC's gain grouping, or refill? All requests at once, with moves at their price and for nothing.

    EQSPEC as published (static) first, then its control with refill, EXSPEC with each fallback, and in place, which has neither moves
    nor groups: columns of `compare`, and moves ("measured" or "free"). What only the order of requests does shows in rounds and with free
    moves. It does not say what a scheduler's own arithmetic costs beyond what `costs` holds.
    """
    base = Policy("eqspec", batch_size, num_draft_tokens)
    policies = [
        replace(base, refill=False),
        base,
        *_pools(base, window),
        replace(base, strategy="inplace"),
    ]
    free = {k: replace(cost, move=0.0) for k, cost in costs.items()}
    tables = [
        compare(workload, policies, each).assign(moves=name)
        for name, each in (("measured", costs), ("free", free))
    ]
    return pd.concat(tables, ignore_index=True)


def grouping_rates(
    acceptances: Mapping[str, Acceptance],
    prompts: Mapping[str, int | Sequence[int]],
    *,
    windows: Sequence[int] = (8, 16, 32, 64, 128),
    batch_sizes: Sequence[int] = (2, 4, 8, 16),
    new_tokens: int | Sequence[int] = 64,
    requests: int = 256,
    replicas: int = 8,
    seed: int = 0,
) -> pd.DataFrame:
    """How often EXSPEC finds a full batch, by acceptance, prompt lengths, W and B; requests all at once, fallback realign, no costs.

    One entry a combination with W >= B: acceptance, prompts, window, batch_size, mean_acceptance_length, grouping_rate (the mean of the
    replicas), grouping_rate_error (its standard error), realigned_slots_per_token. The rate falls with the requests that are left: it
    is one of a run of so many requests, not of an endless queue.
    """
    entries = []
    for kind, lengths in prompts.items():
        drawn = [
            Workload.drawn(requests, lengths, new_tokens, each, replicas=replicas, seed=seed)
            for each in acceptances.values()
        ]
        depth = max(each.probabilities.shape[1] for each in acceptances.values()) - 1
        for window, batch_size in ((w, b) for w in windows for b in batch_sizes if w >= b):
            policy = Policy("exspec", batch_size, max(depth, 1), window=window)
            totals = simulate(
                Workload.joined(drawn), policy, Costs()
            ).totals  # one device a replica: lanes are replicas
            rates = (totals.grouped_rounds / totals.rounds).reshape(-1, replicas)
            moved = (totals.realigned_slots / totals.gained_tokens).reshape(-1, replicas).mean(1)
            for (name, acceptance), own, slots in zip(
                acceptances.items(), rates, moved, strict=True
            ):
                entry = {
                    "acceptance": name,
                    "prompts": kind,
                    "window": window,
                    "batch_size": batch_size,
                }
                entry |= {
                    "mean_acceptance_length": acceptance.mean_acceptance_length,
                    "grouping_rate": own.mean(),
                }
                entry["grouping_rate_error"] = (
                    own.std(ddof=1) / np.sqrt(replicas) if replicas > 1 else np.nan
                )
                entries.append(entry | {"realigned_slots_per_token": slots})
    return pd.DataFrame(entries)


def held_out(runs: Sequence[Trace]) -> pd.DataFrame:
    """Each recorded run beside the simulation of its requests, told what was accepted, at costs fitted to the other runs alone.

    One entry a run: policy, batch_size, rounds, tokens_per_s (as recorded), simulated_tokens_per_s, deviation (of the latter from the
    former, as a share), grouping_rate and simulated_grouping_rate. What is left of a deviation is how far the runs' own paces differ and
    how far a round's cost is no straight line in rows and slots.

    Raises:
        ValueError: a run has no other with the same number of drafts, or cannot be simulated.
    """
    entries = []
    for i, run in enumerate(runs):
        others = [
            other
            for j, other in enumerate(runs)
            if j != i and other.meta["num_draft_tokens"] == run.meta["num_draft_tokens"]
        ]
        if not others:
            raise ValueError(
                f"runs[{i}] alone has num_draft_tokens={run.meta['num_draft_tokens']}; pass others to take its costs from"
            )
        policy, recorded = Policy.of(run.meta), metrics.summary(run).iloc[0]
        ours = simulate(Workload.replay(run), policy, Costs.measured(others)).summary().iloc[0]
        entry = {
            "policy": policy.name,
            "batch_size": policy.batch_size,
            "rounds": int(ours["rounds"]),
        }
        entry |= {
            "tokens_per_s": recorded["tokens_per_s"],
            "simulated_tokens_per_s": ours["tokens_per_s"],
        }
        entry["deviation"] = ours["tokens_per_s"] / recorded["tokens_per_s"] - 1
        entries.append(
            entry
            | {
                "grouping_rate": recorded["grouping_rate"],
                "simulated_grouping_rate": ours["grouping_rate"],
            }
        )
    return pd.DataFrame(entries)


def latency_under_load(
    workload: Workload,
    policies: Sequence[Policy],
    costs: CostsByK,
    *,
    loads: Sequence[float] = (0.3, 0.5, 0.7, 0.8, 0.9),
    devices: int = 1,
    router: str = "round_robin",
    skip: float = 0.1,
    seed: int = 0,
) -> pd.DataFrame:
    """What requests pay in seconds when they arrive one by one, a Poisson process: columns of `compare`, for each load.

    load: the arrivals' share of what the first policy can do; own_load: of what this one can. All policies meet the same requests at the
    same times. With an own_load of 1 or more the queue grows as long as requests come, and latencies tell how many there were.
    """
    _check_policies(policies)
    if not len(loads) or not all(np.isfinite(load) and load > 0 for load in loads):
        raise ValueError(f"loads={short(loads)} are none; pass one or more numbers above 0")
    capacity = {
        policy: capacity_tokens_per_s(workload, policy, costs_of(costs, policy))
        for policy in policies
    }
    new_tokens, tables = float(workload.new_tokens.mean()), []
    for load in loads:
        rate = load * devices * capacity[policies[0]] / new_tokens
        table = compare(
            workload.arriving(rate, seed),
            policies,
            costs,
            devices=devices,
            router=router,
            skip=skip,
        )
        own = [rate * new_tokens / (devices * capacity[policy]) for policy in policies]
        tables.append(table.assign(load=load, own_load=own, requests_per_s=rate))
    table = pd.concat(tables, ignore_index=True)
    return table[["load", "own_load", "requests_per_s", *table.columns[:-3]]]


def _pools(base: Policy, window: int) -> list[Policy]:
    return [
        replace(base, strategy="exspec", window=window, fallback=fallback)
        for fallback in ("realign", "partial", "wait")
    ]


def _check_policies(policies: Sequence[Any]) -> None:
    if not len(policies) or not all(isinstance(policy, Policy) for policy in policies):
        raise ValueError(f"policies={short(policies)} are none; pass one or more Policy objects")


def costs_of(costs: CostsByK, policy: Policy) -> Costs:
    """Those of as many drafts as the policy has. Raises ValueError if there are none."""
    if policy.drafted not in costs:
        known = ", ".join(map(str, sorted(costs)))
        raise ValueError(
            f"costs are those of {known} drafts a round, and {policy.name} has {policy.drafted}; give costs[{policy.drafted}] too"
        )
    return costs[policy.drafted]
