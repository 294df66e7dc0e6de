"""Add draft heads from a folder to a pair."""

from dataclasses import replace
from pathlib import Path

from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.folder import CONFIG, read_head
from specviz.engine.models.pair import Pair
from specviz.util.validate import quoted_path, require_kind, require_path


def load_heads(folder: str | Path, pair: Pair) -> Pair:
    """Return `pair` with the draft heads in `folder`, for `drafter="eagle3"` and the like.

    Weights are read from safetensors alone. A head replaces the pair's own one of its kind.

    Args:
        folder: a folder that `specviz train --heads` wrote: of one head, or of several, each in a
            folder of its own.
        pair: its target must be the one that the heads were trained on.

    Raises:
        FileNotFoundError: the folder does not exist, or holds no head.
        ValueError: an argument cannot be used, a file is damaged, or a head was trained on another
            target.
    """
    path = require_path("folder", folder)
    require_kind("pair", pair, Pair, "use load_pair()")
    if not path.is_dir():
        raise FileNotFoundError(
            f"folder={quoted_path(path)} does not exist; "
            "pass one that `specviz train --heads` wrote"
        )
    folders = [path] if (path / CONFIG).is_file() else sorted(path.glob(f"*/{CONFIG}"))
    if not folders:
        raise FileNotFoundError(
            f"folder={quoted_path(path)} holds no draft head: there is no {CONFIG} in it or in a "
            "folder of it; pass one that `specviz train --heads` wrote"
        )
    found: dict[str, DraftHead] = dict(pair.heads)
    for each in folders:
        head = read_head(each if each.is_dir() else each.parent, pair.target)
        found[head.settings.kind] = head
    return replace(pair, heads=found)
