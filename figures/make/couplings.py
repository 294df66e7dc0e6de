"""What the ways to accept drafts reach, and what they change.

The Gumbel coupling costs acceptance. Typical acceptance gains some, and changes the distribution of
the text: its total variation distance from the target's is computed from the logits of the runs.
"""

from collections.abc import Sequence
from itertools import product
from statistics import mean
from typing import Any

import pandas as pd
import torch
from measure import Measured, command, measured_on

import specviz as sv
from specviz.engine.events import Accepted, Verified
from specviz.engine.names import COUPLINGS, EXACT


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
        summaries, distances = [], []
        for seed in seeds:
            here = run | {"sampling": sampling, "seed": seed}
            summaries.append(sv.generate(pair, prompts, progress=False, **here).summary)
            distances.append(distance(pair, prompts, **here))
        table = pd.concat(summaries)
        lengths = table["mean_acceptance_length"]
        entry = {
            "temperature": temperature,
            "coupling": coupling,
            "mean_acceptance_length": lengths.mean(),
            "mean_acceptance_length_low": lengths.min(),
            "mean_acceptance_length_high": lengths.max(),
            "draft_acceptance_rate": table["draft_acceptance_rate"].mean(),
            "total_variation": mean(distances),
        }
        entries.append(entry)
    about = measured_on(pair, prompts=len(prompts), seeds=list(seeds), **run)
    return pd.DataFrame(entries), about


def distance(
    pair: sv.Pair, prompts: Sequence[str], sampling: sv.SamplingParams, **run: Any
) -> float:
    """Return the mean total variation distance between what is written and the target.

    It is the mean over the new tokens of the distance between p, given the text before the token,
    and the distribution that the token was drawn from. The exact couplings draw from p. Typical
    acceptance does so behind the accepted drafts, but a draft that it accepts is certain, where the
    target gives it p(d): the distance is 1 - p(d).
    """
    if sampling.coupling in EXACT:
        return 0.0
    total = tokens = 0.0
    for event in sv.decode(pair, prompts, sampling=sampling, **run):
        if isinstance(event, Verified):
            logits = event.logits
        if isinstance(event, Accepted):
            gained, emitted = event.outcome.gained, event.outcome.emitted
            p = sampling.distribution(logits).gather(2, emitted[:, :, None])[:, :, 0]  # (b, K+1)
            of_drafts = gained.minimum(event.outcome.accepted)
            is_draft = torch.arange(p.shape[1], device=p.device) < of_drafts[:, None]
            total += float((1 - p)[is_draft].sum())
            tokens += int(gained.sum())
    return total / tokens


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
