"""What the schedule phase did to the batch, in sentences: the most important one first."""

from collections import Counter

from specviz.util.text import count, visible
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.phrases import agree, capitalised, copied, names, row_names, span
from specviz.views.stepper.scene import SCHEDULE, PoolEntry, Scene


def schedule_words(scene: Scene) -> list[str]:
    """Return the sentences about a round's schedule phase."""
    if not scene.rows:
        return ["This round has no rows."]
    if scene.pool:
        return _pool(scene)
    return [_entered_and_left(scene), *_rearranged(scene), _lengths(scene)]


def _entered_and_left(scene: Scene) -> str:
    here = {row.request for row in scene.rows}
    new = [row for row in scene.rows if row.request in scene.new]
    left = sorted(row.request for row in scene.before if row.request not in here)
    gone = f"{capitalised(names(left, 'request'))} finished and left" if left else ""
    if new:
        requests = names(sorted(row.request for row in new), "request")
        entered = f"{requests} entered as {row_names(new)}: {_prefilled(scene, new)}."
        return f"{gone}; {entered}" if left else capitalised(entered)
    if left:
        return f"{gone}; {count(len(here), 'row')} {agree(here, 'continues', 'continue')}."
    idle = [row for row in scene.rows if not row.gained]
    if idle:
        finished = f"{row_names(idle)} {agree(idle, 'has', 'have')} finished"
        stay = agree(idle, "stays in the batch but gains", "stay in the batch but gain")
        return f"No request entered; {finished}, {stay} nothing."
    same = agree(here, "row 0 continues", f"the same {len(here)} rows continue")
    return f"No request entered or left: {same}."


def _prefilled(scene: Scene, new: list[BatchRow]) -> str:
    """Say how much of the prompts of the rows `new` was prefilled."""
    fed = sum(scene.prefilled.get(row.request, 0) for row in new)
    if not fed:
        only = agree(new, "its only prompt token is", "their only prompt tokens are")
        return f"{only} pending, so nothing was prefilled"
    prompts = sum(row.length for row in new)
    read = f"{fed} of {agree(new, 'its', 'their')} {prompts} prompt tokens were prefilled"
    return f"{read}, the last {agree(new, 'one', 'one of each')} is pending"


def _rearranged(scene: Scene) -> list[str]:
    """Say which rows changed places in the batch, or moved in the cache."""
    motion = scene.motion.get(SCHEDULE)
    if motion is None:
        return []
    old = {row.request: row.number for row in scene.before}
    renumbered = [row for row in scene.rows if old.get(row.request, row.number) != row.number]
    what = [f"row {old[row.request]} became row {row.number}" for row in renumbered]
    if len(what) > 2:
        what = [f"{len(what)} rows changed places"]
    shifted = sorted(motion.shifts)
    if shifted:
        ends = {row.pending for row in scene.rows}
        where = f" to end in slot {ends.pop()}" if len(ends) == 1 else ""
        what.append(f"{names(shifted, 'row')} moved{where}")
    words = capitalised(" and ".join(what) or "rows were rearranged")
    return [f"{words}: {copied(motion)}."]


def _lengths(scene: Scene) -> str:
    lengths = span([row.length for row in scene.rows], "token")
    most = max(scene.rows, key=lambda row: row.start)
    padding = f"{count(most.start, 'slot')} of padding"
    if len(scene.rows) == 1:
        return f"Row 0 has {lengths}{f' and {padding}' if most.start else ''}."
    if not most.start:
        return f"Rows have {lengths}."
    return f"Rows have {lengths}; row {most.number} has {padding}."


def _pool(scene: Scene) -> list[str]:
    sentences = [_decision(scene)]
    waiting = [each for each in scene.pool if not each.chosen]
    if waiting:
        sentences.append(_waiting(waiting))
    new = [each.request for each in scene.pool if each.request in scene.new]
    if new:
        fed = sum(scene.prefilled.get(request, 0) for request in new)
        prefilled = f"{count(fed, 'token')} prefilled"
        sentences.append(f"{count(len(new), 'prompt')} entered the pool: {prefilled}.")
    motion = scene.motion.get(SCHEDULE)
    if motion:
        chosen = agree(scene.rows, "it", f"these {len(scene.rows)}")
        sentences.append(f"{copied(motion)} to bring {chosen} to the front of the cache.")
    return sentences


def _waiting(waiting: list[PoolEntry]) -> str:
    """Say how many sequences are left out of this round, and which one waited longest."""
    words = f"{count(len(waiting), 'sequence')} {agree(waiting, 'waits', 'wait')}"
    longest = max(waiting, key=lambda each: each.waited)
    if not longest.waited:
        return f"{words} for the first time."
    which = f"request {longest.request}{' longest' if len(waiting) > 1 else ''}"
    return f"{words}, {which}: passed over {count(longest.waited, 'time')} before."


def _decision(scene: Scene) -> str:
    """Say which sequences of the pool were chosen, and why."""
    pool = len(scene.pool)
    chosen = len(scene.rows)
    tokens = count(scene.rows[0].length, "token")
    if pool == 1:
        return f"The pool's last sequence runs alone, with {tokens}."
    if scene.decision == "grouped":
        same = f"{chosen} of the pool's {pool} sequences have {tokens} each"
        return f"Grouped: {same}, so they need no realignment."
    if scene.decision == "realigned":
        which = "all of them" if chosen == pool else f"the {chosen} that entered first"
        return f"{_fallback(scene)}, so {which} are realigned."
    if scene.decision == "partial":
        runs = agree(scene.rows, "one runs", f"these {chosen} run")
        return f"{_fallback(scene)}, so only {runs}, with {tokens}."
    if scene.decision == "overdue":
        oldest = max(scene.pool, key=lambda each: each.waited)
        passed = f"request {oldest.request} was passed over {count(oldest.waited, 'time')}"
        return f"Overdue: {passed}, so the {chosen} that waited longest run."
    return f"{capitalised(visible(scene.decision))}: {chosen} of the pool's {pool} sequences run."


def _fallback(scene: Scene) -> str:
    """Say why there is no full group of one length."""
    largest = max(Counter(each.length for each in scene.pool).values())
    group = "two" if largest == 1 else f"more than {largest}"
    return f"Fallback: no {group} of the pool's {len(scene.pool)} sequences have the same length"
