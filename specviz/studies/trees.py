"""Trees of drafts against chains, at equal verified drafts: `specviz study trees`.

Every policy is replayed on tables of what the draft model proposes at every position of finished
texts; see `tree_tables`. What is fitted is fitted to one half of the texts and measured on the
other, both ways.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import bootstrap
from tqdm.auto import tqdm

from specviz.engine.drafters.calibration import calibrate
from specviz.engine.drafters.tree import TreeDrafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair
from specviz.generation.result import Result
from specviz.record.schema import Array
from specviz.studies.calibration import check_prompts, fit_curves
from specviz.studies.static_trees import fit_static
from specviz.studies.tree_sizes import GrowthSizes, check_growths, check_sizes, sampling_at
from specviz.studies.tree_tables import (
    MOST_NODES,
    TreeTable,
    grow_everywhere,
    halves,
    join_halves,
    replay_trees,
)
from specviz.util.files import conditions
from specviz.util.validate import require_bool, require_int

GROWTHS: tuple[GrowthSizes, ...] = ((6, 3, 3), (12, 3, 3))
NODES = (1, 2, 4, 6, 8, 12, 16)
BEYOND = 4  # drafts of a chain beyond the most that a row verifies on average
RANKS = 8  # of a drafter's tokens, beyond which a static tree has no branch
# Times that each text is written, so that most rounds have a full batch.
QUEUE = 4
# Percentiles of the intervals over prompts.
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class _Contender:
    """A way to choose drafts, and the tables of what it chooses from.

    Attributes:
        name, calibrated, over_batch: as in the result of `compare_trees`.
        growth: depth, width and children; None for a static tree.
        table: of all texts.
    """

    name: str
    growth: GrowthSizes | None
    calibrated: bool
    over_batch: bool
    table: TreeTable

    def forwards(self, nodes: int) -> int | None:
        """Return how many forwards of the draft model a round takes; None: the half decides."""
        if self.growth is None:
            return None
        # Of N drafts of a row, none is deeper than N.
        return self.growth[0] if self.over_batch else min(nodes, self.growth[0])


def compare_trees(
    pair: Pair,
    prompts: Sequence[Prompt],
    nodes: Sequence[int] = NODES,
    growths: Sequence[Sequence[int]] = GROWTHS,
    *,
    batch_size: int = 32,
    max_new_tokens: int = 128,
    temperature: float | None = None,
    samples: int = 60,
    seed: int = 0,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Compare chains and trees in tokens a row and round, at equal verified drafts.

    Args:
        nodes: N, how many drafts are verified a row, on average over the batch.
        growths: depth, width and children of the drafter `tree`.
        batch_size: B. The texts queue for it four times each, in random order.
        temperature: texts are drawn at this temperature with coupling="gumbel"; None for greedy.
        samples: bootstrap samples of the texts, for the intervals. In each sample, all policies
            serve the same queue.
        seed: of all that is drawn.

    Returns:
        (table, conditions). There is one entry for each policy and N: `drafts` is "chain", "tree"
        or "static tree"; over_batch, whether the best N * B drafts of the batch are verified
        instead of N a row; calibrated, whether chances are calibrated; depth, width and children of
        its growth; draft_forwards a round; tokens_per_round of a row, with its interval over
        prompts (low, high); gain_percent over a chain of N, with its interval (gain_low,
        gain_high).

    Raises:
        ValueError: an argument is out of range, or as `generate`; nothing has run.
    """
    check_prompts(prompts)
    check_pair(pair)
    check_sizes(nodes, samples)
    chosen = check_growths(growths)
    require_int("batch_size", batch_size)
    require_int("max_new_tokens", max_new_tokens)
    require_int("seed", seed, 0)
    require_bool("progress", progress)
    run = {
        "batch_size": batch_size,
        "max_new_tokens": max_new_tokens,
        "sampling": sampling_at(temperature),
    }
    contenders, result = _contend(pair, prompts, max(nodes), chosen, run, progress)
    entries = _compare(contenders, nodes, batch_size, samples, seed)
    given: dict[str, Any] = {
        "prompts": len(prompts),
        "batch_size": batch_size,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "samples": samples,
        "seed": seed,
    }
    return pd.DataFrame(entries), conditions(result.meta, **given)


def _compare(
    contenders: Sequence[_Contender],
    nodes: Sequence[int],
    batch_size: int,
    samples: int,
    seed: int,
) -> list[dict[str, object]]:
    """Return the entries of the table. The first contender is what all others are compared with."""
    entries = []
    for count in sorted(nodes):
        baseline = None
        for each in contenders:
            if count <= each.table.nodes:
                found = _resampled(each, count, batch_size, samples, seed)
                baseline = found if baseline is None else baseline
                entries.append(_describe(each, count) | _measured(found, baseline))
    return entries


