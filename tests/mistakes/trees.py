"""Plausible wrong answers to the exercises of 11_trees."""

import numpy as np

CAUSAL = ["1000000", "1100000", "1110000", "1111000", "1111100", "1111110", "1111111"]
# The parents alone: d6 does not see d1.
PARENTS = ["1000000", "1100000", "1010000", "0101000", "0100100", "0010010", "0001001"]
# Each token sees what it follows, but not itself.
NOT_ITSELF = ["0000000", "1000000", "1000000", "1100000", "1100000", "1010000", "1101000"]
SIX = ["100000", "110000", "101000", "110100", "110010", "101001"]


def causal(parents):
    return np.tri(len(parents) + 1, dtype=bool)


def parents_alone(parents):
    found = np.eye(len(parents) + 1, dtype=bool)
    for number, parent in enumerate(parents):
        found[number + 1, parent + 1] = True
    return found


def not_itself(parents):
    found = np.zeros((len(parents) + 1, len(parents) + 1), bool)
    for number, parent in enumerate(parents):
        found[number + 1] = found[parent + 1]
        found[number + 1, parent + 1] = True
    return found


def off_by_one(parents):
    """Takes a draft's number for its column."""
    found = np.eye(len(parents) + 1, dtype=bool)
    for number, parent in enumerate(parents):
        found[number + 1] |= found[max(parent, 0)]
    return found


def without_the_pending(parents):
    found = np.eye(len(parents), dtype=bool)
    for number, parent in enumerate(parents):
        if parent >= 0:
            found[number] |= found[parent]
    return found


def last_first(kv, path, pending):
    """Writes over what is still to be read."""
    for place in reversed(range(len(path))):
        kv[pending + 1 + place] = kv[pending + 1 + path[place]]
    return kv


def onto_the_pending(kv, path, pending):
    kv[pending : pending + len(path)] = kv[[pending + number for number in path]]
    return kv


def crop(kv, path, pending):
    """Keeps as many slots as were accepted, as for a chain."""
    return kv[: pending + 1 + len(path)]


def other_way(kv, path, pending):
    kv[[pending + 1 + number for number in path]] = kv[pending + 1 : pending + 1 + len(path)]
    return kv


def numbers_as_slots(kv, path, pending):
    kv[pending + 1 : pending + 1 + len(path)] = kv[path]
    return kv


def rule(p, q, children, renormalise_p=True, shrink=lambda q, child: q):
    emitted = np.zeros(len(p))
    reached = 1.0
    for child in children:
        accepted = min(1, p[child] / q[child]) if q[child] else 1
        emitted[child] += reached * accepted
        reached *= 1 - accepted
        p = np.maximum(p - q, 0)
        if renormalise_p:
            p = p / p.sum()
        q = shrink(q, child)
    return emitted + reached * p


def first_q(p, q, children):
    return rule(p, q, children)


def zeroed_and_not_renormalised(p, q, children):
    return rule(p, q, children, shrink=lambda q, child: np.where(np.arange(len(q)) == child, 0, q))


def p_not_renormalised(p, q, children):
    def without(q, child):
        left = np.where(np.arange(len(q)) == child, 0, q)
        return left / left.sum()

    return rule(p, q, children, renormalise_p=False, shrink=without)


def ignores_the_children(p, q, children):
    """Emits p all the same, but does not judge the children."""
    return p


def likeliest_counts_for_sure(p, q, children):
    """Accepts a child with its chance under p; right only for children that were chosen."""
    emitted = np.zeros(len(p))
    reached = 1.0
    for child in children:
        emitted[child] += reached * p[child]
        reached *= 1 - p[child]
        p = np.where(np.arange(len(p)) == child, 0, p)
        p = p / p.sum()
    return emitted + reached * p


WRONG = {
    "mask": [(CAUSAL,), (PARENTS,), (NOT_ITSELF,), (SIX,)],
    "ancestors": [
        (causal,),
        (parents_alone,),
        (not_itself,),
        (off_by_one,),
        (without_the_pending,),
    ],
    "compact": [(last_first,), (onto_the_pending,), (crop,), (other_way,), (numbers_as_slots,)],
    "judge": [
        (first_q,),
        (zeroed_and_not_renormalised,),
        (p_not_renormalised,),
        (ignores_the_children,),
        (likeliest_counts_for_sure,),
    ],
}
