"""Random numbers that depend on the seed, the prompt's place in the caller's list and the index.

The index is that of the token in its row. What a row draws therefore depends on no other row, no
batch size, no schedule and no device.

A number is used again only if what it decided was discarded unseen: a token emitted at index t
depends on the numbers of the indices up to t, and the next round starts at t + 1.
"""

from collections.abc import Sequence

import numpy as np

DRAFT, ACCEPT, RESIDUAL = range(3)  # the purposes of one index's numbers; the fourth is unused


class Noise:
    """A stream of numbers for each (seed, prompt, index of the token in its row, purpose).

    Philox is a counter-based generator (Salmon et al. 2011). Seed and prompt are its key, index and
    purpose its counter. Only raw words are taken from it, which numpy keeps the same in all
    releases.
    """

    def __init__(self, seed: int) -> None:
        # One word, from a seed of any size: half of the generator's key.
        self._seed = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
        self._philox = np.random.Philox(0)
        self._fresh_state = self._philox.state

    def uniforms(self, request: int, index: int, count: int) -> np.ndarray:
        """Return (count, 3) in (0, 1): DRAFT, ACCEPT and RESIDUAL of each token from `index` on."""
        # Philox makes four words at each value of the counter's first word.
        words = self._words(request, (index, 0, 0, 0), 4 * count)
        return unit(words).reshape(count, 4)[:, :3]

    def gumbel(self, request: int, index: int, size: int) -> np.ndarray:
        """Return (size,) standard Gumbel noise, -log(-log(u)), for the token at `index`."""
        return _gumbel(unit(self._words(request, (0, index, 1, 0), size)))

    def gumbel_at(self, request: int, index: int, ids: Sequence[int]) -> np.ndarray:
        """Return the noise (n,) of some token ids alone, as `gumbel` has it."""
        # Four words at each value of the counter: nobody has to draw those of the other tokens.
        words = [
            self._words(request, (token // 4, index, 1, 0), 4)[token % 4] for token in ids
        ]
        return _gumbel(unit(np.array(words, np.uint64)))

    def _words(self, request: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
        """Return `count` raw words from `counter` on."""
        # Faster than a new generator, which would ask the system for a seed first.
        key = np.array([self._seed, request], dtype=np.uint64)
        self._philox.state = {
            **self._fresh_state,
            "state": {"counter": np.array(counter, dtype=np.uint64), "key": key},
        }
        return self._philox.random_raw(count)


def _gumbel(noise: np.ndarray) -> np.ndarray:
    """Return -log(-log(u)) of numbers u in (0, 1), in place: there is one for each token."""
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def unit(words: np.ndarray) -> np.ndarray:
    """Return 64-bit words as float64 in (0, 1): the middles of 2**52 equal parts.

    They are never 0 or 1, so that -log(-log(u)) is finite.
    """
    numbers: np.ndarray = (words >> np.uint64(12)) + 0.5
    numbers *= 2.0**-52
    return numbers
