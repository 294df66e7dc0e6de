"""Acceptance tables from a server's own statistics, to replay schedulers on its traffic.

A table needs to know what is accepted at every position of a text, and a log knows it where rounds
began. The rest follows if a draft depends on the tokens before it alone, as that of a greedy draft
model does: after two accepted drafts, the same drafter would propose what was left of the old
drafts. A round whose drafts were all accepted says nothing of what would have come next. There the
truth lies between two tables: nothing more is accepted, or as much as what follows permits.

Not known here: models, costs, and what reads a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.record.schema import Array
from specviz.servers.log import ServedRequest, ServerLog
from specviz.simulation.acceptance import Acceptance
from specviz.simulation.tables import MAX_DEPTH, AcceptanceTable
from specviz.util.validate import require_int, require_kind

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
    require_kind("log", log, ServerLog, "read one with read_log")
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
    require_kind("log", log, ServerLog, "read one with read_log")
    K = max(request.num_draft_tokens for request in log.requests)
    if num_draft_tokens is not None:
        K = min(require_int("num_draft_tokens", num_draft_tokens, maximum=MAX_DEPTH), K)
    counts = np.zeros((len(log.requests), K + 1))
    for kind, request in enumerate(log.requests):
        for accepted, rounds in enumerate(request.histogram):
            counts[kind, min(accepted, K)] += rounds
    return Acceptance(counts / counts.sum(1, keepdims=True))


def missing_drafts(log: ServerLog) -> float:
    """Return the share of drafts that rounds did not make, of K a round."""
    require_kind("log", log, ServerLog, "read one with read_log")
    most = sum(request.rounds * request.num_draft_tokens for request in log.requests)
    return 1 - sum(request.drafted_tokens for request in log.requests) / most


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
