"""What heads are trained on: windows of the target's own texts and of the corpus.

At inference a head follows texts of the target, so most of the windows are such texts: greedy ones
and sampled ones. Texts of the corpus add variety. Not known here: models.
"""

from collections.abc import Mapping, Sequence

import numpy as np

SHARES = {"greedy": 0.5, "sampled": 0.25, "corpus": 0.25}


def mix_windows(
    sources: Mapping[str, Sequence[np.ndarray]],
    length: int,
    seed: int = 0,
    shares: Mapping[str, float] = SHARES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return windows (n, length) in a seeded order, and for each the number of its source (n,).

    The documents of a source are shuffled and joined. As many windows are taken as the shares
    allow: the source that is short for its share decides.

    Args:
        sources: for each name in `shares` the encoded documents or files.
        length: tokens in a window.
        seed: of the order.
        shares: of the windows, by source; their sum is 1.

    Raises:
        ValueError: a source is too short for one window.
    """
    cut = {name: _cut(sources[name], length, [seed, i]) for i, name in enumerate(shares)}
    allowed = {name: len(cut[name]) / share for name, share in shares.items()}
    scarce = min(allowed, key=lambda name: allowed[name])
    counts = {name: int(share * allowed[scarce]) for name, share in shares.items()}
    if min(counts.values()) < 1:
        raise ValueError(
            f"sources[{scarce!r}] has {len(cut[scarce])} windows of {length} tokens, too few for "
            f"{shares[scarce]:.0%} of the mix; give more documents"
        )
    windows = np.concatenate([cut[name][:count] for name, count in counts.items()])
    numbers = np.repeat(np.arange(len(shares)), list(counts.values()))
    order = np.random.default_rng(seed).permutation(len(windows))
    return windows[order], numbers[order]


def _cut(documents: Sequence[np.ndarray], length: int, seed: list[int]) -> np.ndarray:
    """Return the windows (n, length) of all documents, shuffled and joined."""
    order = np.random.default_rng(seed).permutation(len(documents))
    stream = np.concatenate([documents[i] for i in order])
    whole = len(stream) // length * length
    return stream[:whole].reshape(-1, length)
