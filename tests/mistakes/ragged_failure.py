"""Plausible wrong answers to the exercises of 02_ragged_failure."""

from checks.ragged_failure import ACCEPTED, MISTAKES, K


def counts_the_holes(valid, accepted, K):
    after = [*valid, *[1] * (accepted + 1), *[0] * (K - accepted)]
    return after, [len(valid) + j for j in range(K + 1)]


def forgets_the_pending_token(valid, accepted, K):
    return [*valid, *[1] * accepted, *[0] * (K - accepted)], [sum(valid) + j for j in range(K + 1)]


def starts_one_late(valid, accepted, K):
    return [*valid, *[1] * (accepted + 1), *[0] * (K - accepted)], [
        sum(valid) + 1 + j for j in range(K + 1)
    ]


def drops_the_holes(valid, accepted, K):
    return [*valid, *[1] * (accepted + 1)], [sum(valid) + j for j in range(K + 1)]


def only_the_first(valid, accepted, K):
    return [*valid, *[1] * (accepted + 1), *[0] * (K - accepted)]


def take_the_last(slots, starts, lengths):
    return [
        row[-length:].rjust(max(lengths), ".") for row, length in zip(slots, lengths, strict=True)
    ]


def never_unpad(slots, starts, lengths):
    return [
        row[: start + length].rjust(max(map(len, slots)), ".")
        for row, start, length in zip(slots, starts, lengths, strict=True)
    ]


def pad_on_the_right(slots, starts, lengths):
    return [
        row[start : start + length].ljust(max(lengths), ".")
        for row, start, length in zip(slots, starts, lengths, strict=True)
    ]


WRONG = {
    "drift": [([K - a for a in ACCEPTED],), ([2, 6, 6, 7],), ([1, 1, 5, 8],), ([2, 2, 6],)],
    "alone": [
        (set(),),
        (set(MISTAKES),),
        ({MISTAKES[0]},),
        ({MISTAKES[0], MISTAKES[1], MISTAKES[2]},),
        (["the mask"],),
    ],
    "holes": [
        (counts_the_holes,),
        (forgets_the_pending_token,),
        (starts_one_late,),
        (drops_the_holes,),
        (only_the_first,),
    ],
    "realign": [(take_the_last,), (never_unpad,), (pad_on_the_right,)],
}
