"""`specviz study couplings`: what the ways to accept drafts reach, and what they change.

The Gumbel coupling costs acceptance. Typical acceptance gains some, and changes the distribution of
the text: its total variation distance from the target's is computed from the logits of the runs.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from specviz.engine.events import Accepted, Verified
from specviz.engine.models.pair import Pair
from specviz.engine.names import COUPLINGS, EXACT
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair, decode
from specviz.engine.sampling import SamplingParams
from specviz.generation.generate import generate
from specviz.util.files import conditions
from specviz.util.validate import (
    require_bool,
    require_ints,
    require_kind,
    require_list,
    require_str,
)


def measure_couplings(
    pair: Pair,
    prompts: Sequence[Prompt],
    temperatures: Sequence[float] = (0.6, 1.0),
    seeds: Sequence[int] = (0, 1, 2, 3),
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    drafter: str = "model",
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Sample from `prompts` with all couplings, at every temperature and with every seed.

    Args:
        drafter: by name: "model", a head of the pair such as "eagle3", or another.

    Returns:
        (table, conditions). The table has one entry per temperature and coupling:
        mean_acceptance_length (the mean over seeds), mean_acceptance_length_low and _high (their
        range), draft_acceptance_rate (mean), total_variation (mean; see `measure_bias`).

    Raises:
        ValueError: as `generate` and `SamplingParams`, or a list is empty; nothing has run.
    """
    chosen = couplings_of(temperatures)
    require_ints("seeds", seeds, minimum=0)
    require_str("drafter", drafter, "pass the name of a drafter")
    check_pair(pair)
    require_bool("progress", progress)
    settings: dict[str, Any] = {
        "drafter": drafter,
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
        biases = [measure_bias(pair, prompts, sampling, seed, **settings) for seed in seeds]
        bias = sum(biases) / len(biases)
        entries.append(_entry(sampling, summaries) | {"total_variation": bias})
        meta = results[-1].meta
    found = conditions(meta, prompts=len(prompts), seeds=list(seeds), **settings)
    return pd.DataFrame(entries), found


def couplings_of(temperatures: Sequence[float]) -> list[SamplingParams]:
    """Return all couplings at every temperature. Raise ValueError as `SamplingParams`."""
    require_list("temperatures", temperatures)
    chosen = []
    for temperature in temperatures:
        for coupling in COUPLINGS:
            chosen.append(SamplingParams(temperature, coupling=coupling))
    return chosen


def measure_bias(
    pair: Pair, prompts: Sequence[Prompt], sampling: SamplingParams, seed: int, **settings: Any
) -> float:
    """Return the mean total variation distance between what is written and the target.

    It is the mean over the new tokens of the distance between p, given the text before the token,
    and the distribution that the token was drawn from. The exact couplings draw from p. Typical
    acceptance does so behind the accepted drafts, but a draft that it accepts is certain, where the
    target gives it p(d): the distance is 1 - p(d). With an exact coupling nothing runs.

    Args:
        settings: further arguments of `decode`.

    Raises:
        ValueError: `sampling` is not a SamplingParams, or as `generate`.
    """
    require_kind("sampling", sampling, SamplingParams, "pass a SamplingParams")
    if sampling.coupling in EXACT:
        return 0.0
    distance = 0.0
    tokens = 0
    for event in decode(pair, prompts, sampling=sampling, seed=seed, **settings):
        if isinstance(event, Verified):
            logits = event.logits
        if not isinstance(event, Accepted):
            continue
        gained, emitted = event.outcome.gained, event.outcome.emitted
        p = sampling.distribution(logits).gather(2, emitted[:, :, None])[:, :, 0]  # (b, K+1)
        of_drafts = gained.minimum(event.outcome.accepted)
        is_draft = torch.arange(p.shape[1], device=p.device) < of_drafts[:, None]
        distance += float((1 - p)[is_draft].sum())
        tokens += int(gained.sum())
    return distance / tokens


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
