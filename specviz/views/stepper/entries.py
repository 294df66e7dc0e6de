"""The tables of a record as lists that become JSON.

Contract: whole tables go in, lists by round or by stage (round * 5 + phase) come out. Rows of the
cache become rows of the batch. Not known here: what the slots hold.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from specviz.checks.fates import UNREACHED, UNVERIFIED, draft_fates
from specviz.checks.violations import Violation
from specviz.record.schema import MODELS, PHASES, Array, Table
from specviz.record.trace import Trace
from specviz.record.windows import window_of, window_offsets
from specviz.views.stepper.columns import has_trees
from specviz.views.stepper.holes import Holes
from specviz.views.stepper.treefates import tree_fates

Json = dict[str, Any]
_DIGITS = 4  # of a probability
_ORIGINS = np.array(list("..pab"))  # by state: prompt, accepted draft, bonus
# Exact doubles, so that dividing by them gives the nearest double.
_TENS = np.array([float(f"1e{power}") for power in range(23)])


def split_by(keys: Array, entries: list[Any], count: int) -> list[list[Any]]:
    """Return a list of entries for each key from 0 to count - 1; keys (n,) are sorted."""
    edges = np.searchsorted(keys, np.arange(count + 1)).tolist()
    return [entries[first:stop] for first, stop in pairwise(edges)]


def row_entries(trace: Trace, *, judge: bool) -> list[list[Json]]:
    """Return the table `rows` with the fates of its drafts, by round."""
    rows = trace.rows
    names = [name for name, values in rows.items() if values.ndim == 1 and name != "round"]
    scalars = zip(*(rows[name].tolist() for name in names), strict=True)
    tokens = zip(
        rows["drafts"].tolist(),
        rows["emitted"].tolist(),
        probabilities(rows["draft_logprob"]),
        probabilities(rows["target_logprob"]),
        _leading(rows, "target"),
        _leading(rows, "draft"),
        card_fates(trace, judge=judge).tolist(),
        _scores(trace),
        _trees(trace),
        strict=True,
    )
    found = []
    for values, columns in zip(scalars, tokens, strict=True):
        drafts, emitted, q, p, target, draft, fates, scores, tree = columns
        entry: Json = dict(zip(names, values, strict=True))
        k = entry["drafted"]
        entry["drafts"] = drafts[:k]
        entry["emitted"] = emitted[: entry["gained"]]
        entry["q"] = q[:k]
        entry["p"] = p[:k]
        entry["target"] = target[: k + 1]
        entry["draft"] = draft[:k]
        entry["fates"] = fates[: k + 1]
        if scores:
            entry["scores"] = scores[:k]
        if tree:
            parents, path, entry["end"] = tree
            entry["parents"] = parents[:k]
            entry["path"] = path[: entry["accepted"]]
        found.append(entry)
    return split_by(rows["round"], found, trace.num_rounds)


def card_fates(trace: Trace, *, judge: bool) -> Array:
    """Return the fates (N, K+1) of each row's verified drafts, the token behind them, other drafts.

    `draft_fates` has one column for the first draft that is not verified and for the token that the
    target may emit in its place.
    """
    fates = draft_fates(trace, judge=judge)
    rows = trace.rows
    verified = rows["verified"][:, None]
    drafted = rows["drafted"][:, None]
    column = np.arange(fates.shape[1])
    behind = (column == verified) & (verified < drafted) & (fates == UNVERIFIED)
    fates[behind] = UNREACHED
    fates[(column > verified) & (column <= drafted) & (rows["gained"][:, None] > 0)] = UNVERIFIED
    entries, of_drafts, own = tree_fates(trace, judge=judge)
    # Drafts, then the own token, then more drafts: the columns behind the own token move by one.
    before = column[:-1] < rows["verified"][entries][:, None]  # (n, K)
    place, draft = before.nonzero()
    fates[entries[place], draft] = of_drafts[place, draft]
    place, draft = (~before).nonzero()
    fates[entries[place], draft + 1] = of_drafts[place, draft]
    fates[entries, rows["verified"][entries]] = own
    return fates


def _trees(trace: Trace) -> list[tuple[list[int], list[int], int] | None]:
    """Return parents and path of each entry's drafts, and the slot of its last token.

    None for all entries of a run without trees.
    """
    if not has_trees(trace):
        return [None] * len(trace.rows["row"])
    parents = trace.rows["parents"].tolist()
    path = trace.rows["path"].tolist()
    return list(zip(parents, path, trace.index.ends.tolist(), strict=True))


def _scores(trace: Trace) -> list[list[float | None] | None]:
    """Return the scores of each entry's drafts to four digits; None for an entry without any."""
    scores = trace.rows["scores"].astype(np.float64)
    found: list[list[float | None] | None] = [None] * len(scores)
    for entry in np.flatnonzero(np.isfinite(scores).any(axis=1)).tolist():
        values = scores[entry].tolist()
        found[entry] = [float(f"{each:.4g}") if np.isfinite(each) else None for each in values]
    return found


