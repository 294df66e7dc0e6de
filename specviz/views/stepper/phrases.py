"""Phrases that sentences are made of: counts, numbered things, ranges, sizes.

Contract: numbers or rows in, plain text out.
"""

from collections.abc import Collection, Sequence

from specviz.util.text import count, size
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.motion import Motion

_MANY = 4  # more numbers than that are counted, not listed


def names(numbers: Sequence[int], noun: str) -> str:
    """Name rows: row 3, rows 0 and 2, rows 0 to 7, or 5 rows. numbers: ascending, not empty."""
    first = numbers[0]
    last = numbers[-1]
    if len(numbers) == 1:
        return f"{noun} {first}"
    if len(numbers) > 2 and last - first == len(numbers) - 1:
        return f"{noun}s {first} to {last}"
    if len(numbers) > _MANY:
        return count(len(numbers), noun)
    return f"{noun}s {', '.join(map(str, numbers[:-1]))} and {last}"


def row_names(rows: Sequence[BatchRow]) -> str:
    """Name rows as `names` does."""
    return names([row.number for row in rows], "row")


def agree(things: Collection[object], one: str, many: str) -> str:
    """Return the form of a word that goes with the number of things."""
    return one if len(things) == 1 else many


def all_of(rows: Sequence[int]) -> str:
    """Name all rows: row 3, both rows, or all 5 rows."""
    if len(rows) == 1:
        return names(rows, "row")
    return "both rows" if len(rows) == 2 else f"all {len(rows)} rows"


def span(values: Collection[int], noun: str = "") -> str:
    """Write the least to the largest: 3, or 1 to 5; with a noun: 1 slot, 1 to 5 slots."""
    low = min(values, default=0)
    high = max(values, default=0)
    if low == high:
        return count(low, noun) if noun else f"{low}"
    return f"{low} to {high} {noun}s" if noun else f"{low} to {high}"


def copied(motion: Motion) -> str:
    """Write what was copied inside the caches: in bytes, or in slots where those are not known."""
    if motion.size_bytes is None:
        return f"K/V of {count(motion.slots, 'slot')} copied"
    return f"{size(motion.size_bytes)} of K/V copied"


def capitalised(phrase: str) -> str:
    """Return a phrase as the start of a sentence."""
    return phrase[:1].upper() + phrase[1:]
