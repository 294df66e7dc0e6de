"""Plausible wrong answers to the exercises of 17_implementation."""


def moves(lengths, gains, row=None, after=1, pending=1):
    """Count the slots of rows that gain another number than the step, or than `row` gains."""
    ends = [n + gain for n, gain in zip(lengths, gains, strict=True)]
    step = max(ends) - max(lengths) if row is None else gains[row(lengths, ends)]
    pairs = zip(lengths, gains, strict=True)
    return sum(n + after * gain - pending for n, gain in pairs if gain != step)


WRONG = {
    "stays": {
        "as the rows that stay, expected [2, 3], got": [{0}, {1}, {0, 2, 3}, set(), {1, 2, 3}]
    },
    "moved_slots": {
        "expected 81, got": [
            # By the longest row before, or after.
            lambda n, gains: moves(n, gains, lambda before, after: before.index(max(before))),
            lambda n, gains: moves(n, gains, lambda before, after: after.index(max(after))),
        ],
        "expected 37, got": [
            lambda n, gains: moves(n, gains, pending=0),
            lambda n, gains: moves(n, gains, after=0),
        ],
    },
    "rows_that_fit": {  # memory, weights, layers, heads, kv_heads, head_dim, itemsize, T
        "T = 1549 expected 27, got": [  # all heads
            lambda m, w, layers, h, g, d, size, T: (m - w) // (2 * layers * h * d * size * T)
        ],
        "T = 1758 expected 58, got": [  # keys alone; rounded
            lambda m, w, layers, h, g, d, size, T: (m - w) // (layers * g * d * size * T),
            lambda m, w, layers, h, g, d, size, T: round((m - w) / (2 * layers * g * d * size * T)),
        ],
    },
}
