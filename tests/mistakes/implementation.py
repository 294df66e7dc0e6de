"""Plausible wrong answers to the exercises of 17_implementation."""


def moves(lengths, gains, step):
    return sum(n + gain - 1 for n, gain in zip(lengths, gains, strict=True) if gain != step)


def by_the_longest_before(lengths, gains):
    """Takes what the row gained that was the longest before."""
    return moves(lengths, gains, gains[lengths.index(max(lengths))])


def by_the_longest_after(lengths, gains):
    """Takes what the row gained that is the longest afterwards."""
    after = [n + gain for n, gain in zip(lengths, gains, strict=True)]
    return moves(lengths, gains, gains[after.index(max(after))])


def with_the_pending_token(lengths, gains):
    after = [n + gain for n, gain in zip(lengths, gains, strict=True)]
    step = max(after) - max(lengths)
    return sum(n for n, gain in zip(after, gains, strict=True) if gain != step)


def before_the_round(lengths, gains):
    """Counts the tokens before the round."""
    after = [n + gain for n, gain in zip(lengths, gains, strict=True)]
    step = max(after) - max(lengths)
    return sum(n - 1 for n, gain in zip(lengths, gains, strict=True) if gain != step)


def all_heads(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return (memory - weights) // (2 * layers * heads * head_dim * itemsize * T)


def keys_alone(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return (memory - weights) // (layers * kv_heads * head_dim * itemsize * T)


def rounded(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return round((memory - weights) / (2 * layers * kv_heads * head_dim * itemsize * T))


WRONG = {
    "stays": [({0},), ({1},), ({0, 2, 3},), (set(),), ({1, 2, 3},)],
    "moved_slots": [
        (by_the_longest_before,),
        (by_the_longest_after,),
        (with_the_pending_token,),
        (before_the_round,),
    ],
    "rows_that_fit": [(all_heads,), (keys_alone,), (rounded,)],
}
