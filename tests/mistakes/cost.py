"""Plausible wrong answers to the exercises of 08_cost."""


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


def one_draft_a_round(draft_s, verify_s, step_s, rates):
    return 1 + sum(rates) > (draft_s + verify_s) / step_s


def in_verifications(draft_s, verify_s, step_s, rates):
    return 1 + sum(rates) > (len(rates) * draft_s + verify_s) / verify_s


def without_the_bonus(draft_s, verify_s, step_s, rates):
    return sum(rates) > (len(rates) * draft_s + verify_s) / step_s


def as_given(draft_s, verify_s, step_s, rates):
    """The function of the exercise, with all three mistakes."""
    return sum(rates) > (draft_s + verify_s) / verify_s


WRONG = {
    "turns": [(200, 50), (100, 20), (200, 200)],
    "best_k": [(no_bonus,), (always_speculates,), (one_draft,)],
    "is_faster": [(one_draft_a_round,), (in_verifications,), (without_the_bonus,), (as_given,)],
}
