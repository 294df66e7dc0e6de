"""The drafters by name. A new one is a file here and an entry in DRAFTERS."""

from typing import Any

from specviz.engine.drafters.base import Draft, Drafter, NoDrafter
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.registry import make

__all__ = ["DRAFTERS", "Draft", "Drafter", "NoDrafter", "drafter"]

DRAFTERS: dict[str, type[Drafter]] = {kind.name: kind for kind in (ModelDrafter,)}


def drafter(name: str, **options: Any) -> Drafter:
    """The drafter called `name` with `options`.

    Raises:
        ValueError: unknown name or option; the message lists the known ones.
    """
    return make("drafter", DRAFTERS, name, options)
