"""The schedulers, simulated at the costs and acceptance of recorded runs of the embedded pair."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from measure import Measured, command, generate_interleaved

import specviz as sv
from specviz import metrics
from specviz.record.schema import FALLBACKS
from specviz.simulation import (
    Acceptance,
    Costs,
    Policy,
    Workload,
    compare,
    latency_under_load,
    simulate,
)
from specviz.simulation.inputs import Inputs
from specviz.util.files import conditions

RECORDED = ("autoregressive", "inplace", "eqspec", "exspec")
PROMPT_TOKENS = range(10, 60)
NEW_TOKENS = 64
BATCH_SIZE = 8
WINDOW = 32
REQUESTS = 500  # of a replica
REPLICAS = 4


def simulated(question: str, limit: int, requests: int = REQUESTS) -> Measured:
    """Answer a question; `limit` prompts are recorded, `requests` simulated in each replica."""
    prompts = sv.load_prompts(limit=limit)
    if question == "held-out":
        return held_out(prompts)
    runs = record(prompts)
    inputs = Inputs.of_runs(runs)
    if question == "grouping":
        return grouping(inputs, min(requests, 256))
    workload = Workload.drawn(
        requests, PROMPT_TOKENS, NEW_TOKENS, inputs.acceptance, replicas=REPLICAS
    )
    table = {"refill": refill, "latency": latency}[question](workload, Costs.measured(runs))
    settings = {"requests": requests * REPLICAS, "replicas": REPLICAS, "new_tokens": NEW_TOKENS}
    settings["prompt_tokens"] = f"{PROMPT_TOKENS[0]} to {PROMPT_TOKENS[-1]}"
    return table, {**inputs.conditions, **settings, "batch_size": BATCH_SIZE, "window": WINDOW}


def record(
    prompts: Sequence[Any], sizes: Sequence[int] = (1, 4, 8), max_new_tokens: int = 32
) -> list[sv.Trace]:
    """Record runs that costs can be fitted to, side by side, after one that warms up.

    On a CPU they run in turns, so that a machine that slows down slows all of them alike.
    """
    pair = sv.load_pair(device="cpu")
    shared: dict[str, Any] = {"max_new_tokens": max_new_tokens, "record": True}
    sv.generate(pair, prompts, strategy="eqspec", batch_size=8, progress=False, **shared)
    runs = []
    for name, size in product(RECORDED, sizes):
        how = sv.strategy(name, window=2 * size) if name == "exspec" else name
        runs.append({"prompts": prompts, "strategy": how, "batch_size": size, **shared})
    results = dict(generate_interleaved(pair, runs))
    return [results[place].trace for place in sorted(results)]


def grouping(inputs: Inputs, requests: int) -> Measured:
    """Return how often EXSPEC finds a full batch, by acceptance, prompt lengths, W and B.

    Requests come all at once, the fallback is realign, and rounds cost a second. The rate falls
    with the requests that are left, so it is that of a run of so many requests.
    """
    replicas = 8
    acceptances = {f"alpha={alpha}": Acceptance.geometric(alpha) for alpha in (0.3, 0.6, 0.9)}
    acceptances["source"] = inputs.acceptance
    prompts: dict[str, Any] = {"equal": 16, "mixed": PROMPT_TOKENS}  # 16 as in the paper
    entries = []
    for (kind, lengths), (name, acceptance) in product(prompts.items(), acceptances.items()):
        workload = Workload.drawn(requests, lengths, NEW_TOKENS, acceptance, replicas=replicas)
        setup = {"acceptance": name, "prompts": kind}
        for window, size in product((8, 16, 32, 64, 128), (2, 4, 8, 16)):
            if window < size:
                continue
            rounds = simulate(workload, Policy("exspec", size, window=window), Costs(1.0)).rounds
            rounds["grouped"] = (rounds["rows"] == size) & (rounds["decision"] == "grouped")
            lanes = rounds.groupby("lane")
            rates = lanes["grouped"].mean()
            moved = lanes["realigned_slots"].sum() / lanes["gained_tokens"].sum()
            entry = {**setup, "window": window, "batch_size": size}
            entry["mean_acceptance_length"] = acceptance.mean_acceptance_length
            entry["grouping_rate"] = rates.mean()
            entry["grouping_rate_error"] = rates.std(ddof=1) / np.sqrt(replicas)
            entries.append(entry | {"realigned_slots_per_token": moved.mean()})
    found = {"requests": requests, "replicas": replicas, "new_tokens": NEW_TOKENS}
    return pd.DataFrame(entries), {**inputs.conditions, **found}


def refill(workload: Workload, measured: Costs) -> pd.DataFrame:
    """Separate EXSPEC's gain from grouping and from refill: all requests at once.

    Each policy runs with moves at their cost, and with free moves: what remains then is the effect
    of the order of requests.
    """
    policies = [Policy("eqspec", BATCH_SIZE, refill=False), Policy("eqspec", BATCH_SIZE)]
    policies += [*exspec(), Policy("inplace", BATCH_SIZE)]
    costs = {"measured": measured, "free": replace(measured, move=0.0)}
    tables = [compare(workload, policies, costs[how]).assign(moves=how) for how in costs]
    return pd.concat(tables, ignore_index=True)


def latency(workload: Workload, measured: Costs) -> pd.DataFrame:
    """Return the latencies of seven policies by load, a share of what `inplace` can do."""
    policies = [Policy("inplace", BATCH_SIZE), *exspec()[::-1], Policy("eqspec", BATCH_SIZE)]
    policies.append(Policy("eqspec", BATCH_SIZE, refill=False))
    policies.append(Policy("autoregressive", BATCH_SIZE))
    return latency_under_load(workload, policies, measured)


def exspec() -> list[Policy]:
    """Return EXSPEC with each fallback."""
    return [Policy("exspec", BATCH_SIZE, window=WINDOW, fallback=each) for each in FALLBACKS]


def held_out(prompts: Sequence[Any]) -> Measured:
    """Compare each recorded run with its simulation at costs fitted to the other runs alone.

    A deviation shows how much the runs differ in speed, and how far the cost of a round is from
    linear in rows and slots.
    """
    runs = [
        run for half in (0, 1) for run in record(prompts[half::2], (1, 2, 4, 8), max_new_tokens=64)
    ]
    entries = []
    for i, run in enumerate(runs):
        policy = Policy.of(run.meta)
        costs = Costs.measured(runs[:i] + runs[i + 1 :])
        recorded = metrics.summary(run).iloc[0]
        simulated = simulate(Workload.replay(run), policy, costs).summary().iloc[0]
        entry = {"policy": policy.name, "batch_size": policy.batch_size}
        entry["rounds"] = int(simulated["rounds"])
        real, ours = recorded["tokens_per_s"], simulated["tokens_per_s"]
        entry |= {
            "tokens_per_s": real,
            "simulated_tokens_per_s": ours,
            "deviation": ours / real - 1,
        }
        entry["grouping_rate"] = recorded["grouping_rate"]
        entries.append(entry | {"simulated_grouping_rate": simulated["grouping_rate"]})
    return pd.DataFrame(entries), conditions(runs[-1].meta, costs="measured", runs=len(runs))


TABLES: dict[str, dict[str, Any]] = {
    "simulated-grouping": {"question": "grouping", "limit": 8},
    "simulated-refill": {"question": "refill", "limit": 8},
    "simulated-latency": {"question": "latency", "limit": 8},
    "simulated-held-out": {"question": "held-out", "limit": 32},
}

if __name__ == "__main__":
    command(simulated, TABLES, {"limit": 4, "requests": 8})
