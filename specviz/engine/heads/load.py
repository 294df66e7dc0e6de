"""Add draft heads from a folder to a pair."""

from dataclasses import replace
from pathlib import Path

from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.folder import CONFIG, read_head
from specviz.engine.models.pair import Pair
from specviz.util.files import is_dir, is_file
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
    folders = head_folders(path)
    found: dict[str, DraftHead] = dict(pair.heads)
    for each in folders:
        head = read_head(each, pair.target)
        found[head.settings.kind] = head
    return replace(pair, heads=found)


def head_folders(path: Path) -> list[Path]:
    """Return the folders of single heads in `path`, which may be one itself.

    Raises FileNotFoundError if there are none.
    """
    if not is_dir(path):
        raise FileNotFoundError(
            f"folder={quoted_path(path)} does not exist; "
            "pass one that `specviz train --heads` wrote"
        )
    configs = [path / CONFIG] if is_file(path / CONFIG) else sorted(path.glob(f"*/{CONFIG}"))
    if not configs:
        raise FileNotFoundError(
            f"folder={quoted_path(path)} holds no draft head: there is no {CONFIG} in it or in a "
            "folder of it; pass one that `specviz train --heads` wrote"
        )
    return [config.parent for config in configs]
