"""What each habit of the published EQSPEC and EXSPEC costs, alone and together with all others.

A setup runs once recorded, to count its wasted work, and several times unrecorded, for its speed.
All setups of a batch size take turns.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import published
from measure import Measured, command, measured_on, repeated, speed

import specviz as sv
from specviz import metrics

LOSSES: dict[str, tuple[dict[str, Any], ...]] = {
    "autoregressive": ({},),
    "eqspec": (
        {},
        {"refill": False},
        {"bonus": False},
        {"shrink_to_budget": True},
        {"keep_draft": False},
        {"as_published": True},
    ),
    "exspec": (
        {},
        {"bonus": False},
        {"shrink_to_budget": True},
        {"keep_draft": False},
        {"drop_cache": True},
        {"group_by": "padded"},
        {"as_published": True},
    ),
}
WINDOW = 32


def losses(batch_sizes: Sequence[int], limit: int, repetitions: int) -> Measured:
    """Return one entry for each batch size, strategy and loss.

    exact_match is the share of prompts whose tokens equal autoregressive decoding at batch 1.
    Speeds are medians over repetitions, with their range; the ratios are medians of the ratios
    within a repetition. A setup whose texts differ from the recorded ones has no speed.
    """
    pair = sv.load_pair()
    run = {"prompts": sv.load_prompts(limit=limit), "num_draft_tokens": 5, "max_new_tokens": 64}
    alone = sv.generate(pair, strategy="autoregressive", batch_size=1, progress=False, **run)
    entries = []
    for batch_size in batch_sizes:
        setups = [(name, loss) for name, each in LOSSES.items() for loss in each]
        runs = [run | options(name, loss, batch_size) for name, loss in setups]
        recorded = [sv.generate(pair, record=True, progress=False, **each) for each in runs]
        speeds = []
        for result, own in zip(recorded, repeated(pair, runs, repetitions), strict=True):
            same = [each.tokens == result.tokens for each in own]
            speeds.append(pd.Series([speed(each) for each in own]).where(same))
        first = {name: speeds[setups.index((name, {}))] for name in LOSSES}
        for (name, loss), result, own in zip(setups, recorded, speeds, strict=True):
            words = ", ".join(f"{option}={value!r}" for option, value in loss.items()) or "none"
            entry = {"batch_size": batch_size, "strategy": name, "loss": words}
            entry |= counts(result, alone)
            entry |= {
                "tokens_per_s": own.median(skipna=False),
                "tokens_per_s_low": own.min(skipna=False),
                "tokens_per_s_high": own.max(skipna=False),
                "ratio_to_none": (own / first[name]).median(skipna=False),
                "ratio_to_autoregressive": (own / first["autoregressive"]).median(skipna=False),
            }
            entries.append(entry)
    settings = {"num_draft_tokens": 5, "max_new_tokens": 64, "window": WINDOW}
    about = measured_on(pair, prompts=limit, **settings, repetitions=repetitions)
    return pd.DataFrame(entries), about


def options(name: str, loss: dict[str, Any], batch_size: int) -> dict[str, Any]:
    """Return the options of `generate` for a strategy with a loss."""
    given = {"window": max(WINDOW, batch_size)} if name == "exspec" else {}
    levers = sv.Levers(**loss) if "keep_draft" in loss else None
    strategy = published.strategy(name, **given, **({} if levers else loss))
    return {"strategy": strategy, "levers": levers, "batch_size": batch_size}


def counts(result: sv.Result, alone: sv.Result) -> dict[str, object]:
    """Return how much of the text is right, and the work that was wasted."""
    same = [ours == theirs for ours, theirs in zip(result.tokens, alone.tokens, strict=True)]
    wasted = metrics.waste(result.trace).iloc[0].to_dict()
    for name in ("rounds", "verified_rows", "idle_rows", "discarded_tokens"):
        wasted[name] = int(wasted[name])
    grouping = {"grouping_rate": result.summary["grouping_rate"].item()}
    return {"exact_match": sum(same) / len(same), **wasted, **grouping}


if __name__ == "__main__":
    whole = {"batch_sizes": (4, 8, 16), "limit": 32, "repetitions": 2}
    command(losses, {"losses": whole}, {"batch_sizes": (2,), "limit": 2, "repetitions": 1})
