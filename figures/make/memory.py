"""Tokens a second against memory, and what conversations read again where memory is short.

Speculative decoding gets a share of the memory that it takes without a budget. Autoregressive
decoding gets the same budget, of which it needs nothing for a draft: more rows fit. That baseline
decides whether speculation pays where memory is short (SpecMemo's question).
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd
from measure import Measured, command, measured_on, repeated, speed

import specviz as sv
from specviz.costs.memory import peak_of
from specviz.engine.options import Options
from specviz.generation.chat import KEEP, Chat
from specviz.generation.plan import make_search
from specviz.generation.plan_search import Candidate, least_bytes, weight_bytes
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
    search = make_search(pair, prompts, Options.from_keywords(first))
    parts = search.parts(Candidate(search.batch_size, search.num_draft_tokens, NONE, True))
    weights = weight_bytes(parts)
    whole = peak_of(parts) - weights
    about = {"method": "speculative", "draft_kv": "all", "generation_mb": whole / 1e6}
    cells: list[tuple[dict[str, Any], dict[str, Any]]] = [(about, first)]
    missing = []
    for percent in percents:
        budget = weights + whole * percent // 100
        for method, strategy in METHODS.items():
            about = {"method": method, "percent": percent, "budget_mb": budget / 1e6}
            here = {**run, "strategy": strategy, "batch_size": limit}
            try:
                plan = sv.plan(budget, pair, prompts, **here)
            except ValueError:  # less than one row needs
                missing.append(about)
                continue
            about["generation_mb"] = (plan.peak_bytes - plan.weight_bytes) / 1e6
            cells.append((about | {"draft_kv": plan.table["draft_kv"][0]}, here | plan.options))
    results = repeated(pair, [{"prompts": prompts, **each} for _, each in cells], repetitions)
    entries = []
    unlimited = median(map(speed, results[0]))
    for (about, options), own in zip(cells, results, strict=True):
        speeds = list(map(speed, own))
        entry = {
            "method": about["method"],
            "percent": about.get("percent"),
            "budget_mb": about.get("budget_mb"),
            "batch_size": options["batch_size"],
            "num_draft_tokens": options["num_draft_tokens"] * (about["method"] == "speculative"),
            "draft_kv": about["draft_kv"],
            "prefill_tokens": options.get("levers", NONE).prefill_tokens,
            "generation_mb": about["generation_mb"],
            "saved_percent": 100 * (1 - 1e6 * about["generation_mb"] / whole),
            "tokens_per_s": median(speeds),
            "low": min(speeds),
            "high": max(speeds),
            "retained_percent": 100 * median(speeds) / unlimited,
            "same_text": all(each.tokens == results[0][0].tokens for each in own),
        }
        entries.append(entry)
    settings = {**run, "batch_size": 8, "repetitions": repetitions}
    return pd.DataFrame(entries + missing), measured_on(pair, prompts=limit, **settings)


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
    cells: list[dict[str, Any]] = [{"keep": keep} for keep in KEEP]
    first = talk(pair, cells, said, run)[0]  # also warms up

    # A longer conversation needs more, so the last turn does.
    longest = [first.tokens(name) for name in said[-1]]
    search = make_search(pair, longest, Options.from_keywords(run))
    parts = search.parts(Candidate(search.batch_size, search.num_draft_tokens, search.levers, True))
    weights = weight_bytes(parts)
    need = peak_of(parts) - weights + int(first.turns["kept_bytes"].max())
    for percent in percents:
        size = weights + need * percent // 100
        cells.append({"keep": "all", "percent": percent, "memory_budget": size})
    least = least_bytes(search)
    fitting = [each for each in cells if each.get("memory_budget", least) >= least]
    rounds = [talk(pair, fitting, said, run) for _ in range(repetitions)]
    entries = []
    for cell, talks in zip(fitting, zip(*rounds, strict=True), strict=True):
        entries.append(given(cell) | measured(talks, first, list(said[0])))
    entries += [given(cell) for cell in cells if cell not in fitting]
    settings = {**run, "conversations": 4, "turns": len(said), "repetitions": repetitions}
    return pd.DataFrame(entries), measured_on(pair, **settings)


def talk(
    pair: sv.Pair,
    cells: Sequence[Mapping[str, Any]],
    said: Sequence[Mapping[str, str]],
    run: Mapping[str, Any],
) -> list[Chat]:
    """Hold all conversations in each of the ways; their turns take turns."""
    talks = []
    for cell in cells:
        budget = cell.get("memory_budget")
        talks.append(sv.chat(pair, keep=cell["keep"], memory_budget=budget, **run))
    for messages in said:
        for each in talks:
            each.say(messages)
    return talks


def given(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a way to keep K/V is told."""
    budget = cell.get("memory_budget")
    budget_mb = None if budget is None else budget / 1e6
    return {"keep": cell["keep"], "percent": cell.get("percent"), "budget_mb": budget_mb}


def measured(talks: Sequence[Chat], first: Chat, names: Sequence[str]) -> dict[str, Any]:
    """Return what was measured of one way, in each repetition."""
    turns = talks[0].turns
    later = [each.turns["seconds"][1:].mean() for each in talks]
    return {
        "kept_mb": turns["kept_bytes"].max() / 1e6,
        "read_tokens": int(turns["read_tokens"][1:].sum()),
        "restored_tokens": int(turns["restored_tokens"][1:].sum()),
        "dropped": int(turns["dropped"].sum()),
        "first_turn_s": median(each.turns["seconds"][0] for each in talks),
        "turn_s": median(later),
        "low": min(later),
        "high": max(later),
        "same_text": all(
            each.tokens(name) == first.tokens(name) for each in talks for name in names
        ),
    }


def measure(kind: str, **sizes: Any) -> Measured:
    """Return one of the two tables."""
    return budgets(**sizes) if kind == "budgets" else chats(**sizes)


TABLES = {
    "memory": {
        "kind": "budgets",
        "percents": (100, 60, 40, 35, 30),
        "limit": 32,
        "repetitions": 3,
    },
    "chat": {"kind": "chats", "percents": (100, 80, 60), "limit": 12, "repetitions": 2},
}

if __name__ == "__main__":
    command(measure, TABLES, {"percents": (80,), "limit": 8, "repetitions": 1})
