"""What a phase did to the whole batch, in sentences: the most important one first.

`schedulewords` has those of the first phase, `rowwords` what a phase did to a single row.
"""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.util.text import count, time_words
from specviz.views.stepper.headwords import head_how, head_words
from specviz.views.stepper.phrases import agree, all_of, capitalised, copied, names, row_names, span
from specviz.views.stepper.scene import (
    DRAFT,
    DRAFTER,
    SYNCHRONISE,
    TARGET,
    VERIFY,
    BatchRow,
    Motion,
    Scene,
)
from specviz.views.stepper.schedulewords import schedule_words
from specviz.views.stepper.selectionwords import spent, to_be_verified, tokens_read
from specviz.views.stepper.treewords import compaction, sight_of, trees_of


def draft_words(scene: Scene) -> list[str]:
    """What was drafted, and how."""
    drafting = [row for row in scene.rows if row.drafted]
    if not drafting:
        return ["Nothing was drafted: each row decodes one token in this round."]
    sizes = {row.drafted for row in drafting}
    drafts = count(max(sizes), "token")
    if len(sizes) > 1:
        drafts = f"up to {drafts}"
    forwards = scene.forwards[DRAFT, DRAFTER]
    drafter = scene.drafter if forwards or scene.head else "drafter"
    how = f" in {count(forwards, 'forward')}" if forwards else " without running a model"
    if scene.head:
        how = f" {head_how(scene)}"
    if not forwards and "feeds.draft" in scene.lacking:
        how = ""
    rows = agree(drafting, row_names(drafting), f"each of {len(drafting)} rows")
    unread = "the target has not read them yet"
    if scene.selects:
        unread = to_be_verified(scene)
    sentences = [f"The {drafter} proposed {drafts} for {rows}{trees_of(scene)}{how}; {unread}."]
    if scene.head:
        sentences += head_words(scene)
    known = [(q, row.number, draft) for row in drafting for q, draft in row.known_q]
    if known:
        q, number, draft = min(known)
        least = f"draft {draft} of row {number}, q = {q:.2g}"
        sentences.append(f"The least probable token is {least}.")
    return [sentences[0], *spent(scene), *sentences[1:]] if scene.selects else sentences


def _verify(scene: Scene) -> list[str]:
    rows = scene.rows
    drafts = max((row.drafted for row in rows), default=0)
    forwards = scene.forwards[VERIFY, TARGET]
    target = "One target forward" if forwards == 1 else f"{forwards} target forwards"
    tokens = "each row's pending token"
    if drafts:
        tokens += f" and {count(drafts, 'draft')}, {len(rows)} × {drafts + 1} tokens,"
    if scene.selects:
        tokens = tokens_read(scene)
    sentences = [f"{target} read {tokens} over {count(scene.slots, 'slot')}."]
    if scene.selects:
        sentences += spent(scene)
    sentences += sight_of(scene)
    read = [row.verified if scene.selects else drafts for row in rows]
    ends = [row.pending + number for row, number in zip(rows, read, strict=True)]
    unused = {
        "padding": sum(row.start for row in rows),
        "in holes": sum(row.pending - row.start + 1 - row.length for row in rows),
        "after a row's end": sum(max(scene.slots - 1 - end, 0) for end in ends),
    }
    total = sum(unused.values())
    if total and scene.slots:
        kinds = ", ".join(f"{number} {kind}" for kind, number in unused.items() if number)
        slots = f"the {len(rows)} × {scene.slots} slots"
        share = f"{total / (len(rows) * scene.slots):.0%}"
        sentences.append(f"Of {slots}, {share} hold no token of their row: {kinds}.")
    return sentences


def _accept(scene: Scene) -> list[str]:
    working = [row for row in scene.rows if row.gained]
    if not working:
        return ["No row gained a token."]
    gist = _accepted(scene, working)
    rest = [*_discarded(scene), *_finished(scene), *_ragged(scene), *_full(working)]
    # How a tree becomes part of a row is never left out.
    first, *others = [*compaction(scene), ""]
    return [f"{gist} {first}".rstrip(), *filter(None, others), *rest]


