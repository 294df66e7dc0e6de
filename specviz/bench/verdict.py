"""`pays`: does speculation pay on this machine? A short measurement with a verdict for each B.

`run_bench` is the thorough one: it compares texts, keeps its log and knows baselines.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from specviz.bench.measuring import per_round
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.strategies import Strategy
from specviz.generation.generate import generate

FEWEST_PROMPTS = 4  # of one prompt alone, the text decides


def pays(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int] = (1, 8),
    *,
    strategy: str | Strategy = "inplace",
    drafter: str | Drafter = "model",
    num_draft_tokens: int | str = 5,
    max_new_tokens: int = 24,
    repetitions: int = 3,
) -> pd.DataFrame:
    """Time a strategy against autoregressive decoding of the same prompts, in turns.

    At each B the first B prompts are decoded, or the first four if B is smaller.

    Args:
        strategy, drafter, num_draft_tokens, max_new_tokens: as in `generate`.
        repetitions: how often both are timed. Before that each decodes once uncounted.

    Returns:
        One entry for each B: batch_size; step_ms and round_ms (medians over full batches, without
        prompts); price (the round in steps); gain (mean acceptance length); ratio (of tokens/s,
        prompts included; median), ratio_low and ratio_high (range over the repetitions); verdict:
        "pays" if every repetition was faster than autoregressive decoding, "loses" if none was,
        else "too close to tell".

    Raises:
        ValueError: an argument cannot be used, or there are fewer prompts than the largest B.
    """
    most = max(batch_sizes)
    if len(prompts) < most:
        raise ValueError(
            f"prompts must be at least as many as the largest B, {most}, got {len(prompts)};"
            " pass more prompts, or smaller batch_sizes"
        )
    common = {"max_new_tokens": max_new_tokens, "progress": False}
    drafted = {"strategy": strategy, "drafter": drafter, "num_draft_tokens": num_draft_tokens}
    # The drafted run comes first: it refuses what cannot be used before any model runs.
    ways: list[dict[str, Any]] = [common | drafted, common | {"strategy": "autoregressive"}]
    entries = []
    for size in batch_sizes:
        taken = prompts[: max(size, FEWEST_PROMPTS)]
        times = []
        ratios = []
        for _ in range(repetitions + 1):
            runs = [generate(pair, taken, batch_size=size, **way) for way in ways]
            times.append([per_round(run)["round_ms"] for run in runs])
            speeds = [float(run.summary["tokens_per_s"].iloc[0]) for run in runs]
            ratios.append(speeds[0] / speeds[1])
        round_ms, step_ms = pd.DataFrame(times[1:]).median()  # the first repetition warms up
        measured = pd.Series(ratios[1:])
        entries.append(
            {
                "batch_size": size,
                "step_ms": step_ms,
                "round_ms": round_ms,
                "price": round_ms / step_ms,
                "gain": float(runs[0].summary["mean_acceptance_length"].iloc[0]),
                "ratio": measured.median(),
                "ratio_low": measured.min(),
                "ratio_high": measured.max(),
                "verdict": _verdict(measured),
            }
        )
    return pd.DataFrame(entries)


def _verdict(ratios: pd.Series) -> str:
    if ratios.min() > 1:
        return "pays"
    return "loses" if ratios.max() < 1 else "too close to tell"
