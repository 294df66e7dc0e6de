"""Tokens a second against memory, and what conversations read again where memory is short.

Speculative decoding gets a share of the memory that it takes without a budget. Autoregressive
decoding gets the same budget, of which it needs nothing for a draft: more rows fit. That baseline
decides whether speculation pays where memory is short (SpecMemo's question).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

import pandas as pd
from measure import Measured, command, measured_on, repeated, speed

import specviz as sv
from specviz.generation.chat import KEEP, Chat
from specviz.util.levers import NONE

METHODS = {"speculative": "inplace", "autoregressive": "autoregressive"}


def budgets(
    percents: Sequence[int], limit: int, repetitions: int, max_new_tokens: int = 64
) -> Measured:
    """Measure both methods under the same budgets; the first entry has none.

    percents: of the memory (all but weights) that speculative decoding takes at B = 8.

    saved_percent and retained_percent are of the first entry. Where no plan fits, the speeds are
    missing.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    run = {"num_draft_tokens": 5, "max_new_tokens": max_new_tokens}
    first = {**run, "strategy": METHODS["speculative"], "batch_size": 8}
    most = sv.plan("1000GB", pair, prompts, **first)
    weights = most.weight_bytes
    whole = most.peak_bytes - weights
    about = {"method": "speculative", "draft_kv": "all", "generation_mb": whole / 1e6}
    cells: list[tuple[dict[str, Any], dict[str, Any]]] = [(about, first)]
    missing = []
    for percent, (method, strategy) in product(percents, METHODS.items()):
        budget = weights + whole * percent // 100
        about = {"method": method, "percent": percent, "budget_mb": budget / 1e6}
        here = {**run, "strategy": strategy, "batch_size": limit}
        try:
            plan = sv.plan(budget, pair, prompts, **here)
        except ValueError:  # less than one row needs
            missing.append(about)
            continue
        kept = method == "speculative" and plan.options["levers"].keep_draft
        about["draft_kv"] = "all" if kept else "none"
        about["generation_mb"] = (plan.peak_bytes - plan.weight_bytes) / 1e6
        cells.append((about, here | plan.options))
    results = repeated(pair, [{"prompts": prompts, **each} for _, each in cells], repetitions)
    entries = []
    for (about, options), own in zip(cells, results, strict=True):
        entry = {"percent": None, "budget_mb": None, **about}
        entry["batch_size"] = options["batch_size"]
        entry["num_draft_tokens"] = options["num_draft_tokens"] * (about["method"] == "speculative")
        entry["prefill_tokens"] = options.get("levers", NONE).prefill_tokens
        entry["saved_percent"] = 100 * (1 - 1e6 * about["generation_mb"] / whole)
        entry |= ranged(list(map(speed, own)), "tokens_per_s")
        entry["retained_percent"] = 100 * entry["tokens_per_s"] / median(map(speed, results[0]))
        entry["same_text"] = all(each.tokens == results[0][0].tokens for each in own)
        entries.append(entry)
    settings = {**run, "batch_size": 8, "repetitions": repetitions}
    table = pd.DataFrame(entries + missing)[COLUMNS]
    return table, measured_on(pair, prompts=limit, **settings)


def chats(percents: Sequence[int], limit: int, repetitions: int) -> Measured:
    """Measure what the turns of four conversations read again, and how long they take.

    percents: budgets for kept K/V, of what a turn takes (all but weights) and what all
    conversations keep, where both are unlimited. kept_mb is the most K/V between two turns;
    read_tokens and restored_tokens are the target's, in all turns but the first; turn_s is a later
    turn's mean, the median over repetitions.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    turns = [prompts[at : at + 4] for at in range(0, len(prompts) - 3, 4)]
    said = [{str(number): text for number, text in enumerate(each)} for each in turns]
    run = {"batch_size": 2, "num_draft_tokens": 5, "max_new_tokens": 16}
    whole = {"percent": None, "memory_budget": None}
    cells: list[dict[str, Any]] = [{"keep": keep, **whole} for keep in KEEP]
    first = talk(pair, cells, said, run)[0]  # also warms up

    # A longer conversation needs more, so the last turn does.
    longest = [first.tokens(name) for name in said[-1]]
    plan = sv.plan("1000GB", pair, longest, **run)
    need = plan.peak_bytes - plan.weight_bytes + int(first.turns["kept_bytes"].max())
    for percent in percents:
        budget = plan.weight_bytes + need * percent // 100
        cells.append({"keep": "all", "percent": percent, "memory_budget": budget})
    least = plan.least_bytes
    fitting = [each for each in cells if (each["memory_budget"] or least) >= least]
    rounds = [talk(pair, fitting, said, run) for _ in range(repetitions)]
    entries = []
    for cell, talks in zip(fitting, zip(*rounds, strict=True), strict=True):
        entries.append(cell | measured(talks, first, list(said[0])))
    entries += [cell for cell in cells if cell not in fitting]
    table = pd.DataFrame(entries)
    table.insert(2, "budget_mb", table.pop("memory_budget") / 1e6)
    settings = {**run, "conversations": 4, "turns": len(said), "repetitions": repetitions}
    return table, measured_on(pair, **settings)


def talk(
    pair: sv.Pair,
    cells: Sequence[Mapping[str, Any]],
    said: Sequence[Mapping[str, str]],
    run: Mapping[str, Any],
) -> list[Chat]:
    """Hold all conversations in each of the ways; their turns take turns."""
    talks = [
        sv.chat(pair, keep=cell["keep"], memory_budget=cell["memory_budget"], **run)
        for cell in cells
    ]
    for messages in said:
        for each in talks:
            each.say(messages)
    return talks


def measured(talks: Sequence[Chat], first: Chat, names: Sequence[str]) -> dict[str, Any]:
    """Return what was measured of one way, in each repetition."""
    turns = talks[0].turns
    later = [each.turns["seconds"][1:].mean() for each in talks]
    texts = [[each.tokens(name) for name in names] for each in (first, *talks)]
    found = {"kept_mb": turns["kept_bytes"].max() / 1e6}
    for name in ("read_tokens", "restored_tokens"):
        found[name] = int(turns[name][1:].sum())
    found["dropped"] = int(turns["dropped"].sum())
    found["first_turn_s"] = median(each.turns["seconds"][0] for each in talks)
    return found | ranged(later, "turn_s") | {"same_text": all(each == texts[0] for each in texts)}


def ranged(values: Sequence[float], name: str) -> dict[str, float]:
    """Return the median under the name, and the range as low and high."""
    return {name: median(values), "low": min(values), "high": max(values)}


COLUMNS = [
    "method", "percent", "budget_mb", "batch_size", "num_draft_tokens", "draft_kv",
    "prefill_tokens", "generation_mb", "saved_percent", "tokens_per_s", "low", "high",
    "retained_percent", "same_text",
]  # fmt: skip


def measure(kind: str, **sizes: Any) -> Measured:
    """Return one of the two tables."""
    return budgets(**sizes) if kind == "budgets" else chats(**sizes)


TABLES = {
    "memory": {"kind": "budgets", "percents": (100, 60, 40, 35, 30), "limit": 32, "repetitions": 3},
    "chat": {"kind": "chats", "percents": (100, 80, 60), "limit": 12, "repetitions": 2},
}

if __name__ == "__main__":
    command(measure, TABLES, {"percents": (80,), "limit": 8, "repetitions": 1})
