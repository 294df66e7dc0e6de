"""What the run map shows of a record: what each row gained in each round, and what happened to it.

Contract: reads a Trace; whole tables go in, lists that become JSON come out. Not known here: time,
words, what is drawn.
"""

import numpy as np

from specviz.checks.violations import Violations
from specviz.record.schema import MODELS, Array, missing_in
from specviz.record.trace import Trace
from specviz.views.stepper.entries import split_by

# What may have happened to a row in a round; the place of each is its bit. "refill": it came into a
# row that another request had left. "stopped": it ended before EOS or its budget. "moved": its K/V
# was copied inside the caches.
SIGNS = ("refill", "eos", "budget", "stopped", "moved", "violation")
_BITS = {name: 1 << place for place, name in enumerate(SIGNS)}
_STOPPED = ("not_finite", "interrupted", "stop")


def map_entries(trace: Trace, violations: Violations) -> list[list[list[int]]]:
    """Return [accepted, own, thrown away, signs] of each row, by round.

    accepted: drafts that the row kept, so none behind the end of its text. own: tokens that it
    gained behind them. thrown away: all other drafts of the row, verified or not. signs: the sum of
    the bits of SIGNS.
    """
    rows = trace.rows
    kept = np.minimum(rows["accepted"], rows["gained"])
    own = rows["gained"] - kept
    columns = (kept, own, rows["drafted"] - kept, _signs(trace, violations))
    entries = np.stack([each.astype(np.int64) for each in columns], axis=1).tolist()
    return split_by(rows["round"], entries, trace.num_rounds)


def copied_bytes(trace: Trace) -> list[int | None]:
    """Return the bytes of K/V that each round copied inside the caches.

    None where a log does not say it.
    """
    if {"moves", "kv_bytes"} & missing_in(trace.meta):
        return [None] * trace.num_rounds
    sizes = np.array([trace.meta["kv_bytes_per_slot"][model] for model in MODELS], np.int64)
    totals = np.zeros(trace.num_rounds, np.int64)
    copied = trace.moves["length"] * sizes[trace.moves["model"]]
    np.add.at(totals, trace.moves["round"], copied)
    return list(totals.tolist())


def waits(trace: Trace) -> list[list[int]]:
    """Return [request, first round, stop] of each span of rounds in which a request waits.

    A request waits before it enters the batch, and while a pool passes it over. One of another lane
    does not.
    """
    found = []
    status = trace.meta.get("status", [])
    for request, entries in enumerate(_by_request(trace)):
        present = trace.rows["round"][entries]
        before = np.concatenate(([-1], present))
        after = present
        if not present.size and status[request : request + 1] != ["elsewhere"]:
            after = np.array([trace.num_rounds])
        for left, entered in zip(before.tolist(), after.tolist(), strict=False):
            if entered - left > 1:
                found.append([request, left + 1, entered])
    return found


def _signs(trace: Trace, violations: Violations) -> Array:
    signs = np.zeros(trace.rows["row"].size, np.int64)
    index = trace.index
    moves = trace.moves
    signs[_known(index.find_rows(moves["round"], moves["to_row"]))] |= _BITS["moved"]
    rounds = np.array([each.round for each in violations], np.int64)
    requests = np.array([each.request for each in violations], np.int64)
    signs[_known(index.find_requests(rounds, requests))] |= _BITS["violation"]
    for request, entries in enumerate(_by_request(trace)):
        if not entries.size:
            continue
        if trace.rows["round"][entries[0]] > 0:
            signs[entries[0]] |= _BITS["refill"]
        end = _end(trace, request)
        working = entries[trace.rows["gained"][entries] > 0]
        if end is not None and working.size:
            signs[working[-1]] |= _BITS[end]
    return signs


def _end(trace: Trace, request: int) -> str | None:
    """Return how a request ended, as one of SIGNS; None where it did not end in this record."""
    output = trace.output(request)
    status = trace.meta.get("status")
    if status:
        ended = status[request]
        return "stopped" if ended in _STOPPED else {"elsewhere": None}.get(ended, ended)
    if output and output[-1] in trace.meta["eos_token_ids"]:
        return "eos"
    return "budget" if len(output) >= int(trace.requests["budget"][request]) else "stopped"


def _by_request(trace: Trace) -> list[Array]:
    """Return the entries of the table `rows` of each request, in order of rounds."""
    requests = trace.rows["request"]
    order = np.argsort(requests, kind="stable")
    edges = np.searchsorted(requests[order], np.arange(1, trace.num_requests))
    return np.split(order, edges) if trace.num_requests else []


def _known(entries: Array) -> Array:
    return entries[entries >= 0]
