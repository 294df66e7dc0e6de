"""What a phase did to one row of the batch, in a phrase with its numbers.

`sentences` puts these next to the sentences about the whole batch.
"""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.views.stepper.phrases import count
from specviz.views.stepper.scene import SYNCHRONISE, Scene


def _schedule(scene: Scene, number: int) -> str:
    row = scene.rows[number]
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


def _draft(scene: Scene, number: int) -> str:
    drafted = scene.rows[number].drafted
    if not drafted:
        return "no drafts"
    text = count(drafted, "draft")
    known = [q for q in scene.draft_probabilities[number][:drafted] if q == q]  # NaN: not known
    if not known:
        return text
    least = f"{min(known):.2g} to " if len(known) > 1 else ""
    return f"{text}, q = {least}{max(known):.2g}"


def _verify(scene: Scene, number: int) -> str:
    row = scene.rows[number]
    text = f"the target read its pending token in slot {row.pending}"
    if row.drafted:
        text += f" and {count(row.drafted, 'draft')} after it"
    return text


def _accept(scene: Scene, number: int) -> str:
    row = scene.rows[number]
    if not row.gained:
        return "gained nothing: its request has finished"
    text = f"gained {count(row.gained, 'token')}"
    if row.drafted:
        text = f"accepted {row.accepted} of {count(row.drafted, 'draft')}, {text}"
    if row.discarded:
        text += f", {count(row.discarded, 'verified token')} discarded"
    if not row.finished:
        return f"{text}; {_end(scene, number)}"
    if scene.ended_with_eos[number]:
        return f"{text}; finished with EOS"
    return f"{text}; finished, its token budget is spent"


def _end(scene: Scene, number: int) -> str:
    """Where the row's tokens end after the acceptance."""
    end = scene.ends[number]
    resume = scene.resume_slot(number)
    if resume is not None:
        return f"its last token goes to slot {resume}, after {count(resume - end, 'hole')}"
    furthest = max(scene.ends, key=scene.ends.__getitem__)
    behind = scene.ends[furthest] - end
    if scene.began_aligned and behind:
        return f"ends {count(behind, 'slot')} left of row {furthest}"
    return f"ends in slot {end}"


def _synchronise(scene: Scene, number: int) -> str:
    if number not in scene.continuing:
        return "leaves the batch: its request has finished"
    motion = scene.motion.get(SYNCHRONISE)
    shift = motion.shifts.get(number, 0) if motion else 0
    text = "did not move"
    if shift:
        text = f"moved {count(abs(shift), 'slot')} to the {'right' if shift > 0 else 'left'}"
    text += f"; ends in slot {scene.rows[number].pending_after}"
    holes = scene.holes(number)
    if holes > 0:
        text += f" with {count(holes, 'hole')}"
    if scene.drift(number):
        position = scene.next_positions[number]
        index = scene.next_index(number)
        text += f"; its next token gets position {position}, its index is {index}"
    return text


ROW_WORDS: dict[str, Callable[[Scene, int], str]] = dict(
    zip(PHASES, (_schedule, _draft, _verify, _accept, _synchronise), strict=True)
)
