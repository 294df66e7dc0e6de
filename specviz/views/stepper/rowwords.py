"""What a phase did to one row of the batch, in a phrase with its numbers.

`sentences` puts these next to the sentences about the whole batch.
"""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.util.text import count
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.headwords import row_head
from specviz.views.stepper.scene import SYNCHRONISE, Scene
from specviz.views.stepper.selectionwords import row_accepted, row_read, row_to_be_verified
from specviz.views.stepper.treewords import row_compaction, row_path, row_tree


def _schedule(scene: Scene, row: BatchRow) -> str:
    if row.finished and not row.gained:
        return f"request {row.request} has finished; it stays in the batch and gains nothing"
    pending = f"its last token is pending, for slot {row.pending}"
    if row.request in scene.new:
        prefilled = scene.prefilled.get(row.request, 0)
        prompt = count(row.length, "prompt token")
        return f"request {row.request} entered, {prefilled} of {prompt} prefilled; {pending}"
    text = f"request {row.request} continues with {count(row.length, 'token')}"
    waited = next((each.waited for each in scene.pool if each.request == row.request), 0)
    if waited:
        text += f" after waiting for {count(waited, 'round')}"
    return f"{text}; {pending}"


def draft_phrase(scene: Scene, row: BatchRow) -> str:
    """Say what was drafted for a row."""
    if not row.drafted:
        return "no drafts"
    text = row_to_be_verified(row) if scene.selects else count(row.drafted, "draft")
    text += row_tree(row) + row_head(scene, row)
    known = [q for q, _ in row.known_q]
    if not known:
        return text
    least = f"{min(known):.2g} to " if len(known) > 1 else ""
    return f"{text}, q = {least}{max(known):.2g}"


def _verify(scene: Scene, row: BatchRow) -> str:
    text = f"the target read its pending token in slot {row.pending}"
    if row.drafted and scene.selects:
        text += row_read(row)
    elif row.drafted:
        text += f" and {count(row.drafted, 'draft')}{row_tree(row)} after it"
    return text


def _accept(scene: Scene, row: BatchRow) -> str:
    text = gained_phrase(scene, row)
    return f"{text}; {_end(scene, row)}" if row.gained else text


def gained_phrase(scene: Scene, row: BatchRow) -> str:
    """Say what a row gained, and what ended it."""
    if not row.gained:
        return "gained nothing: its request has finished"
    text = f"gained {count(row.gained, 'token')}"
    if row.drafted and scene.selects:
        text = f"{row_accepted(row)}{row_path(row)}, {text}"
    elif row.drafted:
        text = f"accepted {row.accepted} of {count(row.drafted, 'draft')}{row_path(row)}, {text}"
    text += row_compaction(scene, row)
    if row.discarded:
        text += f", {count(row.discarded, 'verified token')} discarded"
    if not row.finished:
        return text
    if row.with_eos:
        return f"{text}; finished with EOS"
    if row.with_stop:
        return f"{text}; finished with a stop string"
    return f"{text}; finished, its token budget is spent"


def _end(scene: Scene, row: BatchRow) -> str:
    """Say where the row's K/V ends after the acceptance: what lies behind does not count."""
    text = f"K/V ends at slot {row.kv_end}"
    if row.finished:
        return text
    if row.resume_slot is not None:
        holes = count(row.resume_slot - row.end, "hole")
        return f"{text}; its last token goes to slot {row.resume_slot}, after {holes}"
    behind = scene.furthest.end - row.end
    if scene.began_aligned and behind:
        return f"{text}, {count(behind, 'slot')} left of row {scene.furthest.number}"
    return text


def _synchronise(scene: Scene, row: BatchRow) -> str:
    if row not in scene.continuing:
        return "leaves the batch: its request has finished"
    motion = scene.motion.get(SYNCHRONISE)
    shift = motion.shifts.get(row.number, 0) if motion else 0
    text = "did not move"
    if shift:
        text = f"moved {count(abs(shift), 'slot')} to the {'right' if shift > 0 else 'left'}"
    text += f"; its last token goes to slot {row.pending_after}"
    if row.holes > 0:
        text += f", after {count(row.holes, 'hole')}"
    if row.next_position != row.index:
        text += f"; its next token gets position {row.next_position}, its index is {row.index}"
    return text


ROW_WORDS: dict[str, Callable[[Scene, BatchRow], str]] = dict(
    zip(PHASES, (_schedule, draft_phrase, _verify, _accept, _synchronise), strict=True)
)
