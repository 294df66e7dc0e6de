"""What a phase did to the whole batch, in sentences with the round's own numbers: the first one is the gist, the others follow by weight.

What it did to one row stands in `rowwords`.
"""

from collections import Counter
from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.util.text import visible
from specviz.views.stepper.phrases import amount, begin, count, everyone, names, span, verb
from specviz.views.stepper.scene import (
    DRAFT,
    DRAFTER,
    SCHEDULE,
    SYNCHRONISE,
    TARGET,
    VERIFY,
    Motion,
    Scene,
    Waiting,
)


def _schedule(scene: Scene) -> list[str]:
    if not scene.rows:
        return ["No row takes part in this round."]
    if scene.pool:
        return _pooled(scene)
    return [_comings(scene), *_rearranged(scene), _lengths(scene)]


def _comings(scene: Scene) -> str:
    new = [at for at, row in enumerate(scene.rows) if row.request in scene.new]
    here = {row.request for row in scene.rows}
    left = sorted(row.request for row in scene.before if row.request not in here)
    gone = (
        f"{begin(names(left, 'request'))} {verb(left, 'has', 'have')} finished and left"
        if left
        else ""
    )
    if new:
        requests = names(sorted(scene.rows[at].request for at in new), "request")
        come = f"{requests} {verb(new, 'enters', 'enter')} as {names(new, 'row')}: {_prefilled(scene, new)}."
        return f"{gone}, {come}" if left else begin(come)
    if left:
        return f"{gone}; {count(len(here), 'row')} {verb(here, 'goes', 'go')} on."
    idle = [at for at, row in enumerate(scene.rows) if not row.gained]
    if idle:
        stay = f"{verb(idle, 'stays', 'stay')} in the batch, gaining nothing"
        return (
            f"Nobody enters; {names(idle, 'row')} {verb(idle, 'has', 'have')} finished and {stay}."
        )
    return (
        f"Nobody leaves or enters: {verb(here, 'row 0 goes', f'the same {len(here)} rows go')} on."
    )


def _prefilled(scene: Scene, new: list[int]) -> str:
    fed = sum(scene.prefilled.get(scene.rows[at].request, 0) for at in new)
    if not fed:
        return f"{verb(new, 'its only prompt token is', 'their only prompt tokens are')} pending, with nothing to prefill"
    prompts = sum(scene.rows[at].length for at in new)
    return f"{fed} of {verb(new, 'its', 'their')} {prompts} prompt tokens are prefilled, {verb(new, 'the last', 'each last')} one is pending"


def _rearranged(scene: Scene) -> list[str]:
    """Rows that take other places in the batch, or in the cache."""
    motion = scene.motion.get(SCHEDULE)
    if motion is None:
        return []
    numbers = {row.request: at for at, row in enumerate(scene.before)}
    changed = [
        (numbers[row.request], at)
        for at, row in enumerate(scene.rows)
        if numbers.get(row.request, at) != at
    ]
    what = (
        [f"row {old} becomes row {new}" for old, new in changed]
        if len(changed) < 3
        else [f"{len(changed)} rows change places"]
    )
    if shifted := sorted(motion.shifts):
        ends = {row.pending for row in scene.rows}
        where = f" to end in slot {ends.pop()}" if len(ends) == 1 else ""
        what.append(f"{names(shifted, 'row')} {verb(shifted, 'moves', 'move')}{where}")
    return [
        f"{begin(' and '.join(what or ['rows are rearranged']))}: {amount(motion.size)} of K/V copied."
    ]


def _lengths(scene: Scene) -> str:
    padding, at = max((row.start, -at) for at, row in enumerate(scene.rows))
    tokens, slots = (
        span([row.length for row in scene.rows], "token"),
        f"{count(padding, 'slot')} of padding in front",
    )
    if len(scene.rows) == 1:
        return f"Row 0 has {tokens}" + (f" and {slots}." if padding else ".")
    return f"Rows have {tokens}" + (f"; row {-at} has {slots}." if padding else ".")


