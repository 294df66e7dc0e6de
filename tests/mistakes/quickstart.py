"""Plausible wrong answers to the exercises of 00_quickstart."""


def of_active_rows(rows):
    """Forgets that each active row keeps that many."""
    return rows[rows["gained"] > 0].groupby("round")["gained"].min().sum()


def of_finished_rows(rows):
    return sum(gains.min() * len(gains) for _, gains in rows.groupby("round")["gained"])


def accepted(drafts, choices, start=0):
    while start < len(drafts) and drafts[start] == choices[start]:
        start += 1
    return start


WRONG = {
    "twins": {
        "find the fewest rounds": [(13, 0), (10, 0)],
        "only if rows gained different numbers": [(11, 8)],
    },
    "kept_by_rollback": {
        "for rounds in which rows gain": [of_active_rows, of_finished_rows],
    },
    "accepted_drafts": {
        "expected 1, got 2": [lambda drafts, choices: sum(map(int.__eq__, drafts, choices))],
        "expected 3, got 4": [lambda drafts, choices: accepted(drafts, choices) + 1],
    },
}
