"""The number of CPU threads with which torch computes a run.

After each operation torch's threads wait for one another, and they spin while they wait. For a
small model two threads gain a tenth at most, and cost many times the work itself as soon as other
programs want the same cores. The number depends on the model alone, so that equal calls round
equally.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

# A target with fewer parameters computes with one thread.
SMALL = 50_000_000


def choose_threads(target: PreTrainedModel) -> int:
    """Return 1 for a small model on the CPU, and torch's own number otherwise."""
    is_small = sum(each.numel() for each in target.parameters()) < SMALL
    return 1 if is_small and target.device.type == "cpu" else torch.get_num_threads()


@contextmanager
def computing_with(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
