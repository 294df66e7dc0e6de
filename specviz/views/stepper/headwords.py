"""How a draft head came to its drafts, in words.

`batchwords` and `rowwords` ask here where a head drafts.
"""

from specviz.views.stepper.phrases import count
from specviz.views.stepper.scene import DRAFT, DRAFTER, BatchRow, Scene


def head_how(scene: Scene) -> str:
    """What the drafts were computed from, as part of a sentence."""
    forwards = scene.forwards[DRAFT, DRAFTER]
    if not forwards:
        return "from the row's last state in the target"
    how = f"in {count(forwards, 'forward')}"
    return f"{how}, from the row's last state" if scene.draft_kv == "none" else how


def head_words(scene: Scene) -> list[str]:
    """What the head read, and what it read behind the pending tokens."""
    read = sum(scene.features_read)
    first = f"read {count(read, 'accepted draft')} with the target's features" if read else ""
    goes_on = max((row.drafted for row in scene.rows), default=0) > 1
    if goes_on and scene.draft_kv == "provisional":
        onward = "went on with its own output"
        return [
            f"It {first}, then {onward}." if read else f"Behind the pending tokens it {onward}."
        ]
    if goes_on and scene.draft_kv == "masks":
        masks = "mask entries in place of the new drafts"
        return [f"It {first}, and {masks}." if read else f"It read {masks}."]
    return [f"It {first}."] if read else []


def row_head(scene: Scene, row: BatchRow) -> str:
    """How many accepted drafts of the row the head read; "" for none, and without a head."""
    read = scene.features_read[row.number]
    if not read:
        return ""
    return f", after reading {count(read, 'accepted draft')} with true features"
