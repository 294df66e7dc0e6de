"""Which drafts are worth verifying: `specviz study selection`.

It replays an acceptance table: K drafts in every row, against the K * B drafts of a batch with the
best chances (TETRIS, arXiv 2502.15197). Both verify equally many tokens.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from specviz.record.schema import Array
from specviz.simulation.policy import Policy, Tetris
from specviz.simulation.serving import simulate
from specviz.simulation.tables import MAX_DEPTH, UNIT, AcceptanceTable
from specviz.util.validate import require_bool, require_int, require_ints, require_kind

# Requests for each row of a batch, so that most rounds have a full batch.
QUEUE = 8
# Percentiles of the interval over prompts.
INTERVAL = (2.5, 97.5)
MAX_ROWS = 4096
MAX_SAMPLES = 10_000
MAX_WAIT = 2**16 - 1  # rounds, as in the engine


def compare_selectors(
    table: AcceptanceTable,
    batch_sizes: Sequence[int] = (1, 8, 32, 64),
    num_draft_tokens: Sequence[int] = (1, 2, 3, 4, 5, 6),
    extras: Sequence[int] = (1, 2, 3, 4, 5),
    max_waits: Sequence[int] | None = None,
    *,
    samples: int = 100,
    seed: int = 0,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Compare uniform K with TETRIS at equal verified tokens, on bootstrap samples of the texts.

    In each sample, the texts are drawn with replacement, and both policies serve the same queue of
    them, eight requests for each row of the batch.

    Args:
        table: combinations that draft more tokens than it is deep are left out.
        batch_sizes, num_draft_tokens, extras: B, K, and the drafts a row that TETRIS makes beyond
            K.
        max_waits: TETRIS is also measured with each of these `max_wait`; None: only without one.
        samples: bootstrap samples.
        seed: of all that is drawn.

    Returns:
        (table, conditions). There is one entry for each B, K, extra and max_wait (NA for none):
        tokens_per_round and success_rate (a row's tokens in a round, and the share of verified
        drafts that it keeps, over rounds with a full batch) of uniform K and of TETRIS;
        gain_percent in tokens a round, with its interval over prompts (gain_low, gain_high);
        p99_rounds_per_token of both, over requests; static_rounds_percent, by how much TETRIS
        lengthens one batch that no request joins.

    Raises:
        ValueError: an argument is out of range, or the table is too shallow for every combination.
    """
    require_kind("table", table, AcceptanceTable, "load one with AcceptanceTable.load")
    require_ints("batch_sizes", batch_sizes, maximum=MAX_ROWS)
    require_ints("num_draft_tokens", num_draft_tokens, maximum=MAX_DEPTH)
    require_ints("extras", extras, maximum=MAX_DEPTH)
    if max_waits is not None:
        require_ints("max_waits", max_waits, maximum=MAX_WAIT)
    require_int("samples", samples, maximum=MAX_SAMPLES)
    require_int("seed", seed, 0)
    require_bool("progress", progress)
    combinations = _combinations(table, batch_sizes, num_draft_tokens, extras)
    entries = []
    for batch_size, k, fitting in tqdm(combinations, unit="K", disable=not progress):
        texts = _bootstrap(table, samples, QUEUE * batch_size, seed)
        uniform = Policy("inplace", batch_size, k)
        plain = _Outcome.of(table, texts, uniform)
        for extra, max_wait in itertools.product(fitting, [None, *(max_waits or ())]):
            selector = Tetris(extra, max_wait=max_wait)
            other = _Outcome.of(table, texts, replace(uniform, selector=selector))
            entry = {
                "batch_size": batch_size,
                "num_draft_tokens": k,
                "extra": extra,
                "max_wait": max_wait,
            }
            entries.append(entry | _entry(plain, other))
    conditions = {**table.meta, "samples": samples, "seed": seed}
    return pd.DataFrame(entries).astype({"max_wait": "Int64"}), conditions


def _combinations(
    table: AcceptanceTable,
    batch_sizes: Sequence[int],
    num_draft_tokens: Sequence[int],
    extras: Sequence[int],
) -> list[tuple[int, int, list[int]]]:
    """Return B, K and those extras with which K is not more than the table's depth."""
    combinations = []
    for k in num_draft_tokens:
        fitting = [extra for extra in extras if k + extra <= table.depth]
        if fitting:
            combinations += [(batch_size, k, fitting) for batch_size in batch_sizes]
    if not combinations:
        raise ValueError(
            f"table must be deeper than K, got depth {table.depth}; "
            "make a deeper one with `specviz study tables --depth`"
        )
    return combinations


def _bootstrap(table: AcceptanceTable, samples: int, requests: int, seed: int) -> Array:
    """Return the texts of each sample's queue (samples, requests)."""
    generator = np.random.default_rng(seed)
    count = len(table.prompt_tokens)
    drawn = generator.integers(0, count, (samples, count))
    places = generator.integers(0, count, (samples, requests))
    queues: Array = np.take_along_axis(drawn, places, axis=1)
    return queues


@dataclass(frozen=True)
class _Outcome:
    """What one policy reached, each attribute (samples,)."""

    tokens_per_round: Array
    success_rate: Array
    p99_rounds_per_token: Array
    static_rounds: Array

    @classmethod
    def of(cls, table: AcceptanceTable, texts: Array, policy: Policy) -> "_Outcome":
        found = simulate(table.writing(texts), policy, UNIT)
        full = found.rounds[found.rounds["rows"] == policy.batch_size]
        sums = full.groupby("lane")[["rows", "gained_tokens", "verified_tokens"]].sum()
        kept = sums["gained_tokens"] - sums["rows"]  # all but the target's own tokens
        pace = found.own_rounds / found.workload.new_tokens
        one_batch = table.writing(texts[:, : policy.batch_size])
        static = simulate(one_batch, replace(policy, refill=False), UNIT)
        return cls(
            tokens_per_round=(sums["gained_tokens"] / sums["rows"]).to_numpy(),
            success_rate=(kept / sums["verified_tokens"]).to_numpy(),
            p99_rounds_per_token=np.percentile(pace, 99, axis=1),
            static_rounds=static.finished_s.max(1),
        )


def _entry(uniform: _Outcome, tetris: _Outcome) -> dict[str, object]:
    gain = 100 * (tetris.tokens_per_round / uniform.tokens_per_round - 1)
    low, high = np.percentile(gain, INTERVAL)
    longer = tetris.static_rounds.mean() / uniform.static_rounds.mean() - 1
    return {
        "tokens_per_round": uniform.tokens_per_round.mean(),
        "tetris_tokens_per_round": tetris.tokens_per_round.mean(),
        "gain_percent": gain.mean(),
        "gain_low": low,
        "gain_high": high,
        "success_rate": uniform.success_rate.mean(),
        "tetris_success_rate": tetris.success_rate.mean(),
        "p99_rounds_per_token": uniform.p99_rounds_per_token.mean(),
        "tetris_p99_rounds_per_token": tetris.p99_rounds_per_token.mean(),
        "static_rounds_percent": 100 * longer,
    }
