"""Plausible wrong answers to the exercises of 08_cost."""

import math


def no_bonus(draft_s, verify_s, rates):
    """Forgets the token that every round emits."""
    speeds = [sum(rates[:k]) / (k * draft_s + verify_s[k]) for k in range(len(verify_s))]
    return speeds.index(max(speeds))


def always_speculates(draft_s, verify_s, rates):
    speeds = [(1 + sum(rates[:k])) / (k * draft_s + verify_s[k]) for k in range(1, len(verify_s))]
    return 1 + speeds.index(max(speeds))


def one_draft(draft_s, verify_s, rates):
    """Pays for one draft instead of k."""
    speeds = [
        (1 + sum(rates[:k])) / ((k > 0) * draft_s + verify_s[k]) for k in range(len(verify_s))
    ]
    return speeds.index(max(speeds))


def all_heads(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return (memory - weights) // (2 * layers * heads * head_dim * itemsize * T)


def keys_alone(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return (memory - weights) // (layers * kv_heads * head_dim * itemsize * T)


def rounded(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    return round((memory - weights) / (2 * layers * kv_heads * head_dim * itemsize * T))


WRONG = {
    "turns": [(200, 50), (100, 20), (200, 200)],
    "best_k": [(no_bonus,), (always_speculates,), (one_draft,)],
    "rows_that_fit": [(all_heads,), (keys_alone,), (rounded,)],
    "devices": [
        (lambda rate, latency_s, B: math.ceil(rate / B),),
        (lambda rate, latency_s, B: int(rate * latency_s / B),),
        (lambda rate, latency_s, B: math.ceil(rate * latency_s),),
    ],
}
