"""Checks of 04_eqspec: where rows go, what that copies, a realignment without a loop, and a block that moves within its own memory."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from specviz.exercises.base import WrongAnswerError, ask, exercise, expect

N, GAINS = (9, 4, 7, 7), (1, 5, 3, 2)  # of the first exercise; the rows stand in 9 columns
COPIED_BYTES = 7 * 500 * 36 * 2 * 8 * 128 * 2


@exercise
def offsets(answer: Sequence[int]) -> str:
    """By how many slots each of the four rows moves, right being positive."""
    width = max(n + gain for n, gain in zip(N, GAINS, strict=True))
    expect(list(answer), [width - max(N) - gain for gain in GAINS], "the four offsets")
    return "the rectangle grows by one column, so whoever gained more than one token moves left"


@exercise
def copied_bytes(answer: int) -> str:
    """Bytes of the target's K/V that the realignment of 7 rows copies."""
    if answer == COPIED_BYTES // 500 * 501:
        raise WrongAnswerError("that counts the pending tokens, whose K/V does not exist yet")
    expect(answer, COPIED_BYTES, "7 rows of 501 tokens")
    return f"{COPIED_BYTES / 1e6:.0f} MB, in one round, for at most {8 * 6} new tokens"


@exercise
def realign_at_once(answer: Callable[..., Any]) -> str:
    """A function of kv (B, T, D), starts, n and gain (B,) that returns the moved K/V and the new starts."""
    lots = torch.Generator().manual_seed(0)
    for trial in range(50):
        kv, starts, n, gain = _ragged_batch(lots)
        width = int((n + gain).max())
        given = (
            f"batch {trial} with n {n.tolist()}, gain {gain.tolist()}, starts {starts.tolist()}:"
        )
        moved, new_starts = ask(answer, kv.clone(), starts.clone(), n.clone(), gain.clone())
        expect(
            [int(start) for start in new_starts],
            (width - n - gain).tolist(),
            f"{given} the new starts",
        )
        for i, (start, new, held) in enumerate(
            zip(starts.tolist(), (width - n - gain).tolist(), (n + gain - 1).tolist(), strict=True)
        ):
            wanted, found = kv[i, start : start + held, 0], moved[i, new : new + held, 0]
            expect(
                found.int().tolist(),
                wanted.int().tolist(),
                f"{given} row {i}, slots {new} to {new + held - 1}",
            )
    return "50 ragged batches, every row where it belongs"


def _ragged_batch(
    lots: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four rows that ended in one column and have gained 1 to 6 tokens; what a slot holds is 100 * (row + 1) + its index."""
    n, gain = torch.randint(1, 12, (4,), generator=lots), torch.randint(1, 7, (4,), generator=lots)
    starts = n.max() - n
    index = torch.arange(int(n.max()) + 6) - starts[:, None]
    return (
        torch.where(index >= 0, 100 * torch.arange(1, 5)[:, None] + index, -1)[:, :, None].float(),
        starts,
        n,
        gain,
    )


@exercise
def shift_row(answer: Callable[..., Any]) -> str:
    """A function that moves `length` slots of a list from `start` to `start + d`, within the list."""
    lots = random.Random(0)
    for _ in range(200):
        size = lots.randint(2, 12)
        start, length = lots.randint(0, size - 1), lots.randint(1, size)
        length = min(length, size - start)
        d = lots.randint(-start, size - start - length)
        row = [chr(ord("a") + i) for i in range(size)]
        wanted = row[start : start + length]
        found = ask(answer, row, start, length, d)
        if found is not row:
            raise WrongAnswerError(
                "the row that comes back is another list; change the one that was given"
            )
        expect(
            "".join(row[start + d : start + d + length]),
            "".join(wanted),
            f"{length} slots from {start}, d = {d}: what arrives",
        )
    return "200 blocks arrived whole, whichever way they went"
