"""Copies between host and device that synchronise no more than necessary."""

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return ints of the host as an int64 tensor on the device, without a synchronisation."""
    # Indexing with a list would copy it to the device, too, but wait for that copy.
    return torch.tensor(values, dtype=torch.long).to(device, non_blocking=True)


def to_host(values: Tensor) -> Tensor:
    """Return a copy on the host. The host waits for it, but not for work that was queued later."""
    if not values.is_cuda:
        return values.cpu()
    # Only into page-locked memory does a copy run without blocking the host.
    copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    copy.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))
    copied.synchronize()
    return copy
