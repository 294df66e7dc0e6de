"""Plausible wrong answers to the exercises of 04_eqspec."""

import torch


def forgets_the_bonus(kv, starts, n, gain):
    """The rectangle is made for the accepted drafts alone."""
    new_starts = (n + gain - 1).max() - (n + gain)
    source = (torch.arange(kv.shape[1]) - (new_starts - starts)[:, None]).clamp(0, kv.shape[1] - 1)
    return kv[torch.arange(len(kv))[:, None], source], new_starts


def repads_without_unpadding(kv, starts, n, gain):
    """Rows only ever move to the right."""
    new_starts = starts + gain.max() - gain
    source = (torch.arange(kv.shape[1]) - (new_starts - starts)[:, None]).clamp(0, kv.shape[1] - 1)
    return kv[torch.arange(len(kv))[:, None], source], new_starts


def moves_the_wrong_way(kv, starts, n, gain):
    new_starts = (n + gain).max() - (n + gain)
    source = (torch.arange(kv.shape[1]) + (new_starts - starts)[:, None]).clamp(0, kv.shape[1] - 1)
    return kv[torch.arange(len(kv))[:, None], source], new_starts


def from_the_left(row, start, length, d):
    for j in range(length):
        row[start + d + j] = row[start + j]
    return row


def from_the_right(row, start, length, d):
    for j in reversed(range(length)):
        row[start + d + j] = row[start + j]
    return row


def another_list(row, start, length, d):
    return row[: start + d] + row[start : start + length] + row[start + d + length :]


WRONG = {
    "offsets": [([0, 4, 2, 1],), ([5, 1, 3, 4],), ([4, 0, 2, 3],), ([0, -4, -2],)],
    "copied_bytes": [(8 * 500 * 147456,), (7 * 501 * 147456,), (7 * 500 * 147456 // 2,)],
    "realign_at_once": [(forgets_the_bonus,), (repads_without_unpadding,), (moves_the_wrong_way,)],
    "shift_row": [(from_the_left,), (from_the_right,), (another_list,)],
}