def _leading(rows: Table, model: str) -> list[list[list[list[Any]]]]:
    """Return the leading choices [token, p] in each column of each entry; id < 0 means none."""
    ids = rows[f"{model}_top_ids"]
    entries, columns, kept = ids.shape
    p = probabilities(rows[f"{model}_top_logprobs"].ravel())
    pairs = [list(pair) for pair in zip(ids.ravel().tolist(), p, strict=True)]
    choices = [pairs[at * kept : (at + 1) * kept] for at in range(entries * columns)]
    if (ids < 0).any():
        choices = [[pair for pair in column if pair[0] >= 0] for column in choices]
    return [choices[at * columns : (at + 1) * columns] for at in range(entries)]


def probabilities(logprobs: Array) -> list[Any]:
    """Return nested lists of probabilities rounded to four digits, None where a value is NaN."""
    p = np.minimum(np.exp(logprobs.astype(np.float64)), 1)  # float32 may exceed 0 a little
    known = ~np.isnan(p)
    size = np.floor(np.log10(p, out=np.zeros_like(p), where=known & (p > 0)))
    tens = _TENS[np.clip(_DIGITS - 1 - size, 0, len(_TENS) - 1).astype(int)]
    rounded = np.round(p * tens) / tens
    if not known.all():
        rounded = rounded.astype(object)
        rounded[~known] = None
    return list(rounded.tolist())


def request_entry(trace: Trace, number: int) -> Json:
    """Return the lengths, tokens and origins of a request."""
    return {
        "prompt": len(trace.prompt(number)),
        "tokens": trace.prompt(number) + trace.output(number),
        "origins": "".join(_ORIGINS[trace.origins(number)]),
        "budget": int(trace.requests["budget"][number]),
    }


def violation_entry(each: Violation) -> Json:
    """Return a violation with its phase and its model as numbers."""
    names = ("round", "row", "request", "rule", "slot", "count", "expected", "found", "message")
    entry: Json = {name: getattr(each, name) for name in names}
    entry["phase"] = PHASES.index(each.phase)
    entry["model"] = -1 if each.model is None else MODELS.index(each.model)
    return entry


def pool_entries(trace: Trace) -> list[list[Json]]:
    """Return the table `pool`, by round."""
    names = ("request", "row", "length", "waited", "chosen")
    groups = trace.index.pool_by_round
    columns = zip(*(trace.pool[name][groups.order].tolist() for name in names), strict=True)
    entries = [dict(zip(names, values, strict=True)) for values in columns]
    return split_by(groups.keys, entries, trace.num_rounds)


def move_entries(trace: Trace) -> list[list[list[int]]]:
    """Return [model, step, from row, from slot, to row, to slot, length] of each copy, by stage."""
    timeline = trace.index.moves_by_stage
    moves = {name: values[timeline.order] for name, values in trace.moves.items()}
    for name in ("from_row", "to_row"):
        at = trace.index.find_rows(moves["round"], moves[name])
        moves[name] = _in_batch(trace, at, moves["round"], moves[name])
    names = ("model", "step", "from_row", "from_slot", "to_row", "to_slot", "length")
    entries = np.stack([moves[name] for name in names], axis=1).tolist()
    return split_by(timeline.keys, entries, trace.num_rounds * len(PHASES))


@dataclass(frozen=True, eq=False)
class Feeds:
    """What forwards read, in runs.

    Attributes:
        runs: by stage, [model, step, row, slot, count, index, position, see, until, holes] of each;
            in a run with trees also the number of the first token's draft, 0 for other tokens.
        rows: the row that each entry of the table `feeds` belongs to, as in `runs`.
        holes: the lists of [start, stop] that `holes` is a number in; the first one is empty.
        windows: for each of `runs` what `_windows` says of it; None in a run without windows.
    """

    runs: list[list[list[int]]]
    rows: Array
    holes: list[list[list[int]]]
    windows: list[list[Json | None]] | None


