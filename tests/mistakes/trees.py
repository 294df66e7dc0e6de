"""Plausible wrong answers to the exercises of 11_trees."""

import numpy as np


def branches(parents, of=lambda found, number, parent: found[parent + 1]):
    """Walk the drafts; each sees itself and what `of` gives it."""
    found = np.eye(len(parents) + 1, dtype=bool)
    for number, parent in enumerate(parents):
        found[number + 1] |= of(found, number, parent)
    return found


def parents_alone(parents):
    return branches(parents, of=lambda found, number, parent: np.eye(len(found))[parent + 1] > 0)


def moved(kv, pending, to, from_):
    kv[[pending + place for place in to]] = kv[[pending + place for place in from_]]
    return kv


def last_first(kv, path, pending):
    """Writes over what is still to be read."""
    for place in reversed(range(len(path))):
        kv[pending + 1 + place] = kv[pending + 1 + path[place]]
    return kv


def without(q, child):
    return np.where(np.arange(len(q)) == child, 0, q)


def scaled(weights):
    return weights / weights.sum()


def rule(p, q, children, next_p=lambda p, q: scaled(np.maximum(p - q, 0)), next_q=without):
    emitted = np.zeros(len(p))
    reached = 1.0
    for child in children:
        accepted = min(1, p[child] / q[child]) if q[child] else 1
        emitted[child] += reached * accepted
        reached *= 1 - accepted
        p = next_p(p, q)
        q = next_q(q, child)
    return emitted + reached * p


def accepts_by_p(p, q, children):
    """Right only for children that were chosen, not drawn."""
    emitted = np.zeros(len(p))
    reached = 1.0
    for child in children:
        emitted[child] += reached * p[child]
        reached *= 1 - p[child]
        p = scaled(without(p, child))
    return emitted + reached * p


WRONG = {
    "mask": {
        "d2 does not attend to d1": [  # a causal mask
            ["1000000", "1100000", "1110000", "1111000", "1111100", "1111110", "1111111"]
        ],
        "d3 attends to the pending token": [  # the parents alone: d6 does not see d1
            ["1000000", "1100000", "1010000", "0101000", "0100100", "0010010", "0001001"]
        ],
        "the pending token attends to the pending token": [
            ["0000000", "1000000", "1000000", "1100000", "1100000", "1010000", "1101000"]
        ],
        "seven lines of seven": [["100000", "110000", "101000", "110100", "110010", "101001"]],
    },
    "ancestors": {
        "column 2 expected [0, 2], got": [lambda parents: np.tri(len(parents) + 1, dtype=bool)],
        "column 3 expected [0, 1, 3], got": [
            parents_alone,
            # A draft's number is taken for its column.
            lambda parents: branches(parents, of=lambda found, _, parent: found[max(parent, 0)]),
        ],
        # Each token sees what it follows, but not itself.
        "column 0 expected [0], got": [
            lambda parents: branches(parents) & ~(np.eye(len(parents) + 1) > 0)
        ],
        "expected shape (8, 8), got (7, 7)": [lambda parents: branches(parents)[1:, 1:]],
    },
    "compact": {
        "the slots that K/V came from, expected": [
            last_first,
            # Onto the pending token; cut as for a chain; the other way; numbers taken for slots.
            lambda kv, path, pending: moved(kv, pending, range(len(path)), path),
            lambda kv, path, pending: kv[: pending + 1 + len(path)],
            lambda kv, path, pending: moved(kv, pending + 1, path, range(len(path))),
            lambda kv, path, pending: moved(
                kv, 0, range(pending + 1, pending + 1 + len(path)), path
            ),
        ]
    },
    "judge": {
        "a total variation of": [
            lambda p, q, children: rule(p, q, children, next_q=lambda q, child: q),
            rule,  # q is not scaled
            lambda p, q, children: rule(
                p,
                q,
                children,
                next_p=lambda p, q: np.maximum(p - q, 0),
                next_q=lambda q, child: scaled(without(q, child)),
            ),
        ],
        "it emits p on average, but": [lambda p, q, children: p, accepts_by_p],
    },
}
