"""The rule "schedule": which rows take part in a round, and why.

Contract: `schedule` takes the `RoundTable` of a record and reports to it. What the names of
decisions mean stands with DECISIONS in `record.schema`. Decisions of other names are not judged.
"""

from bisect import bisect_left
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from specviz.checks.table import RoundTable
from specviz.record.schema import DECISIONS, PHASES

_GROUPED, _REALIGNED, _PARTIAL, _OVERDUE = DECISIONS


class _Member(NamedTuple):
    """A row of the pool in one round, columns of the table `pool`."""

    row: int
    request: int
    length: int
    waited: int
    chosen: int


def schedule(t: RoundTable) -> None:
    """Check that a batch has at most B rows, and a pool's batch is what its decision says."""
    _batch_is_small_enough(t)
    trace = t.trace
    if trace.pool["round"].size == 0:
        return
    _lengths_are_the_rows(t)
    waits: dict[int, int] = {}
    for number in range(trace.num_rounds):
        pool = _members(t, number)
        _batch_is_chosen(t, number, pool)
        if not trace.meta.get("halvings"):  # a batch that is halved forgets who has waited
            waits = _waits_are_counted(t, number, pool, waits)
            _decision_fits(t, number, pool)


def _batch_is_small_enough(t: RoundTable) -> None:
    most = t.trace.meta["batch_size"]
    number = t.trace.rows["round"]
    place = np.arange(t.size) - t.trace.index.row_bounds[number]
    for entry in t.where((place >= most) & (most > 0)):
        expected = f"a round should have at most {most} rows"
        found = f"this is number {place[entry.Index] + 1}"
        t.report("schedule", "schedule", entry, expected, found)


def _members(t: RoundTable, number: int) -> list[_Member]:
    pool = t.trace.pool
    at = t.trace.index.pool_by_round.at(number)
    columns = [pool[name][at].tolist() for name in _Member._fields]
    return [_Member(*values) for values in zip(*columns, strict=True)]


def _report(t: RoundTable, number: int, member: _Member, expected: str, found: str) -> None:
    stage = number * len(PHASES) + PHASES.index("schedule")
    t.findings.add("schedule", stage, member.row, member.request, expected, found)


def _lengths_are_the_rows(t: RoundTable) -> None:
    """Check that a waiting row has the tokens that its last round left it with."""
    trace = t.trace
    pool = trace.pool
    table = trace.rows
    prompt = np.diff(trace.requests["prompt_offsets"]).tolist()
    reached = (table["length"].astype(np.int64) + table["gained"]).tolist()
    # Of each request: the rounds in which it took part, and its length after each.
    of_request: dict[int, tuple[list[int], list[int]]] = {}
    entries = zip(table["request"].tolist(), table["round"].tolist(), reached, strict=True)
    for request, number, length in entries:
        rounds, lengths = of_request.setdefault(request, ([], []))
        rounds.append(number)
        lengths.append(length)
    columns = [pool[name].tolist() for name in ("round", *_Member._fields)]
    for number, *values in zip(*columns, strict=True):
        member = _Member(*values)
        rounds, lengths = of_request.get(member.request, ([], []))
        before = bisect_left(rounds, number)
        due = lengths[before - 1] if before else prompt[member.request]
        # After a batch was halved, a request enters with the text that it had.
        may_be_longer = before == 0 and trace.meta.get("halvings")
        if member.length != due and not (may_be_longer and member.length > due):
            expected = f"the row should have {due} tokens in the pool"
            _report(t, number, member, expected, f"it has {member.length}")


