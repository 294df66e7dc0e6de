"""`specviz study couplings`: what the Gumbel coupling costs in acceptance.

Its mean acceptance length is compared with that of rejection sampling.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair
from specviz.engine.sampling import COUPLINGS, SamplingParams
from specviz.generation.generate import generate
from specviz.util.files import conditions
from specviz.util.validate import require_bool, require_ints, require_list


def measure_couplings(
    pair: Pair,
    prompts: Sequence[Prompt],
    temperatures: Sequence[float] = (0.6, 1.0),
    seeds: Sequence[int] = (0, 1, 2, 3),
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Sample from `prompts` with both couplings, at every temperature and with every seed.

    Returns:
        (table, conditions). The table has one entry per temperature and coupling:
        mean_acceptance_length (the mean over seeds), mean_acceptance_length_low and _high (their
        range), draft_acceptance_rate (mean).

    Raises:
        ValueError: as `generate` and `SamplingParams`, or a list is empty; nothing has run.
    """
    chosen = couplings_of(temperatures)
    require_ints("seeds", seeds, minimum=0)
    check_pair(pair)
    require_bool("progress", progress)
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
    }
    entries = []
    for sampling in tqdm(chosen, desc="couplings", unit="coupling", disable=not progress):
        results = []
        for seed in seeds:
            result = generate(
                pair, prompts, sampling=sampling, seed=seed, progress=False, **settings
            )
            results.append(result)
        summaries = pd.concat([result.summary for result in results])
        entries.append(_entry(sampling, summaries))
        meta = results[-1].meta
    found = conditions(meta, prompts=len(prompts), seeds=list(seeds), **settings)
    return pd.DataFrame(entries), found


def couplings_of(temperatures: Sequence[float]) -> list[SamplingParams]:
    """Return both couplings at every temperature. Raise ValueError as `SamplingParams`."""
    require_list("temperatures", temperatures)
    chosen = []
    for temperature in temperatures:
        for coupling in COUPLINGS:
            chosen.append(SamplingParams(temperature, coupling=coupling))
    return chosen


def _entry(sampling: SamplingParams, summaries: pd.DataFrame) -> dict[str, object]:
    lengths = summaries["mean_acceptance_length"]
    return {
        "temperature": sampling.temperature,
        "coupling": sampling.coupling,
        "mean_acceptance_length": lengths.mean(),
        "mean_acceptance_length_low": lengths.min(),
        "mean_acceptance_length_high": lengths.max(),
        "draft_acceptance_rate": summaries["draft_acceptance_rate"].mean(),
    }
