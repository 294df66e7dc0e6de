"""What a verification costs as a rectangle and packed."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median

import pandas as pd
import torch
from measure import Measured, command, interleaved, without_model

import specviz as sv
from specviz.engine.kv.attention import attending
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layout import Layout

LENGTH = 160  # tokens that each row has before the pending one


@torch.inference_mode()
def packing(
    batch_sizes: Sequence[int], num_draft_tokens: Sequence[int], repetitions: int
) -> Measured:
    """Verify K * B drafts in three forms: K a row, or spread over rows of 0 to K + extra drafts.

    `filling` is the share of the ragged rectangle that is none of the tokens to verify. Times are
    medians of a target forward; on a CPU they are the time that the process computed.
    """
    pair = sv.load_pair()
    entries = []
    with attending([pair.target]):
        for b, k, extra in product(batch_sizes, num_draft_tokens, (1, 2, 4)):
            cached = CachedModel(pair.target, b, LENGTH + k + extra + 2, pair.vocabulary_size)
            cached.packs = "always"
            ragged = feed(spread(b, k, extra), k + extra, pair.device)
            uniform = feed([k] * b, k, pair.device)
            ways = {
                "uniform": partial(cached.forward, replace(uniform, count=None)),
                "rectangle": partial(cached.forward, replace(ragged, count=None)),
                "packed": partial(cached.forward, ragged),
            }
            clock = time.process_time if pair.device.type == "cpu" else time.perf_counter
            seconds = interleaved(ways, repetitions, pair.device, clock)
            entry = {"batch_size": b, "num_draft_tokens": k, "extra": extra}
            entry["filling"] = 1 - b * (k + 1) / ragged.tokens.numel()
            entries.append(
                entry | {f"{name}_ms": 1e3 * median(each) for name, each in seconds.items()}
            )
    return pd.DataFrame(entries), without_model(pair.device, length=LENGTH, repetitions=repetitions)


def spread(rows: int, num_draft_tokens: int, extra: int) -> list[int]:
    """Return how many drafts each row verifies: 0 to K + extra, K * rows in all."""
    most = num_draft_tokens + extra
    lengths = [round(i * most / max(rows - 1, 1)) for i in range(rows)]
    # Rows are brought up or down, one draft each, until the sum is that of K a row.
    i = 0
    while sum(lengths) != num_draft_tokens * rows:
        step = 1 if sum(lengths) < num_draft_tokens * rows else -1
        if 0 <= lengths[i % rows] + step <= most:
            lengths[i % rows] += step
        i += 1
    return lengths


def feed(lengths: Sequence[int], width: int, device: torch.device) -> Feed:
    """Return a verification of `lengths` drafts a row, in a rectangle of `width` + 1 tokens."""
    rows = torch.arange(len(lengths), device=device)
    offset = torch.arange(width + 1, device=device)
    indices = (LENGTH + offset).expand(len(lengths), -1)
    visible = Layout(len(lengths), device).visible(rows, indices, LENGTH + width + 1)
    return Feed(
        rows=rows,
        requests=list(range(len(lengths))),
        tokens=torch.zeros_like(indices),
        indices=indices,
        positions=indices,
        slots=indices,
        visible=visible,
        valid=offset <= torch.tensor(lengths, device=device)[:, None],
        count=len(lengths) + sum(lengths),
    )


if __name__ == "__main__":
    whole = {"batch_sizes": (4, 8, 16, 32), "num_draft_tokens": (1, 3, 5), "repetitions": 9}
    small = {"batch_sizes": (4,), "num_draft_tokens": (2,), "repetitions": 1}
    command(packing, {"packing": whole}, small)
