"""Go on with a table of measurements that an interrupted study has left."""

import json
from pathlib import Path
from typing import Any

import pandas as pd


def kept_entries(path: Path | None, conditions: dict[str, object]) -> list[dict[str, Any]]:
    """Return the entries in `path` if they were measured under the same conditions."""
    if path is None or not path.is_file() or not path.with_suffix(".json").is_file():
        return []
    before = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    # Any other library, model or setting makes results that do not compare; the date may differ.
    same = {**before, "created": ""} == {**conditions, "created": ""}
    return pd.read_csv(path).to_dict("records") if same else []
