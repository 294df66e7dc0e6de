"""The selectors by name. A new one is a file here and an entry in SELECTORS."""

from dataclasses import fields
from typing import Any

import pandas as pd

from specviz.engine.registry import make
from specviz.engine.selectors.base import (
    Everything,
    Selector,
    check_choice,
    check_plan,
    check_scores,
    check_selection,
    foresees,
    most_drafted,
)
from specviz.engine.selectors.tetris import Tetris
from specviz.engine.selectors.threshold import Threshold

__all__ = [
    "SELECTORS",
    "Everything",
    "Selector",
    "Tetris",
    "Threshold",
    "check_choice",
    "check_plan",
    "check_scores",
    "check_selection",
    "foresees",
    "most_drafted",
    "selector",
    "selectors",
]

SELECTORS: dict[str, type[Selector]] = {kind.name: kind for kind in (Everything, Tetris, Threshold)}


def selector(name: str, **options: Any) -> Selector:
    """Return the selector called `name` with `options`: `selector("tetris", extra=3)`.

    Raises:
        ValueError: an unknown name or option (the message lists the known ones), or an option with
            an unusable value.
    """
    return make("selector", SELECTORS, name, options)


def selectors() -> pd.DataFrame:
    """Return the registered selectors: columns selector, description and options."""
    rows = []
    for name, kind in SELECTORS.items():
        options = ", ".join(f"{option.name}={option.default!r}" for option in fields(kind))
        rows.append({"selector": name, "description": kind.description, "options": options})
    return pd.DataFrame(rows)
