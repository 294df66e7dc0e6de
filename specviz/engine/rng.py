"""Random numbers that depend on the seed, the prompt's place in the caller's list and the index.

The index is that of the token in its row. What a row draws therefore depends on no other row, no
batch size, no schedule and no device.

A number is used again only if what it decided was discarded unseen: a token emitted at index t
depends on the numbers of the indices up to t, and the next round starts at t + 1.
"""

from typing import Any

import numpy as np

DRAFT, ACCEPT, RESIDUAL = range(3)  # the purposes of one index's numbers; the fourth is unused
TARGET, CHILDREN = 1, 2  # what Gumbel noise is for: the target's choice, or a draft's children

_HALF = 0xFFFFFFFF
# Philox 4x64: the multipliers as (high, low) halves, and what the keys grow by, as int64.
_MULTIPLIERS = (0xD2E7470E, 0xE14C6C93), (0xCA5A8263, 0x95121157)
_WEYL = 0x9E3779B97F4A7C15 - 2**64, 0xBB67AE8584CAA73B - 2**64
_ROUNDS = 10


class Noise:
    """A stream of numbers for each (seed, prompt, index of the token in its row, purpose).

    Philox is a counter-based generator (Salmon et al. 2011). Seed and prompt are its key, index and
    purpose its counter. Only raw words are taken from it.
    """

    def __init__(self, seed: int) -> None:
        # One word, from a seed of any size: half of the generator's key.
        self._seed = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
        self._philox = np.random.Philox(0)
        self._fresh_state = self._philox.state

    def words(self, requests: Any, counter: tuple[Any, Any, Any, Any]) -> list[Any]:
        """Return the four words of each counter, as int64 bits.

        requests and counter: int64 arrays of one shape, all of numpy or all tensors of torch.
        """
        seed = int(self._seed.astype(np.int64))
        # numpy counts up before it makes words.
        a, b, c, d = counter[0] + 1, *counter[1:]
        k, m = requests * 0 + seed, requests
        for _ in range(_ROUNDS):
            high, low = _product(a, *_MULTIPLIERS[0])
            high2, low2 = _product(c, *_MULTIPLIERS[1])
            a, b, c, d = high2 ^ b ^ k, low2, high ^ d ^ m, low
            k, m = k + _WEYL[0], m + _WEYL[1]
        return [a, b, c, d]

    def uniforms(self, request: int, index: int, count: int, child: int = 0) -> np.ndarray:
        """Return (count, 3) in (0, 1): DRAFT, ACCEPT and RESIDUAL of each token from `index` on.

        child: the rank of a draft among its siblings, in a tree.
        """
        # Philox makes four words at each value of the counter's first word.
        words = self._stream(request, (index, 0, 0, child), 4 * count)
        return unit(words).reshape(count, 4)[:, :3]

    def gumbel(self, request: int, index: int, size: int, purpose: int = TARGET) -> np.ndarray:
        """Return (size,) standard Gumbel noise, -log(-log(u)), for the token at `index`."""
        return _gumbel(unit(self._stream(request, (0, index, purpose, 0), size)))

    def gumbel_at(self, requests: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the noise (m, n) that `gumbel` has for a few token ids alone.

        Args:
            requests, indices: (m,) of the tokens that are chosen.
            ids: (m, n) token ids, for each of them.
        """
        ids = ids.astype(np.int64)
        requests, indices = (each[:, None].astype(np.int64) for each in (requests, indices))
        requests, indices, ids = np.broadcast_arrays(requests, indices, ids)
        zero = np.zeros_like(ids)
        words = self.words(requests, (ids // 4, indices, zero + TARGET, zero))
        return _gumbel(unit(np.choose(ids % 4, words)))

    def _stream(self, request: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
        """Return `count` words from `counter` on; numpy's own generator is the faster one here."""
        key = np.array([self._seed, request], dtype=np.uint64)
        # Faster than a new generator, which would ask the system for a seed first.
        self._philox.state = {
            **self._fresh_state,
            "state": {"counter": np.array(counter, dtype=np.uint64), "key": key},
        }
        return self._philox.random_raw(count)


def unit(words: np.ndarray) -> np.ndarray:
    """Return 64-bit words as float64 in (0, 1): the middles of 2**52 equal parts.

    They are never 0 or 1, so that -log(-log(u)) is finite.
    """
    numbers: np.ndarray = (words.astype(np.uint64) >> np.uint64(12)) + 0.5
    numbers *= 2.0**-52
    return numbers


def _product(values: Any, factor_high: int, factor_low: int) -> tuple[Any, Any]:
    """Return the high and the low 64 bits of products with a 64-bit factor, given in halves."""
    # int64 wraps as uint64 does. Only the shift has to be cleaned of the sign.
    high, low = values >> 32 & _HALF, values & _HALF
    lowest = low * factor_low
    middle = high * factor_low + (lowest >> 32 & _HALF)
    carried = low * factor_high + (middle & _HALF)
    top = high * factor_high + (middle >> 32 & _HALF) + (carried >> 32 & _HALF)
    return top, (carried & _HALF) << 32 | lowest & _HALF


def _gumbel(noise: np.ndarray) -> np.ndarray:
    """Return -log(-log(u)) of numbers u in (0, 1), in place: there is one for each token."""
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise
