"""`measure_couplings`: what the Gumbel coupling costs: its mean acceptance length beside that of rejection sampling.

Runs models through `generate` alone.
"""

from collections.abc import Sequence

import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.sampling import COUPLINGS, SamplingParams
from specviz.generation.generate import generate
from specviz.util.files import conditions
from specviz.util.validate import require_int


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
        (table, conditions). The table has one entry per temperature and coupling: mean_acceptance_length (the mean of the seeds'),
        mean_acceptance_length_low and _high (their range), draft_acceptance_rate (mean).

    Raises:
        ValueError: as `generate` and `SamplingParams`, or one of the lists is empty; nothing has run.
    """
    for name, values in (("temperatures", temperatures), ("seeds", seeds)):
        if not values:
            raise ValueError(f"{name} is empty; name at least one")
    for i, seed in enumerate(seeds):
        require_int(f"seeds[{i}]", seed, minimum=0)
    chosen = [
        SamplingParams(temperature, coupling=coupling)
        for temperature in temperatures
        for coupling in COUPLINGS
    ]
    asked = {
        "batch_size": batch_size,
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
    }
    entries, meta = [], {}
    for sampling in tqdm(chosen, desc="couplings", unit="cell", disable=not progress):
        runs = [
            generate(
                pair, prompts, sampling=sampling, seed=seed, progress=False,
                batch_size=batch_size, num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens,
            )
            for seed in seeds
        ]  # fmt: skip
        found, meta = pd.concat([run.summary for run in runs]), runs[-1].meta
        lengths = found["mean_acceptance_length"]
        entries.append(
            {"temperature": sampling.temperature, "coupling": sampling.coupling}
            | {
                "mean_acceptance_length": lengths.mean(),
                "mean_acceptance_length_low": lengths.min(),
            }
            | {
                "mean_acceptance_length_high": lengths.max(),
                "draft_acceptance_rate": found["draft_acceptance_rate"].mean(),
            }
        )
    return pd.DataFrame(entries), conditions(meta, prompts=len(prompts), seeds=list(seeds), **asked)
