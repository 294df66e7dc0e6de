"""Plausible wrong answers to the exercises of 02_ragged_failure."""

from checks.ragged_failure import ACCEPTED, MISTAKES, K


def fed(valid, accepted, K, first=None, holes=True, pending=True):
    """The right answer; `first` is another first position; False drops holes or pending."""
    after = [*valid, *[1] * (accepted + pending), *[0] * (K - accepted) * holes]
    first = sum(valid) if first is None else first
    return after, [first + j for j in range(K + 1)]


def padded(slots, starts, lengths, begin=0, width=0):
    """Take the tokens from `begin` on; rows are at least `width` wide."""
    width = max(width, *lengths)
    return [
        row[start * begin : start + length].rjust(width, ".")
        for row, start, length in zip(slots, starts, lengths, strict=True)
    ]


WRONG = {
    "drift": {
        "what each round adds": [[K - a for a in ACCEPTED]],
        "expected [2, 2, 6, 9], got": [[2, 6, 6, 7], [1, 1, 5, 8], [2, 2, 6]],
    },
    "alone": {
        "'positions counted in columns' does change": [set()],
        "'a mask of ones' does not change": [set(MISTAKES), set(MISTAKES[:3])],
        'token as bonus" does change': [{MISTAKES[0]}],
        "not one of the four": [["the mask"]],
    },
    "holes": {
        "as the positions, expected": [
            lambda valid, accepted, K: fed(valid, accepted, K, len(valid)),  # holes are counted
            lambda valid, accepted, K: fed(valid, accepted, K, sum(valid) + 1),
        ],
        "as the new valid, expected": [
            lambda valid, accepted, K: fed(valid, accepted, K, pending=False),
            lambda valid, accepted, K: fed(valid, accepted, K, holes=False),
        ],
        "must be two lists": [lambda valid, accepted, K: fed(valid, accepted, K)[0]],
    },
    "realign": {
        "expected ['ABCDabc', '....QRp', '....WXY']": [  # takes the last slots
            lambda slots, starts, lengths: [
                row[-length:].rjust(max(lengths), ".")
                for row, length in zip(slots, lengths, strict=True)
            ]
        ],
        "expected ['.ABCDE', 'MNOPQR', '.abcde']": [  # never unpads
            lambda slots, starts, lengths: padded(slots, starts, lengths, 0, len(slots[0]))
        ],
        "expected ['ABCDabc', '..QRxyz']": [  # pads on the right
            lambda slots, starts, lengths: [
                row.lstrip(".").ljust(max(lengths), ".")
                for row in padded(slots, starts, lengths, 1)
            ]
        ],
    },
}
