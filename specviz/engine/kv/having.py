"""Let modules of a model have other attributes for a while.

Contract: whatever happens inside, each has its own back afterwards. Not known here: what they are.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def having(name: str, values: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Let the attribute `name` of modules be these values, inside the context."""
    # Libraries that spread a model over devices leave forwards of their own on its modules.
    before = {module: vars(module).get(name) for module in values}
    try:
        for module, value in values.items():
            vars(module)[name] = value  # found before a method or a buffer of this name
        yield
    finally:
        for module, own in before.items():
            vars(module).pop(name, None)
            if own is not None:
                vars(module)[name] = own
