"""How many of the drafts are verified, and what the round's capacity is spent on, in words.

`batchwords` and `rowwords` ask here in rounds whose drafts are not all verified.
"""

from specviz.util.text import count
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.phrases import row_names, span
from specviz.views.stepper.scene import Scene


def to_be_verified(scene: Scene) -> str:
    """Say how many of the batch's drafts the target is going to read."""
    drafted = sum(row.drafted for row in scene.rows)
    verified = sum(row.verified for row in scene.rows)
    are = "is" if verified <= 1 else "are"
    return f"{verified or 'none'} of these {count(drafted, 'draft')} {are} to be verified"


def spent(scene: Scene) -> list[str]:
    """Say what the round's capacity is spent on."""
    if scene.capacity is None:
        return []
    drafting = [row for row in scene.rows if row.drafted]
    used = sum(row.verified for row in drafting)
    capacity = f"the round's capacity of {count(scene.capacity, 'draft')}"
    if not used:
        return [f"None of {capacity} is used."]
    if used >= scene.capacity:
        return [f"T{capacity[1:]} is spent: {_shares(drafting)}."]
    return [f"Of {capacity}, {used} {'is' if used == 1 else 'are'} used: {_shares(drafting)}."]


def _shares(drafting: list[BatchRow]) -> str:
    """Say which rows the capacity goes to."""
    best = max(drafting, key=lambda row: row.verified)
    worst = min(drafting, key=lambda row: row.verified)
    if len(drafting) == 1:
        return f"{row_names(drafting)} gets {best.verified}"
    if best.verified == worst.verified:
        return f"each row gets {best.verified}"
    fewest = f"{worst.verified} (row {worst.number})"
    return f"rows get {fewest} to {best.verified} (row {best.number})"


def tokens_read(scene: Scene) -> str:
    """Say what the target's verification reads of the batch."""
    verified = [row.verified for row in scene.rows]
    tokens = count(sum(verified) + len(verified), "token")
    drafts = f" and {span(verified, 'draft')}" if any(verified) else ""
    return f"each row's pending token{drafts}, {tokens} in all,"


def row_to_be_verified(row: BatchRow) -> str:
    """Say how many of the row's drafts the target is going to read."""
    return f"{row.verified or 'none'} of {count(row.drafted, 'draft')} to be verified"


def row_read(row: BatchRow) -> str:
    """Say what the target read behind the row's pending token."""
    if not row.verified:
        return f" and none of its {count(row.drafted, 'draft')}"
    return f" and {row.verified} of its {count(row.drafted, 'draft')} after it"


def row_accepted(row: BatchRow) -> str:
    """Say how many of the drafts that the target read it accepted."""
    if not row.verified:
        return "none of its drafts verified"
    return f"accepted {row.accepted} of {count(row.verified, 'verified draft')}"