def feed_runs(trace: Trace, *, judge: bool) -> Feeds:
    """Return the table `feeds` in runs of tokens that one forward read from neighbouring slots."""
    timeline = trace.index.feeds_by_stage
    feeds = {name: values[timeline.order] for name, values in trace.feeds.items()}
    holes = Holes(trace)
    trees = has_trees(trace)
    breaks = _breaks(feeds) | holes.change(timeline.order)
    if trees:
        breaks |= _leaves_branch(feeds["node"])
    firsts = np.flatnonzero(breaks)
    # A pool's rows trade places after their prefill, so the request names the row.
    at = trace.index.find_requests(feeds["round"], feeds["request"])
    feeds["row"] = _in_batch(trace, at, feeds["round"], feeds["row"])
    feeds["count"] = np.zeros(timeline.order.size, np.int64)
    feeds["count"][firsts] = np.diff(firsts, append=timeline.order.size)
    names = ("model", "step", "row", "slot", "count", "index", "position")
    columns = [feeds[name][firsts] for name in (*names, "visible_start", "visible_stop")]
    numbers, lists = holes.number(timeline.order[firsts])
    nodes = [feeds["node"][firsts]] if trees else []
    runs = np.column_stack([*columns, numbers, *nodes]).astype(np.int64)
    stages = trace.num_rounds * len(PHASES)
    by_stage = split_by(timeline.keys[firsts], runs.tolist(), stages)
    rows = np.empty_like(feeds["row"])
    rows[timeline.order] = feeds["row"]
    windows = _windows(trace, np.split(timeline.order, firsts[1:]), judge=judge)
    of_stages = None
    if windows is not None:
        of_stages = split_by(timeline.keys[firsts], windows, stages)
    return Feeds(by_stage, rows, lists, of_stages)


def _windows(trace: Trace, runs: list[Array], *, judge: bool) -> list[Json | None] | None:
    """Return for each run {starts, due}: where the window of each query begins, and should begin.

    due is left out where it is the same or is not judged. None for a run of a model without
    windows; None for all if no model has any.
    """
    feeds = trace.feeds
    starts = feeds["visible_start"] + feeds["window_offset"]
    due = starts.copy()
    has_window = np.zeros(len(MODELS), bool)
    for code, model in enumerate(MODELS):
        window = window_of(trace.meta, model)
        which = np.flatnonzero(feeds["model"] == code)
        if window is None or not which.size:
            continue
        has_window[code] = True
        offsets = window_offsets(trace.index, feeds, which, *window)
        due[which] = feeds["visible_start"][which] + offsets
    if not has_window.any():
        return None
    found: list[Json | None] = []
    for run in runs:
        if not run.size or not has_window[feeds["model"][run[0]]]:
            found.append(None)
            continue
        entry = {"starts": starts[run].tolist()}
        if judge and (starts[run] != due[run]).any():
            entry["due"] = due[run].tolist()
        found.append(entry)
    return found


def _breaks(feeds: Table) -> Array:
    """Return whether a run begins at each feed (n,), apart from what its holes say."""
    breaks = np.zeros(feeds["slot"].size, bool)
    breaks[:1] = True
    for name in ("round", "phase", "model", "step", "row", "request", "visible_start"):
        breaks[1:] |= feeds[name][1:] != feeds[name][:-1]
    for name in ("slot", "index", "visible_stop"):
        breaks[1:] |= feeds[name][1:] - feeds[name][:-1] != 1
    position = feeds["position"]
    # A log may not say positions; then they are -1.
    unknown = (position[1:] < 0) & (position[:-1] < 0)
    breaks[1:] |= (position[1:] - position[:-1] != 1) & ~unknown
    return breaks


def _leaves_branch(node: Array) -> Array:
    """Return whether each feed (n,) is neither the next draft nor, like the last one, no draft."""
    leaves = np.zeros(node.size, bool)
    both_committed = (node[1:] == 0) & (node[:-1] == 0)
    follows = (node[1:] - node[:-1] == 1) & (node[:-1] > 0)
    leaves[1:] = ~(both_committed | follows)
    return leaves


def _in_batch(trace: Trace, entries: Array, rounds: Array, otherwise: Array) -> Array:
    """Return the row of the batch of each entry (n,) of `rows`, -1 - otherwise for -1."""
    first = trace.index.row_bounds[rounds]
    return np.where(entries >= 0, entries - first, -1 - otherwise)
