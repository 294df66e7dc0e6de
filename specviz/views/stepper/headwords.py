"""How a draft head came to its drafts, in words.

`batchwords` and `rowwords` ask here where a head drafts.
"""

from specviz.util.text import count
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.scene import DRAFT, DRAFTER, Scene


def head_how(scene: Scene) -> str:
    """Say what the drafts were computed from, as part of a sentence."""
    forwards = scene.forwards[DRAFT, DRAFTER]
    if not forwards:
        return "from the row's last state in the target"
    how = f"in {count(forwards, 'forward')}"
    return f"{how}, from the row's last state" if scene.draft_kv == "none" else how


def head_words(scene: Scene) -> list[str]:
    """Say what the head read, and what it read behind the pending tokens."""
    read = sum(scene.features_read)
    sentences = [f"It read {count(read, 'accepted draft')} with the target's features."]
    if not read:
        sentences = []
    if scene.draft_kv == "masks":
        sentences.append("It filled in a block of masks, whose K/V lasts for this round.")
    # Else nothing was drafted behind a draft.
    deep = max((row.depth for row in scene.rows), default=0) > 1
    if scene.draft_kv == "provisional" and deep:
        then = "Then it" if read else "Behind the pending tokens it"
        sentences.append(f"{then} went on with its own output.")
    return sentences


def row_head(scene: Scene, row: BatchRow) -> str:
    """Say how many accepted drafts of the row the head read; "" for none, and without a head."""
    read = scene.features_read[row.number]
    if not read:
        return ""
    return f", after reading {count(read, 'accepted draft')} with true features"
