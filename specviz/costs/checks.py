"""Check the numbers that formulas of costs are given. Not known here: what they mean."""

from typing import Any

import numpy as np

from specviz.util.validate import is_finite, short


def check_numbers(name: str, values: Any) -> None:
    """Raise ValueError unless `values` is a finite number >= 0, or an array of such."""
    usable = is_finite(values) and values >= 0
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        usable = bool((np.isfinite(values) & (values >= 0)).all())
    if not usable:
        raise ValueError(
            f"{name} must be a finite number >= 0 or an array, got {short(values)}; pass numbers"
        )


def check_all_numbers(**values: Any) -> None:
    """Call `check_numbers` on each argument."""
    for name, value in values.items():
        check_numbers(name, value)
