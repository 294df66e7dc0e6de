"""Plausible wrong answers to the exercises of 05_exspec."""


def group(lengths, B, order=sorted, cut=True, least=None):
    """Return the first full group in this order of lengths."""
    for n in order(lengths.values()):
        found = [request for request, length in lengths.items() if length == n]
        if len(found) >= (B if least is None else least):
            return found[:B] if cut else found
    return []


def longest_first(lengths):
    return sorted(lengths, reverse=True)


def choose(lengths, waited, B, max_wait, cut_first=True, reset=True, look=True):
    groups = {}
    for request, n in lengths.items():
        groups.setdefault(n, []).append(request)
    chosen = max(groups.values(), key=len)
    overdue = [request for request in lengths if waited[request] >= max_wait]
    if overdue and look:
        chosen = overdue
    chosen = chosen[:B] if cut_first else chosen
    for request in lengths:
        waited[request] = 0 if reset and request in chosen else waited[request] + 1
    return chosen[:B]


WRONG = {
    "certain_window": {"expected 141, got": [160, 140, 21]},
    "longest_group": {
        "expected [16, 31, 19], got": [
            lambda lengths, B: group(lengths, B, order=iter),  # the first group, not the longest
            lambda lengths, B: group(lengths, B, longest_first, least=1),  # too few rows
        ],
        "expected [35], got": [lambda lengths, B: group(lengths, B, longest_first, cut=False)],
    },
    "choose_fairly": {
        "as `waited` afterwards, expected": [
            lambda *pool: choose(*pool, cut_first=False),  # as the paper prints it
            lambda *pool: choose(*pool, reset=False),
        ],
        "are overdue, but only [] of them were served": [lambda *pool: choose(*pool, look=False)],
    },
    "stay_together": {
        "alpha = 1.0 and K = 5 expected 1.0000, got 0.0": [
            lambda alpha, K: sum((alpha**a * (1 - alpha)) ** 2 for a in range(K)),
            lambda alpha, K: sum((alpha**a * (1 - alpha)) ** 2 for a in range(K + 1)),
        ]
    },
}
