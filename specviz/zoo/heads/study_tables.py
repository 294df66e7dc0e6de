"""The tables of `specviz study heads`, from what was counted of each training. Runs no model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from specviz.record.schema import Array

CONFIDENCE = 0.95  # of the intervals over prompts


def training_table(found: Sequence[Mapping[str, Any]], samples: int, seed: int) -> pd.DataFrame:
    """Return one entry for each training.

    Columns: head, kind, block, gate, depth, unroll, starts and share, as in `Contender`;
    parameters; steps; tokens (read in training); step_ms (CPU milliseconds, measured beforehand
    with those of the other heads); cpu_s (CPU seconds that the training took); loss (nats, of the
    last steps); length (mean acceptance length at K = 4) with its interval over prompts
    (length_low, length_high).
    """
    entries = []
    for each in found:
        hits = each["hits"]
        last = each["history"][-1]
        entry = dict(each["columns"])
        entry |= {
            "parameters": each["parameters"],
            "steps": last["step"],
            "tokens": last["tokens"],
            "step_ms": 1e3 * each["step_s"],
            "cpu_s": sum(part["cpu_seconds"] for part in each["history"]),
            "loss": last["loss"],
        }
        entries.append(entry | share("length", hits["tokens"], hits["rounds"], samples, seed))
    return pd.DataFrame(entries).astype({"unroll": "Int64"})


def step_table(found: Sequence[Mapping[str, Any]], samples: int, seed: int) -> pd.DataFrame:
    """Return one entry for each training and step of a chain.

    Columns: head and share, as in `Contender`; step, from 1; top1 and top5, the shares of positions
    where the next token is the head's first choice, or among its first five, given the true tokens
    before it; conditional, the share of drafts that are accepted if all before them are. Each has
    its interval over prompts (top1_low, top1_high, ...).
    """
    return pd.DataFrame(_steps(found, samples, seed))


def _steps(
    found: Sequence[Mapping[str, Any]], samples: int, seed: int
) -> Iterator[dict[str, object]]:
    for each in found:
        hits = {name: np.array(counts) for name, counts in each["hits"].items()}
        for step in range(hits["positions"].shape[1]):
            at_step = {name: counts[..., step] for name, counts in hits.items() if counts.ndim > 1}
            entry = {"head": each["columns"]["head"], "share": each["columns"]["share"]}
            entry["step"] = step + 1
            for name in ("top1", "top5"):
                entry |= share(name, at_step[name], at_step["positions"], samples, seed)
            entry |= share("conditional", at_step["accepted"], at_step["reached"], samples, seed)
            yield entry


def share(
    name: str, counts: Sequence[int] | Array, of: Sequence[int] | Array, samples: int, seed: int
) -> dict[str, float]:
    """Return the ratio of two sums over prompts, and its interval over prompts.

    Prompts in which nothing is counted are left out. NaN stands for the ratio where all are, and
    for the interval where fewer than two are left.
    """
    below = np.asarray(of, float)
    pairs = (np.asarray(counts, float)[below > 0], below[below > 0])
    return over_prompts(name, pairs, _ratio, samples, seed)


def over_prompts(
    name: str, columns: Sequence[Array], statistic: Callable[..., Any], samples: int, seed: int
) -> dict[str, float]:
    """Return a statistic of columns, one entry a prompt, and its bootstrap interval over prompts.

    NaN stands for the statistic where there is no prompt, and for the interval where there are
    fewer than two.
    """
    found = dict.fromkeys((name, f"{name}_low", f"{name}_high"), float("nan"))
    count = len(columns[0])
    if count:
        found[name] = float(statistic(*columns))
    if count > 1:
        interval = bootstrap(
            columns,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=samples,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        found |= {f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}
    return found


def _ratio(above: Array, below: Array, axis: int = -1) -> Array:
    quotient: Array = above.sum(axis) / below.sum(axis)
    return quotient
