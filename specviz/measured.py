"""Measurements as files: a table as CSV, and beside it, as JSON, what it was measured on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.writing import beside, make_folder, write

KEPT = ("device", "dtype", "versions", "created", "target", "draft")


def conditions(meta: Mapping[str, Any], **asked: object) -> dict[str, object]:
    """What a run says of its device, dtype, versions, date and models, and what was asked of it. No path is among them."""
    return {name: meta[name] for name in KEPT} | asked


def save_measured(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> list[Path]:
    """Write `table` to `path` (CSV, five digits) and `conditions` beside it (JSON), both whole or neither; returns both paths.

    Raises WriteError.
    """
    make_folder(path.parent)
    told = path.with_suffix(".json")
    with beside(path) as partial:
        partial.write_bytes(table.to_csv(index=False, float_format="%.5g").encode())
        write(told, (json.dumps(conditions, indent=2) + "\n").encode())
    return [path, told]
