"""`draw_tree`: draw a tree by choosing from the drafts of a recorded round.

Contract: reads one row of one round of a Trace. The tree is drawn by `token_tree` again after each
choice. Not known here: models; only drafts that were recorded can be chosen.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go

from specviz.record.trace import Trace
from specviz.util.text import shorten, visible
from specviz.util.validate import is_count, is_list, require_int, require_kind, short
from specviz.views.charts.redrawn import Redrawn
from specviz.views.charts.trees import MOST, token_tree

Path = tuple[int, ...]

_LETTERS = 9  # of a token on its button
_NAME = {"width": "190px"}
_BUTTON = {"width": "128px"}


def draw_tree(
    trace: Trace,
    *,
    round: int = 0,
    row: int = 0,
    most: int = 6,
    start: Sequence[Sequence[int]] = (),
) -> "TreeDrawing":
    """Return buttons for the drafts of a recorded round, and the tree of those that are pressed.

    The round should have drafted a large tree, for instance four tokens after each token. Each
    draft that is pressed offers those that follow it. Its tree can be drafted again, by
    `sv.drafter("static_tree", paths=drawing.paths)`.

    Args:
        trace: of a run that decoded greedily or with coupling="gumbel", where the target's choice
            after a token does not depend on what was drafted.
        round, row: of the record.
        most: how many drafts the tree may have.
        start: the drafts that are pressed at first, each by the ranks on its branch, as the
            `paths` of the drafter `static_tree`.

    Raises:
        ValueError: the record has no such round, row or draft, or an argument is of a wrong kind.
    """
    require_kind("trace", trace, Trace, "pass result.trace of a run with record=True")
    require_int("round", round, minimum=0, maximum=max(trace.num_rounds - 1, 0))
    most = require_int("most", most, minimum=1, maximum=MOST)
    sampling = trace.meta["sampling"]
    if sampling is not None and sampling.get("coupling") != "gumbel":
        raise ValueError(
            'trace must be of a run that decoded greedily or with coupling="gumbel", got '
            f"{short(sampling)}; with other sampling another tree may get other choices"
        )
    entries = np.arange(len(trace.rows["round"]))[trace.index.rows_of(round)]
    row = require_int("row", row, minimum=0, maximum=max(len(entries) - 1, 0))
    drafts = Drafts(trace, int(entries[row]))
    return TreeDrawing(drafts, most, _checked_start(start, drafts, most))


def _checked_start(start: Any, drafts: "Drafts", most: int) -> list[Path]:
    paths = [tuple(path) if is_list(path) else () for path in start] if is_list(start) else [()]
    chosen: list[Path] = []
    for path in paths:
        known = all(is_count(rank) for rank in path) and path in drafts.number
        if not known or (len(path) > 1 and path[:-1] not in chosen) or len(chosen) == most:
            raise ValueError(
                f"start must be at most {most} paths of recorded drafts, each behind the one that "
                f"it continues, got {short(start)}; pass for instance [[0], [0, 0]]"
            )
        chosen.append(path)
    return chosen


class Drafts:
    """The drafts of one entry of the table `rows`.

    Attributes:
        paths: of each draft the ranks on its branch.
        number: of each path, the draft's number.
        tokens: texts of the pending token and of the drafts.
        q: of each draft, NaN where it is not known.
        accepted: the paths of the accepted drafts.
        position, slot: of the pending token.
    """

    def __init__(self, trace: Trace, entry: int) -> None:
        rows = {name: column[entry] for name, column in trace.rows.items()}
        count = int(rows["verified"])
        self.paths: list[Path] = []
        siblings = dict.fromkeys(range(-1, count), 0)
        for parent in rows["parents"][:count].tolist():
            before = self.paths[parent] if parent >= 0 else ()
            self.paths.append((*before, siblings[parent]))
            siblings[parent] += 1
        self.number = {path: number for number, path in enumerate(self.paths)}
        accepted = rows["path"][: rows["accepted"]].tolist()
        self.accepted = [self.paths[number] for number in accepted]
        self.q = np.exp(rows["draft_logprob"][:count]).tolist()
        self.position = int(rows["length"]) - 1
        self.slot = int(rows["pending"])
        request = int(rows["request"])
        text = [*trace.prompt(request), *trace.output(request)]
        pending = text[self.position]
        self.tokens = [trace.text(int(token)) for token in (pending, *rows["drafts"][:count])]

    def text(self, path: Path) -> str:
        """Return the text of a draft, or of the pending token for the empty path."""
        return self.tokens[self.number[path] + 1] if path else self.tokens[0]

    def after(self, path: Path) -> list[Path]:
        """Return the drafts that follow a draft, or the pending token."""
        return [each for each in self.paths if each[:-1] == path]


class TreeDrawing(Redrawn):
    """Made by `draw_tree`.

    Attributes:
        buttons: of each draft, by its path.
        reveal: whether it is shown which drafts the target accepts.
        figure: the chart that was drawn last.
    """

    def __init__(self, drafts: Drafts, most: int, start: Sequence[Path]) -> None:
        self._drafts = drafts
        self._most = most
        self._groups: dict[Path, widgets.HBox] = {}
        self._is_changing = False
        self.buttons = {path: self._button(path, path in start) for path in drafts.paths}
        self.reveal = widgets.ToggleButton(
            description="show what the target accepts", icon="eye", layout={"width": "240px"}
        )
        self._count = widgets.HTML(layout=_NAME)
        self._lines = widgets.VBox()
        self._offer()
        head = widgets.HBox([self._count, *_rank_heads(drafts)])
        super().__init__([head, self._lines, self.reveal], "")
        self.reveal.observe(self._update, "value")
        for button in self.buttons.values():
            button.observe(self._press, "value")

    @property
    def paths(self) -> list[Path]:
        """The drafts of the tree, parents first, each by the ranks on its branch."""
        return [path for path in self._drafts.paths if self.buttons[path].value]

    @property
    def parents(self) -> list[int]:
        """For each draft of the tree the one that it follows, -1 for the pending token."""
        number = {path: j for j, path in enumerate(self.paths)}
        return [number.get(path[:-1], -1) for path in self.paths]

    def draw(self) -> go.Figure:
        paths = self.paths
        accepted = [j for j, path in enumerate(paths) if path in self._drafts.accepted]
        names = ", ".join("-".join(map(str, path)) for path in paths) or "none"
        self._alt = f"a tree of drafts, by the ranks on their branches: {names}"
        return token_tree(
            self.parents,
            [self._drafts.text(path) for path in ((), *paths)],
            position=self._drafts.position,
            slot=self._drafts.slot,
            path=accepted if self.reveal.value else None,
        )

    def _button(self, path: Path, is_pressed: bool) -> widgets.ToggleButton:
        q = self._drafts.q[self._drafts.number[path]]
        label = shorten(visible(self._drafts.text(path)), _LETTERS)
        after = visible(self._drafts.text(path[:-1]))
        return widgets.ToggleButton(
            value=is_pressed,
            description=label if np.isnan(q) else f"{label}  {q:.2f}",
            tooltip=f"rank {path[-1]} after {after}",
            layout=_BUTTON,
        )

    def _press(self, change: Any) -> None:
        """Take what follows a released draft out of the tree, and draw it again."""
        if self._is_changing:
            return
        self._is_changing = True
        try:
            for path, button in self.buttons.items():
                if len(path) > 1 and not self.buttons[path[:-1]].value:
                    button.value = False
        finally:
            self._is_changing = False
        self._offer()
        self._update()

    def _offer(self) -> None:
        """Show the drafts that can be pressed, a line for each token that they follow."""
        paths = self.paths
        for button in self.buttons.values():
            button.disabled = len(paths) >= self._most and not button.value
            button.icon = "check" if button.value else ""
        groups = [self._group(path) for path in ((), *paths) if self._drafts.after(path)]
        # Those in front of a change stay as they are, and so keep the keyboard's focus.
        self._lines.children = groups
        self._count.value = f"<b>{len(paths)} of {self._most} drafts</b>"

    def _group(self, path: Path) -> widgets.HBox:
        if path not in self._groups:
            text = html.escape(shorten(visible(self._drafts.text(path)), _LETTERS))
            words = f"depth {len(path) + 1}, after <code>{text}</code>"
            name = widgets.HTML(words, layout=_NAME)
            buttons = [self.buttons[each] for each in self._drafts.after(path)]
            self._groups[path] = widgets.HBox([name, *buttons])
        return self._groups[path]


def _rank_heads(drafts: Drafts) -> list[widgets.HTML]:
    count = 1 + max((path[-1] for path in drafts.paths), default=-1)
    style = "text-align: center; opacity: 0.7"
    words = [f'<div style="{style}">rank {rank}</div>' for rank in range(count)]
    return [widgets.HTML(word, layout=_BUTTON) for word in words]
