"""What one phase of a round copied inside the caches.

Contract: reads the table `moves` of a Trace. Not known here: words.
"""

from dataclasses import dataclass

from specviz.record.schema import MODELS, Array, missing_in
from specviz.record.trace import Trace

_TARGET = MODELS.index("target")


@dataclass(frozen=True)
class Motion:
    """What one phase copied inside the caches.

    slots: how many slots of K/V; size_bytes: their bytes, None where the record does not say it.
    shifts: by row of the batch, by how many slots to the right the target's K/V of the row moved.
    """

    slots: int
    size_bytes: int | None
    shifts: dict[int, int]


def motion_of(trace: Trace, number: int, entries: Array) -> Motion:
    """Return what was copied by `entries` of the table `moves`, those of a phase of a round."""
    moves = {name: values[entries] for name, values in trace.moves.items()}
    size_bytes = 0
    for model, name in enumerate(MODELS):
        slots = int(moves["length"][moves["model"] == model].sum())
        size_bytes += slots * int(trace.meta["kv_bytes_per_slot"][name])
    # slots that moved within a row of the target's cache; other moves go from row to row
    within = (moves["model"] == _TARGET) & (moves["from_row"] == moves["to_row"])
    cache_rows = moves["to_row"][within].tolist()
    distances = (moves["to_slot"] - moves["from_slot"])[within].tolist()
    batch = trace.rows["row"][trace.index.rows_of(number)].tolist()
    row_of = {cache_row: row for row, cache_row in enumerate(batch)}
    shifts: dict[int, int] = {}
    for cache_row, distance in zip(cache_rows, distances, strict=True):
        if cache_row in row_of:
            row = row_of[cache_row]
            shifts[row] = shifts.get(row, 0) + distance
    has_bytes = "kv_bytes" not in missing_in(trace.meta)
    slots = int(moves["length"].sum())
    shown = size_bytes if has_bytes else None
    return Motion(slots, shown, {row: shift for row, shift in shifts.items() if shift})
