"""Random numbers that depend on the seed, the prompt's place in the caller's list and the index.

The index is that of the token in its row. What a row draws therefore depends on no other row, no
batch size, no schedule and no device.

A number is used again only if what it decided was discarded unseen: a token emitted at index t
depends on the numbers of the indices up to t, and the next round starts at t + 1.
"""

import numpy as np

DRAFT, ACCEPT, RESIDUAL = range(3)  # the purposes of one index's numbers; the fourth is unused
TARGET, CHILDREN = 1, 2  # what Gumbel noise is for: the target's choice, or a draft's children


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

    def uniforms(self, request: int, index: int, count: int, child: int = 0) -> np.ndarray:
        """Return (count, 3) in (0, 1): DRAFT, ACCEPT and RESIDUAL of each token from `index` on.

        child: the rank of a draft among its siblings, in a tree.
        """
        # Philox makes four words at each value of the counter's first word.
        words = self._words(request, (index, 0, 0, child), 4 * count)
        return unit(words).reshape(count, 4)[:, :3]

    def gumbel(self, request: int, index: int, size: int, purpose: int = TARGET) -> np.ndarray:
        """Return (size,) standard Gumbel noise, -log(-log(u)), for the token at `index`."""
        return _gumbel(unit(self._words(request, (0, index, purpose, 0), size)))

    def gumbel_at(self, requests: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the noise (m, n) that `gumbel` has for a few token ids alone.

        Args:
            requests, indices: (m,) of the tokens that are chosen.
            ids: (m, n) token ids, for each of them.
        """
        shape = ids.shape
        # Philox makes four words at each value of the counter's first word, from 1 on.
        counter = [
            ids.astype(np.uint64) // np.uint64(4) + np.uint64(1),
            np.broadcast_to(indices.astype(np.uint64)[:, None], shape),
            np.ones(shape, np.uint64),
            np.zeros(shape, np.uint64),
        ]
        key = np.broadcast_to(requests.astype(np.uint64)[:, None], shape)
        words = _philox(counter, [np.full(shape, self._seed), key])
        of_id = np.choose(ids % 4, words)
        return _gumbel(unit(of_id))

    def _words(self, request: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
        """Return `count` raw words from `counter` on."""
        # Faster than a new generator, which would ask the system for a seed first.
        key = np.array([self._seed, request], dtype=np.uint64)
        self._philox.state = {
            **self._fresh_state,
            "state": {"counter": np.array(counter, dtype=np.uint64), "key": key},
        }
        return self._philox.random_raw(count)


_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10


def _philox(counter: list[np.ndarray], key: list[np.ndarray]) -> list[np.ndarray]:
    """Return the four words that Philox 4x64 makes of each counter (four arrays) and key (two).

    numpy's own generator makes the words of one key in order, and is slow where a few words of
    many keys are wanted.
    """
    a, b, c, d = counter
    k, m = key
    for _ in range(_ROUNDS):
        high, low = _product(a, _MULTIPLIERS[0])
        high2, low2 = _product(c, _MULTIPLIERS[1])
        a, b, c, d = high2 ^ b ^ k, low2, high ^ d ^ m, low
        k, m = k + _WEYL[0], m + _WEYL[1]
    return [a, b, c, d]


def _product(values: np.ndarray, factor: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Return the high and the low 64 bits of each product, from products of 32-bit halves."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    high, low = values >> half, values & mask
    factor_high, factor_low = factor >> half, factor & mask
    middle = high * factor_low + (low * factor_low >> half)
    carried = low * factor_high + (middle & mask)
    return high * factor_high + (middle >> half) + (carried >> half), values * factor


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
