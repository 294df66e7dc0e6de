"""Checks of 02_ragged_failure: what ragged rows do to positions, masks and K/V. Runs no model."""

import random
from collections.abc import Collection, Sequence

from checks.base import Answer, WrongAnswerError, ask, exercise, expect

K = 4
ACCEPTED = (2, 4, 0, 1)
MISTAKES = (
    "positions counted in columns",
    "the draft's token as bonus",
    "a mask of ones",
    "padding that is never removed",
)
_BREAK_ONE_ROW = {MISTAKES[0], MISTAKES[1]}


@exercise
def drift(answer: Sequence[int]) -> str:
    """Check exercise 1: the pending token's column less its index, for each of `ACCEPTED`."""
    rejected = [K - a for a in ACCEPTED]
    wanted = [sum(rejected[: number + 1]) for number in range(len(rejected))]
    found = [int(value) for value in answer]
    if found == rejected:
        raise WrongAnswerError(
            f"{found} is what each round adds; the holes of earlier rounds stay in the cache"
        )
    expect(found, wanted, f"K = {K} and accepted drafts {list(ACCEPTED)}")
    return "each round adds K - a, and nothing takes it away again"


@exercise
def alone(answer: Collection[str]) -> str:
    """Check exercise 2: which of `MISTAKES` change the text of a batch of a single row."""
    found = {answer} if isinstance(answer, str) else set(answer)
    if unknown := found - set(MISTAKES):
        raise WrongAnswerError(
            f"{min(map(str, unknown))!r} is not one of the four; choose from check.MISTAKES"
        )
    for mistake in MISTAKES:
        if (mistake in found) != (mistake in _BREAK_ONE_ROW):
            words = "does change" if mistake in _BREAK_ONE_ROW else "does not change"
            raise WrongAnswerError(
                f"{mistake!r} {words} the text of a single row: does it need padding, or a "
                "rejected draft?"
            )
    return "two need only a rejected draft; the other two need padding, which a single row has not"


@exercise
def holes(answer: Answer) -> str:
    """Check exercise 3: (valid, accepted, K) -> `valid` afterwards, positions of the fed tokens."""
    rng = random.Random(0)
    cases = [([1, 1, 1], 1, 3), ([0, 0, 1, 1], 3, 3), ([0, 1, 1, 0, 0, 1, 0], 0, 2)]
    cases += [([rng.randrange(2) for _ in range(9)], rng.randrange(k + 1), k) for k in (1, 4, 5, 5)]
    for valid, accepted, k in cases:
        found = ask(answer, list(valid), accepted, k)
        case = f"valid {valid}, {accepted} accepted drafts and K = {k}"
        if not isinstance(found, tuple) or len(found) != 2:
            raise WrongAnswerError(
                f"for {case} the answer must be two lists, the new valid and the positions"
            )
        after, positions = ([int(value) for value in part] for part in found)
        expect(
            after, [*valid, 1, *[1] * accepted, *[0] * (k - accepted)], f"{case}, as the new valid,"
        )
        expect(positions, [sum(valid) + j for j in range(k + 1)], f"{case}, as the positions,")
    return "holes stay in the cache and are not counted: this is masking done right"


@exercise
def realign(answer: Answer) -> str:
    """Check exercise 4: (slots, starts, lengths) -> slots with all rows ending in one column."""
    rng = random.Random(1)
    cases = [
        (["ABCDabc", "..QRxyz"], [0, 2], [7, 5]),
        (["ABCDabc", "..QRpyz", ".WXY---"], [0, 2, 1], [7, 3, 3]),
    ]
    cases += [_random_rows(rng) for _ in range(5)]
    for slots, starts, lengths in cases:
        end = max(lengths)
        found = ["".join(row) for row in ask(answer, list(slots), list(starts), list(lengths))]
        wanted = [
            row[start : start + length].rjust(end, ".")
            for row, start, length in zip(slots, starts, lengths, strict=True)
        ]
        expect(found, wanted, f"slots {slots}, starts {starts} and lengths {lengths}")
    return "stale slots are at the end of a row, so a row's own tokens are not in its last slots"


def _random_rows(rng: random.Random) -> tuple[list[str], list[int], list[int]]:
    """Return three rows of one width: padding, tokens with K/V, and K/V of rejected drafts."""
    width = rng.randrange(6, 12)
    starts = [rng.randrange(3) for _ in range(3)]
    lengths = [width - start - rng.randrange(3) for start in starts]
    letters = ("ABCDEFGHIJKL", "MNOPQRSTUVWX", "abcdefghijkl")
    rows = [
        ("." * start + text[:length]).ljust(width, "-")
        for start, length, text in zip(starts, lengths, letters, strict=True)
    ]
    return rows, starts, lengths
