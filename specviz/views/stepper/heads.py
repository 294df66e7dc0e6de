"""What a draft head's K/V was made from, as the step-through shows it.

Contract: reads slots of a frame and a Trace; lists out. Not known here: words, JSON.
"""

from itertools import pairwise

import numpy as np

from specviz.record.replay import GUESSES, OWN, Slots, feature_reads
from specviz.record.schema import ACCEPTED, DRAFTED, MODELS, PHASES, PROMPT, Array
from specviz.record.trace import Trace

_HEAD = MODELS.index("draft")


def guessed_slots(slots: Slots) -> list[list[list[int]]]:
    """Return by row [slot, stop, source] of neighbouring slots that hold K/V from no true feature.

    source: a code of `record.replay.SOURCES`. What no longer counts is left out.
    """
    counts = (slots.state >= PROMPT) & (slots.state <= DRAFTED)
    guessed = counts & np.isin(slots.source, GUESSES)
    source = np.where(guessed, slots.source, 0)  # (B, T)
    edges = np.diff(source, axis=1, prepend=0, append=0) != 0
    runs: list[list[list[int]]] = []
    for row, edge in enumerate(edges):
        bounds = np.flatnonzero(edge).tolist()
        found = [[slot, stop, int(source[row, slot])] for slot, stop in pairwise(bounds)]
        runs.append([run for run in found if run[2]])
    return runs


def accepted_read(trace: Trace) -> Array:
    """Return how many accepted drafts a head read with true features, by entry of `rows`, (N,).

    Each counts in the round whose phase draft is the first to read it so.
    """
    reads = feature_reads(trace)
    feeds = trace.feeds
    texts = trace.index.committed
    fed = np.flatnonzero((feeds["model"] == _HEAD) & (reads.token >= 0) & (reads.source != OWN))
    # A row that finishes in a round may have read drafts of it that EOS or the budget cut off.
    fed = fed[feeds["index"][fed] < texts.size[feeds["request"][fed]]]
    # The record keeps the order of time, so that the first entry of a token is its first reading.
    place = texts.first[feeds["request"][fed]] + feeds["index"][fed]
    _, first = np.unique(place, return_index=True)
    fed = fed[first]
    is_draft = texts.origins[place[first]] == ACCEPTED
    in_draft = feeds["phase"][fed] == PHASES.index("draft")
    entries = trace.index.feed_rows[fed]
    counted = entries[is_draft & in_draft & (entries >= 0)]
    return np.bincount(counted, minlength=trace.rows["row"].size)
