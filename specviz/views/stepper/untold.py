"""Tokens of a record whose log has no forwards of the target, so that no slot holds K/V of them.

Contract: they are put where they would lie one after another: index i of a row in slot start + i,
draft j behind the pending token. Arrays in, arrays out. Not known here: JSON.
"""

import numpy as np

from specviz.record.index import Committed
from specviz.record.replay import Frame
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace
from specviz.record.trees import depths
from specviz.views.stepper.lanes import put_tokens
from specviz.views.stepper.treefates import tree_fates

_VERIFY = PHASES.index("verify")


def put_committed(cells: Array, frame: Frame, texts: Committed) -> None:
    """Put, in place, all committed tokens of the frame's rows but the pending ones into `cells`."""
    slot = np.arange(cells.shape[2])
    index = slot - frame.starts[:, None]
    rows, slots = ((index >= 0) & (index < frame.lengths[:, None] - 1)).nonzero()
    at = index[rows, slots]
    request = frame.requests[rows]
    token = texts.tokens[texts.first[request] + at]
    put_tokens(cells, rows, slots, "held", _with_position(at, request, token))


def put_drafts(cells: Array, frame: Frame, drafts: Array) -> None:
    """Put, in place, the drafts of the frame's round: as drafted, or as stale once judged.

    drafts: (7, n), as `proposed` returns them.
    """
    kind = "drafted" if PHASES.index(frame.phase) <= _VERIFY else "stale"
    row, slot, index, _, token, *_ = drafts
    free = cells[0, row, slot] == 0
    row, slot, index, token = row[free], slot[free], index[free], token[free]
    put_tokens(cells, row, slot, kind, _with_position(index, frame.requests[row], token))


def _with_position(index: Array, request: Array, token: Array) -> Array:
    return np.stack([index, np.full_like(index, -1), request, token])


def proposed(trace: Trace) -> list[Array]:
    """Return by round the drafts that are verified: (7, n), as `tokens` has them of forwards."""
    rows = trace.rows
    number = np.arange(rows["drafts"].shape[1])
    is_read = (number < rows["verified"][:, None]) & (rows["gained"][:, None] > 0)
    entries, number = is_read.nonzero()
    fates = np.full(rows["drafts"].shape, -1)
    branching, of_drafts, _ = tree_fates(trace, judge=False)
    fates[branching] = of_drafts
    rounds = rows["round"][entries]
    drafts = np.stack(
        [
            entries - trace.index.row_bounds[rounds],
            rows["pending"][entries] + 1 + number,
            rows["length"][entries] + depths(rows["parents"])[entries, number] - 1,
            np.full(number.shape, -1),
            rows["drafts"][entries, number],
            number,
            fates[entries, number],
        ]
    )
    return np.split(drafts, np.searchsorted(rounds, np.arange(1, trace.num_rounds)), axis=1)
