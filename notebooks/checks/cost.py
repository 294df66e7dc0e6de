"""Checks of 08_cost: a roofline's ridge point, the best K, whether a round is faster."""

import random

from checks.base import Answer, ask, exercise, expect


@exercise
def turns(tokens: float, batch: float) -> str:
    """Check where reading and arithmetic take equally long.

    The answer is the tokens of a forward, and the rows of a verification with K = 4.
    """
    expect(int(tokens), 200, "8e9 parameters, 4 TB/s and 800 TFLOP/s, as the tokens of a forward,")
    expect(int(batch), 40, "K = 4, so five tokens a row, as the rows,")
    return (
        "the device does 800e12 / 4e12 = 200 operations a byte, and each token needs one; "
        "with 5 tokens a row that is 40 rows"
    )


@exercise
def best_k(answer: Answer) -> str:
    """Check a function of draft_s, verify_s (K + 1,) and rates (K,) that returns the best K."""
    rng = random.Random(0)
    seen = set()
    for _ in range(200):
        most = rng.randint(1, 6)
        rates = sorted((round(rng.random(), 3) for _ in range(most)), reverse=True)
        draft_s = round(rng.uniform(0.1, 2), 3)
        verify_s = [round(5 + rng.uniform(0, 2) * k, 3) for k in range(most + 1)]
        speeds = [(1 + sum(rates[:k])) / (draft_s * k + verify_s[k]) for k in range(most + 1)]
        wanted = speeds.index(max(speeds))
        found = ask(answer, draft_s, list(verify_s), list(rates))
        expect(int(found), wanted, f"draft_s = {draft_s}, verify_s = {verify_s}, rates = {rates}")
        seen.add(wanted)
    return f"right for 200 tables of costs, whose best K is {min(seen)} to {max(seen)}"


@exercise
def is_faster(answer: Answer) -> str:
    """Check a function of draft_s, verify_s, step_s and rates (K,): does a round beat steps?"""
    rng = random.Random(0)
    yes = 0
    for _ in range(200):
        rates = sorted((round(rng.random(), 3) for _ in range(rng.randint(1, 6))), reverse=True)
        step_s = round(rng.uniform(4, 6), 3)
        verify_s = round(step_s * rng.uniform(1, 2), 3)
        draft_s = round(rng.uniform(0.1, 1.5), 3)
        wanted = (1 + sum(rates)) * step_s > len(rates) * draft_s + verify_s
        found = ask(answer, draft_s, verify_s, step_s, list(rates))
        case = f"draft_s = {draft_s}, verify_s = {verify_s}, step_s = {step_s}, rates = {rates}"
        expect(bool(found), wanted, case)
        yes += wanted
    return f"right for 200 rounds, of which {yes} are faster than steps"
