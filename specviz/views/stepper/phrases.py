"""Small phrases that sentences are made of: counted things, numbered things, spans, sizes. Plain values in, plain text out."""

from collections.abc import Collection, Sequence

_MANY = 4  # more numbers than that are counted instead of named


def count(number: int, noun: str) -> str:
    """1 row, 2 rows."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def names(numbers: Sequence[int], noun: str) -> str:
    """Row 3, rows 0 and 2, rows 0 to 7, or 5 rows: `numbers` in ascending order, at least one."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"{noun} {first}"
    if len(numbers) > 2 and last - first == len(numbers) - 1:
        return f"{noun}s {first} to {last}"
    if len(numbers) > _MANY:
        return count(len(numbers), noun)
    return f"{noun}s {', '.join(map(str, numbers[:-1]))} and {last}"


def verb(things: Collection[object], one: str, many: str) -> str:
    """The form of a verb, or of anything else, that goes with so many things."""
    return one if len(things) == 1 else many


def everyone(rows: Sequence[int]) -> str:
    """Row 3, both rows, or all 5 rows: of those that are meant, none is left out."""
    return (
        names(rows, "row")
        if len(rows) == 1
        else "both rows"
        if len(rows) == 2
        else f"all {len(rows)} rows"
    )


def span(values: Collection[int], noun: str = "") -> str:
    """From the least to the largest: 3, or 1 to 5; with a noun: 1 slot, 1 to 5 slots. 0 for none."""
    low, high = min(values, default=0), max(values, default=0)
    numbers = f"{low}" if low == high else f"{low} to {high}"
    return f"{numbers} {noun}{'' if numbers == '1' else 's'}" if noun else numbers


def amount(size: int) -> str:
    """Bytes in kB or MB."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def begin(phrase: str) -> str:
    """A phrase that opens a sentence."""
    return phrase[:1].upper() + phrase[1:]
