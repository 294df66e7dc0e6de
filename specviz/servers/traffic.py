"""A server's own statistics as acceptance tables, and other policies on its requests.

A table needs to know what is accepted at every position of a text, and a log knows it where rounds
began. The rest follows if a draft depends on the tokens before it alone, as that of a greedy draft
model does: after two accepted drafts, the same drafter would propose what was left of the old
drafts. A round whose drafts were all accepted says nothing of what would have come next. There the
truth lies between two tables: nothing more is accepted, or as much as what follows permits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import pandas as pd

from specviz.costs.rounds import RoundCosts
from specviz.record.schema import Array
from specviz.servers.log import ServedRequest, ServerLog
from specviz.simulation.comparisons import compare
from specviz.simulation.policy import Policy
from specviz.simulation.tables import UNIT, AcceptanceTable
from specviz.simulation.workload import Acceptance, Workload

UNKNOWN_PROMPT_TOKENS = 1  # where a log does not say


@dataclass(frozen=True)
class Bounds:
    """What a log says of every position.

    Attributes:
        low, high: tables in which nothing, or everything possible, is accepted where the log does
            not know. They hold no drafts and no q.
        known: share of the positions that the log knows.
        left_out: requests without the order of their rounds, or with rounds that are not logged.
    """

    low: AcceptanceTable
    high: AcceptanceTable
    known: float
    left_out: int


def acceptance_tables(log: ServerLog) -> Bounds:
    """Return the tables between which the acceptance of a log's texts lies.

    A text begins behind its first token, which comes from the prompt's own forward and counts to
    the prompt.

    Raises:
        ValueError: no request has its rounds in order.
    """
    usable = [request for request in log.requests if _is_whole(request)]
    if not usable:
        raise ValueError(
            f"log must hold the rounds of a request in order, got {len(log.requests)} without; "
            "start vLLM with --per-request-spec-decode-metrics detailed"
        )
    depth = max(request.num_draft_tokens for request in usable)
    texts = [_bounds(request, depth) for request in usable]
    low = np.concatenate([low for low, _, _ in texts])
    high = np.concatenate([high for _, high, _ in texts])
    lengths = [len(low) for low, _, _ in texts]
    return Bounds(
        low=_table(usable, lengths, low, depth),
        high=_table(usable, lengths, high, depth),
        known=float(np.concatenate([known for _, _, known in texts]).mean()),
        left_out=len(log.requests) - len(usable),
    )


def measured_acceptance(log: ServerLog, num_draft_tokens: int | None = None) -> Acceptance:
    """Return how often each request accepted 0..K drafts a round; each request is a kind.

    That is all that a log without order knows. Drafts that a round did not make count as rejected.

    Args:
        num_draft_tokens: K; None: the largest of the log.
    """
    K = log.num_draft_tokens
    if num_draft_tokens is not None:
        K = min(num_draft_tokens, K)
    counts = np.zeros((len(log.requests), K + 1))
    for kind, request in enumerate(log.requests):
        for accepted, rounds in enumerate(request.histogram):
            counts[kind, min(accepted, K)] += rounds
    return Acceptance(counts / counts.sum(1, keepdims=True))


def replay_traffic(
    log: ServerLog, policies: Sequence[Policy], costs: RoundCosts | None = None, *, seed: int = 0
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Replay a log's requests, all at once, under each policy.

    Args:
        log: of `read_log`.
        policies: one with a K beyond the log's own is left out.
        costs: of a device and a pair, for times; None: only rounds are counted.
        seed: of what is drawn where the log has no order of rounds.

    Returns:
        (table, conditions). There is one entry for each policy: policy, batch_size,
        num_draft_tokens; tokens_per_round, of a row, and rounds, of the batch; with `costs` also
        tokens_per_s, and speedup over no speculation at the same B. Each has a low and a high end,
        between which the truth lies.

    Raises:
        ValueError: every K is beyond the log's.
    """
    possible = [policy for policy in policies if policy.drafted <= log.num_draft_tokens]
    if not any(policy.drafted for policy in possible):
        raise ValueError(
            "num_draft_tokens must have a K that the log drafted, at most"
            f" {log.num_draft_tokens}; pass a smaller one"
        )
    conditions: dict[str, object] = {"requests": len(log.requests), "lines_without": log.without}
    if any(request.accepted is not None for request in log.requests):
        bounds = acceptance_tables(log)
        conditions |= {"left_out": bounds.left_out, "known_positions": round(bounds.known, 4)}
        work = [bounds.low.workload(), bounds.high.workload()]
    else:
        work = [_drawn(log, seed)]
    ends = [compare(each, possible, costs or UNIT) for each in work]
    table = pd.DataFrame(
        {
            "policy": [policy.name for policy in possible],
            "batch_size": [policy.batch_size for policy in possible],
            "num_draft_tokens": [policy.drafted for policy in possible],
        }
    )
    columns = ["tokens_per_round", "rounds", *([] if costs is None else ["tokens_per_s"])]
    for name in columns:
        found = pd.concat([end[name] for end in ends], axis=1)
        table[f"{name}_low"] = found.min(axis=1)
        table[f"{name}_high"] = found.max(axis=1)
    plain = table[table["num_draft_tokens"] == 0].drop_duplicates("batch_size")
    if costs is not None and len(plain):
        # Without speculation both ends are equal.
        base = table["batch_size"].map(plain.set_index("batch_size")["tokens_per_s_low"])
        table["speedup_low"] = table["tokens_per_s_low"] / base
        table["speedup_high"] = table["tokens_per_s_high"] / base
    conditions["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    conditions["versions"] = {name: version(name) for name in ("specviz", "numpy")}
    return table, conditions


def _drawn(log: ServerLog, seed: int) -> Workload:
    """Return requests whose rounds are drawn from their histograms."""
    outputs = []
    for request in log.requests:
        gained = sum(count * (n + 1) for n, count in enumerate(request.histogram))
        outputs.append(max(1, gained if request.new_tokens is None else request.new_tokens - 1))
    prompts = [request.prompt_tokens or UNKNOWN_PROMPT_TOKENS for request in log.requests]
    return Workload.given(prompts, outputs, measured_acceptance(log), seed=seed)


def unanswered(log: ServerLog, deepest: int) -> list[str]:
    """Return what a log of this kind cannot say, as sentences. `deepest` is the largest K asked."""
    found = [
        "TETRIS and other selectors by q: the log has no q.",
        "When requests arrived, and which shared a batch: all are served at once.",
        "Sampled texts: with a temperature, whether a draft is accepted is random.",
        "K other than the server's, where a fresh draft does not continue an old one, as with "
        "EAGLE and MTP: there it is an estimate.",
    ]
    if deepest > log.num_draft_tokens:
        found.append(f"K above {log.num_draft_tokens}: so many drafts were never made.")
    if any(request.accepted is not None for request in log.requests):
        found.append("What a round would have accepted beyond its own drafts: hence low and high.")
    else:
        found.append("The order of rounds: each round is drawn from its request's histogram.")
    most = sum(request.rounds * request.num_draft_tokens for request in log.requests)
    missing = 1 - sum(request.drafted_tokens for request in log.requests) / most
    if missing > 0:
        found.append(
            f"{missing:.1%} of the drafts that K allows were not made; a histogram "
            "cannot tell them from rejected ones."
        )
    if any(request.prompt_tokens is None for request in log.requests):
        found.append("Times, where requests do not say how long their prompts were.")
    return found


def _is_whole(request: ServedRequest) -> bool:
    """Return whether the rounds of a request are known in order and make up its whole text.

    A server that finds no draft decodes a token without a round. The log does not say where.
    """
    if request.accepted is None:
        return False
    gained = np.array(request.accepted) + 1
    if request.new_tokens is None:
        return True
    tokens = request.new_tokens - 1
    # The last round may be cut by the budget or by the end of the text.
    return bool(gained[:-1].sum() < tokens <= gained.sum())


def _bounds(request: ServedRequest, depth: int) -> tuple[Array, Array, Array]:
    """Return low, high and known of each position of a text, (T,) each."""
    assert request.accepted is not None
    assert request.drafted is not None
    gained = np.array(request.accepted) + 1
    tokens = int(gained.sum()) if request.new_tokens is None else request.new_tokens - 1
    low = np.zeros(tokens, np.int64)
    known = np.zeros(tokens, bool)
    begin = 0
    for accepted, drafted in zip(request.accepted, request.drafted, strict=True):
        # Position begin + j has the drafts from the j-th on. The last one is that of the bonus.
        behind = np.arange(accepted, -1, -1)[: tokens - begin]
        places = slice(begin, begin + len(behind))
        low[places] = behind
        known[places] = accepted < drafted
        begin += accepted + 1
    left = tokens - np.arange(tokens)
    low = np.minimum(low, left)
    known |= low == np.minimum(left, depth)  # there cannot be more
    return low, _highest(low, known, left, depth), known


def _highest(low: Array, known: Array, left: Array, depth: int) -> Array:
    """Return the most that may be accepted at each position (T,).

    Where nothing is known, at most one more than at the next position: a draft that is accepted
    leaves the drafts behind it to the next position.
    """
    high = low.copy()
    following = depth
    for place in range(len(low) - 1, -1, -1):
        if not known[place]:
            high[place] = min(depth, int(left[place]), following + 1)
        following = int(high[place])
    return high


def _table(
    requests: Sequence[ServedRequest], lengths: Sequence[int], accepted: Array, depth: int
) -> AcceptanceTable:
    positions = len(accepted)
    unknown = np.full((positions, depth), np.nan, np.float32)
    prompts = [request.prompt_tokens for request in requests]
    known = [UNKNOWN_PROMPT_TOKENS if each is None else each + 1 for each in prompts]
    return AcceptanceTable(
        prompt_tokens=np.array(known, np.int32),
        offsets=np.cumsum([0, *lengths]).astype(np.int64),
        drafts=np.full((positions, depth), -1, np.int32),
        log_q=unknown,
        entropy=unknown,
        accepted=accepted.astype(np.int8),
        meta={"source": "statistics of a server", "requests": len(requests), "depth": depth},
    )
