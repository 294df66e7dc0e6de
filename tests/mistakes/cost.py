"""Plausible wrong answers to the exercises of 08_cost."""


def best(draft_s, verify_s, rates, bonus=1, least=0, drafts=lambda k: k):
    speeds = {
        k: (bonus + sum(rates[:k])) / (drafts(k) * draft_s + verify_s[k])
        for k in range(least, len(verify_s))
    }
    return max(speeds, key=speeds.get)


WRONG = {
    "turns": {
        "as the rows, expected 40, got": [(200, 50), (200, 200)],
        "as the tokens of a forward, expected 200, got": [(100, 20)],
    },
    "best_k": {
        "expected 1, got": [
            lambda *costs: best(*costs, bonus=0),
            lambda *costs: best(*costs, drafts=lambda k: k > 0),  # pays for one draft
        ],
        "expected 0, got": [lambda *costs: best(*costs, least=1)],
    },
    "is_faster": {
        "expected False, got True": [
            # Pays for one draft; counts in verifications.
            lambda draft_s, verify_s, step_s, rates: 1 + sum(rates) > (draft_s + verify_s) / step_s,
            lambda draft_s, verify_s, step_s, rates: (
                1 + sum(rates) > (len(rates) * draft_s + verify_s) / verify_s
            ),
        ],
        "expected True, got False": [
            # No bonus; the function of the exercise, with all three mistakes.
            lambda draft_s, verify_s, step_s, rates: (
                sum(rates) > (len(rates) * draft_s + verify_s) / step_s
            ),
            lambda draft_s, verify_s, step_s, rates: sum(rates) > (draft_s + verify_s) / verify_s,
        ],
    },
}
