"""The target's features of training windows: computed once, kept in shards on disk.

A forward of the target costs more than a training step of a head, and a head's training reads each
window several times. A shard names the target, the layers and the tokens that it belongs to. One
that does not fit is computed again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from specviz.engine.heads.files import fingerprint
from specviz.engine.heads.modules import select_layers
from specviz.util.files import replacing

SHARD_WINDOWS = 128
BATCH_WINDOWS = 8  # in a forward of the target


@dataclass(frozen=True)
class StoredFeatures:
    """Features on disk.

    Attributes:
        tokens: (n, T), the windows.
        layers: the target's layers whose outputs are kept, side by side.
        paths: the shards, each of SHARD_WINDOWS windows but the last.
    """

    tokens: np.ndarray
    layers: tuple[int, ...]
    paths: tuple[Path, ...]

    def batch(self, windows: np.ndarray, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return tokens (b, T) and the features (b, T, F) of `layers`.

        windows: (b,), their numbers.
        """
        tokens = torch.from_numpy(self.tokens[windows].astype(np.int64))
        read = []
        for window in windows.tolist():
            shard, row = divmod(window, SHARD_WINDOWS)
            read.append(self._slices[shard][row])
        kept = torch.stack(read)  # (b, T, all layers)
        size = kept.shape[-1] // len(self.layers)
        parts = []
        for layer in layers:
            place = self.layers.index(layer) * size
            parts.append(kept[..., place : place + size])
        return tokens, torch.cat(parts, -1).float()

    @cached_property
    def _slices(self) -> list[Any]:
        # Files stay open: a slice reads its own bytes alone.
        return [safe_open(path, framework="pt").get_slice("features") for path in self.paths]


@torch.inference_mode()
def target_features(target: PreTrainedModel, tokens: Tensor, layers: Sequence[int]) -> Tensor:
    """Return the outputs (b, T, F) of the target's layers for tokens (b, T), side by side.

    The target's layers alone are run, not its LM head.
    """
    states = target.base_model(tokens, output_hidden_states=True, use_cache=False).hidden_states
    return select_layers(states, layers)


def keep_features(
    target: PreTrainedModel,
    tokens: np.ndarray,
    layers: Sequence[int],
    folder: Path,
    *,
    dtype: torch.dtype = torch.float16,
    progress: bool = True,
) -> StoredFeatures:
    """Compute the features of windows (n, T) and keep them in `folder`; reuse what lies there.

    Raises:
        ValueError: a feature is too large for `dtype`.
        WriteError: a shard cannot be written.
    """
    layers = tuple(layers)
    owner = {"target": fingerprint(target), "layers": str(layers), "dtype": str(dtype)}
    starts = range(0, len(tokens), SHARD_WINDOWS)
    paths = []
    for start in tqdm(starts, desc="features", unit="shard", disable=not progress):
        path = folder / f"features-{start // SHARD_WINDOWS}.safetensors"
        part = tokens[start : start + SHARD_WINDOWS]
        header = owner | {"tokens": hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()}
        if _header(path) != header:
            features = _compute(target, part, layers, dtype)
            with replacing(path, alone=True) as partial:
                save_file({"features": features}, partial, metadata=header)
        paths.append(path)
    return StoredFeatures(tokens, layers, tuple(paths))


def _header(path: Path) -> dict[str, str] | None:
    """Return what the shard at `path` belongs to; None if there is none."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata()
            return header
    except (OSError, SafetensorError):
        return None


def _compute(
    target: PreTrainedModel, tokens: np.ndarray, layers: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Return the features (w, T, F) of windows (w, T), on the host."""
    parts = []
    for start in range(0, len(tokens), BATCH_WINDOWS):
        batch = torch.from_numpy(tokens[start : start + BATCH_WINDOWS].astype(np.int64))
        features = target_features(target, batch.to(target.device), layers).to(dtype)
        if not features.isfinite().all():
            raise ValueError(
                f"dtype={dtype} cannot hold the target's features, some are not finite; "
                "pass dtype=torch.float32"
            )
        parts.append(features.cpu())
    return torch.cat(parts)
