"""Plausible wrong answers to the exercises of 05_exspec."""


def first_group(lengths, B):
    """The group that came first, not the longest."""
    for n in lengths.values():
        group = [request for request, length in lengths.items() if length == n]
        if len(group) >= B:
            return group[:B]
    return []


def whole_group(lengths, B):
    for n in sorted(set(lengths.values()), reverse=True):
        group = [request for request, length in lengths.items() if length == n]
        if len(group) >= B:
            return group
    return []


def partial_group(lengths, B):
    """Takes the longest rows even if they are too few."""
    return [request for request, length in lengths.items() if length == max(lengths.values())][:B]


def choose(lengths, waited, B, max_wait, cut_first=True, reset=True, look=True):
    groups = {}
    for request, n in lengths.items():
        groups.setdefault(n, []).append(request)
    group = max(groups.values(), key=len)
    overdue = [request for request in lengths if waited[request] >= max_wait]
    if overdue and look:
        group = overdue
    group = group[:B] if cut_first else group
    for request in lengths:
        waited[request] = 0 if reset and request in group else waited[request] + 1
    return group[:B]


def as_printed(lengths, waited, B, max_wait):
    return choose(lengths, waited, B, max_wait, cut_first=False)


def never_resets(lengths, waited, B, max_wait):
    return choose(lengths, waited, B, max_wait, reset=False)


def ignores_waiting(lengths, waited, B, max_wait):
    return choose(lengths, waited, B, max_wait, look=False)


def without_the_last(alpha, K):
    return sum((alpha**a * (1 - alpha)) ** 2 for a in range(K))


def with_one_too_many(alpha, K):
    return sum((alpha**a * (1 - alpha)) ** 2 for a in range(K + 1))


WRONG = {
    "certain_window": [(160,), (140,), (21,)],
    "longest_group": [(first_group,), (whole_group,), (partial_group,)],
    "choose_fairly": [(as_printed,), (never_resets,), (ignores_waiting,)],
    "stay_together": [(without_the_last,), (with_one_too_many,)],
}
