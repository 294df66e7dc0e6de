"""The tables of a record as lists that become JSON: rows with what was said of them, what forwards read, what was moved, the pool.

Contract: whole tables go in, lists by round or by stage (round * 5 + phase) come out; rows of the cache become rows of the batch. Not known
here: what the slots hold.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from specviz.record.replay import Timeline
from specviz.record.schema import PHASES, Array, Table
from specviz.record.trace import Trace
from specviz.views.stepper.columns import entries_of

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
    names, order = (
        ("request", "row", "length", "waited", "chosen"),
        np.argsort(trace.pool["round"], kind="stable"),
    )
    columns = zip(*(trace.pool[name][order].tolist() for name in names), strict=True)
    return _split(
        trace.pool["round"][order],
        [dict(zip(names, values, strict=True)) for values in columns],
        trace.num_rounds,
    )


def move_entries(trace: Trace) -> list[list[list[int]]]:
    """[model, step, from row, from slot, to row, to slot, length] of what was copied, by stage."""
    timeline = Timeline(trace.moves)
    moves = {name: values[timeline.order] for name, values in trace.moves.items()}
    moves |= {
        name: _in_batch(trace, moves["round"], moves[name]) for name in ("from_row", "to_row")
    }
    names = ("model", "step", "from_row", "from_slot", "to_row", "to_slot", "length")
    entries = np.stack([moves[name] for name in names], axis=1).tolist()
    return _split(timeline.stages, entries, trace.num_rounds * len(PHASES))


def feed_runs(trace: Trace) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """[model, step, row, slot, count, index, position, see, until, holes] of what forwards read, in runs, by stage; and the lists of holes,
    [start, stop] each, that `holes` is a number in: the first one is empty.
    """
    timeline = Timeline(trace.feeds)
    feeds = {name: values[timeline.order] for name, values in trace.feeds.items()}
    size, holes = timeline.order.size, _Holes(trace.holes)
    same = ("round", "phase", "model", "step", "row", "request", "visible_start")
    breaks = np.zeros(size, bool)
    breaks[:1] = True
    for name in same:
        breaks[1:] |= feeds[name][1:] != feeds[name][:-1]
    for name in ("slot", "index", "position", "visible_stop"):
        breaks[1:] |= feeds[name][1:] - feeds[name][:-1] != 1
    breaks[1:] |= holes.differ(timeline.order[1:], timeline.order[:-1])
    firsts = np.flatnonzero(breaks)
    number = _in_batch(
        trace, feeds["round"], feeds["request"], "request"
    )  # a pool's rows trade places after their prefill
    feeds["row"] = np.where(number >= 0, number, -1 - feeds["row"])
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
    return _split(timeline.stages[firsts], entries, trace.num_rounds * len(PHASES)), lists


class _Holes:
    """The table `holes` by feed."""

    def __init__(self, holes: Table) -> None:
        order = np.argsort(holes["feed"], kind="stable")
        self._feed = holes["feed"][order]
        self._ranges = np.stack([holes["start"][order], holes["stop"][order]], axis=1)

    def _edges(self, feeds: Array) -> tuple[Array, Array]:
        return np.searchsorted(self._feed, feeds, "left"), np.searchsorted(
            self._feed, feeds, "right"
        )

    def listed(self, feeds: Array) -> tuple[list[int], list[list[list[int]]]]:
        """For each of `feeds` (n,) the number of what was hidden from it, and what these numbers mean: [start, stop] of each hole."""
        first, stop = self._edges(feeds)
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
        (first, stop), (other, end) = self._edges(feeds), self._edges(others)
        differ: Array = stop - first != end - other
        for k in range(int((stop - first)[~differ].max(initial=0))):
            these = np.flatnonzero(~differ & (first + k < stop))
            differ[these] = (self._ranges[first[these] + k] != self._ranges[other[these] + k]).any(
                1
            )
        return differ


def _in_batch(trace: Trace, rounds: Array, values: Array, column: str = "row") -> Array:
    """The number in the batch of each row (n,) that has these values (n,) in a column in these rounds (n,); -1 - value where none has."""
    at = entries_of(trace, rounds, values, column)
    first = np.searchsorted(trace.rows["round"], rounds)
    return np.where(at >= 0, at - first, -1 - values)
