"""Plausible wrong answers to the exercises of 20_state."""

import torch


def without_tags(held, tags, indices):
    """Takes whatever lies in the place."""
    return held[torch.arange(len(held)), indices % held.shape[1]] * (indices >= 0)[:, None]


def begins_with_leftovers(held, tags, indices):
    """Gives a row that begins what the row before has left."""
    rows = torch.arange(len(held))
    places = indices % held.shape[1]
    if ((tags[rows, places] != indices) & (indices >= 0)).any():
        raise KeyError
    return held[rows, places]


def by_place(held, tags, indices):
    """Takes an index for a place."""
    return held[torch.arange(len(held)), indices.clamp(0, held.shape[1] - 1)]


CONV_ALONE = (
    "(layer.conv_states[0], layer.recurrent_states[0])\n",
    "(layer.conv_states[0].clone(), layer.recurrent_states[0])\n",
)
NO_REPLAY = ("read(target, cache, [row[-1], *drafts[:accepted]])", "pass")

WRONG = {
    "indices": {
        "behind which states are left expected [9, 10, 11, 12, 13], got": [
            ([9, 10], 10, 9),
            ([10, 11, 12, 13], 10, 9),
        ],
        "the target goes on expected 10, got": [([9, 10, 11, 12, 13], 13, 9)],
        "the draft goes on, which reads two tokens expected 9, got": [
            ([9, 10, 11, 12, 13], 10, 10)
        ],
    },
    "take": {
        "expected a KeyError": [without_tags],
        "expected [[": [begins_with_leftovers, by_place],
    },
    "replay": {"is not the target's own": [CONV_ALONE, NO_REPLAY]},
}
