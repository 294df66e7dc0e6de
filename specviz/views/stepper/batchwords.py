"""What a phase did to the whole batch, in sentences: the most important one first.

`schedulewords` has those of the first phase, `rowwords` what a phase did to a single row.
"""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.views.stepper.phrases import agree, all_of, capitalised, count, names, size, span
from specviz.views.stepper.scene import DRAFT, DRAFTER, SYNCHRONISE, TARGET, VERIFY, Motion, Scene
from specviz.views.stepper.schedulewords import schedule_words


def _draft(scene: Scene) -> list[str]:
    drafting = [number for number, row in enumerate(scene.rows) if row.drafted]
    if not drafting:
        return ["Nothing was drafted: each row decodes one token in this round."]
    drafts = count(max(scene.rows[number].drafted for number in drafting), "token")
    if len({scene.rows[number].drafted for number in drafting}) > 1:
        drafts = f"up to {drafts}"
    forwards = scene.forwards[DRAFT, DRAFTER]
    drafter = "draft model" if forwards else "drafter"
    how = f"in {count(forwards, 'forward')}" if forwards else "without running a model"
    rows = names(drafting, "row") if len(drafting) == 1 else f"each of {len(drafting)} rows"
    unread = "the target has not read them yet"
    sentences = [f"The {drafter} proposed {drafts} for {rows} {how}; {unread}."]
    probabilities = [
        (q, number, position)
        for number in drafting
        for position, q in enumerate(scene.draft_probabilities[number], 1)
        if position <= scene.rows[number].drafted and q == q  # NaN: not known
    ]
    if probabilities:
        q, number, position = min(probabilities)
        least = f"draft {position} of row {number}, q = {q:.2g}"
        sentences.append(f"The least probable token is {least}.")
    return sentences


def _verify(scene: Scene) -> list[str]:
    rows = scene.rows
    drafts = max((row.drafted for row in rows), default=0)
    forwards = scene.forwards[VERIFY, TARGET]
    target = "One target forward" if forwards == 1 else f"{forwards} target forwards"
    tokens = "each row's pending token"
    if drafts:
        tokens += f" and {count(drafts, 'draft')}, {len(rows)} × {drafts + 1} tokens,"
    sentences = [f"{target} read {tokens} over {count(scene.slots, 'slot')}."]
    unused = {
        "padding": sum(row.start for row in rows),
        "in holes": sum(row.pending - row.start + 1 - row.length for row in rows),
        "after a row's end": sum(max(scene.slots - 1 - row.pending - drafts, 0) for row in rows),
    }
    total = sum(unused.values())
    if total and scene.slots:
        kinds = ", ".join(f"{number} {kind}" for kind, number in unused.items() if number)
        slots = f"the {len(rows)} × {scene.slots} slots"
        share = f"{total / (len(rows) * scene.slots):.0%}"
        sentences.append(f"Of {slots}, {share} hold no token of their row: {kinds}.")
    return sentences


def _accept(scene: Scene) -> list[str]:
    working = [number for number, row in enumerate(scene.rows) if row.gained]
    if not working:
        return ["No row gained a token."]
    gist = _accepted(scene, working)
    return [gist, *_discarded(scene), *_finished(scene), *_ragged(scene), *_full(scene, working)]


def _accepted(scene: Scene, working: list[int]) -> str:
    """How many drafts were accepted, and what rows gained."""
    accepted = {number: scene.rows[number].accepted for number in working}
    drafts = max(scene.rows[number].drafted for number in working)
    everyone = len(working) == len(scene.rows)
    rows = capitalised(all_of(working) if everyone else names(working, "row"))
    if drafts == 0:
        choice = ", the target's own choice" if scene.bonus_is_targets else ""
        return f"{rows} gained one token{agree(working, '', ' each')}{choice}."
    bonus = "the target's own token" if scene.bonus_is_targets else "one more token"
    gains = span([scene.rows[number].gained for number in working], "token")
    same_gain = len({scene.rows[number].gained for number in working}) == 1
    gaining = agree(working, "it", "each" if same_gain else "they")
    gained = f"with {bonus}, {gaining} gained {gains}."
    # a strategy that cuts rows back keeps fewer drafts than the target accepted
    verb = "kept" if any(row.discarded for row in scene.rows) else "accepted"
    best = max(working, key=accepted.__getitem__)
    worst = min(working, key=accepted.__getitem__)
    of_drafts = f"of {count(drafts, 'draft')}"
    if accepted[best] != accepted[worst]:
        fewest = f"{accepted[worst]} (row {worst})"
        most = f"{accepted[best]} (row {best})"
        return f"Rows {verb} {fewest} to {most} {of_drafts}; {gained}"
    return f"{rows} {verb} {accepted[best]} {of_drafts}; {gained}"


def _full(scene: Scene, working: list[int]) -> list[str]:
    """How many rows accepted everything, where only some did."""
    full = [
        number
        for number in working
        if scene.rows[number].accepted == scene.rows[number].drafted > 0
    ]
    if not full or len(full) == len(working):
        return []
    return [f"All drafts were accepted in {len(full)} of {len(working)} rows."]


def _discarded(scene: Scene) -> list[str]:
    discarded = {number: row.discarded for number, row in enumerate(scene.rows) if row.discarded}
    if not discarded:
        return []
    most = max(discarded, key=discarded.__getitem__)
    if len(discarded) == 1:
        return [f"Discarded: {count(discarded[most], 'verified token')} of row {most}."]
    total = sum(discarded.values())
    return [f"Discarded: {total} verified tokens, {discarded[most]} of them in row {most}."]


