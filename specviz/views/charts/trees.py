"""`token_tree`: a tree of drafts, and what follows from it: positions, slots and the mask.

Contract: parents in, a plotly Figure of fixed size out. Not known here: records and drafters.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from specviz.record.trees import ancestors, depths, leaves
from specviz.util.text import escape, shorten, visible
from specviz.util.validate import is_count, is_int, is_list, require_bool, require_int, short
from specviz.views.charts.canvas import Look, boxes, canvas, lines, texts, title, write_into
from specviz.views.theme import BLUE, GREEN, GREY, Theme, ThemeName, solid, themed, tint

Edge = tuple[float, float, float, float]

MOST = 16  # drafts; more cannot be read
_FARTHEST = 10**6  # position or slot that can be written
TREE_LOOKS = {
    "pending": Look("", GREY, 0.2),
    "draft": Look("", BLUE, 0.14),
    "accepted": Look("✓ accepted", GREEN, 0.3),
    "left": Look("not accepted", GREY, 0.05),
}
# all in px
_LEFT = 10.0
_TOP = 110.0
_ROW = 30.0
_LARGEST_DEPTH = 106.0  # from one depth to the next
_LARGEST_TREE = 560.0
_BOX_SHARE = 0.67  # of a depth; the lines run in the rest
_LETTER = 7.3
_COLUMNS = (("draft", 58.0), ("follows", 58.0), ("position", 62.0), ("slot", 44.0))
_TEXT = 54.0  # of the cell for all committed tokens
_CELL = 27.0


class _Tree(NamedTuple):
    """parents (N,); depths (N+1,) and names by line, the pending token's first; its numbers."""

    parents: list[int]
    depths: list[int]
    names: list[str]
    position: int
    slot: int

    @property
    def pitch(self) -> float:
        """How far apart two depths are drawn."""
        return min(_LARGEST_DEPTH, _LARGEST_TREE / (1 + max(self.depths)))

    @property
    def box(self) -> float:
        """The width of a token's box."""
        return self.pitch * _BOX_SHARE

    def left(self, line: int) -> float:
        """Return where the box of a line begins."""
        return _LEFT + self.depths[line] * self.pitch


def token_tree(
    parents: Sequence[int],
    tokens: Sequence[str] | None = None,
    *,
    position: int = 0,
    slot: int = 0,
    path: Sequence[int] | None = None,
    mask: bool = True,
    theme: ThemeName = "auto",
) -> go.Figure:
    """Draw a tree of drafts, and beside each token its position, its slot and what it attends to.

    There is a line for each token that a verification reads: the pending token, then the drafts in
    order. In a line of the mask, 1 stands for a slot that the token attends to. All slots before
    the pending token's are drawn as one.

    Args:
        parents: (N,) the draft that each draft follows, counted from 0; -1 for the pending token.
        tokens: the text of the pending token and of each draft; None for their names.
        position, slot: of the pending token, ints from 0 to a million.
        path: the accepted drafts from the first one on; None where nothing is judged yet.
        mask: whether to draw the mask.
        theme: "auto" takes its text colour from the page; "light", "dark".

    Raises:
        ValueError: parents are those of no tree, or another argument does not fit them.
    """
    numbers = _checked_parents(parents)
    names = ["pending", *(f"d{number + 1}" for number in range(len(numbers)))]
    tree = _Tree(
        numbers,
        [0, *depths(np.array([numbers], int).reshape(1, -1))[0].tolist()],
        names,
        require_int("position", position, minimum=0, maximum=_FARTHEST),
        require_int("slot", slot, minimum=0, maximum=_FARTHEST),
    )
    labels = _checked_tokens(tokens, tree)
    accepted = _checked_path(path, tree)
    require_bool("mask", mask)
    painted = themed(theme)
    table = _LEFT + (max(tree.depths) + 1) * tree.pitch
    grid = table + sum(width for _, width in _COLUMNS) + 10
    right = grid + _TEXT + len(names) * _CELL if mask else grid
    foot = 20 if accepted is None else 46
    figure = canvas(painted, max(right + 14, 620), _TOP + len(names) * _ROW + foot)
    figure.add_traces(_edges(tree, accepted))
    figure.add_traces(_nodes(tree, painted, labels, accepted))
    figure.add_traces(_table(tree, painted, table, accepted or []))
    if mask:
        figure.add_traces(_mask(tree, painted, grid))
    return figure.add_traces(title(painted, *_headings(tree, accepted)))


def _checked_parents(parents: Any) -> list[int]:
    given = parents.tolist() if isinstance(parents, np.ndarray) else parents
    fits = is_list(given) and len(given) <= MOST and all(is_int(each) for each in given)
    if not fits or not all(-1 <= each < number for number, each in enumerate(given)):
        raise ValueError(
            f"parents must be at most {MOST} ints, each -1 or an earlier draft, got "
            f"{short(parents)}; pass for each draft the number of the one that it follows"
        )
    return [int(each) for each in given]


def _checked_tokens(tokens: Any, tree: _Tree) -> list[str]:
    """Return what is written into the boxes, as markup."""
    count = len(tree.names)
    if tokens is None:
        return [escape(name) for name in tree.names]
    if not is_list(tokens) or len(tokens) != count or not all(isinstance(t, str) for t in tokens):
        raise ValueError(
            f"tokens must be {count} strings, got {short(tokens)}; "
            "pass the text of the pending token and of each draft"
        )
    letters = int((tree.box - 6) / _LETTER)
    return [escape(shorten(visible(token), letters)) for token in tokens]


