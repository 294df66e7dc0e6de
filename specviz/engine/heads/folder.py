"""Heads on disk: one folder a head, with `config.json` and `model.safetensors`.

A head's file names the target that it was trained on by fingerprint. Another target is refused:
the head would draft, but hardly a draft would be accepted.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.build import check_layers, make_head
from specviz.engine.heads.fingerprint import fingerprint
from specviz.engine.heads.published import read_published
from specviz.engine.heads.settings import HeadSettings
from specviz.engine.names import HEAD_CONFIG
from specviz.util.validate import is_finite, quoted_path, short

FORMAT = "specviz head"
VERSION = 1
WEIGHTS = "model.safetensors"
# What a file says besides the settings.
_BESIDES = ("format", "version", "training_s")


def read_head(folder: Path, target: PreTrainedModel) -> DraftHead:
    """Return the head in `folder`, attached to `target`, in its dtype and on its device.

    Raises:
        FileNotFoundError: the folder holds no head.
        ValueError: the files are damaged, or the head does not fit the target.
    """
    config = _read_config(folder)
    try:
        settings, weights = _settings_and_weights(config, folder, target)
    except (KeyError, OSError, SafetensorError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(
            f"the head in {quoted_path(folder)} is damaged ({error}); get its files again"
        ) from None
    _check_sizes(settings, target)
    if settings.target and settings.target != fingerprint(target):
        raise ValueError(
            f"the head in {quoted_path(folder)} was trained on another target, so hardly a draft "
            "of it would be accepted; pass the pair that it was trained on"
        )
    with torch.random.fork_rng(devices=[]):  # the values drawn here are replaced at once
        head = make_head(settings)
    try:
        head.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"the weights in {quoted_path(folder)} do not fit their {HEAD_CONFIG} ({reason}); "
            "get its files again"
        ) from None
    head.training_s = _training_seconds(config, folder)
    head.attach(target)
    return head.to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / HEAD_CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"{quoted_path(folder)} holds no draft head: it has no {HEAD_CONFIG}; "
            "pass a folder that `zoo.heads.export_head` wrote"
        )
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{quoted_path(path)} cannot be read as JSON ({error}); get the file again"
        ) from None
    if not isinstance(values, dict):
        raise ValueError(f"{quoted_path(path)} must hold an object; get the file again")
    return values


def _settings_and_weights(
    config: dict[str, Any], folder: Path, target: PreTrainedModel
) -> tuple[HeadSettings, dict[str, Tensor]]:
    if "format" not in config:
        return read_published(config, folder, target)
    known = {name: value for name, value in config.items() if name not in _BESIDES}
    if (config["format"], config.get("version")) != (FORMAT, VERSION):
        raise ValueError(
            f"{quoted_path(folder / HEAD_CONFIG)} is not the file of a draft head of version "
            f"{VERSION}; pass a folder that `zoo.heads.export_head` wrote"
        )
    path = folder / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(
            f"{quoted_path(path)} does not exist, so the head has no weights; get it again"
        )
    return HeadSettings.from_dict(known), load_file(path)


def _training_seconds(config: dict[str, Any], folder: Path) -> float | None:
    seconds = config.get("training_s")
    if seconds is not None and not (is_finite(seconds) and seconds >= 0):
        raise ValueError(
            f"training_s in {quoted_path(folder / HEAD_CONFIG)} must be a number >= 0, "
            f"got {short(seconds)}; get the file again, or take the entry out"
        )
    return None if seconds is None else float(seconds)


def _check_sizes(settings: HeadSettings, target: PreTrainedModel) -> None:
    """Raise ValueError unless the head's sizes are the target's."""
    found = {
        "hidden_size": target.config.get_text_config().hidden_size,
        "vocabulary_size": target.get_input_embeddings().weight.shape[0],
    }
    for setting, size in found.items():
        if getattr(settings, setting) != size:
            raise ValueError(
                f"the head {settings.kind!r} was made for a target with {setting} "
                f"{getattr(settings, setting)}, and this target has {size}; "
                "pass the pair that the head was trained on"
            )
    check_layers(settings.layers, target)


def check_heads(heads: object, target: PreTrainedModel) -> None:
    """Raise ValueError unless these are heads by their kinds, of the target's sizes."""
    if not isinstance(heads, Mapping):
        raise ValueError(
            f"heads must be a dict from kinds to draft heads, got {short(heads)}; use load_heads"
        )
    for name, head in heads.items():
        if not isinstance(head, DraftHead):
            raise ValueError(
                f"heads[{name!r}] must be a DraftHead, got {short(head)}; use load_heads"
            )
        if head.settings.kind != name:
            raise ValueError(
                f"heads[{name!r}] is a head of kind {head.settings.kind!r}; pass it under that name"
            )
        _check_sizes(head.settings, target)


class FolderOfHeads(Mapping[str, DraftHead]):
    """The heads in the folders of a folder, by name. Each is read when it is first asked for."""

    def __init__(self, folder: Path, target: PreTrainedModel) -> None:
        self._target = target
        self._folders: dict[str, Path] = {}
        for path in sorted(folder.glob(f"*/{HEAD_CONFIG}")):
            self._folders[path.parent.name] = path.parent
        self._read: dict[str, DraftHead] = {}

    # By identity: to compare heads, all of them would have to be read.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> DraftHead:
        if name not in self._read:
            self._read[name] = read_head(self._folders[name], self._target)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)
