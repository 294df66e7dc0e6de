"""Plausible wrong answers to the exercises of 03_invariants."""

import numpy as np


def pairs(feeds, wrong):
    return set(zip(feeds["round"][wrong].tolist(), feeds["row"][wrong].tolist(), strict=True))


def seen(feeds):
    return feeds["visible_stop"] - feeds["visible_start"]


def hidden(feeds, holes):
    return np.bincount(holes["feed"], holes["stop"] - holes["start"], len(feeds["slot"]))


WRONG = {
    "realigned": {
        "the row that gains most need not end up the longest": [(13, [4, 2, 0])],
        "the offsets d expected [2, 0, -2], got": [(11, [-2, 0, 2]), (11, [3, 3, 3])],
    },
    "position_ids": {
        "expected [0, 1, 2], got": [
            lambda mask: np.maximum(np.arange(len(mask)) - mask.argmax(), 0),
            lambda mask: np.arange(len(mask)),
        ],
        "expected [0, 1, 2, 3], got": [lambda mask: mask.cumsum()],
        "expected 5 positions, got shape (3,)": [lambda mask: mask.cumsum()[mask > 0] - 1],
    },
    "positions_check": {
        "for a valid run of eqspec it wrongly names (round, row) =": [
            lambda feeds: pairs(feeds, feeds["position"] != feeds["slot"])
        ],
        "with drifting positions it misses (round, row) =": [
            # Of the target alone.
            lambda feeds: pairs(
                feeds, (feeds["position"] != feeds["index"]) & (feeds["phase"] == 0)
            ),
            lambda feeds: set(),
        ],
    },
    "mask_check": {
        "which has holes it wrongly names": [
            lambda feeds, holes: pairs(feeds, seen(feeds) != feeds["index"] + 1)
        ],
        "for a valid run of eqspec it wrongly names": [  # forgets a token's own slot
            lambda feeds, holes: pairs(feeds, seen(feeds) - hidden(feeds, holes) != feeds["index"])
        ],
        "with a leaking mask it misses": [lambda feeds, holes: set()],
    },
    "found": {
        "the rule is right, the row is right, the round is wrong": [(1, "mask", 3, 1)],
        "the rule is right, the row is wrong, the round is right": [(1, "mask", 2, 2)],
        "the rule is wrong, the row is right, the round is right": [
            (1, "kv", 3, 2),
            (2, "acceptance", 0, 2),
            (4, "mask", 1, 4),
            (5, "mask", 0, 1),
        ],
        "which is one round later": [(3, "positions", 2, 2)],
        "K/V that went wrong earlier": [(4, "kv", 1, 5)],
        "there is no mystery 6": [(6, "kv", 0, 0)],
        "there is no rule 'masks'": [(1, "masks", 3, 2)],
    },
}
