"""What is to be said of drafts that branch, and of how the accepted ones come to lie in one row.

`batchwords` and `rowwords` ask here where the drafts of a row are no chain, and where the phase
accept moved K/V.
"""

from collections.abc import Sequence

from specviz.util.text import count
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.phrases import agree, capitalised, names, span
from specviz.views.stepper.scene import DRAFTER, TARGET, Scene

Pairs = list[tuple[int, int]]


def trees_of(scene: Scene) -> str:
    """Say how the rows' drafts branch, as part of a sentence; "" where none of them does."""
    rows = scene.branching
    if not rows:
        return ""
    branches = span([row.branches for row in rows])
    deepest = max(row.depth for row in rows)
    return f" as trees of {branches} branches, up to {count(deepest, 'draft')} deep,"


def sight_of(scene: Scene) -> list[str]:
    """Say what the drafts of a tree attend to."""
    if not scene.branching:
        return []
    return ["A draft sees the drafts that it follows, and none of another branch."]


def row_tree(row: BatchRow) -> str:
    """Say how the row's drafts branch; "" for a chain."""
    if row.branches <= 1:
        return ""
    return f" on {row.branches} branches"


def row_path(row: BatchRow) -> str:
    """Say which drafts were accepted; "" for a chain."""
    if row.branches <= 1 or not row.accepted:
        return ""
    return f" ({_listed([draft + 1 for draft in row.path[: row.accepted]])})"


def compaction(scene: Scene) -> list[str]:
    """Say how the accepted drafts of trees came to lie where the row goes on."""
    working = [row for row in scene.branching if row.gained]
    if not working:
        return []
    moved = scene.compacted[TARGET]
    if moved:
        return _moved(scene, moved)
    holes = [row for row in working if _stays(row) and row.leaves_holes]
    if holes:
        return [_holes(scene, holes)]
    # A row that has finished is read by nothing any more.
    stray = [row for row in working if _stays(row) and not row.finished]
    if stray:
        return [_stray(stray[0])]
    if not any(row.accepted for row in working):
        return []
    if scene.compacted[DRAFTER]:
        moves = f"only the {scene.drafter}'s K/V moves"
        return [f"Accepted drafts lie behind their pending tokens: {moves}."]
    return ["Nothing moves: accepted drafts lie right behind their pending tokens."]


def _moved(scene: Scene, moved: dict[int, Pairs]) -> list[str]:
    """Name the row in which most moved, then the others."""
    number = max(sorted(moved), key=lambda each: len(moved[each]))
    row = scene.rows[number]
    pairs = moved[number]
    sources = [source for source, _ in pairs]
    drafts = _drafts([slot - row.pending - 1 for slot in sources])
    verb = agree(pairs, "moves", "move")
    become = agree(pairs, "becomes", "become")
    places = f"{_slots(sources)} {become} {_listed([target for _, target in pairs])}"
    where = f"{verb} behind the pending token: {places}"
    if sources[0] != row.pending + 1 and row.path[:1] == [0]:
        where = f"{verb} behind the drafts before {agree(pairs, 'it', 'them')}: {places}"
    sentences = [f"{capitalised(drafts)} of row {number} {where}."]
    others = sorted(set(moved) - {number})
    if others:
        drafts = count(sum(len(moved[each]) for each in others), "draft")
        sentences.append(f"So {agree(others, 'does', 'do')} {drafts} of {names(others, 'row')}.")
    return sentences


def _holes(scene: Scene, rows: list[BatchRow]) -> str:
    row = max(rows, key=lambda each: each.accepted)
    kept = row.kept_slots
    holes = [slot for slot in range(row.pending + 1, row.pending_after) if slot not in kept]
    where = " in the target's cache" if scene.compacted[DRAFTER] else ""
    drafts = _drafts(row.path[: len(kept)])
    stay = agree(kept, "stays", "stay")
    become = agree(holes, "becomes a hole", "become holes")
    return (
        f"Nothing moves{where}: {drafts} of row {row.number} {stay} in {_slots(kept)}; "
        f"{agree(holes, 'slot', 'slots')} {_ranges(holes)} {become}."
    )


def _stray(row: BatchRow) -> str:
    kept = row.kept_slots
    due = [row.pending + 1 + place for place in range(len(kept))]
    stray = [slot for slot, place in zip(kept, due, strict=True) if slot != place]
    wanted = [place for slot, place in zip(kept, due, strict=True) if slot != place]
    drafts = _drafts([slot - row.pending - 1 for slot in stray])
    lie = agree(stray, "lies", "lie")
    return (
        f"Nothing moves, although {drafts} of row {row.number} {lie} in {_slots(stray)} and the "
        f"row reads {_slots(wanted)}."
    )


def row_compaction(scene: Scene, row: BatchRow) -> str:
    """Say how many of the row's accepted drafts moved; "" where none did."""
    pairs = scene.compacted[TARGET].get(row.number, [])
    if pairs:
        return f", {count(len(pairs), 'accepted draft')} moved"
    if row.branches > 1 and _stays(row):
        return ", accepted drafts stay in their slots"
    return ""


def _stays(row: BatchRow) -> bool:
    """Return whether accepted drafts lie elsewhere than right behind the pending token."""
    kept = row.kept_slots
    return kept != [row.pending + 1 + place for place in range(len(kept))]


def _drafts(numbers: list[int]) -> str:
    """Name drafts: draft 3, or drafts 2, 3 and 5; numbers count from 0."""
    return _named("draft", [number + 1 for number in numbers])


def _slots(slots: list[int]) -> str:
    return _named("slot", slots)


def _named(noun: str, numbers: list[int]) -> str:
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {_listed(numbers)}"


def _listed(numbers: Sequence[int | str]) -> str:
    """List numbers: 12, 12 and 13, or 12, 13 and 15. All are named: they are few."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def _ranges(numbers: list[int]) -> str:
    """List ascending numbers, those in a row joined: 12, 14 to 16 and 20."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    words: list[int | str] = []
    for group in groups:
        words += [f"{group[0]} to {group[-1]}"] if len(group) > 2 else group
    return _listed(words)
