"""Checks of 12_heads: entries of a head, independent heads, re-reading, and expected length."""

import random
from typing import Any

import numpy as np

from checks.base import Answer, WrongAnswerError, ask, exercise, expect, rounded

# The row of the notebook: n committed tokens when a round began, of whose K drafts a were accepted.
_N = 14
_K = 4
_A = 3


@exercise
def entries(answer: Any) -> str:
    """Check what the head reads in the next round: (token, feature, "true" or "own") an entry."""
    pending = _N + _A
    wanted = [(token, token - 1, "true") for token in range(_N, pending + 1)]
    wanted += [(token, token - 1, "own") for token in range(pending + 1, pending + _K)]
    found = [(int(token), int(feature), str(source)) for token, feature, source in answer]
    tokens = [token for token, _, _ in wanted]
    if [token for token, _, _ in found] != tokens:
        raise WrongAnswerError(
            f"expected {len(wanted)} entries in the order of their tokens: the committed ones that "
            "have not been read with a true feature, then the drafts that another draft follows; "
            f"got tokens {[token for token, _, _ in found]}"
        )
    for (token, feature, source), (_, right, kind) in zip(found, wanted, strict=True):
        expect(feature, right, f"the entry of token {token}, the number of its feature,")
        if source != kind:
            why = "knows" if kind == "true" else "does not know yet"
            raise WrongAnswerError(
                f"the entry of token {token} reads the feature of token {right}, which the target "
                f"{why}, but you said {source!r}"
            )
    true = sum(kind == "true" for _, _, kind in wanted)
    return f"{true} entries with true features, {len(wanted) - true} with the head's own"


@exercise
def independent(answer: Answer) -> str:
    """Check answer(first, then): what two ideal heads draft that do not know each other's token.

    It is (a, b, chance): two tokens, and the chance that the text goes on with both.
    """
    rng = np.random.default_rng(0)
    unlikely = 0
    for _ in range(200):
        V = int(rng.integers(3, 7))
        first = rng.dirichlet(np.ones(V))
        then = rng.dirichlet(np.full(V, 0.3), V)
        a = int(first.argmax())
        b = int((first @ then).argmax())
        case = f"first = {rounded(first, 2)} and then = {rounded(then, 2)}"
        found = ask(answer, first.copy(), then.copy())
        expect((int(found[0]), int(found[1])), (a, b), f"{case}, the two tokens,")
        if not abs(float(found[2]) - first[a] * then[a, b]) < 1e-9:
            raise WrongAnswerError(
                f"for {case} expected the chance {first[a] * then[a, b]:.3f}, "
                f"got {float(found[2]):.3f}"
            )
        unlikely += int(b != then[a].argmax())
    return (
        f"right for 200 targets; in {unlikely} of them the second token is not the likeliest one "
        "after the first"
    )


@exercise
def reread(answer: Answer) -> str:
    """Check answer(n, a, K): entries that the next round overwrites, and those it reads first."""
    rng = random.Random(0)
    overwrites = 0
    for K in range(1, 7):
        for a in range(K + 1):
            n = rng.randint(5, 40)
            # The last draft is read by the target alone: no draft follows it.
            read = min(a, K - 1)
            wanted = (list(range(n, n + read)), list(range(n + read, n + a + 1)))
            found = ask(answer, n, a, K)
            if len(found) != 2:
                raise WrongAnswerError(f"expected two lists, got {found!r}")
            case = f"n = {n}, a = {a} and K = {K}"
            expect([int(entry) for entry in found[0]], wanted[0], f"{case}, what is overwritten,")
            expect([int(entry) for entry in found[1]], wanted[1], f"{case}, what is read first,")
            overwrites += len(wanted[0])
    return f"right for K from 1 to 6 and every a, with {overwrites} entries to overwrite"


@exercise
def expected_length(answer: Answer) -> str:
    """Check answer(chances): expected tokens of a round, given each draft's conditional chance."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        chances = rng.uniform(0.05, 1, int(rng.integers(1, 8)))
        wanted = 1 + float(np.cumprod(chances).sum())
        found = float(ask(answer, chances.tolist()))
        if not abs(found - wanted) < 1e-9:
            raise WrongAnswerError(
                f"for {rounded(chances, 2)} expected {wanted:.3f} tokens, got {found:.3f}"
            )
    return "right for 200 heads"
