"""Recognise K/V by its bits, and vectors by short sketches of them.

Contract: equal K/V gives an equal print, wherever it lies, and different K/V gives another one but
for one case in 2^64. Zeros give 0. Sketches are about as far apart as the vectors are. Not known
here: tokens, rows, and what K/V means.
"""

from functools import cache

import torch
from torch import Tensor

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SKETCH = 16  # numbers of a sketch
EMPTY = 0  # the print of zeros, which nothing has written


def kv_print(keys: Tensor, values: Tensor, layer: int) -> Tensor:
    """Return the prints (b, T), int64, of the K/V in each slot of one layer.

    Prints of several layers are added. Those of a layer tell it from the others.

    Args:
        keys, values: (b, heads, T, head size).
        layer: the number of the layer.
    """
    return bit_print(keys, 2 * layer) + bit_print(values, 2 * layer + 1)


def bit_print(states: Tensor, seed: int) -> Tensor:
    """Return the prints (b, T) of tensors (b, heads, T, size)."""
    # Bits rather than values: a move keeps them, and another computation seldom gives the same.
    bits = states.detach().contiguous().view(_BITS[states.element_size()]).long()
    weights = _weights(seed, states.shape[1], states.shape[3]).to(bits.device)
    return (bits * weights).sum((1, 3))


@cache
def _weights(seed: int, heads: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = -(2**62), 2**62
    # Odd weights can be inverted modulo 2**64, so no change of one number is lost.
    return torch.randint(low, high, (heads, 1, size), generator=generator) * 2 + 1


def sketch(vectors: Tensor) -> Tensor:
    """Return the sketches (..., n) float64, on the CPU, of vectors (..., size)."""
    return (
        vectors.detach().double() @ random_numbers(0, vectors.shape[-1]).to(vectors.device)
    ).cpu()


@cache
def random_numbers(seed: int, count: int) -> Tensor:
    """Return random numbers (count, n), n being the size of a sketch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, SKETCH, generator=generator, dtype=torch.float64)
