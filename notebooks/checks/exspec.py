"""Checks of 05_exspec: when a group is certain, two schedulers, how long rows stay together."""

import math
import random
from numbers import Real

from checks.base import Answer, WrongAnswerError, ask, exercise, expect

CERTAIN_WINDOW = 20 * 7 + 1


@exercise
def certain_window(answer: int) -> str:
    """Check the W that makes a group of 8 certain among 20 lengths."""
    expect(answer, CERTAIN_WINDOW, "20 lengths and B = 8")
    return (
        "20 lengths with seven sequences each make 140, and the next one completes a group of eight"
    )


@exercise
def longest_group(answer: Answer) -> str:
    """Check a function of {request: n} and B that returns a group of equal length.

    The group is the first B requests of the largest length that has so many, or [].
    """
    rng = random.Random(0)
    for _ in range(300):
        requests = rng.sample(range(50), rng.randint(1, 14))
        lengths = {request: rng.randint(20, 25) for request in requests}
        B = rng.randint(1, 5)
        full = [n for n in lengths.values() if list(lengths.values()).count(n) >= B]
        wanted = [request for request in requests if full and lengths[request] == max(full)][:B]
        expect(list(ask(answer, dict(lengths), B)), wanted, f"lengths {lengths} and B = {B}")
    return "right for 300 pools: the longest full group, or none"


@exercise
def choose_fairly(answer: Answer) -> str:
    """Check a scheduler that keeps `waited` right and serves every request in time."""
    rng = random.Random(0)
    for _ in range(40):
        B, max_wait = rng.randint(1, 3), rng.randint(2, 6)
        lengths = {request: rng.randint(20, 40) for request in range(rng.randint(6, 12))}
        waited, true = dict.fromkeys(lengths, 0), dict.fromkeys(lengths, 0)
        for _ in range(60):
            _one_round(answer, lengths, waited, true, B, max_wait)
            lengths = {
                request: n + rng.randint(1, 6) if true[request] == 0 else n
                for request, n in lengths.items()
            }
    return "right for 40 pools of 60 rounds: the counts are right, and no request waits forever"


def _one_round(
    answer: Answer,
    lengths: dict[int, int],
    waited: dict[int, int],
    true: dict[int, int],
    B: int,
    max_wait: int,
) -> None:
    """Let the answer choose once. Updates `true`; `waited` is what the answer keeps."""
    overdue = [request for request in lengths if true[request] >= max_wait]
    before = dict(waited)
    group = list(ask(answer, dict(lengths), waited, B, max_wait))
    case = f"lengths {lengths}, waited {before}, B = {B}, max_wait = {max_wait}"
    is_unique = len(set(group)) == len(group)
    if not 1 <= len(group) <= B or not is_unique or not lengths.keys() >= set(group):
        raise WrongAnswerError(
            f"for {case} the batch is {group}, which is not 1 to {B} requests of the pool"
        )
    served = [request for request in overdue if request in group]
    if len(served) < min(B, len(overdue)):
        raise WrongAnswerError(
            f"for {case} requests {overdue} are overdue, but only {served} of them were served"
        )
    if not overdue and len({lengths[request] for request in group}) > 1:
        raise WrongAnswerError(
            f"for {case} no request is overdue, but {group} are not of equal length"
        )
    true.update({request: 0 if request in group else count + 1 for request, count in true.items()})
    expect(waited, true, f"{case}, where {group} were served, as `waited` afterwards,")


@exercise
def stay_together(answer: Answer) -> str:
    """Check the probability that two rows gain the same, as a function of alpha and K."""
    for alpha, K in ((0.0, 5), (1.0, 5), (0.5, 1), (0.7, 5), (0.9, 3), (0.2, 8), (0.6, 0)):
        exactly = [alpha**a * (1 - alpha) for a in range(K)] + [alpha**K]
        found, wanted = ask(answer, alpha, K), math.fsum(p * p for p in exactly)
        if not isinstance(found, Real) or not math.isclose(found, wanted, abs_tol=1e-9):
            raise WrongAnswerError(
                f"for alpha = {alpha} and K = {K} expected {wanted:.4f}, got {found!r}"
            )
    return "at alpha = 0.7 and K = 5 two equal rows part in four rounds out of five"
