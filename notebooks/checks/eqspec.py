"""Checks of 04_eqspec: where rows go, what that copies, realignment at once, moving a block."""

import random
from collections.abc import Sequence

import torch

from checks.base import Answer, WrongAnswerError, ask, exercise, expect

# Of the first exercise, whose rows stand in 9 columns.
N = (9, 4, 7, 7)
GAINS = (1, 5, 3, 2)
COPIED_BYTES = 7 * 500 * 36 * 2 * 8 * 128 * 2


@exercise
def offsets(answer: Sequence[int]) -> str:
    """Check by how many slots each of the four rows moves; to the right is positive."""
    width = max(n + gain for n, gain in zip(N, GAINS, strict=True))
    expect(list(answer), [width - max(N) - gain for gain in GAINS], "the four offsets")
    return "the rectangle grows by one column, so a row that gains more than one token moves left"


@exercise
def copied_bytes(answer: int) -> str:
    """Check the bytes of the target's K/V that the realignment of 7 rows copies."""
    if answer == COPIED_BYTES // 500 * 501:
        raise WrongAnswerError("that counts the pending tokens, which have no K/V yet")
    expect(answer, COPIED_BYTES, "7 rows of 501 tokens")
    return f"{COPIED_BYTES / 1e6:.0f} MB, in one round, for at most {8 * 6} new tokens"


@exercise
def realign_at_once(answer: Answer) -> str:
    """Check a function of kv (B, T, D), starts, n, gain (B,): the moved K/V and new starts."""
    rng = torch.Generator().manual_seed(0)
    for trial in range(50):
        kv, starts, n, gain = _ragged_batch(rng)
        case = f"batch {trial} with n {n.tolist()}, gain {gain.tolist()}, starts {starts.tolist()}"
        moved, found_starts = ask(answer, kv.clone(), starts.clone(), n.clone(), gain.clone())
        new_starts = ((n + gain).max() - n - gain).tolist()
        expect([int(start) for start in found_starts], new_starts, f"{case}, as the new starts,")
        for i, new in enumerate(new_starts):
            start = int(starts[i])
            held = int(n[i] + gain[i]) - 1  # tokens with K/V: all but the pending one
            wanted = kv[i, start : start + held, 0].int().tolist()
            found = moved[i, new : new + held, 0].int().tolist()
            expect(found, wanted, f"{case}, in row {i}, slots {new} to {new + held - 1},")
    return "right for 50 ragged batches: every row is where it belongs"


def _ragged_batch(
    rng: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return kv, starts, n and gain of four rows that ended in one column and gained 1 to 6 tokens.

    A slot holds 100 * (row + 1) + the index of its token, or -1.
    """
    n = torch.randint(1, 12, (4,), generator=rng)
    gain = torch.randint(1, 7, (4,), generator=rng)
    starts = n.max() - n
    index = torch.arange(int(n.max()) + 6) - starts[:, None]
    kv = torch.where(index >= 0, 100 * torch.arange(1, 5)[:, None] + index, -1)
    return kv[:, :, None].float(), starts, n, gain


@exercise
def shift_row(answer: Answer) -> str:
    """Check a function that moves `length` slots within a list, from `start` to `start + d`."""
    rng = random.Random(0)
    for _ in range(200):
        size = rng.randint(2, 12)
        start = rng.randint(0, size - 1)
        length = min(rng.randint(1, size), size - start)
        d = rng.randint(-start, size - start - length)
        row = [chr(ord("a") + i) for i in range(size)]
        wanted = row[start : start + length]
        found = ask(answer, row, start, length, d)
        if found is not row:
            raise WrongAnswerError("your function returns a new list; change the given one instead")
        expect(
            "".join(row[start + d : start + d + length]),
            "".join(wanted),
            f"{length} slots from {start} and d = {d}, as what arrives,",
        )
    return "right for 200 blocks: they arrive whole, whichever way they move"
