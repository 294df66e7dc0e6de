"""Copies between the host and the device of a run that wait for no more than they have to; on a CPU they are plain copies."""

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Numbers of the host as an int64 tensor on the device. An index given to torch as a list would be copied, too, and waited for."""
    return torch.tensor(values, dtype=torch.long).to(device, non_blocking=True)


def to_host(values: Tensor) -> Tensor:
    """A copy on the host. From a GPU it goes into page-locked memory, in the stream's order, and is waited for; what comes later is not."""
    if not values.is_cuda:
        return values.cpu()
    copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(
        values, non_blocking=True
    )
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))
    copied.synchronize()
    return copy