def _contend(
    pair: Pair,
    prompts: Sequence[Prompt],
    nodes: int,
    growths: Sequence[GrowthSizes],
    run: Mapping[str, Any],
    progress: bool,
) -> tuple[list[_Contender], Result]:
    """Return all that is compared, the chain of each row first, and a run of the texts."""
    ranked, result = grow_everywhere(pair, prompts, TreeDrafter(1, 1, RANKS), **run)
    found = list(_chains(pair, prompts, min(nodes + BEYOND, MOST_NODES), ranked, run))
    found.append(_Contender("static tree", None, False, False, fit_static(ranked, nodes)))
    for growth in tqdm(growths, unit="growth", disable=not progress):
        found += _trees(pair, prompts, growth, ranked, run)
    return found, result


def _chains(
    pair: Pair, prompts: Sequence[Prompt], depth: int, ranked: TreeTable, run: Mapping[str, Any]
) -> Iterator[_Contender]:
    """Yield what chooses from chains. What is calibrated changes no chain, only its chances."""
    growth = (depth, 1, 1)
    raw, _ = grow_everywhere(pair, prompts, TreeDrafter(*growth), **run)
    yield _Contender("chain", growth, False, False, raw)
    yield _Contender("chain", growth, False, True, raw)
    parts = []
    of_halves = halves(len(prompts))
    for half, other in (of_halves, of_halves[::-1]):
        part = raw.texts(half)
        log_q = np.diff(part.scores, prepend=0, axis=1).clip(max=0)
        chances = calibrate(torch.from_numpy(log_q)[:, :, None], fit_curves(ranked.texts(other)))
        parts.append(replace(part, scores=chances[:, :, 0].cumsum(1).numpy()))
    yield _Contender("chain", growth, True, True, join_halves(parts))


def _trees(
    pair: Pair,
    prompts: Sequence[Prompt],
    growth: GrowthSizes,
    ranked: TreeTable,
    run: Mapping[str, Any],
) -> Iterator[_Contender]:
    """Yield what chooses from trees of one growth: as q says, and calibrated on the other half."""
    raw, _ = grow_everywhere(pair, prompts, TreeDrafter(*growth), **run)
    parts = []
    of_halves = halves(len(prompts))
    for half, other in (of_halves, of_halves[::-1]):
        drafter = TreeDrafter(*growth, calibration=fit_curves(ranked.texts(other)))
        # The others stay in the list, because what is sampled depends on a prompt's place in it.
        budgets = np.ones(len(prompts), int)
        budgets[half] = run["max_new_tokens"]
        here = {**run, "max_new_tokens": budgets.tolist()}
        parts.append(grow_everywhere(pair, prompts, drafter, **here)[0].texts(half))
    for is_calibrated, table in ((False, raw), (True, join_halves(parts))):
        yield _Contender("tree", growth, is_calibrated, False, table)
        yield _Contender("tree", growth, is_calibrated, True, table)


def _describe(contender: _Contender, nodes: int) -> dict[str, object]:
    depth, width, children = contender.growth or (None, None, None)
    return {
        "nodes": nodes,
        "drafts": contender.name,
        "over_batch": contender.over_batch,
        "calibrated": contender.calibrated,
        "depth": depth,
        "width": width,
        "children": children,
        "draft_forwards": contender.forwards(nodes),
    }


def _resampled(
    contender: _Contender, nodes: int, batch_size: int, samples: int, seed: int
) -> tuple[float, Array]:
    """Return a row's tokens a round, and the same in bootstrap samples of the texts (samples,).

    With the same seed, all policies get the same samples and queues.
    """
    count = len(contender.table.offsets) - 1
    order = np.random.default_rng(seed).permutation(QUEUE * count) % count

    def rate(texts: Array, axis: int = -1) -> Array:
        queues = np.atleast_2d(texts)[:, order]
        found = _rates(contender, queues, nodes, batch_size)
        return found if texts.ndim > 1 else found[0]

    found = bootstrap(
        (np.arange(count),),
        rate,
        vectorized=True,
        n_resamples=samples,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(rate(np.arange(count))), found.bootstrap_distribution


def _rates(contender: _Contender, queues: Array, nodes: int, batch_size: int) -> Array:
    """Return a row's tokens a round in each queue, over rounds with a full batch."""
    tokens = np.zeros(len(queues))
    rows = np.zeros(len(queues))
    replayed = replay_trees(
        contender.table, queues, nodes, batch_size, over_batch=contender.over_batch
    )
    for texts, gained in replayed:
        is_full = (texts >= 0).all(1)
        if not is_full.any():
            break
        tokens += gained.sum(1) * is_full
        rows += texts.shape[1] * is_full
    return tokens / rows


def _measured(found: tuple[float, Array], baseline: tuple[float, Array]) -> dict[str, float]:
    """Return tokens a round and the gain over the baseline, with their intervals over texts."""
    rate, samples = found
    gains = 100 * (samples / baseline[1] - 1)
    low, high = np.percentile(samples, INTERVAL)
    gain_low, gain_high = np.percentile(gains, INTERVAL)
    return {
        "tokens_per_round": rate,
        "low": low,
        "high": high,
        "gain_percent": 100 * (rate / baseline[0] - 1),
        "gain_low": gain_low,
        "gain_high": gain_high,
    }
