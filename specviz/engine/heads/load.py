"""Add draft heads from a folder to a pair."""

from dataclasses import replace
from pathlib import Path

from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.folder import read_head
from specviz.engine.models.pair import Pair
from specviz.engine.names import head_folders
from specviz.util.validate import require_kind, require_path


def load_heads(folder: str | Path, pair: Pair) -> Pair:
    """Return `pair` with the draft heads in `folder`, for `drafter="eagle3"` and the like.

    Weights are read from safetensors alone. A head replaces the pair's own one of its kind.

    Args:
        folder: a folder that `zoo.heads.export_head` wrote: of one head, or of several, each in a
            folder of its own.
        pair: its target must be the one that the heads were trained on.

    Raises:
        FileNotFoundError: the folder does not exist, or holds no head.
        ValueError: an argument cannot be used, a file is damaged, or a head was trained on another
            target.
    """
    path = require_path("folder", folder)
    require_kind("pair", pair, Pair, "use load_pair()")
    folders = head_folders(path)
    found: dict[str, DraftHead] = dict(pair.heads)
    for each in folders:
        head = read_head(each, pair.target)
        found[head.settings.kind] = head
    return replace(pair, heads=found)
