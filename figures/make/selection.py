"""Which drafts are worth verifying: K a row, or the K * B best of a batch (TETRIS), replayed.

Both verify equally many tokens. Texts are drawn with replacement, and both serve the same queue.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from measure import Measured, command, measured_on
from replay import Drafts, draft_everywhere, interval, replay

import specviz as sv
from specviz.record.schema import Array

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
        table, _ = draft_everywhere(
            pair, prompts, drafter, depth, batch_size=8, max_new_tokens=TOKENS
        )
        for batch_size, k in product(batch_sizes, num_draft_tokens):
            queues = drawn(table.count, samples, QUEUE * batch_size)
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
    table: Drafts, queues: Array, batch_size: int, k: int, extra: int, wait: int | None
) -> dict[str, Array]:
    """Return what a policy reaches in each sample, each (samples,). With extra=0: K a row."""
    policy = {"over_batch": extra > 0, "max_wait": wait}
    table = table.first(k + extra)
    rows = tokens = verified = np.zeros(len(queues))
    paces: list[list[float]] = [[] for _ in queues]
    seen = np.zeros((len(queues), batch_size), int)  # rounds of the text in each row
    written = np.zeros_like(seen)
    lengths = np.diff(table.offsets)
    for texts, counts, gained in replay(table, queues, k, batch_size, **policy):
        is_full = (texts >= 0).all(1)
        rows = rows + is_full * batch_size
        tokens = tokens + is_full * gained.sum(1)
        verified = verified + is_full * counts.sum(1)
        seen += texts >= 0
        written += gained
        ended = (texts >= 0) & (written == lengths[texts])
        for lane, row in zip(*np.nonzero(ended), strict=True):
            paces[lane].append(seen[lane, row] / lengths[texts[lane, row]])
        seen[ended] = written[ended] = 0
    static = np.zeros(len(queues))
    for texts, _, _ in replay(table, queues[:, :batch_size], k, batch_size, **policy):
        static += (texts >= 0).any(1)
    return {
        "tokens_per_round": tokens / rows,
        "success_rate": (tokens - rows) / verified,
        "p99_rounds_per_token": np.array([np.percentile(each, 99) for each in paces]),
        "static_rounds": static,
    }


def compared(plain: dict[str, Array], tetris: dict[str, Array]) -> dict[str, float]:
    """Return the means of both, and the gain with its interval."""
    gain = 100 * (tetris["tokens_per_round"] / plain["tokens_per_round"] - 1)
    low, high = interval(gain)
    names = ("success_rate", "p99_rounds_per_token")
    entry = {
        "tokens_per_round": plain["tokens_per_round"].mean(),
        "tetris_tokens_per_round": tetris["tokens_per_round"].mean(),
        "gain_percent": gain.mean(),
        "gain_low": low,
        "gain_high": high,
    }
    for name in names:
        entry |= {name: plain[name].mean(), f"tetris_{name}": tetris[name].mean()}
    longer = tetris["static_rounds"].mean() / plain["static_rounds"].mean() - 1
    return entry | {"static_rounds_percent": 100 * longer}


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
