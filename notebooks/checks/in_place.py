"""Checks of 06_in_place: stale slots, writes and mask of a round, paged slots, a draft's reads."""

import itertools
import random
from collections.abc import Sequence

import torch

from checks.base import Answer, WrongAnswerError, ask, exercise, expect


@exercise
def slots(stale: Sequence[int], written_next: Sequence[int]) -> str:
    """Check the stale slots after a round of n = 10, K = 4, a = 2, and those written next."""
    n, K, a = 10, 4, 2
    expect(list(stale), list(range(n + a, n + K)), "the stale slots")
    expect(
        list(written_next),
        list(range(n + a, n + a + K + 1)),
        "the slots that the next round writes",
    )
    return "the next round begins at the first stale slot and reaches beyond the last one"


@exercise
def write_and_mask(answer: Answer) -> str:
    """Check a function of slab (B, T), n (B,) and new (B, K+1).

    It writes in place and returns the mask (B, K+1, T).
    """
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        B, K = (int(torch.randint(1, 5, (), generator=rng)) for _ in range(2))
        n = torch.randint(1, 9, (B,), generator=rng)
        T = int(n.max()) + K + 2
        slab = torch.randint(100, (B, T), generator=rng)
        new = torch.randint(100, 200, (B, K + 1), generator=rng)
        wanted = slab.clone()
        found = slab.clone()
        mask = ask(answer, found, n.clone(), new.clone())
        case = f"n {n.tolist()}, K = {K}, T = {T}"
        for i, length in enumerate(n.tolist()):
            wanted[i, length - 1 : length + K] = new[i]
        expect(
            found.tolist(), wanted.tolist(), f"{case}, new {new.tolist()}, as the slab afterwards,"
        )
        expect(tuple(mask.shape), (B, K + 1, T), f"{case}, as the shape of the mask,")
        for i, length in enumerate(n.tolist()):
            for j in range(K + 1):
                expect(
                    mask[i, j].nonzero()[:, 0].tolist(),
                    list(range(length + j)),
                    f"{case}, as the slots that query {j} of row {i} sees,",
                )
    return "right for 50 batches: the same slab and mask as row by row"


@exercise
def paged_slots(answer: Answer) -> str:
    """Check a function of n, K, a block table and block size: physical slots of K + 1 tokens."""
    rng = random.Random(0)
    for _ in range(200):
        size, K, n = rng.choice((1, 2, 4, 16)), rng.randint(0, 6), rng.randint(1, 40)
        table = rng.sample(range(100), (n + K - 1) // size + 1)
        wanted = [
            table[position // size] * size + position % size for position in range(n - 1, n + K)
        ]
        found = ask(answer, n, K, list(table), size)
        expect([int(slot) for slot in found], wanted, f"n = {n}, K = {K}, blocks {table} of {size}")
    return "right for 200 tables, with blocks of 1 to 16 slots"


@exercise
def draft_reads(answer: Answer) -> str:
    """Check a function of n, K and a: the positions that the draft reads first next round."""
    for n, K in itertools.product((1, 2, 7), (1, 2, 5)):
        for a in range(K + 1):
            _check_reads(list(ask(answer, n, K, a)), n, K, a)
    return (
        "no gap, whatever was accepted; the target verifies every token, "
        "so a gap could never change the text"
    )


def _check_reads(found: list[int], n: int, K: int, a: int) -> None:
    pending = n + a
    case = f"n = {n}, K = {K}, a = {a}"
    # The draft has read the row up to n - 1, and all drafts but the last.
    held = {*range(n + K - 1), *found}
    gap = [position for position in range(pending) if position not in held]
    if gap:
        raise WrongAnswerError(f"for {case} the draft proposes without K/V at {gap}")
    if not found or found != list(range(pending + 1 - len(found), pending + 1)):
        raise WrongAnswerError(
            f"for {case} expected neighbours that end with the pending token at {pending}, "
            f"got {found}"
        )
    if len(found) > 2:
        raise WrongAnswerError(f"for {case} two tokens are enough, but {found} are {len(found)}")
