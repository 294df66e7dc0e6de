"""Which K/V moves where: when rows trade places, when trees are compacted, and for a fault.

It knows rows and their layout, but no models and no caches.
"""

from collections.abc import Sequence

from specviz.engine.batch import Batch
from specviz.engine.faults import Fault
from specviz.engine.kv.layout import Layout
from specviz.engine.kv.moves import Move


def reordering(batch: Batch, layout: Layout, order: Sequence[int]) -> list[Move]:
    """Return the moves by which live row order[k] becomes row k."""
    moves = []
    for k, row in enumerate(order):
        start = layout.starts[row]
        length = layout.pending(row, batch.live[row].length) - start
        if row != k and length:
            moves.append(Move(row, start, k, start, length))
    return moves


def compaction(
    batch: Batch, layout: Layout, rows: Sequence[int], *, of_draft: bool, stay: bool
) -> list[Move]:
    """Return the moves of accepted drafts of trees to where the layout looks for them.

    Args:
        of_draft: whether it is the draft models' K/V; otherwise it is the target's.
        stay: whether the layout looks where the target has written them, not behind the row's
            pending token.
    """
    moves = []
    for i in rows:
        row = batch.rows[i]
        # The K/V of what is pending now does not exist yet.
        count = max(row.gained - 1, 0)
        places = (row.draft_path if of_draft else row.path)[:count]
        due = row.path if stay else range(1, count + 1)
        pending = layout.pending(i, row.length - row.gained)
        moves += _compacting(i, pending, places, due)
    return moves


def _compacting(row: int, pending: int, places: Sequence[int], due: Sequence[int]) -> list[Move]:
    """Return the moves of slots pending + places[j] to pending + due[j], as few as possible."""
    moves: list[Move] = []
    for at, to in zip(places, due, strict=False):
        # A draft that the draft model was never fed, at place 0, has no K/V.
        if at in (0, to):
            continue
        move = Move(row, pending + at, row, pending + to, 1)
        if moves and _continues(moves[-1], move):
            moves[-1] = moves[-1]._replace(length=moves[-1].length + 1)
        else:
            moves.append(move)
    return moves


def _continues(first: Move, then: Move) -> bool:
    """Return whether `then` begins, at both ends, where `first` stops."""
    is_next = then.from_slot == first.from_slot + first.length
    return is_next and then.to_slot == first.to_slot + first.length


def shift(batch: Batch, layout: Layout, fault: Fault) -> list[Move]:
    """Return the moves of the fault "kv": all cached K/V of its rows, one slot to the right."""
    moves = []
    for i, row in enumerate(batch.rows):
        start = layout.starts[i]
        length = layout.pending(i, row.length) - start - 1
        if fault.includes(i) and not row.finished and length > 0:
            moves.append(Move(i, start, i, start + 1, length))
    return moves
