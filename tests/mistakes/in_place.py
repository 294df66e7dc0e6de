"""Plausible wrong answers to the exercises of 06_in_place."""

import torch


def behind_the_pending(slab, n, new):
    """Writes from n on, so the pending token's slot stays empty."""
    positions = n[:, None] + torch.arange(new.shape[1])
    slab.scatter_(1, positions, new)
    return torch.arange(slab.shape[1]) <= positions[:, :, None]


def blind_to_itself(slab, n, new):
    positions = n[:, None] - 1 + torch.arange(new.shape[1])
    slab.scatter_(1, positions, new)
    return torch.arange(slab.shape[1]) < positions[:, :, None]


def sees_all_drafts(slab, n, new):
    positions = n[:, None] - 1 + torch.arange(new.shape[1])
    slab.scatter_(1, positions, new)
    return (torch.arange(slab.shape[1]) <= positions[:, -1:])[:, None].expand(-1, new.shape[1], -1)


def same_columns(slab, n, new):
    """Writes where the longest row writes."""
    positions = (n.max() - 1 + torch.arange(new.shape[1])).expand(len(n), -1)
    slab.scatter_(1, positions, new)
    return torch.arange(slab.shape[1]) <= positions[:, :, None]


def one_block(n, K, table, size):
    """Forgets that a round may cross into the next block."""
    first = table[(n - 1) // size] * size + (n - 1) % size
    return list(range(first, first + K + 1))


def from_n(n, K, table, size):
    return [table[position // size] * size + position % size for position in range(n, n + K)]


WRONG = {
    "slots": [
        ([13], [13, 14, 15, 16, 17]),
        ([11, 12, 13], [12, 13, 14, 15, 16]),
        ([12, 13], [13, 14, 15, 16, 17]),
        ([12, 13], [12, 13, 14, 15]),
    ],
    "write_and_mask": [
        (behind_the_pending,),
        (blind_to_itself,),
        (sees_all_drafts,),
        (same_columns,),
    ],
    "paged_slots": [(one_block,), (from_n,)],
    "draft_reads": [
        (lambda n, K, a: [n + a],),
        (lambda n, K, a: [n + a + 1],),
        (lambda n, K, a: list(range(n + a + 1)),),
    ],
}