def _pooled(scene: Scene) -> list[str]:
    found = [_decision(scene)]
    if waiting := [each for each in scene.pool if not each.chosen]:
        found.append(_waiting(waiting))
    if newcomers := [each.request for each in scene.pool if each.request in scene.new]:
        fed = sum(scene.prefilled.get(request, 0) for request in newcomers)
        found.append(
            f"{count(len(newcomers), 'prompt')} {verb(newcomers, 'enters', 'enter')} the pool: {count(fed, 'token')} prefilled."
        )
    if motion := scene.motion.get(SCHEDULE):
        found.append(
            f"{amount(motion.size)} of K/V copied to bring {verb(scene.rows, 'it', f'these {len(scene.rows)}')} to the front."
        )
    return found


def _waiting(waiting: list[Waiting]) -> str:
    """Who is left out of this round, and who was most often before it; the panel of the pool says the same (static/pool.js)."""
    longest = max(waiting, key=lambda each: each.waited)
    words = f"{len(waiting)} {verb(waiting, 'waits', 'wait')}"
    if not longest.waited:
        return f"{words} for the first time."
    who = f"request {longest.request}{' longest' if len(waiting) > 1 else ''}"
    return f"{words}, {who}: left out {'once' if longest.waited == 1 else f'{longest.waited} times'} before."


def _decision(scene: Scene) -> str:
    """Why these rows of the pool."""
    pool, size, tokens = len(scene.pool), len(scene.rows), count(scene.rows[0].length, "token")
    largest = max(Counter(each.length for each in scene.pool).values())
    ragged = f"Fallback: no {'two' if largest == 1 else f'more than {largest}'} of the pool's {pool} rows have equal length"
    if pool == 1:
        return f"The pool's last row goes alone, with {tokens}."
    if scene.decision == "grouped":
        return f"Grouped: {size} of the pool's {pool} rows have {tokens} each, a rectangle that needs no realignment."
    if scene.decision == "realigned":
        return f"{ragged}, so {'all of them' if size == pool else f'the {size} that came first'} are realigned."
    if scene.decision == "partial":
        return f"{ragged}, so only {verb(scene.rows, 'one row goes', f'these {size} go')}, with {tokens}."
    if scene.decision == "overdue":
        oldest = max(scene.pool, key=lambda each: each.waited)
        waited = count(oldest.waited, "round")
        return f"Overdue: request {oldest.request} has been passed over for {waited}, so the {size} that waited longest go."
    return f"{begin(visible(scene.decision))}: {size} of the pool's {pool} rows take part."


def _draft(scene: Scene) -> list[str]:
    drafting = [at for at, row in enumerate(scene.rows) if row.drafted]
    if not drafting:
        return ["Nothing is drafted: each row decodes just one token in this round."]
    forwards, k = scene.forwards[DRAFT, DRAFTER], max(scene.rows[at].drafted for at in drafting)
    who, how = (
        ("draft model", f"in {count(forwards, 'forward')}")
        if forwards
        else ("drafter", "without running a model")
    )
    rows = names(drafting, "row") if len(drafting) == 1 else f"each of {len(drafting)} rows"
    found = [
        f"The {who} proposes {count(k, 'token')} for {rows} {how}; the target has not read them yet."
    ]
    doubts = [
        (q, at, j)
        for at in drafting
        for j, q in enumerate(scene.doubts[at][: scene.rows[at].drafted], 1)
        if q == q
    ]
    if doubts:
        q, at, j = min(doubts)
        found.append(f"It is least sure of row {at}'s draft {j}: q = {q:.2g}.")
    return found


