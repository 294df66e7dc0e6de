"""The drafters by name. A new one is a file here and an entry in DRAFTERS."""

from dataclasses import Field, fields
from typing import Any

import pandas as pd

from specviz.engine.drafters.base import Draft, Drafter, NoDrafter, Task
from specviz.engine.drafters.lookup import LookupDrafter
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.registry import make

__all__ = ["DRAFTERS", "Draft", "Drafter", "NoDrafter", "Task", "drafter", "drafters"]

DRAFTERS: dict[str, type[Drafter]] = {
    kind.name: kind for kind in (ModelDrafter, LookupDrafter, SyntheticDrafter)
}


def drafter(name: str, **options: Any) -> Drafter:
    """The drafter called `name` with `options`, for instance `drafter("lookup", max_ngram=4)`.

    Raises:
        ValueError: unknown name or option, or an option that cannot be used; the message lists the known ones.
    """
    return make("drafter", DRAFTERS, name, options)


def drafters() -> pd.DataFrame:
    """The registered drafters as a frame: drafter, description, options (with defaults, or "required" where one has to be given)."""
    options = [", ".join(map(_shown, fields(kind))) for kind in DRAFTERS.values()]
    return pd.DataFrame(
        {
            "drafter": list(DRAFTERS),
            "description": [kind.description for kind in DRAFTERS.values()],
            "options": options,
        }
    )


def _shown(option: Field[Any]) -> str:
    return (
        f"{option.name} (required)" if option.default == () else f"{option.name}={option.default!r}"
    )