def accepted_words(scene: Scene) -> list[str]:
    """What rows gained, without where it lies."""
    working = [row for row in scene.rows if row.gained]
    if not working:
        return ["No row gained a token."]
    return [_accepted(scene, working), *_discarded(scene), *_finished(scene), *_full(working)]


def _accepted(scene: Scene, working: list[BatchRow]) -> str:
    """How many drafts were accepted, and what rows gained."""
    verified = [row.verified for row in working]
    everyone = len(working) == len(scene.rows)
    numbers = [row.number for row in working]
    rows = capitalised(all_of(numbers) if everyone else row_names(working))
    is_targets = all(row.is_targets for row in scene.rows)
    if not any(verified):
        choice = ", the target's own choice" if is_targets else ""
        gained = f"gained one token{agree(working, '', ' each')}{choice}."
        if scene.selects:
            return f"No draft was verified: {rows[:1].lower()}{rows[1:]} {gained}"
        return f"{rows} {gained}"
    bonus = "the target's own token" if is_targets else "one more token"
    gains = {row.gained for row in working}
    gaining = agree(working, "it", agree(gains, "each", "they"))
    gained = f"with {bonus}, {gaining} gained {span(gains, 'token')}."
    # a strategy that cuts rows back keeps fewer drafts than the target accepted
    verb = "kept" if any(row.discarded for row in scene.rows) else "accepted"
    # Of rows that accepted the same, the one that gained most: EOS may have cut others short.
    best = max(working, key=lambda row: (row.accepted, row.gained))
    worst = min(working, key=lambda row: row.accepted)
    of_drafts = f"of {count(max(verified), 'draft')}"
    if scene.selects:
        of_drafts = f"of {span(verified, 'verified draft')}"
    if best.accepted != worst.accepted:
        fewest = f"{worst.accepted} (row {worst.number})"
        most = f"{best.accepted} (row {best.number})"
        return f"Rows {verb} {fewest} to {most} {of_drafts}; {gained}"
    return f"{rows} {verb} {best.accepted} {of_drafts}; {gained}"


def _full(working: list[BatchRow]) -> list[str]:
    """How many rows accepted everything, where only some did."""
    full = sum(row.accepted == row.verified > 0 for row in working)
    if full in (0, len(working)):
        return []
    if any(row.verified < row.drafted for row in working):
        return [f"All verified drafts were accepted in {full} of {len(working)} rows."]
    return [f"All drafts were accepted in {full} of {len(working)} rows."]


def _discarded(scene: Scene) -> list[str]:
    discarded = [row for row in scene.rows if row.discarded]
    if not discarded:
        return []
    most = max(discarded, key=lambda row: row.discarded)
    if len(discarded) == 1:
        return [f"Discarded: {count(most.discarded, 'verified token')} of row {most.number}."]
    total = sum(row.discarded for row in discarded)
    return [f"Discarded: {total} verified tokens, {most.discarded} of them in row {most.number}."]


def _finished(scene: Scene) -> list[str]:
    sentences = []
    done = [row for row in scene.rows if row.gained and row.finished]
    with_eos = [row for row in done if row.with_eos]
    with_stop = [row for row in done if row.with_stop]
    with_budget = [row for row in done if not (row.with_eos or row.with_stop)]
    if with_eos:
        sentences.append(f"{capitalised(row_names(with_eos))} finished with EOS.")
    if with_stop:
        sentences.append(f"{capitalised(row_names(with_stop))} finished with a stop string.")
    if with_budget:
        spent = agree(with_budget, "its token budget is spent", "their token budgets are spent")
        sentences.append(f"{capitalised(row_names(with_budget))} finished: {spent}.")
    cut = sum(max(row.accepted + 1 - row.gained - row.discarded, 0) for row in done)
    if cut:
        was = "was" if cut == 1 else "were"
        sentences.append(f"After that, {count(cut, 'verified token')} {was} cut off.")
    return sentences


