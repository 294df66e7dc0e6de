"""Trees of drafts against chains, at equal verified drafts, replayed; and the K/V that they move.

What is fitted is fitted to one half of the texts and measured on the other, both ways.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from calibration import CalibratedTree, calibrate, fit_curves, halves
from measure import Measured, command, measured_on
from replay import MOST_NODES, Drafts, draft_everywhere, interval, replay, resampled

import specviz as sv
from specviz.engine.drafters.chains import ModelDrafter
from specviz.engine.drafters.trees import TreeDrafter
from specviz.record.schema import MODELS, Array

GROWTHS = ((6, 3, 3), (12, 3, 3))  # depth, width and children
BEYOND = 4  # drafts of a chain beyond the most that a row verifies on average
RANKS = 8  # of a drafter's tokens, beyond which a static tree has no branch
QUEUE = 4  # times that each text is written, so that most rounds have a full batch
BATCH = 32
Ranks = tuple[int, ...]


def trees(nodes: Sequence[int], samples: int, limit: int | None, max_new_tokens: int) -> Measured:
    """Return one entry for each policy and N, the drafts verified of a row on average.

    over_batch: whether the best N * B of the batch are verified instead of N a row. All intervals
    are over bootstrap samples of the texts; gains are over a chain of N.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    contenders = list(contend(pair, prompts, max(nodes), max_new_tokens))
    entries = []
    for count in nodes:
        chain = None
        for policy, table in contenders:
            if count > table.nodes:
                continue
            over_batch, depth = policy["over_batch"], policy["depth"]
            rates = partial(tokens_per_round, table, nodes=count, over_batch=over_batch)
            rate, drawn = resampled(table, QUEUE, samples, 0, rates)
            chain = chain or (rate, drawn)
            # Of N drafts of a row, none is deeper than N.
            forwards = depth if over_batch or depth is None else min(count, depth)
            entry = {"nodes": count, **policy, "draft_forwards": forwards}
            low, high = interval(drawn)
            entry |= {"tokens_per_round": rate, "low": low, "high": high}
            low, high = interval(100 * (drawn / chain[1] - 1))
            entry["gain_percent"] = 100 * (rate / chain[0] - 1)
            entries.append(entry | {"gain_low": low, "gain_high": high})
    sizes = {"batch_size": BATCH, "max_new_tokens": max_new_tokens, "samples": samples, "seed": 0}
    return pd.DataFrame(entries), measured_on(pair, prompts=len(prompts), **sizes)


def contend(
    pair: sv.Pair, prompts: Sequence[str], nodes: int, max_new_tokens: int
) -> Iterator[tuple[dict[str, Any], Drafts]]:
    """Yield all policies with the drafts that they choose from, the chain of each row first."""
    run = {"batch_size": BATCH, "max_new_tokens": max_new_tokens}
    both = halves(len(prompts))

    def grown(drafter: TreeDrafter, **changes: object) -> Drafts:
        kept = min(drafter.grown(), MOST_NODES)
        return draft_everywhere(pair, prompts, drafter, kept, **{**run, **changes})[0]

    ranked = grown(TreeDrafter(1, 1, RANKS))
    curves = [fit_curves(ranked.texts(half)) for half in both[::-1]]
    depth = min(nodes + BEYOND, MOST_NODES)
    chain = grown(TreeDrafter(depth, 1, 1))
    parts = []
    for half, fitted in zip(both, curves, strict=True):
        part = chain.texts(half)
        log_q = np.diff(part.scores, prepend=0, axis=1).clip(max=0)
        chances = calibrate(torch.from_numpy(log_q)[:, :, None], fitted)[:, :, 0]
        parts.append(replace(part, scores=chances.cumsum(1).numpy()))
    yield policy("chain", (depth, 1, 1)), chain
    yield policy("chain", (depth, 1, 1), over_batch=True), chain
    yield policy("chain", (depth, 1, 1), over_batch=True, calibrated=True), join_halves(parts)
    yield policy("static tree", (None, None, None)), fit_static(ranked, nodes)
    for growth in GROWTHS:
        raw = grown(TreeDrafter(*growth))
        parts = []
        for half, fitted in zip(both, curves, strict=True):
            # The others stay in the list: what is sampled depends on a prompt's place in it.
            budgets = np.ones(len(prompts), int)
            budgets[half] = max_new_tokens
            drafter = CalibratedTree(*growth, curves=fitted)
            parts.append(grown(drafter, max_new_tokens=budgets.tolist()).texts(half))
        tables = {False: raw, True: join_halves(parts)}
        for calibrated, over_batch in product(tables, (False, True)):
            yield policy("tree", growth, over_batch, calibrated), tables[calibrated]


def policy(
    drafts: str,
    growth: tuple[int | None, int | None, int | None],
    over_batch: bool = False,
    calibrated: bool = False,
) -> dict[str, Any]:
    """Return how drafts are made and chosen, as it stands in the table."""
    shape = dict(zip(("depth", "width", "children"), growth, strict=True))
    return {"drafts": drafts, "over_batch": over_batch, "calibrated": calibrated, **shape}


