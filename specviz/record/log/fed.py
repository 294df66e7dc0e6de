"""The tables `feeds` and `holes` of a log's record.

Contract: takes forwards in the order of time. A position that is not known is -1; a slot that is
not known is the token's index; what is not known of a query's sight is that of a causal mask. Not
known here: whether any of it is right.
"""

import numpy as np

from specviz.record.chains import nodes
from specviz.record.log.events import Forward, Placed
from specviz.record.schema import MODELS, PHASES, Array, Table

_OPTIONAL = ("position", "slot", "node")


def feed_tables(forwards: list[Placed], rows: Table) -> tuple[Table, Table]:
    """Return the columns of `feeds`, (F,), and of `holes`.

    rows: the columns round, row, request, length and start of the table `rows`.
    """
    parts = [_columns(each) for each in forwards]
    names = parts[0].keys() if parts else ()
    feeds = {name: np.concatenate([part[name] for part in parts]) for name in names}
    if not feeds:
        return {}, {}
    feeds["slot"] = np.where(feeds["slot"] < 0, feeds["index"], feeds["slot"])
    _fill_sight(feeds, rows)
    if (feeds["node"] < 0).all():
        del feeds["node"]  # a record computes it
    else:
        feeds["node"] = np.where(feeds["node"] < 0, nodes(rows, feeds), feeds["node"])
    return feeds, _holes(forwards)


def _columns(placed: Placed) -> Table:
    event = placed.event
    assert isinstance(event, Forward)
    size = event.index.size
    columns = {
        "round": np.full(size, placed.round),
        "step": np.full(size, placed.step),
        "phase": np.full(size, PHASES.index(event.phase)),
        "model": np.full(size, MODELS.index(event.model)),
        "row": event.row,
        "request": event.request,
        "token": event.token,
        "index": event.index,
    }
    for name in _OPTIONAL:
        values: Array | None = getattr(event, name)
        columns[name] = np.full(size, -1) if values is None else values
    sight = event.sight
    columns["visible_start"] = np.full(size, -1) if sight is None else sight.start
    columns["visible_stop"] = np.full(size, -1) if sight is None else sight.stop
    return columns


def _fill_sight(feeds: Table, rows: Table) -> None:
    """Let queries of which nothing is known see from their row's start to themselves."""
    unknown = np.flatnonzero(feeds["visible_start"] < 0)
    keys = rows["round"] << 32 | rows["request"]
    order = np.argsort(keys)
    wanted = feeds["round"][unknown] << 32 | feeds["request"][unknown]
    at = order[np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)]
    slot = feeds["slot"][unknown]
    start = np.where(keys[at] == wanted, rows["start"][at], slot - feeds["index"][unknown])
    feeds["visible_start"][unknown] = np.clip(start, 0, slot)
    feeds["visible_stop"][unknown] = slot + 1


def _holes(forwards: list[Placed]) -> Table:
    found = [np.zeros((0, 3), np.int64)]
    fed = 0
    for placed in forwards:
        event = placed.event
        assert isinstance(event, Forward)
        if event.sight is not None:
            found.append(event.sight.holes + np.array([fed, 0, 0]))
        fed += event.index.size
    feed, start, stop = np.concatenate(found).T
    return {"feed": feed, "start": start, "stop": stop}
