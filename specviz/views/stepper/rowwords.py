"""What a phase did to one row of the batch, in a phrase with its numbers. The sentences about all of them stand in `sentences`."""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.views.stepper.phrases import count
from specviz.views.stepper.scene import SYNCHRONISE, Scene


def _schedule(scene: Scene, at: int) -> str:
    row = scene.rows[at]
    waited = next((each.waited for each in scene.pool if each.request == row.request), 0)
    if not row.gained and row.finished:
        return f"request {row.request} has finished and stays in the batch, gaining nothing"
    if row.request in scene.new:
        come = f"request {row.request} enters, {scene.prefilled.get(row.request, 0)} of {count(row.length, 'prompt token')} prefilled"
    else:
        come = f"request {row.request} goes on with {count(row.length, 'token')}"
        come += f" after {count(waited, 'round')} of waiting" if waited else ""
    return f"{come}; the last one is pending for slot {row.pending}"


def _draft(scene: Scene, at: int) -> str:
    drafted = scene.rows[at].drafted
    if not drafted:
        return "nothing drafted"
    q = [q for q in scene.doubts[at][:drafted] if q == q]
    least = f"{min(q):.2g} to " if len(q) > 1 else ""
    return count(drafted, "draft") + (f", q = {least}{max(q):.2g}" if q else "")


def _verify(scene: Scene, at: int) -> str:
    row = scene.rows[at]
    drafts = f" and {count(row.drafted, 'draft')} behind it" if row.drafted else ""
    return f"the target read its pending token in slot {row.pending}{drafts}"


def _accept(scene: Scene, at: int) -> str:
    row = scene.rows[at]
    if not row.gained:
        return "gained nothing: its request has finished"
    told = (
        f"accepted {row.accepted} of {count(row.drafted, 'draft')}, gained {row.gained}"
        if row.drafted
        else f"gained {row.gained}"
    )
    told += f", {count(row.discarded, 'verified token')} thrown away" if row.discarded else ""
    if row.finished:
        return told + ("; ends with EOS" if scene.ended[at] else "; its budget is spent")
    return f"{told}; {_end(scene, at)}"


def _end(scene: Scene, at: int) -> str:
    """Where the row ends: before another one if they ended in one column, else its slot; or where it goes on past what was rejected."""
    if (onward := scene.onward(at)) is not None:
        return (
            f"its last token goes to slot {onward}, behind {count(onward - scene.ends[at], 'hole')}"
        )
    furthest = max(scene.ends, key=scene.ends.__getitem__)
    behind = scene.ends[furthest] - scene.ends[at]
    return (
        f"ends {count(behind, 'slot')} before row {furthest}"
        if scene.level and behind
        else f"ends in slot {scene.ends[at]}"
    )


def _synchronise(scene: Scene, at: int) -> str:
    row = scene.rows[at]
    if at not in scene.staying:
        return "leaves: its request has finished"
    motion = scene.motion.get(SYNCHRONISE)
    shift = motion.shifts.get(at, 0) if motion else 0
    told = (
        f"moved {count(abs(shift), 'slot')} to the {'right' if shift > 0 else 'left'}"
        if shift
        else "stayed where it was"
    )
    told += f"; ends in slot {row.pending_after}"
    told += f" with {count(scene.holes(at), 'hole')}" if scene.holes(at) > 0 else ""
    if scene.drift(at):
        told += f"; its next token gets position {scene.next_positions[at]} for index {row.length + row.gained - 1}"
    return told


ROW_WORDS: dict[str, Callable[[Scene, int], str]] = dict(
    zip(PHASES, (_schedule, _draft, _verify, _accept, _synchronise), strict=True)
)
