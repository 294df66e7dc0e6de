"""Plausible wrong answers to the exercises of 04_eqspec."""

import torch


def realigned(new_starts_of, sign=1):
    """Return a function that moves rows to its own new starts."""

    def realign(kv, starts, n, gain):
        new_starts = new_starts_of(starts, n, gain)
        source = torch.arange(kv.shape[1]) - sign * (new_starts - starts)[:, None]
        source = source.clamp(0, kv.shape[1] - 1)
        return kv[torch.arange(len(kv))[:, None], source], new_starts

    return realign


def moved(order):
    """Return a function that copies slot by slot, in one order whatever the way."""

    def shift(row, start, length, d):
        for j in order(range(length)):
            row[start + d + j] = row[start + j]
        return row

    return shift


WRONG = {
    "offsets": {
        "expected [0, -4, -2, -1], got": [[0, 4, 2, 1], [5, 1, 3, 4], [4, 0, 2, 3], [0, -4, -2]]
    },
    "copied_bytes": {
        "expected 516096000, got": [8 * 500 * 147456, 7 * 500 * 147456 // 2],
        "counts the pending tokens": [7 * 501 * 147456],
    },
    "realign_at_once": {
        "as the new starts, expected": [
            realigned(lambda starts, n, gain: (n + gain - 1).max() - (n + gain)),  # no bonus
            realigned(lambda starts, n, gain: starts + gain.max() - gain),  # never unpads
        ],
        "slots 1 to 11, expected": [  # moves the wrong way
            realigned(lambda starts, n, gain: (n + gain).max() - (n + gain), sign=-1)
        ],
    },
    "shift_row": {
        "as what arrives, expected": [moved(iter), moved(reversed)],
        "change the given one instead": [
            lambda row, start, length, d: (
                row[: start + d] + row[start : start + length] + row[start + d + length :]
            )
        ],
    },
}
