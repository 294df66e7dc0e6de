"""Make a strategy or a drafter from its name and options."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from specviz.engine.names import require_known

T = TypeVar("T")
_PLAIN = (bool, int, float, str, list, tuple, type(None))


def changed(made: Any, options: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the options of a strategy, drafter or baseline that are not the default.

    Args:
        options: those to look at; None: all that it was made with.
    """
    defaults = {field.name: field.default for field in fields(made)}
    found = {}
    for name, value in (made.options if options is None else options).items():
        if name not in defaults or value != defaults[name]:
            found[name] = value
    return found


def plain_options(made: Any) -> dict[str, Any]:
    """Return the options of a strategy, drafter or selector that a record can keep, by name.

    A record keeps JSON, so numbers of numpy become those of Python.

    Models, tensors and dicts are left out: they are what it works with.
    """
    found = {}
    for field in fields(made):
        value = getattr(made, field.name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, _PLAIN):
            found[field.name] = value
    return found


def described(kind: str, known: Mapping[str, Any]) -> pd.DataFrame:
    """Return a frame with the columns `kind`, description and options.

    Options come with their defaults, or with "required" where they have none.
    """
    rows = []
    for name, made in known.items():
        options = [
            f"{field.name} (required)" if field.default == () else f"{field.name}={field.default!r}"
            for field in fields(made)
        ]
        rows.append({kind: name, "description": made.description, "options": ", ".join(options)})
    return pd.DataFrame(rows)


def make(kind: str, known: Mapping[str, type[T]], name: str, options: Mapping[str, Any]) -> T:
    """Return an object of the class that is registered as `name` in `known`, made with `options`.

    Raises:
        ValueError: the name or an option is unknown; the message lists the known ones.
    """
    require_known(kind, known, name)
    chosen = known[name]
    offered = sorted(field.name for field in fields(chosen)) if is_dataclass(chosen) else []
    unknown = sorted(set(options) - set(offered))
    if unknown:
        remedy = f"its options are {', '.join(offered)}" if offered else "it has none"
        raise ValueError(f"{kind} {name!r} takes no option {unknown[0]!r}; {remedy}")
    return chosen(**options)