def _ragged(scene: Scene) -> list[str]:
    """How far apart rows end that ended in one column before."""
    rows = scene.continuing
    if not scene.began_aligned or len({row.end for row in rows}) == 1:
        return []
    first = min(rows, key=lambda row: row.end)
    last = max(rows, key=lambda row: row.end)
    behind = f"{count(last.end - first.end, 'slot')} left of row {last.number}"
    sentence = f"Row {first.number} now ends {behind}"
    if first.resume_slot is not None:
        sentence += f"; every row continues in slot {first.resume_slot}"
    return [f"{sentence}."]


def _synchronise(scene: Scene) -> list[str]:
    if "moves" in scene.lacking:
        return ["Whether K/V moved was not logged.", *_drifting(scene)]
    motion = scene.motion.get(SYNCHRONISE)
    sentences = [_why_nothing_moved(scene)]
    if motion is not None:
        sentences = [_moved(scene, motion), *_time(scene)]
    return [*sentences, *_drifting(scene), *_padding(scene)]


def _moved(scene: Scene, motion: Motion) -> str:
    ends = {row.pending_after for row in scene.continuing}
    where = ""
    if len(ends) == 1 and len(scene.continuing) > 1:
        where = f" so that all rows end in slot {ends.pop()} again"
    if not motion.shifts:
        return f"Rows were rearranged{where}: {copied(motion)}."
    rows = capitalised(names(sorted(motion.shifts), "row"))
    distance = span([abs(shift) for shift in motion.shifts.values()], "slot")
    return f"{rows} moved by {distance}{where}: {copied(motion)}."


def _time(scene: Scene) -> list[str]:
    """A sentence of its own, since it differs from run to run."""
    synchronise_ms = scene.ms[SYNCHRONISE]
    total_ms = sum(scene.ms)
    if not total_ms:
        return []
    share = synchronise_ms / total_ms
    return [f"It took {time_words(synchronise_ms)}, {share:.0%} of this round."]


def _why_nothing_moved(scene: Scene) -> str:
    continuing = scene.continuing
    if not continuing:
        return "Nothing to synchronise: every row has finished."
    if scene.pool:
        return "Nothing moved: sequences stay in place until a group needs them in one column."
    ends = [row.pending_after for row in continuing]
    most = max(continuing, key=lambda row: row.holes)
    if most.holes > 0:
        where = f"row {most.number} has {most.holes}, and every row continues in slot {max(ends)}"
        return f"Nothing moved: rejected columns stay as holes, hidden by the mask; {where}."
    if len(continuing) == 1:
        return f"Nothing had to move: {row_names(continuing)} is alone and ends in slot {ends[0]}."
    gains = {row.gained for row in continuing}
    if len(set(ends)) == 1 and len(gains) == 1:
        gained = f"{len(continuing)} rows gained {count(gains.pop(), 'token')} each"
        return f"Nothing had to move: {gained} and still end in one column, slot {ends[0]}."
    why = "each row writes its K/V at its own positions, so rows may end in different slots"
    return f"Nothing had to move: {why}, now {span(ends)}."


def _drifting(scene: Scene) -> list[str]:
    drifting = [row for row in scene.continuing if row.next_position != row.index]
    if not drifting:
        return []
    worst = max(drifting, key=lambda row: abs(row.next_position - row.index))
    position = f"position {worst.next_position}, its index is {worst.index}"
    sentence = f"Row {worst.number}'s next token gets {position}"
    others = len(drifting) - 1
    if others:
        sentence += f"; {count(others, 'other row')} {'drifts' if others == 1 else 'drift'} too"
    return [f"{sentence}."]


def _padding(scene: Scene) -> list[str]:
    """Padding that even the longest row has, so that no row needs it."""
    spare = min((row.start_after for row in scene.continuing), default=0)
    aligned = len({row.pending_after for row in scene.continuing}) == 1
    if not spare or not aligned or scene.pool:
        return []
    return [f"Every row has at least {count(spare, 'slot')} of padding, which no row needs."]


BATCH_WORDS: dict[str, Callable[[Scene], list[str]]] = dict(
    zip(PHASES, (schedule_words, draft_words, _verify, _accept, _synchronise), strict=True)
)