def _checked_path(path: Any, tree: _Tree) -> list[int] | None:
    if path is None:
        return None
    last = -1
    for number in path if is_list(path) else [None]:
        if not is_count(number) or number >= len(tree.parents) or tree.parents[number] != last:
            raise ValueError(
                f"path must hold drafts that follow one another from the pending token on, got "
                f"{short(path)}; pass the accepted drafts, counted from 0"
            )
        last = int(number)
    return [int(number) for number in path]


def _headings(tree: _Tree, accepted: list[int] | None) -> tuple[str, str]:
    count = len(tree.parents)
    branches = int(leaves(np.array([tree.parents], int).reshape(1, -1), np.array([count]))[0])
    heading = f"{_counted(count, 'draft')} on {_counted(branches, 'branch', 'branches')}"
    if accepted is not None:
        gained = _counted(len(accepted) + 1, "token")
        heading = f"{len(accepted)} of {_counted(count, 'draft')} accepted: the row gains {gained}"
    return heading, "a line for each token that the target reads"


def _counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _middle(line: int) -> float:
    return _TOP + _ROW * (line + 0.5)


def _edges(tree: _Tree, accepted: list[int] | None) -> list[go.Scatter]:
    """Draw lines from each parent to its child; those of the accepted branch are thick."""
    thin: list[Edge] = []
    thick: list[Edge] = []
    for number, parent in enumerate(tree.parents):
        start = (tree.left(parent + 1) + tree.box, _middle(parent + 1))
        edge = (*start, tree.left(number + 1), _middle(number + 1))
        (thick if accepted is not None and number in accepted else thin).append(edge)
    found = [
        lines("edges", "", thin, tint(GREY, 0.9)).update(line={"width": 1.2}),
        lines("accepted edges", "", thick, solid(GREEN)).update(line={"width": 3.5}),
    ]
    return [each.update(showlegend=False) for each in found]


def _nodes(
    tree: _Tree, theme: Theme, labels: list[str], accepted: list[int] | None
) -> list[go.Bar | go.Scatter]:
    kinds = ["pending"]
    for number in range(len(tree.parents)):
        if accepted is None:
            kinds.append("draft")
        else:
            kinds.append("accepted" if number in accepted else "left")
    parts: list[go.Bar | go.Scatter] = []
    for kind, look in TREE_LOOKS.items():
        own = [line for line, each in enumerate(kinds) if each == kind]
        if not own:
            continue
        left = [tree.left(line) for line in own]
        top = [_TOP + line * _ROW + 4 for line in own]
        bars = boxes(kind, look, left, top, tree.box, _ROW - 8)
        if look.legend:
            bars.update(name=theme.inked(look.legend))
        parts.append(write_into(bars, [labels[line] for line in own], theme.inked("%{text}"), 12))
    deepest = range(max(tree.depths) + 1)
    middles = [_LEFT + depth * tree.pitch + tree.box / 2 for depth in deepest]
    heads = [theme.faded(str(depth) if depth else "depth 0") for depth in deepest]
    return [*parts, texts("depths", middles, _TOP - 14, heads, 11)]


def _table(tree: _Tree, theme: Theme, left: float, accepted: list[int]) -> list[go.Scatter]:
    """Name, parent, position and slot of each token, under their headings."""
    names = [*tree.names]
    for number in accepted:
        names[number + 1] = f"✓ {names[number + 1]}"
    follows = ["", *(tree.names[parent + 1] for parent in tree.parents)]
    columns = {
        "draft": names,
        "follows": follows,
        "position": [str(tree.position + depth) for depth in tree.depths],
        "slot": [str(tree.slot + line) for line in range(len(tree.names))],
    }
    middles = [_middle(line) for line in range(len(tree.names))]
    parts = []
    for name, width in _COLUMNS:
        x = left + width / 2
        words = [theme.inked(word) for word in columns[name]]
        parts.append(texts(f"{name} column", x, middles, words, 12))
        parts.append(texts(f"{name} head", x, _TOP - 14, [theme.faded(name)], 11))
        left += width
    return parts


def _mask(tree: _Tree, theme: Theme, left: float) -> list[go.Heatmap | go.Scatter]:
    """Draw a line for each token, a column for each slot of the tree, and one for all before."""
    seen = ancestors(np.array([tree.parents], int).reshape(1, -1))[0].astype(int)
    columns = [left + _TEXT + _CELL * (column + 0.5) for column in range(len(seen))]
    slots = [theme.faded(str(tree.slot + column)) for column in range(len(seen))]
    across = left + (_TEXT + _CELL * len(seen)) / 2
    parts = [
        _cells(theme, "mask", seen, left + _TEXT, _CELL),
        texts("slots", columns, _TOP - 14, slots, 11),
        texts("mask head", across, _TOP - 34, [theme.faded("attends to slot")], 11),
    ]
    if tree.slot:  # with an empty text nothing stands before the pending token
        before = "0" if tree.slot == 1 else f"0–{tree.slot - 1}"
        parts.append(_cells(theme, "committed", np.ones((len(seen), 1), int), left, _TEXT - 6))
        head = [theme.faded(before)]
        parts.append(texts("committed head", left + _TEXT / 2 - 3, _TOP - 14, head, 11))
    return parts


def _cells(theme: Theme, kind: str, seen: np.ndarray, left: float, width: float) -> go.Heatmap:
    return go.Heatmap(
        meta={"kind": kind},
        z=seen.tolist(),
        x0=left + width / 2,
        y0=_TOP + _ROW / 2,
        dx=width,
        dy=_ROW,
        zmin=0,
        zmax=1,
        colorscale=[[0, tint(GREY, 0.08)], [1, tint(BLUE, 0.4)]],
        showscale=False,
        xgap=2,
        ygap=2,
        texttemplate=theme.inked("%{z}"),
        textfont={"size": 12},
        hoverinfo="skip",
    )
