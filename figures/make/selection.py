"""Which drafts are worth verifying: K a row, or the K * B best of a batch (TETRIS), replayed.

Both verify equally many tokens. Texts are drawn with replacement, and both serve the same queue.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from measure import Measured, command, measured_on
from replay import interval

import specviz as sv
from specviz.generation.tables import make_table
from specviz.record.schema import Array
from specviz.simulation import AcceptanceTable, Policy, Tetris, simulate
from specviz.simulation.tables import UNIT

QUEUE = 8  # requests for each row, so that most rounds have a full batch
TOKENS = 128
Waits = Sequence[int | None]


def selection(
    drafters: dict[str, int],
    batch_sizes: Sequence[int],
    num_draft_tokens: Sequence[int],
    extras: Sequence[int],
    max_waits: Waits = (None,),
    samples: int = 100,
    limit: int | None = None,
) -> Measured:
    """Return one entry for each drafter, B, K, extra drafts of TETRIS and its limit on waiting.

    tokens_per_round and success_rate (the share of verified drafts that a row keeps) are means over
    rounds with a full batch; p99_rounds_per_token is over requests; static_rounds_percent is by how
    much TETRIS lengthens one batch that no request joins.

    drafters: their names, and how many drafts they make at each position.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    entries = []
    for drafter, depth in drafters.items():
        run = {"drafter": drafter, "max_new_tokens": TOKENS, "progress": False}
        table = make_table(pair, prompts, depth, **run)
        for batch_size, k in product(batch_sizes, num_draft_tokens):
            queues = drawn(len(prompts), samples, QUEUE * batch_size)
            plain = outcome(table, queues, batch_size, k, 0, None)
            for extra, wait in product(extras, max_waits):
                if k + extra <= depth:
                    setup = {"drafter": drafter, "batch_size": batch_size, "num_draft_tokens": k}
                    setup |= {"extra": extra, "max_wait": wait}
                    other = outcome(table, queues, batch_size, k, extra, wait)
                    entries.append(setup | compared(plain, other))
    found = pd.DataFrame(entries).astype({"max_wait": "Int64"})
    return found, measured_on(
        pair, prompts=len(prompts), depths=drafters, max_new_tokens=TOKENS, samples=samples, seed=0
    )


def drawn(count: int, samples: int, requests: int) -> Array:
    """Return the texts of each sample's queue (samples, requests)."""
    generator = np.random.default_rng(0)
    texts = generator.integers(0, count, (samples, count))
    places = generator.integers(0, count, (samples, requests))
    return np.take_along_axis(texts, places, axis=1)


def outcome(
    table: AcceptanceTable, queues: Array, batch_size: int, k: int, extra: int, wait: int | None
) -> dict[str, Array]:
    """Return what a policy reaches in each sample, each (samples,). With extra=0: K a row."""
    selector = Tetris(extra, max_wait=wait) if extra else None
    policy = Policy("inplace", batch_size, k, selector=selector)
    served = simulate(table.writing(queues), policy, UNIT)
    one_batch = table.writing(queues[:, :batch_size])
    static = simulate(one_batch, replace(policy, refill=False), UNIT)
    rounds = served.rounds[served.rounds["rows"] == batch_size]
    full = rounds.groupby("lane")[["rows", "gained_tokens", "verified_tokens"]].sum()
    rows, tokens, verified = full.to_numpy().T
    paces = served.own_rounds / served.workload.new_tokens
    return {
        "tokens_per_round": tokens / rows,
        "success_rate": (tokens - rows) / verified,
        "p99_rounds_per_token": np.percentile(paces, 99, axis=1),
        "static_rounds": static.finished_s.max(1),
    }


def compared(plain: dict[str, Array], tetris: dict[str, Array]) -> dict[str, float]:
    """Return the means of both, and the gain with its interval."""
    gain = 100 * (tetris["tokens_per_round"] / plain["tokens_per_round"] - 1)
    low, high = interval(gain)
    means = {name: (plain[name].mean(), tetris[name].mean()) for name in plain}
    entry = {}
    for name in ("tokens_per_round", "success_rate", "p99_rounds_per_token"):
        entry[name], entry[f"tetris_{name}"] = means[name]
        if name == "tokens_per_round":
            entry |= {"gain_percent": gain.mean(), "gain_low": low, "gain_high": high}
    ours, theirs = means["static_rounds"]
    return entry | {"static_rounds_percent": 100 * (theirs / ours - 1)}


TABLES = {
    "selection": {
        "drafters": {"model": 10},
        "batch_sizes": (1, 8, 32, 64),
        "num_draft_tokens": (1, 2, 3, 4, 5, 6),
        "extras": (1, 2, 3, 4, 5),
    },
    "fairness": {
        "drafters": {"model": 10},
        "batch_sizes": (8, 32),
        "num_draft_tokens": (1, 3, 5),
        "extras": (2,),
        "max_waits": (None, 8, 4, 2, 1),
    },
    "selection-heads": {
        "drafters": {"eagle3": 6, "clover": 5, "medusa": 5},
        "batch_sizes": (8, 32),
        "num_draft_tokens": (1, 2, 3),
        "extras": (1, 2, 3),
        "samples": 60,
    },
}

if __name__ == "__main__":
    command(selection, TABLES, {"batch_sizes": (2,), "extras": (2,), "samples": 5, "limit": 6})
