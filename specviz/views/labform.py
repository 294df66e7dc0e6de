"""The parts of the form of `lab`: fields, buttons, progress, and what is said beside them.

Contract: names and default values go in, ipywidgets come out. Not known here: what is run.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

NOTHING = "nothing"
GRID = {"grid_template_columns": "repeat(auto-fill, minmax(340px, 1fr))"}
MOST = {"num_draft_tokens": 10, "batch_size": 32, "max_new_tokens": 128}
_LAYOUT: dict[str, Any] = {"style": {"description_width": "140px"}, "layout": {"width": "auto"}}
_WIDE: dict[str, Any] = {
    "style": {"description_width": "140px"},
    "layout": {"width": "auto", "grid_column": "1 / -1"},
}
_WORDS = {
    "num_draft_tokens": "drafts a row (K)",
    "batch_size": "rows (B)",
    "max_new_tokens": "new tokens a prompt",
}


class Status(anywidget.AnyWidget):
    """One line of text: what is being done, or what went wrong.

    The page itself adds when the kernel has ended, which the kernel cannot say.
    """

    _esm = (files("specviz.views") / "status.js").read_text(encoding="utf-8")

    value = traitlets.Unicode("").tag(sync=True)


class Progress:
    """A bar over the new tokens of a run, and buttons that start and cancel it.

    Attributes:
        run, cancel: the buttons.
        bar: how much of the run is done; hidden while nothing runs.
        status: the line of text.
    """

    def __init__(self) -> None:
        self.run = widgets.Button(
            description="Run", button_style="primary", icon="play", layout={"width": "120px"}
        )
        self.cancel = widgets.Button(description="Cancel", icon="stop", disabled=True)
        self.bar = widgets.IntProgress(layout={"width": "180px", "visibility": "hidden"})
        self.status = Status()
        parts = [self.run, self.cancel, self.bar, self.status]
        self.root = widgets.HBox(parts, layout={"align_items": "center"})

    def begin(self, most: int) -> None:
        """Show that a run has begun. most: how many tokens there may be."""
        self.run.disabled = True
        self.cancel.disabled = False
        self.bar.value = 0
        self.bar.max = most
        self.bar.layout.visibility = "visible"

    def end(self) -> None:
        self.run.disabled = False
        self.cancel.disabled = True
        self.bar.layout.visibility = "hidden"


def fields(
    strategies: Sequence[str],
    drafters: Sequence[str],
    faults: Sequence[str],
    prompts: int,
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the form's fields by name.

    prompts: how many there are to choose from; defaults: by option of `generate`.
    """
    made: dict[str, Any] = {
        "strategy": _dropdown(strategies, "strategy", defaults["strategy"]),
        "fault": _dropdown([NOTHING, *faults], "break", NOTHING),
        "compare": _dropdown([NOTHING, *strategies], "compare with", NOTHING),
        "drafter": _dropdown(drafters, "drafter", defaults["drafter"]),
        "acceptance": _float(0.8, 1, "acceptance", step=0.05),
    }
    for name, text in _WORDS.items():
        made[name] = _int(min(defaults[name], MOST[name]), 1, MOST[name], text)
    made |= {
        "temperature": _float(0, 1.5, "temperature", step=0.1),
        "seed": _int(defaults["seed"], 0, 2**31 - 1, "seed"),
        "prompts": _int(min(defaults["batch_size"], prompts), 1, prompts, "prompts"),
        "own_prompt": widgets.Textarea(
            description="own prompt",
            placeholder="one prompt, instead of those above",
            rows=2,
            **_WIDE,
        ),
    }
    return made


def _dropdown(options: Sequence[str], text: str, value: str) -> widgets.Dropdown:
    return widgets.Dropdown(options=[*options], value=value, description=text, **_LAYOUT)


# Number fields have names for screen readers; the sliders of ipywidgets have none.
def _int(value: int, low: int, high: int, text: str) -> widgets.BoundedIntText:
    return widgets.BoundedIntText(value=value, min=low, max=high, description=text, **_LAYOUT)


def _float(value: float, high: float, text: str, step: float) -> widgets.BoundedFloatText:
    return widgets.BoundedFloatText(
        value=value, min=0, max=high, step=step, description=text, **_LAYOUT
    )