def tokens_per_round(table: Drafts, queues: Array, nodes: int, over_batch: bool) -> Array:
    """Return a row's tokens a round in each queue, over rounds with a full batch."""
    tokens, rows = np.zeros(len(queues)), np.zeros(len(queues))
    for texts, gained in replay(table, queues, nodes, BATCH, over_batch=over_batch):
        is_full = (texts >= 0).all(1)
        if not is_full.any():
            break
        tokens += gained.sum(1) * is_full
        rows += texts.shape[1] * is_full
    return tokens / rows


def join_halves(parts: Sequence[Drafts]) -> Drafts:
    """Return the table of all texts, given those of the two halves."""
    offsets = np.cumsum([0, *np.concatenate([np.diff(part.offsets) for part in parts])])
    scores, reached = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "reached")
    )
    joined = Drafts(offsets, scores, reached)
    return joined.texts(np.concatenate(halves(joined.count)).argsort())


def fit_static(ranked: Drafts, nodes: int) -> Drafts:
    """Return the table of trees of fixed shape, each text's fitted to the other half of the texts.

    ranked: of trees of one level, the likeliest tokens in order.
    """
    parts = [ranked.texts(half) for half in halves(ranked.count)]
    orders = [fit_paths(rank_paths(part, nodes), nodes) for part in parts[::-1]]
    nodes = min(map(len, orders))
    found = []
    for part, order in zip(parts, orders, strict=True):
        paths = rank_paths(part, nodes)
        is_right = [[path[: len(each)] == each for each in order[:nodes]] for path in paths]
        reached = np.pad(np.cumsum(is_right, 1), ((0, 0), (1, 0)))
        found.append(Drafts(part.offsets, np.zeros((len(paths), nodes)), reached))
    return join_halves(found)


def rank_paths(ranked: Drafts, depth: int) -> list[Ranks]:
    """Return the ranks of the next tokens of the text at each position, up to `depth` of them.

    A path ends before a token that is none of the likeliest.
    """
    first = ranked.reached[:, 1:].argmax(1)
    ranks = np.where(ranked.reached[:, -1] > 0, first, -1)
    paths = []
    for of_text in np.split(ranks, ranked.offsets[1:-1]):
        for place in range(len(of_text)):
            path = of_text[place : place + depth].tolist()
            paths.append(tuple(path[: path.index(-1)] if -1 in path else path))
    return paths


def fit_paths(observed: Sequence[Ranks], nodes: int) -> list[Ranks]:
    """Return the `nodes` paths that most of the observed ones begin with, the most frequent first.

    They are those of a tree: a path is never more frequent than the one that it continues.
    """
    counts = Counter(path[:length] for path in observed for length in range(1, len(path) + 1))
    return sorted(counts, key=lambda path: (-counts[path], len(path), path))[:nodes]


def moves(limit: int, max_new_tokens: int) -> Measured:
    """Count the K/V slots that each strategy moves within rows, with trees and with chains."""
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    run = {"num_draft_tokens": 6, "batch_size": 8, "max_new_tokens": max_new_tokens}
    strategies = ("inplace", "masking", "eqspec", "exspec", "rollback")
    drafters = {"chain": ModelDrafter(), "tree": TreeDrafter(6, 3, 3)}
    entries = []
    for strategy, (name, drafter) in product(strategies, drafters.items()):
        how = {"strategy": strategy, "drafter": drafter, "record": True, "progress": False}
        trace = sv.generate(pair, prompts, **how, **run).trace
        moved, rows, feeds = trace.moves, trace.rows, trace.feeds
        # Between rows, K/V moves because some leave, which has to do with no tree.
        length = moved["length"] * (moved["from_row"] == moved["to_row"])
        slots = np.bincount(moved["model"], weights=length, minlength=len(MODELS))
        written = rows["gained"].sum()
        is_target = feeds["model"] == MODELS.index("target")
        entry = {
            "strategy": strategy,
            "drafts": name,
            "tokens_per_round": written / (rows["gained"] > 0).sum(),
            "target_slots": feeds["slot"][is_target].max() + 1,
        }
        for model, each in zip(MODELS, slots, strict=True):
            entry[f"{model}_slots_per_token"] = each / written
        entries.append(entry)
    return pd.DataFrame(entries), measured_on(pair, prompts=limit, **run)


def measure(kind: str, **sizes: Any) -> Measured:
    """Return one of the two tables."""
    if kind == "moves":
        return moves(sizes["limit"], sizes["max_new_tokens"])
    return trees(**{**FULL, **sizes})


FULL = {"nodes": (1, 2, 4, 6, 8, 12, 16), "samples": 60}
TABLES = {
    "trees": {"kind": "trees", "limit": None, "max_new_tokens": 128},
    "trees-moves": {"kind": "moves", "limit": 16, "max_new_tokens": 64},
}

if __name__ == "__main__":
    small = {"limit": 6, "max_new_tokens": 12, "nodes": (2,), "samples": 5}
    command(measure, TABLES, small)
