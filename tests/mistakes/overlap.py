"""Plausible wrong answers to the exercises of 13_overlap."""

ONE_AFTER_THE_OTHER = 6 * 50
HALF_OF_THAT = 150
STEPS_ALONE = 6 * 30
DRAFTS_COUNTED_TWICE = 20 + 20 + 6 * 30
BARRIER_AT_BOTH_ENDS = 7 * 30


def of_one_step(V, t, m):
    return (V(2 * m) + t(2 * m)) / max(V(m), t(m))


def published(V, t, m):
    """Against a single lane with half of the rows in flight."""
    return (V(m) + t(m)) / max(V(m), t(m))


def whole_batch(V, t, m):
    return (V(2 * m) + t(2 * m)) / (2 * max(V(2 * m), t(2 * m)))


def smaller_side(V, t, m):
    return (V(2 * m) + t(2 * m)) / (2 * min(V(m), t(m)))


def upside_down(V, t, m):
    return 2 * max(V(m), t(m)) / (V(2 * m) + t(2 * m))


def as_in_the_notebook(V, t):
    return 1 - (V + t) / max(V, t)


def never_negative(V, t):
    return max(0.0, 1 - (V + t) / max(V, t))


def of_one_side(V, t):
    return 1 - min(V, t) / max(V, t)


def verifying_alone(V, t):
    return 1 - V / max(V, t)


WRONG = {
    "finish": [
        (ONE_AFTER_THE_OTHER,),
        (HALF_OF_THAT,),
        (STEPS_ALONE,),
        (DRAFTS_COUNTED_TWICE,),
        (BARRIER_AT_BOTH_ENDS,),
    ],
    "gain": [(of_one_step,), (published,), (whole_batch,), (smaller_side,), (upside_down,)],
    "waiting": [(as_in_the_notebook,), (never_negative,), (of_one_side,), (verifying_alone,)],
}