def _batch_is_chosen(t: RoundTable, number: int, pool: list[_Member]) -> None:
    """Check that the chosen rows of the pool are those of the batch, each at most once."""
    table, batch = t.trace.rows, t.trace.index.rows_of(number)
    requests = dict(
        zip(table["row"][batch].tolist(), table["request"][batch].tolist(), strict=True)
    )
    chosen = {member.row: member for member in pool if member.chosen}
    for row, request in requests.items():
        member = chosen.get(row)
        if member is None or member.request != request:
            expected = f"row {row} of the batch should be chosen from the pool"
            found = "it is not" if member is None else f"request {member.request} is"
            _report(t, number, _Member(row, request, 0, 0, 1), expected, found)
    for member in chosen.values():
        if member.row not in requests:
            expected = "a row that is chosen should be in the batch"
            _report(t, number, member, expected, "it is not")
    for name in ("row", "request"):
        counts = Counter(getattr(member, name) for member in pool)
        for member in pool:
            if counts[getattr(member, name)] > 1:
                expected = f"{name} {getattr(member, name)} should be in the pool once"
                _report(t, number, member, expected, "it is in it more often")
    for member in pool:
        if member.row >= len(pool):
            expected = f"the pool's rows should be 0 to {len(pool) - 1}"
            _report(t, number, member, expected, f"one is {member.row}")


def _waits_are_counted(
    t: RoundTable, number: int, pool: list[_Member], waits: dict[int, int]
) -> dict[int, int]:
    """Check that a row waits one round more each time that it is passed over, from 0 on.

    Args:
        waits: how long each request of the last round's pool has waited by now.

    Returns:
        The same for the next round.
    """
    present = {member.request for member in pool}
    table, before = t.trace.rows, t.trace.index.rows_of(max(number - 1, 0))
    finished = table["request"][before][table["finished"][before] == 1]
    for request in waits.keys() - present - set(finished.tolist()):
        member = _Member(0, request, 0, 0, 0)
        expected = "a request should stay in the pool until it ends"
        _report(t, number, member, expected, "it is not in it")
    for member in pool:
        due = waits.get(member.request, 0)
        if member.waited != due:
            expected = f"the request has waited {due} rounds"
            _report(t, number, member, expected, f"{member.waited} are noted")
    return {member.request: 0 if member.chosen else member.waited + 1 for member in pool}


def _decision_fits(t: RoundTable, number: int, pool: list[_Member]) -> None:
    """Check that the decision names how the batch was found."""
    meta = t.trace.meta
    name = meta["decisions"][t.trace.rounds["decision"][number]]
    options = meta["strategy_options"]
    # Groups of padded rows are not of equal length, and where the others lie is not recorded.
    if name not in DECISIONS or not pool or options.get("group_by", "length") != "length":
        return
    problem = _problem(name, pool, meta["batch_size"], options)
    if problem:
        chosen = [member for member in pool if member.chosen] or pool
        _report(t, number, chosen[0], f'the decision "{name}" should fit the pool', problem)


def _problem(name: str, pool: list[_Member], batch_size: int, options: dict[str, Any]) -> str:
    """Return what contradicts a decision, "" if nothing does."""
    size = min(batch_size, len(pool))
    chosen = [member for member in pool if member.chosen]
    is_equal = len({member.length for member in chosen}) <= 1
    largest = max(Counter(member.length for member in pool).values())
    longest_wait = max(member.waited for member in pool)
    max_wait = options.get("max_wait")
    if name == _OVERDUE:
        if type(max_wait) is int and longest_wait < max_wait:
            return f"no row has waited {max_wait} rounds"
        return "" if len(chosen) == size else f"{len(chosen)} rows were chosen"
    if options.get("fallback") == "wait" and type(max_wait) is int and longest_wait >= max_wait:
        return f"a row has waited {longest_wait} rounds, so it is overdue"
    if name == _REALIGNED:
        return f"{largest} rows have one length" if largest >= size else ""
    if not is_equal:
        return "the chosen rows differ in length"
    if name == _GROUPED:
        return "" if len(chosen) == size else f"{len(chosen)} rows were chosen, and not {size}"
    if largest >= size:
        return f"{largest} rows have one length, so the batch could be full"
    return "" if len(chosen) == largest else f"{largest} rows have one length, {len(chosen)} run"
