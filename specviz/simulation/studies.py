"""The same requests under several policies, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from specviz import metrics
from specviz.record.runs import check_runs
from specviz.record.trace import Trace
from specviz.simulation.acceptance import MAX_DRAFT_TOKENS, Acceptance
from specviz.simulation.arguments import (
    check_acceptances,
    check_costs_by_k,
    check_devices,
    check_loads,
    check_several,
    check_skip,
    check_workload,
)
from specviz.simulation.cluster import capacity_tokens_per_s
from specviz.simulation.costs import Costs
from specviz.simulation.policy import FALLBACKS, Policy
from specviz.simulation.serving import simulate
from specviz.simulation.totals import Totals
from specviz.simulation.workload import Workload
from specviz.util.validate import require_int, require_ints, require_kind, require_list

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
    """Return the `Simulation.summary` of each policy.

    The column ratio is tokens_per_s over that of the first policy.
    """
    check_several(workload, policies, costs)
    check_devices(devices, router)
    check_skip(skip)
    summaries = []
    for policy in policies:
        own_costs = costs_of(costs, policy)
        found = simulate(workload, policy, own_costs, devices=devices, router=router)
        summaries.append(found.summary(skip))
    table = pd.concat(summaries, ignore_index=True)
    speed = table["tokens_per_s"]
    table.insert(table.columns.get_loc("tokens_per_s") + 1, "ratio", speed / speed.iloc[0])
    return table


def refill_or_grouping(
    workload: Workload,
    costs: CostsByK,
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    window: int = 32,
) -> pd.DataFrame:
    """Separate EXSPEC's gain from grouping and from refill: all requests at once.

    Policies: EQSPEC as published (static), EQSPEC with refill, EXSPEC with each fallback, and in
    place, which has neither moves nor groups. Each runs with moves at their cost and with free
    moves (column moves: "measured" or "free"); the other columns are those of `compare`. With free
    moves, what remains is the effect of the order of requests. The cost of a scheduler's own
    arithmetic is only included as far as `costs` has it.
    """
    check_workload(workload)
    check_costs_by_k(costs)
    require_int("num_draft_tokens", num_draft_tokens, maximum=MAX_DRAFT_TOKENS)
    eqspec = Policy("eqspec", batch_size, num_draft_tokens)
    policies = [replace(eqspec, refill=False), eqspec]
    for fallback in FALLBACKS:
        policies.append(replace(eqspec, strategy="exspec", window=window, fallback=fallback))
    policies.append(replace(eqspec, strategy="inplace"))
    free_moves = {k: replace(cost, move=0.0) for k, cost in costs.items()}
    measured = compare(workload, policies, costs).assign(moves="measured")
    free = compare(workload, policies, free_moves).assign(moves="free")
    return pd.concat([measured, free], ignore_index=True)


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
    """Return how often EXSPEC finds a full batch, by acceptance, prompt lengths, W and B.

    Requests come all at once, the fallback is realign, and rounds cost nothing. There is one entry
    for each combination with W >= B: acceptance, prompts, window, batch_size,
    mean_acceptance_length, grouping_rate (the mean of the replicas), grouping_rate_error (its
    standard error), realigned_slots_per_token. The rate falls with the requests that are left, so
    it is that of a run of so many requests, not of an endless queue.
    """
    check_acceptances(acceptances, prompts)
    require_ints("windows", windows)
    require_ints("batch_sizes", batch_sizes)
    num_draft_tokens = max(each.probabilities.shape[1] for each in acceptances.values()) - 1
    combinations = [
        (window, batch_size)
        for window, batch_size in product(windows, batch_sizes)
        if window >= batch_size
    ]
    entries = []
    for kind, lengths in prompts.items():
        workloads = [
            Workload.drawn(requests, lengths, new_tokens, each, replicas=replicas, seed=seed)
            for each in acceptances.values()
        ]
        joined = Workload.joined(workloads)
        for window, batch_size in combinations:
            policy = Policy("exspec", batch_size, max(num_draft_tokens, 1), window=window)
            totals = simulate(joined, policy, Costs()).totals
            setting = {"prompts": kind, "window": window, "batch_size": batch_size}
            for entry in _rates_by_acceptance(totals, acceptances, replicas):
                entries.append({"acceptance": entry["acceptance"], **setting, **entry})
    return pd.DataFrame(entries)


def _rates_by_acceptance(
    totals: Totals, acceptances: Mapping[str, Acceptance], replicas: int
) -> list[dict[str, object]]:
    """Return one entry for each acceptance, whose replicas follow one another in `totals`."""
    # A replica has one device, so a lane is a replica.
    rates = (totals.grouped_rounds / totals.rounds).reshape(-1, replicas)
    moved = (totals.realigned_slots / totals.gained_tokens).reshape(-1, replicas)
    errors = np.full(len(rates), np.nan)
    if replicas > 1:
        errors = rates.std(1, ddof=1) / np.sqrt(replicas)
    entries: list[dict[str, object]] = []
    for i, (name, acceptance) in enumerate(acceptances.items()):
        entries.append(
            {
                "acceptance": name,
                "mean_acceptance_length": acceptance.mean_acceptance_length,
                "grouping_rate": rates[i].mean(),
                "grouping_rate_error": errors[i],
                "realigned_slots_per_token": moved[i].mean(),
            }
        )
    return entries


def held_out(runs: Sequence[Trace]) -> pd.DataFrame:
    """Compare each recorded run with its simulation at costs fitted to the other runs alone.

    The simulation has the run's own requests and acceptances. There is one entry a run: policy,
    batch_size, rounds, tokens_per_s (as recorded), simulated_tokens_per_s, deviation (of the latter
    from the former, as a share), grouping_rate and simulated_grouping_rate. A deviation shows how
    much the runs differ in speed, and how far the cost of a round is from linear in rows and slots.

    Raises:
        ValueError: a run has no other with the same number of drafts, or cannot be simulated.
    """
    require_list("runs", runs)
    check_runs(runs)
    for i, run in enumerate(runs):
        require_kind(f"runs[{i}]", run, Trace, "pass result.trace of a run with record=True")
    entries = []
    for i, run in enumerate(runs):
        k = run.meta["num_draft_tokens"]
        others = [
            other for j, other in enumerate(runs) if j != i and other.meta["num_draft_tokens"] == k
        ]
        if not others:
            raise ValueError(
                f"runs[{i}] must have another run of num_draft_tokens={k}, got none; pass others to"
                " fit its costs to"
            )
        policy = Policy.of(run.meta)
        recorded = metrics.summary(run).iloc[0]
        costs = Costs.measured(others)
        simulated = simulate(Workload.replay(run), policy, costs).summary().iloc[0]
        entries.append(
            {
                "policy": policy.name,
                "batch_size": policy.batch_size,
                "rounds": int(simulated["rounds"]),
                "tokens_per_s": recorded["tokens_per_s"],
                "simulated_tokens_per_s": simulated["tokens_per_s"],
                "deviation": simulated["tokens_per_s"] / recorded["tokens_per_s"] - 1,
                "grouping_rate": recorded["grouping_rate"],
                "simulated_grouping_rate": simulated["grouping_rate"],
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
    """Return the latency of requests that arrive in a Poisson process, for each load.

    Columns: those of `compare`; load, the arrivals' share of what the first policy can do;
    own_load, of what this policy can do; requests_per_s. All policies have the same requests at the
    same times. With an own_load of 1 or more the queue grows as long as requests arrive, and the
    latencies only show how many there were.
    """
    check_several(workload, policies, costs)
    check_devices(devices, router)
    check_loads(loads)
    check_skip(skip)
    require_int("seed", seed, minimum=0)
    capacity = {
        policy: capacity_tokens_per_s(workload, policy, costs_of(costs, policy))
        for policy in policies
    }
    new_tokens = float(workload.new_tokens.mean())
    tables = []
    for load in loads:
        requests_per_s = load * devices * capacity[policies[0]] / new_tokens
        arriving = workload.arriving(requests_per_s, seed)
        table = compare(arriving, policies, costs, devices=devices, router=router, skip=skip)
        tokens_per_s = requests_per_s * new_tokens
        own_load = [tokens_per_s / (devices * capacity[policy]) for policy in policies]
        table.insert(0, "load", load)
        table.insert(1, "own_load", own_load)
        table.insert(2, "requests_per_s", requests_per_s)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def costs_of(costs: CostsByK, policy: Policy) -> Costs:
    """Return the costs of as many drafts as the policy has. Raise ValueError if there are none."""
    if policy.drafted not in costs:
        known = ", ".join(map(str, sorted(costs)))
        raise ValueError(
            f"costs must hold those of {policy.drafted} drafts a round for {policy.name}, got those"
            f" of {known}; give costs[{policy.drafted}] too"
        )
    return costs[policy.drafted]
