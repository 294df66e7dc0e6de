"""Say what could not be seen of a decoder.

Contract: sentences about forwards that were captured. Not known here: whether they are right.
"""

from collections import Counter
from collections.abc import Sequence

from specviz.checks.watch.capture import CapturedForward


def notes_on(
    forwards: Sequence[CapturedForward], forks: int, borrows: bool, untold: int, is_idle: bool
) -> list[str]:
    """Return what could not be seen, in sentences.

    Args:
        forwards: of all models.
        forks: rows that read a request which another row of the forward reads as well.
        borrows: whether drafts of fewer layers read K/V that all layers wrote.
        untold: how many drafts were verified behind what no call of a drafter read.
        is_idle: whether a drafter that reads hidden states was never called.
    """
    notes = []
    if forks:
        notes.append(
            f"{forks} rows read a request that another row of the forward read as well; which "
            "of them it went on with is guessed, so a fault that is named may be none"
        )
    if borrows:
        notes.append(
            "forwards of fewer layers read K/V that all layers wrote, so drafts are not judged"
        )
    if is_idle:
        notes.append(
            "neither a layer of the MTP model nor the forward of the DFlash drafter was called, so "
            "drafts are not judged"
        )
    if untold:
        notes.append(f"{untold} drafts were verified behind tokens that the drafter did not read")
    for model in ("target", "draft", "drafter"):
        own = [forward for forward in forwards if forward.model == model]
        unseen = [forward.unseen for forward in own if forward.unseen]
        if unseen:
            reason = Counter(unseen).most_common(1)[0][0]
            notes.append(
                f"masks of {len(unseen)} of {len(own)} forwards of the {model} could not "
                f"be seen: {reason}; the masks that were passed to it are judged instead"
            )
    return notes