def _verify(scene: Scene) -> list[str]:
    rows, k = scene.rows, max((row.drafted for row in scene.rows), default=0)
    forwards = scene.forwards[VERIFY, TARGET]
    who = "One target forward reads" if forwards == 1 else f"{forwards} target forwards read"
    drafts = f" and {count(k, 'draft')}, {len(rows)} × {k + 1} tokens," if k else ""
    found = [f"{who} each row's pending token{drafts} over {count(scene.slots, 'slot')}."]
    unused = {
        "padding": sum(row.start for row in rows),
        "in holes": sum(row.pending - row.start + 1 - row.length for row in rows),
        "behind a row's end": sum(max(scene.slots - 1 - row.pending - k, 0) for row in rows),
    }
    if (total := sum(unused.values())) and scene.slots:
        kinds = ", ".join(f"{number} {kind}" for kind, number in unused.items() if number)
        found.append(
            f"{total / (len(rows) * scene.slots):.0%} of these {len(rows)} × {scene.slots} slots hold nothing for their row: {kinds}."
        )
    return found


def _accept(scene: Scene) -> list[str]:
    working = [at for at, row in enumerate(scene.rows) if row.gained]
    if not working:
        return ["No row gains anything."]
    accepted, k = (
        {at: scene.rows[at].accepted for at in working},
        max(scene.rows[at].drafted for at in working),
    )
    best, worst = max(working, key=accepted.__getitem__), min(working, key=accepted.__getitem__)
    gains = span([scene.rows[at].gained for at in working])
    who = begin(everyone(working) if len(working) == len(scene.rows) else names(working, "row"))
    more, choice = (
        ("the target's own token", ", the target's own choice")
        if scene.own
        else ("one more token", "")
    )
    gaining = f"with {more}, {verb(working, 'it gains', 'each gains' if gains.isdigit() else 'rows gain')} {gains}."
    keep = "keep" if any(row.discarded for row in scene.rows) else "accept"
    if k == 0:
        gist = f"{who} {verb(working, 'gains', 'gain')} one token{choice}."
    elif not accepted[best] and keep == "accept" and len(working) > 1:
        gist = f"No row accepts any of its {count(k, 'draft')}; {gaining}"
    elif accepted[best] == accepted[worst]:
        gist = f"{who} {keep}{verb(working, 's', '')} {accepted[best] or 'none'} of {count(k, 'draft')}; {gaining}"
    else:
        fewest = f"only {accepted[worst]}" if accepted[worst] else "none"
        gist = f"Row {best} {keep}s {accepted[best]} of {count(k, 'draft')}, row {worst} {fewest}; {gaining}"
    return [gist, *_discarded(scene), *_finished(scene), *_ragged(scene)]


def _discarded(scene: Scene) -> list[str]:
    lost = {at: row.discarded for at, row in enumerate(scene.rows) if row.discarded}
    if not lost:
        return []
    most = max(lost, key=lost.__getitem__)
    if len(lost) == 1:
        return [
            f"{count(lost[most], 'verified token')} of row {most} {'is' if lost[most] == 1 else 'are'} thrown away."
        ]
    return [
        f"{sum(lost.values())} verified tokens are thrown away, {lost[most]} of them row {most}'s."
    ]


def _finished(scene: Scene) -> list[str]:
    found = []
    done = [at for at, row in enumerate(scene.rows) if row.gained and row.finished]
    for ends, words in ((True, "with EOS"), (False, "with the budget spent")):
        if rows := [at for at in done if scene.ended[at] == ends]:
            found.append(f"{begin(names(rows, 'row'))} {verb(rows, 'ends', 'end')} {words}.")
    cut = sum(
        max(row.accepted + 1 - row.gained - row.discarded, 0)
        for row in (scene.rows[at] for at in done)
    )
    return (
        [*found, f"What was accepted behind that is cut off: {count(cut, 'token')}."]
        if cut
        else found
    )


