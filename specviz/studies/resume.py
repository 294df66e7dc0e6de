"""Go on with a table of measurements that an interrupted study has left."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt, make_requests
from specviz.util.validate import shown_path


def prompts_digest(pair: Pair, prompts: Sequence[Prompt]) -> str:
    """Return a hash of the prompts, which distinguishes results of other prompts."""
    ids = [request.prompt for request in make_requests(pair, prompts, 1, 1)]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]


def kept_entries(
    path: Path | None, conditions: dict[str, object], *, fresh: bool = False
) -> list[dict[str, Any]]:
    """Return the entries that `path` holds; none if it does not exist, or if `fresh` discards them.

    Raises:
        ValueError: they were measured under other conditions; the date may differ.
    """
    if path is None or fresh or not path.is_file():
        return []
    about = path.with_suffix(".json")
    before = json.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    names = sorted({*before, *conditions} - {"created"})
    other = [name for name in names if before.get(name) != conditions.get(name)]
    if other:
        raise ValueError(
            f"{shown_path(path)} holds results under other conditions ({', '.join(other)}); "
            "name another file, or discard them (fresh=True, --fresh)"
        )
    return pd.read_csv(path).to_dict("records")
