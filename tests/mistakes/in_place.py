"""Plausible wrong answers to the exercises of 06_in_place."""

import torch


def written(slab, n, new, shift=-1):
    """Write the new tokens so far behind the row's end; return the slots, and where they went."""
    positions = n[:, None] + shift + torch.arange(new.shape[1])
    slab.scatter_(1, positions, new)
    return torch.arange(slab.shape[1]), positions[:, :, None]


def behind_the_pending(slab, n, new):
    slots, positions = written(slab, n, new, 0)
    return slots <= positions


def blind_to_itself(slab, n, new):
    slots, positions = written(slab, n, new)
    return slots < positions


def sees_all_drafts(slab, n, new):
    slots, positions = written(slab, n, new)
    return (slots <= positions[:, -1:]).expand(-1, new.shape[1], -1)


def same_columns(slab, n, new):
    """Writes where the longest row writes."""
    slots, positions = written(slab, n.max().expand(len(n)), new)
    return slots <= positions


def one_block(n, K, table, size):
    """Forgets that a round may cross into the next block."""
    first = table[(n - 1) // size] * size + (n - 1) % size
    return list(range(first, first + K + 1))


def from_n(n, K, table, size):
    return [table[position // size] * size + position % size for position in range(n, n + K)]


WRONG = {
    "slots": {
        "the stale slots expected [12, 13], got": [
            ([13], [13, 14, 15, 16, 17]),
            ([11, 12, 13], [12, 13, 14, 15, 16]),
        ],
        "the next round writes expected": [
            ([12, 13], [13, 14, 15, 16, 17]),
            ([12, 13], [12, 13, 14, 15]),
        ],
    },
    "write_and_mask": {
        "as the slab afterwards, expected": [behind_the_pending, same_columns],
        "query 0 of row 0 sees, expected": [blind_to_itself, sees_all_drafts],
    },
    "paged_slots": {"of 16 expected [538, 539,": [one_block, from_n]},
    "draft_reads": {
        "without K/V at [1]": [lambda n, K, a: [n + a]],
        "neighbours that end with the pending token": [lambda n, K, a: [n + a + 1]],
        "two tokens are enough": [lambda n, K, a: list(range(n + a + 1))],
    },
}