def _ragged(scene: Scene) -> list[str]:
    """By how much rows that ended in one column are out of step now."""
    ends = scene.ends
    if not scene.level or len(set(ends.values())) == 1:
        return []
    first, last = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    onward = scene.onward(first)
    where = "" if onward is None else f"; all go on in slot {onward}"
    return [
        f"Row {first}'s tokens now end {count(ends[last] - ends[first], 'slot')} before row {last}'s{where}."
    ]


def _synchronise(scene: Scene) -> list[str]:
    motion = scene.motion.get(SYNCHRONISE)
    gist = [_still(scene)] if motion is None else [_moved(scene, motion), *_price(scene)]
    return [*gist, *_drifting(scene), *_padding(scene)]


def _price(scene: Scene) -> list[str]:
    """What moving cost: a sentence of its own, since it differs from run to run."""
    took, total = scene.ms[SYNCHRONISE], sum(scene.ms)
    return [f"That took {took:.1f} ms, {took / total:.0%} of this round."] if total else []


def _moved(scene: Scene, motion: Motion) -> str:
    rows, ends = sorted(motion.shifts), {scene.rows[at].pending_after for at in scene.staying}
    who = (
        f"{begin(names(rows, 'row'))} {verb(rows, 'moves', 'move')}"
        if rows
        else "Rows are rearranged"
    )
    far = f" by {span([abs(shift) for shift in motion.shifts.values()], 'slot')}" if rows else ""
    where = (
        f" so that all end in slot {ends.pop()} again"
        if len(ends) == 1 and len(scene.staying) > 1
        else ""
    )
    return f"{who}{far}{where}: {amount(motion.size)} of K/V copied."


def _still(scene: Scene) -> str:
    """Why nothing had to move."""
    staying, rows = scene.staying, scene.rows
    ends, gains = (
        [getattr(rows[at], name) for at in staying] for name in ("pending_after", "gained")
    )
    holes = [(scene.holes(at), -at) for at in staying]
    if not staying:
        return "Every row has finished: nothing is left to bring back into step."
    if scene.pool:
        return "Nothing moves now: rows of the pool stay where they are until a group needs them in one column."
    most, at = max(holes)
    if most > 0:
        where = f"row {-at} has {most}, all go on in slot {max(ends)}"
        return f"Nothing moves: rejected columns stay behind as holes that the mask leaves out; {where}."
    if len(staying) == 1:
        return f"Nothing has to move: row {staying[0]} is alone, and now ends in slot {ends[0]}."
    if len(set(ends)) == 1 and len(set(gains)) == 1:
        gained = f"{len(staying)} rows gained {count(gains[0], 'token')} each"
        return f"Nothing has to move: {gained} and still end in one column, slot {ends[0]}."
    return f"Nothing has to move: K/V is written at each row's own positions, so rows may end in different slots, now {span(ends)}."


def _drifting(scene: Scene) -> list[str]:
    rows = [at for at in scene.staying if scene.drift(at)]
    if not rows:
        return []
    worst = max(rows, key=lambda at: abs(scene.drift(at)))
    more = (
        f", and {count(len(rows) - 1, 'other row')} {verb(rows[1:], 'drifts', 'drift')} too"
        if len(rows) > 1
        else ""
    )
    index = scene.rows[worst].length + scene.rows[worst].gained - 1
    return [
        f"Row {worst}'s next token will get position {scene.next_positions[worst]} where its index is {index}{more}."
    ]


def _padding(scene: Scene) -> list[str]:
    """Padding that even the longest row has, so that nobody needs it."""
    rows = [scene.rows[at] for at in scene.staying]
    spare = min((row.start_after for row in rows), default=0)
    if not spare or len({row.pending_after for row in rows}) != 1 or scene.pool:
        return []
    return [f"Padding adds up: every row has at least {count(spare, 'slot')} of it."]


BATCH_WORDS: dict[str, Callable[[Scene], list[str]]] = dict(
    zip(PHASES, (_schedule, _draft, _verify, _accept, _synchronise), strict=True)
)
