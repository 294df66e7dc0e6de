"""Measurements as files: a table as CSV, and beside it, as JSON, what it was measured on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.writing import write

KEPT = ("device", "dtype", "versions", "created", "target", "draft")


def conditions(meta: Mapping[str, Any], **asked: object) -> dict[str, object]:
    """What a run says of its device, dtype, versions, date and models, and what was asked of it. No path is among them."""
    return {name: meta[name] for name in KEPT} | asked


def save_measured(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> list[Path]:
    """Write `table` to `path` (CSV, five digits) and `conditions` beside it (JSON), each whole or not at all; returns both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {
        path: table.to_csv(index=False, float_format="%.5g"),
        path.with_suffix(".json"): json.dumps(conditions, indent=2) + "\n",
    }
    for file, text in texts.items():
        write(file, text.encode())
    return list(texts)
