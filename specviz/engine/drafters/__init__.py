"""The drafters by name. A new one is a file here and an entry in DRAFTERS."""

from typing import Any

import pandas as pd

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter, NoDrafter, Task
from specviz.engine.drafters.chains import LookupDrafter, ModelDrafter, SyntheticDrafter
from specviz.engine.drafters.heads import (
    CloverDrafter,
    DFlashDrafter,
    Eagle3Drafter,
    MedusaDrafter,
    MtpDrafter,
)
from specviz.engine.drafters.trees import StaticTree, TreeDrafter
from specviz.engine.registry import described, make

__all__ = [
    "DRAFTERS",
    "Draft",
    "Drafter",
    "NoDrafter",
    "Task",
    "drafter",
    "drafters",
]

DRAFTERS: dict[str, type[Drafter]] = {
    kind.name: kind
    for kind in (
        ModelDrafter,
        LookupDrafter,
        SyntheticDrafter,
        TreeDrafter,
        StaticTree,
        Eagle3Drafter,
        MtpDrafter,
        DFlashDrafter,
        MedusaDrafter,
        CloverDrafter,
    )
}


def drafter(name: str, **options: Any) -> Drafter:
    """Return the drafter called `name` with `options`: `drafter("lookup", max_ngram=4)`.

    Raises:
        ValueError: an unknown name or option (the message lists the known ones), or an option with
            an unusable value.
    """
    return make("drafter", DRAFTERS, name, options)


def drafters() -> pd.DataFrame:
    """Return the registered drafters: columns drafter, description and options.

    Options come with their defaults, or with "required" where they have none.
    """
    return described("drafter", DRAFTERS)
