"""The most bytes that tensors held at once, on any device.

Contract: every operation of torch is watched, so a run takes several times as long. What a kernel
needs within itself, and what an allocator keeps, does not show. Nor do other threads, such as those
of two lanes. Not known here: runs.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from specviz.util.validate import is_list, require_kind, short


class PeakMeter(TorchDispatchMode):
    """Counts the storages of tensors that are made within it, while they live.

        with sv.PeakMeter([pair.target, pair.draft]) as meter:
            sv.generate(pair, prompts)
        print(meter.peak_bytes)

    Attributes:
        peak_bytes: the most bytes that were held at once.
        weight_bytes: the bytes of the models' weights, which are not among them.

    Raises:
        ValueError: `models` is not a list of models.
    """

    def __init__(self, models: Iterable[PreTrainedModel] = ()) -> None:
        """Leave the weights of `models` out of the count."""
        super().__init__()
        if not is_list(models):
            raise ValueError(f"models must be a list, got {short(models)}; pass a list of models")
        weights: dict[int, int] = {}
        for model in models:
            require_kind("models", model, torch.nn.Module, "pass a list of models")
            for tensor in [*model.parameters(), *model.buffers()]:
                storage = tensor.untyped_storage()
                weights[storage._cdata] = storage.nbytes()
        self._ignored = set(weights)
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._at_most = 0
        self.peak_bytes = 0
        self.weight_bytes = sum(weights.values())

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
        # Looking for storages that are gone is slow. It is needed only where a new peak may be.
        if self._at_most > self.peak_bytes:
            self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
            self._at_most = sum(size for _, size in self._alive.values())
            self.peak_bytes = max(self.peak_bytes, self._at_most)
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        known = self._alive.get(key)
        if key not in self._ignored and (known is None or known[0].expired()):
            self._alive[key] = StorageWeakRef(storage), storage.nbytes()
            self._at_most += storage.nbytes()
