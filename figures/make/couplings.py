"""How many drafts rejection sampling and the Gumbel coupling accept."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd
from measure import Measured, command, measured_on

import specviz as sv
from specviz.engine.names import COUPLINGS


def couplings(
    drafter: str,
    temperatures: Sequence[float],
    seeds: Sequence[int],
    max_new_tokens: int,
    limit: int | None = None,
) -> Measured:
    """Sample with all couplings, at every temperature and with every seed.

    All values are means over seeds, with the range of the mean acceptance length.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    run = {"drafter": drafter, "batch_size": 8, "num_draft_tokens": 5}
    run["max_new_tokens"] = max_new_tokens
    entries = []
    for temperature, coupling in product(temperatures, COUPLINGS):
        sampling = sv.SamplingParams(temperature, coupling=coupling)
        summaries = []
        for seed in seeds:
            here = run | {"sampling": sampling, "seed": seed}
            summaries.append(sv.generate(pair, prompts, progress=False, **here).summary)
        table = pd.concat(summaries)
        lengths = table["mean_acceptance_length"]
        entry = {
            "temperature": temperature,
            "coupling": coupling,
            "mean_acceptance_length": lengths.mean(),
            "mean_acceptance_length_low": lengths.min(),
            "mean_acceptance_length_high": lengths.max(),
            "draft_acceptance_rate": table["draft_acceptance_rate"].mean(),
        }
        entries.append(entry)
    about = measured_on(pair, prompts=len(prompts), seeds=list(seeds), **run)
    return pd.DataFrame(entries), about


HEADS = {"temperatures": (1.0,), "seeds": (0, 1), "max_new_tokens": 32}
TABLES: dict[str, dict[str, Any]] = {
    "couplings": {
        "drafter": "model",
        "temperatures": (0.6, 1.0),
        "seeds": (0, 1, 2, 3),
        "max_new_tokens": 64,
    },
    "couplings-eagle3": {"drafter": "eagle3", **HEADS},
    "couplings-medusa": {"drafter": "medusa", **HEADS},
}

if __name__ == "__main__":
    command(couplings, TABLES, {"seeds": (0,), "max_new_tokens": 8, "limit": 4})
