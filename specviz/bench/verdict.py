"""`pays`: does speculation pay on this machine? A short measurement with a verdict for each B.

`run_bench` is the thorough one: it compares texts, keeps its log and knows baselines.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from specviz.bench.outcome import per_round
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.strategies import Strategy
from specviz.generation.generate import generate
from specviz.util.validate import require_int, require_ints, require_list

MAX_BATCH_SIZE = 4096
MAX_REPETITIONS = 1000
FEWEST_PROMPTS = 4  # of one prompt alone, the text decides
PAYS = "pays"
LOSES = "loses"
UNCLEAR = "too close to tell"


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
    require_ints("batch_sizes", batch_sizes, maximum=MAX_BATCH_SIZE)
    require_int("repetitions", repetitions, maximum=MAX_REPETITIONS)
    require_list("prompts", prompts)
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
    return pd.DataFrame(
        [
            _entry(pair, prompts[: max(size, FEWEST_PROMPTS)], size, ways, repetitions)
            for size in batch_sizes
        ]
    )


def _entry(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_size: int,
    ways: Sequence[dict[str, Any]],
    repetitions: int,
) -> dict[str, Any]:
    """Make the entry of one B. The first repetition warms up and is not counted."""
    times = []
    speeds = []
    for _ in range(repetitions + 1):
        runs = [generate(pair, prompts, batch_size=batch_size, **way) for way in ways]
        times.append([per_round(run)["round_ms"] for run in runs])
        speeds.append([float(run.summary["tokens_per_s"].iloc[0]) for run in runs])
        gain = float(runs[0].summary["mean_acceptance_length"].iloc[0])
    round_ms, step_ms = pd.DataFrame(times[1:]).median()
    ratios = pd.Series([ours / plain for ours, plain in speeds[1:]])
    return {
        "batch_size": batch_size,
        "step_ms": step_ms,
        "round_ms": round_ms,
        "price": round_ms / step_ms,
        "gain": gain,
        "ratio": ratios.median(),
        "ratio_low": ratios.min(),
        "ratio_high": ratios.max(),
        "verdict": _verdict(ratios),
    }


def _verdict(ratios: pd.Series) -> str:
    if ratios.min() > 1:
        return PAYS
    return LOSES if ratios.max() < 1 else UNCLEAR
