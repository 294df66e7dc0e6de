"""The source of models' classes, from which some of their needs can be read.

Not known here: what it means.
"""

import inspect
from functools import cache
from typing import Any


@cache
def source_of(code: Any) -> str:
    """Return the source of a class or function of a model; "" where it has no file."""
    if code.__module__.startswith("torch."):
        return ""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""
