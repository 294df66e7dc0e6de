"""`specviz study packing`: what a verification costs as a rectangle and packed."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import torch

from specviz.bench.clock import synchronize
from specviz.engine.kv.attention import attending
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layout import Layout
from specviz.engine.models.pair import Pair
from specviz.engine.probe import can_pack
from specviz.engine.run import check_pair
from specviz.studies.machine import device_conditions
from specviz.util.validate import require_int, require_ints

MAX_SIZE = 4096
FORMS = ("uniform", "rectangle", "packed")


@torch.inference_mode()
def measure_packing(
    pair: Pair,
    batch_sizes: Sequence[int] = (4, 8, 16, 32),
    num_draft_tokens: Sequence[int] = (1, 3, 5),
    extras: Sequence[int] = (1, 2, 4),
    *,
    length: int = 160,
    repetitions: int = 15,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Verify K * B drafts in three forms: K a row, or spread over rows of 0 to K + extra drafts.

    Args:
        length: tokens that each row has before the pending one.

    Returns:
        (table, conditions). One entry per B, K and extra: `filling`, the share of the ragged
        rectangle that is none of the tokens to verify; and the ms of a target forward, medians over
        interleaved repetitions: `uniform_ms` with K drafts a row, `rectangle_ms` and `packed_ms`
        with spread drafts. On a CPU they are the time that the process computed.

    Raises:
        ValueError: an argument cannot be used, or the target cannot be packed.
    """
    check_pair(pair)
    sizes = {"batch_sizes": batch_sizes, "num_draft_tokens": num_draft_tokens, "extras": extras}
    for name, values in sizes.items():
        require_ints(name, values, maximum=MAX_SIZE)
    require_int("length", length, maximum=2**20)
    require_int("repetitions", repetitions, maximum=MAX_SIZE)
    if not can_pack(pair.target):
        raise ValueError(
            f"pair.target={type(pair.target).__name__} cannot be packed; use a model that supports "
            "attention backends, with sdpa"
        )
    entries = []
    with attending([pair.target]):
        for b in batch_sizes:
            for k in num_draft_tokens:
                for extra in extras:
                    entry = {"batch_size": b, "num_draft_tokens": k, "extra": extra}
                    entries.append(entry | _measure(pair, b, k, extra, length, repetitions))
    given: dict[str, object] = {"length": length, "repetitions": repetitions}
    return pd.DataFrame(entries), device_conditions(pair.device, **given)


def spread(rows: int, num_draft_tokens: int, extra: int) -> list[int]:
    """Return how many drafts each row verifies: 0 to K + extra, K * rows in all."""
    most = num_draft_tokens + extra
    lengths = [round(i * most / max(rows - 1, 1)) for i in range(rows)]
    # Rows are brought up or down, one draft each, until the sum is that of K a row.
    wanted = num_draft_tokens * rows
    i = 0
    while sum(lengths) != wanted:
        step = 1 if sum(lengths) < wanted else -1
        if 0 <= lengths[i % rows] + step <= most:
            lengths[i % rows] += step
        i += 1
    return lengths


def _measure(
    pair: Pair, rows: int, k: int, extra: int, length: int, repetitions: int
) -> dict[str, float]:
    cached = CachedModel(pair.target, rows, length + k + extra + 2, pair.vocabulary_size)
    ragged = _feed(pair, spread(rows, k, extra), k + extra, length)
    feeds = {
        "uniform": replace(_feed(pair, [k] * rows, k, length), count=None),
        "rectangle": replace(ragged, count=None),
        "packed": ragged,
    }
    cached.packs = "always"
    seconds: dict[str, list[float]] = {name: [] for name in FORMS}
    for repetition in range(repetitions + 1):
        for name in FORMS:
            took = _time(cached, feeds[name])
            if repetition > 0:  # the first one warms up
                seconds[name].append(took)
    found = {"filling": 1 - rows * (k + 1) / ragged.tokens.numel()}
    return found | {f"{name}_ms": 1e3 * statistics.median(took) for name, took in seconds.items()}


def _feed(pair: Pair, lengths: Sequence[int], width: int, length: int) -> Feed:
    """Return a verification of `lengths` drafts a row, in a rectangle of `width` + 1 tokens."""
    device = pair.device
    rows = torch.arange(len(lengths), device=device)
    offset = torch.arange(width + 1, device=device)
    indices = (length + offset).expand(len(lengths), -1)
    layout = Layout(len(lengths), device)
    valid = offset <= torch.tensor(lengths, device=device)[:, None]
    return Feed(
        rows=rows,
        requests=list(range(len(lengths))),
        tokens=torch.zeros_like(indices),
        indices=indices,
        positions=indices,
        slots=indices,
        visible=layout.visible(rows, indices, length + width + 1),
        valid=valid,
        count=len(lengths) + sum(lengths),
    )


def _time(cached: CachedModel, feed: Feed) -> float:
    clock = time.process_time if feed.tokens.device.type == "cpu" else time.perf_counter
    synchronize(feed.tokens.device)
    begin = clock()
    cached.forward(feed)
    synchronize(feed.tokens.device)
    return clock() - begin