def _finished(scene: Scene) -> list[str]:
    sentences = []
    done = [number for number, row in enumerate(scene.rows) if row.gained and row.finished]
    with_eos = [number for number in done if scene.ended_with_eos[number]]
    with_budget = [number for number in done if not scene.ended_with_eos[number]]
    if with_eos:
        sentences.append(f"{capitalised(names(with_eos, 'row'))} finished with EOS.")
    if with_budget:
        spent = agree(with_budget, "its token budget is spent", "their token budgets are spent")
        sentences.append(f"{capitalised(names(with_budget, 'row'))} finished: {spent}.")
    cut = 0
    for number in done:
        row = scene.rows[number]
        cut += max(row.accepted + 1 - row.gained - row.discarded, 0)
    if cut:
        was = "was" if cut == 1 else "were"
        sentences.append(f"After that, {count(cut, 'verified token')} {was} cut off.")
    return sentences


def _ragged(scene: Scene) -> list[str]:
    """How far apart rows end that ended in one column before."""
    ends = scene.ends
    if not scene.began_aligned or len(set(ends.values())) == 1:
        return []
    first = min(ends, key=ends.__getitem__)
    last = max(ends, key=ends.__getitem__)
    sentence = f"Row {first} now ends {count(ends[last] - ends[first], 'slot')} left of row {last}"
    resume = scene.resume_slot(first)
    if resume is not None:
        sentence += f"; every row continues in slot {resume}"
    return [f"{sentence}."]


def _synchronise(scene: Scene) -> list[str]:
    motion = scene.motion.get(SYNCHRONISE)
    sentences = [_why_nothing_moved(scene)]
    if motion is not None:
        sentences = [_moved(scene, motion), *_time(scene)]
    return [*sentences, *_drifting(scene), *_padding(scene)]


def _moved(scene: Scene, motion: Motion) -> str:
    copied = f"{size(motion.size_bytes)} of K/V copied"
    ends = {scene.rows[number].pending_after for number in scene.continuing}
    where = ""
    if len(ends) == 1 and len(scene.continuing) > 1:
        where = f" so that all rows end in slot {ends.pop()} again"
    if not motion.shifts:
        return f"Rows were rearranged{where}: {copied}."
    rows = capitalised(names(sorted(motion.shifts), "row"))
    distance = span([abs(shift) for shift in motion.shifts.values()], "slot")
    return f"{rows} moved by {distance}{where}: {copied}."


def _time(scene: Scene) -> list[str]:
    """A sentence of its own, since it differs from run to run."""
    synchronise_ms = scene.ms[SYNCHRONISE]
    total_ms = sum(scene.ms)
    if not total_ms:
        return []
    return [f"It took {synchronise_ms:.1f} ms, {synchronise_ms / total_ms:.0%} of this round."]


def _why_nothing_moved(scene: Scene) -> str:
    continuing = scene.continuing
    if not continuing:
        return "Nothing to synchronise: every row has finished."
    if scene.pool:
        return "Nothing moved: sequences stay in place until a group needs them in one column."
    ends = [scene.rows[number].pending_after for number in continuing]
    holes = {number: scene.holes(number) for number in continuing}
    most = max(continuing, key=holes.__getitem__)
    if holes[most] > 0:
        where = f"row {most} has {holes[most]}, and every row continues in slot {max(ends)}"
        return f"Nothing moved: rejected columns stay as holes, hidden by the mask; {where}."
    if len(continuing) == 1:
        return f"Nothing had to move: row {continuing[0]} is alone and ends in slot {ends[0]}."
    gains = [scene.rows[number].gained for number in continuing]
    if len(set(ends)) == 1 and len(set(gains)) == 1:
        gained = f"{len(continuing)} rows gained {count(gains[0], 'token')} each"
        return f"Nothing had to move: {gained} and still end in one column, slot {ends[0]}."
    why = "each row writes its K/V at its own positions, so rows may end in different slots"
    return f"Nothing had to move: {why}, now {span(ends)}."


def _drifting(scene: Scene) -> list[str]:
    drifting = [number for number in scene.continuing if scene.drift(number)]
    if not drifting:
        return []
    worst = max(drifting, key=lambda number: abs(scene.drift(number)))
    position = scene.next_positions[worst]
    index = scene.next_index(worst)
    sentence = f"Row {worst}'s next token gets position {position}, its index is {index}"
    others = len(drifting) - 1
    if others:
        sentence += f"; {count(others, 'other row')} {'drifts' if others == 1 else 'drift'} too"
    return [f"{sentence}."]


def _padding(scene: Scene) -> list[str]:
    """Padding that even the longest row has, so that no row needs it."""
    rows = [scene.rows[number] for number in scene.continuing]
    spare = min((row.start_after for row in rows), default=0)
    aligned = len({row.pending_after for row in rows}) == 1
    if not spare or not aligned or scene.pool:
        return []
    return [f"Every row has at least {count(spare, 'slot')} of padding, which no row needs."]


BATCH_WORDS: dict[str, Callable[[Scene], list[str]]] = dict(
    zip(PHASES, (schedule_words, _draft, _verify, _accept, _synchronise), strict=True)
)
