"""The tables of a record as lists that become JSON: rows with what was said of them, what forwards read, what was moved, the pool.

Contract: whole tables go in, lists by round or by stage (round * 5 + phase) come out; rows of the cache become rows of the batch. Not known
here: what the slots hold.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from specviz.record.schema import PHASES, Array, Table
from specviz.record.trace import Trace

Json = dict[str, Any]
_DIGITS = 4  # of a probability
_TENS = np.array(
    [float(f"1e{power}") for power in range(23)]
)  # exact, so that dividing by them gives the nearest double


def _split(keys: Array, entries: list[Any], count: int) -> list[list[Any]]:
    """A list of entries for each key from 0 to count - 1; keys (n,) are sorted."""
    edges = np.searchsorted(keys, np.arange(count + 1)).tolist()
    return [entries[first:stop] for first, stop in pairwise(edges)]


def row_entries(trace: Trace) -> list[list[Json]]:
    """The table `rows`, by round."""
    rows = trace.rows
    names = [name for name, values in rows.items() if values.ndim == 1 and name != "round"]
    scalars = zip(*(rows[name].tolist() for name in names), strict=True)
    said = zip(
        rows["drafts"].tolist(), rows["emitted"].tolist(), probabilities(rows["draft_logprob"]), probabilities(rows["target_logprob"]),
        _leading(rows, "target"), _leading(rows, "draft"), strict=True,
    )  # fmt: skip
    found = []
    for values, (drafts, emitted, q, p, target, draft) in zip(scalars, said, strict=True):
        entry: Json = dict(zip(names, values, strict=True))
        k, gained = entry["drafted"], entry["gained"]
        found.append(
            entry | {"drafts": drafts[:k], "emitted": emitted[:gained], "q": q[:k], "p": p[:k]}
        )
        found[-1] |= {"target": target[: k + 1], "draft": draft[:k]}
    return _split(rows["round"], found, trace.num_rounds)


def _leading(rows: Table, model: str) -> list[list[list[list[Any]]]]:
    """The leading choices [token, p] in each column of each entry; an id below 0 stands for none."""
    ids = rows[f"{model}_top_ids"]
    entries, columns, kept = ids.shape
    pairs = list(
        map(
            list,
            zip(
                ids.ravel().tolist(),
                probabilities(rows[f"{model}_top_logprobs"].ravel()),
                strict=True,
            ),
        )
    )
    if (ids < 0).any():
        return [
            [
                [pair for pair in _part(pairs, n * columns + c, kept) if pair[0] >= 0]
                for c in range(columns)
            ]
            for n in range(entries)
        ]
    return [[_part(pairs, n * columns + c, kept) for c in range(columns)] for n in range(entries)]


def _part(values: list[Any], number: int, size: int) -> list[Any]:
    return values[number * size : number * size + size]


def probabilities(logprobs: Array) -> list[Any]:
    """Nested lists with four digits of each, None where nothing is known."""
    p = np.minimum(np.exp(logprobs.astype(np.float64)), 1)
    known = ~np.isnan(p)
    size = np.floor(np.log10(p, out=np.zeros_like(p), where=known & (p > 0)))
    tens = _TENS[np.clip(_DIGITS - 1 - size, 0, len(_TENS) - 1).astype(int)]
    rounded = np.round(p * tens) / tens
    if not known.all():
        rounded = rounded.astype(object)
        rounded[~known] = None
    return list(rounded.tolist())


def pool_entries(trace: Trace) -> list[list[Json]]:
    """The table `pool`, by round."""
    names = ("request", "row", "length", "waited", "chosen")
    groups = trace.index.pool_by_round
    columns = zip(*(trace.pool[name][groups.order].tolist() for name in names), strict=True)
    return _split(
        groups.keys,
        [dict(zip(names, values, strict=True)) for values in columns],
        trace.num_rounds,
    )


def move_entries(trace: Trace) -> list[list[list[int]]]:
    """[model, step, from row, from slot, to row, to slot, length] of what was copied, by stage."""
    timeline = trace.index.moves_by_stage
    moves = {name: values[timeline.order] for name, values in trace.moves.items()}
    for name in ("from_row", "to_row"):
        at = trace.index.find_rows(moves["round"], moves[name])
        moves[name] = _in_batch(trace, at, moves["round"], moves[name])
    names = ("model", "step", "from_row", "from_slot", "to_row", "to_slot", "length")
    entries = np.stack([moves[name] for name in names], axis=1).tolist()
    return _split(timeline.keys, entries, trace.num_rounds * len(PHASES))


def feed_runs(trace: Trace) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """[model, step, row, slot, count, index, position, see, until, holes] of what forwards read, in runs, by stage; and the lists of holes,
    [start, stop] each, that `holes` is a number in: the first one is empty.
    """
    timeline = trace.index.feeds_by_stage
    feeds = {name: values[timeline.order] for name, values in trace.feeds.items()}
    size, holes = timeline.order.size, _Holes(trace)
    same = ("round", "phase", "model", "step", "row", "request", "visible_start")
    breaks = np.zeros(size, bool)
    breaks[:1] = True
    for name in same:
        breaks[1:] |= feeds[name][1:] != feeds[name][:-1]
    for name in ("slot", "index", "position", "visible_stop"):
        breaks[1:] |= feeds[name][1:] - feeds[name][:-1] != 1
    breaks[1:] |= holes.differ(timeline.order[1:], timeline.order[:-1])
    firsts = np.flatnonzero(breaks)
    # A pool's rows trade places after their prefill, so a feed is looked up by its request.
    at = trace.index.find_requests(feeds["round"], feeds["request"])
    feeds["row"] = _in_batch(trace, at, feeds["round"], feeds["row"])
    feeds["count"] = np.zeros(size, np.int64)
    feeds["count"][firsts] = np.diff(firsts, append=size)
    names = (
        "model",
        "step",
        "row",
        "slot",
        "count",
        "index",
        "position",
        "visible_start",
        "visible_stop",
    )
    numbers, lists = holes.listed(timeline.order[firsts])
    entries = np.column_stack(
        [*(feeds[name][firsts] for name in names), np.array(numbers, np.int64)]
    ).tolist()
    return _split(timeline.keys[firsts], entries, trace.num_rounds * len(PHASES)), lists


class _Holes:
    """The table `holes` by feed."""

    def __init__(self, trace: Trace) -> None:
        self._groups = trace.index.holes_by_feed
        order = self._groups.order
        start, stop = trace.holes["start"][order], trace.holes["stop"][order]
        self._ranges = np.stack([start, stop], axis=1)

    def listed(self, feeds: Array) -> tuple[list[int], list[list[list[int]]]]:
        """For each of `feeds` (n,) the number of what was hidden from it, and what these numbers mean: [start, stop] of each hole."""
        first, stop = self._groups.bounds(feeds)
        ranges, raw, size = self._ranges.tolist(), self._ranges.tobytes(), self._ranges.itemsize * 2
        known: dict[bytes, int] = {}
        numbers, lists = [0] * feeds.size, [list[list[int]]()]
        for n in np.flatnonzero(stop > first).tolist():
            a, b = int(first[n]), int(stop[n])
            numbers[n] = known.setdefault(raw[size * a : size * b], len(lists))
            if numbers[n] == len(lists):
                lists.append(ranges[a:b])
        return numbers, lists

    def differ(self, feeds: Array, others: Array) -> Array:
        """Whether the holes of `feeds` (n,) are other ones than those of `others` (n,)."""
        (first, stop), (other, end) = self._groups.bounds(feeds), self._groups.bounds(others)
        differ: Array = stop - first != end - other
        for k in range(int((stop - first)[~differ].max(initial=0))):
            these = np.flatnonzero(~differ & (first + k < stop))
            differ[these] = (self._ranges[first[these] + k] != self._ranges[other[these] + k]).any(
                1
            )
        return differ


def _in_batch(trace: Trace, entries: Array, rounds: Array, otherwise: Array) -> Array:
    """Return the number in its round's batch of each entry (n,) of `rows`, -1 - otherwise for -1."""
    first = trace.index.row_bounds[rounds]
    return np.where(entries >= 0, entries - first, -1 - otherwise)
