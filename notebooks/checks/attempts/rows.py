"""How a decoder used its rows: how many at a time, and whether prompts took the place of others.

Contract: reads the requests of a watched run. Not known here: models and texts.
"""

from dataclasses import dataclass

from specviz.checks.watch.report import WatchReport


@dataclass(frozen=True)
class RowUse:
    """The use of rows.

    Attributes:
        most: requests in one forward of the target that decides tokens.
        first_empty: the first round with a free row while a prompt waited; None if there is none.
        empty: free rows while a prompt waited, summed over rounds.
        late: prompts that were not in the first such forward.
    """

    most: int
    first_empty: int | None
    empty: int
    late: int


def rows_of(report: WatchReport, batch_size: int) -> RowUse:
    """Count rows in each round of a run."""
    rounds = [
        [report.rounds[each.part.number] for each in request.rounds] for request in report.requests
    ]
    begins = [numbers[0] for numbers in rounds]
    last = max(numbers[-1] for numbers in rounds)
    most = empty = 0
    first_empty = None
    for number in range(min(begins), last + 1):
        busy = sum(number in numbers for numbers in rounds)
        most = max(most, busy)
        waiting = sum(begin > number for begin in begins)
        free = min(batch_size - busy, waiting)
        if busy and free > 0:
            empty += free
            first_empty = number if first_empty is None else first_empty
    late = sum(begin > min(begins) for begin in begins)
    return RowUse(most, first_empty, empty, late)
