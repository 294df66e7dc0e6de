"""Plausible wrong answers to the exercises of 13_overlap."""

WRONG = {
    "finish": {
        "six rounds take one after the other": [6 * 50],
        # Half of that; verifications alone; drafts counted twice; a barrier at both ends.
        "the side that verifies never waits": [150, 6 * 30, 20 + 20 + 6 * 30, 7 * 30],
    },
    "gain": {
        "and m = 6 expected 0.631, got": [
            lambda V, t, m: (V(2 * m) + t(2 * m)) / max(V(m), t(m)),  # of one step
            lambda V, t, m: (V(m) + t(m)) / max(V(m), t(m)),  # against half of the rows
            lambda V, t, m: (V(2 * m) + t(2 * m)) / (2 * max(V(2 * m), t(2 * m))),
            lambda V, t, m: (V(2 * m) + t(2 * m)) / (2 * min(V(m), t(m))),
            lambda V, t, m: 2 * max(V(m), t(m)) / (V(2 * m) + t(2 * m)),
        ]
    },
    "waiting": {
        "V = 32.2 and t = 14.2 expected 0.279, got": [
            lambda V, t: 1 - (V + t) / max(V, t),  # as in the notebook
            lambda V, t: max(0.0, 1 - (V + t) / max(V, t)),
            lambda V, t: 1 - min(V, t) / max(V, t),  # of one side
            lambda V, t: 1 - V / max(V, t),  # of the side that verifies
        ]
    },
}
