"""Checks of notebooks/01_one_row.ipynb: draft, verify and accept for a single row. Runs no model; its toy models are a few sums."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real

from specviz.exercises.base import WrongAnswerError, ask, exercise, expect

ROUNDS = (  # drafts, and what the target says after 0, 1, ... K of them
    ([7, 3, 3, 9], [7, 3, 5, 9, 2]),
    ([4, 4, 4, 4], [4, 4, 4, 4, 1]),
    ([8, 2, 6, 5], [2, 2, 6, 5, 5]),
)
_VOCABULARY = 50
_PROMPT = [3, 14, 15]
_BUDGET = 40

Accept = Callable[[Sequence[int], Sequence[int]], Sequence[int]]


class Reader:
    """A toy model with a memory, as a KV cache is one: what it says depends on every token that it holds, and on their order.

    Attributes:
        held: the tokens that it has read and not forgotten.
        forwards: how often it was asked to read.
        error: one in how many of its choices differs from the target's, None for the target itself.
    """

    def __init__(self, error: int | None = None) -> None:
        self.held: list[int] = []
        self.forwards, self.error = 0, error

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Take in `tokens` behind those that it holds; returns its choice after each of them."""
        self.forwards += 1
        choices = []
        for token in tokens:
            self.held.append(token)
            choices.append(_choice(self.held, self.error))
        return choices

    def forget(self, count: int) -> None:
        """Drop the last `count` tokens. Raises ValueError where it holds no such number."""
        if not 0 <= count <= len(self.held):
            raise ValueError(f"{count} tokens cannot be forgotten of {len(self.held)}")
        del self.held[len(self.held) - count :]


@exercise
def emitted(answer: Sequence[Sequence[int]]) -> str:
    """Exercise 1: what the row gains in each of `ROUNDS`."""
    found = [list(tokens) for tokens in answer]
    if len(found) != len(ROUNDS):
        raise WrongAnswerError(
            f"{len(ROUNDS)} lists are wanted, one for each round, and these are {len(found)}"
        )
    for tokens, (drafts, said) in zip(found, ROUNDS, strict=True):
        expect(tokens, _gained(drafts, said), f"drafts {drafts} where the target says {said}")
    return "accepted drafts up to the first disagreement, then the target's own token, also after the last draft"


@exercise
def accept(answer: Accept) -> str:
    """Exercise 2: a function of drafts (K) and of what the target says (K + 1) that returns the tokens that the row gains."""
    drawn = random.Random(0)
    cases = [*ROUNDS, ([], [6])]
    cases += [
        ([drawn.randrange(3) for _ in range(k)], [drawn.randrange(3) for _ in range(k + 1)])
        for k in (1, 1, 2, 3, 5, 5, 8, 8)
    ]
    for drafts, said in cases:
        found = ask(answer, list(drafts), list(said))
        expect(list(found), _gained(drafts, said), f"drafts {drafts} where the target says {said}")
    return f"{len(cases)} rounds, from K = 0 to K = 8"


@exercise
def expected_length(answer: Callable[[float, int], float]) -> str:
    """Exercise 3: the mean acceptance length when each draft is accepted with probability `rate` as long as all before it were."""
    cases = [(0.5, 1), (0.5, 2), (0.8, 5), (0.87, 10), (0.0, 5), (1.0, 5), (0.3, 0)]
    for rate, k in cases:
        found, wanted = ask(answer, rate, k), math.fsum(rate**j for j in range(k + 1))
        close = isinstance(found, Real) and math.isclose(float(found), wanted, rel_tol=1e-6)
        expect(found if not close else wanted, wanted, f"a rate of {rate} and K = {k}")
    return "from a draft that is never right, 1, to one that always is, K + 1"


@exercise
def decode(answer: Callable[[Reader, Reader, list[int], int, int], Sequence[int]]) -> str:
    """Exercise 4: the loop with memories, (target, draft, prompt, K, budget) -> new tokens, without wasted rounds."""
    text = _greedy(_PROMPT, _BUDGET)
    for k in (4, 1, 2):
        target, draft = Reader(), Reader(error=6)
        found = list(ask(answer, target, draft, list(_PROMPT), k, _BUDGET))
        if found != text:
            at = next(
                (i for i, pair in enumerate(zip(found, text, strict=False)) if pair[0] != pair[1]),
                min(len(found), len(text)),
            )
            raise WrongAnswerError(
                f"with K = {k} the text differs from new token {at} on: expected {text[at : at + 3]}, got {found[at : at + 3]}"
            )
        needed = _rounds(k)
        if target.forwards > needed + 1:  # reading the prompt is one more
            raise WrongAnswerError(
                f"with K = {k} the text is right, but it took {target.forwards} forwards of the target where {needed + 1} are enough: "
                f"at the end the draft holds {draft.held[:8]}..., and the text begins with {[*_PROMPT, *text][:8]}..."
            )
    return "the target's text, and no round more than the drafts call for"


def _gained(drafts: Sequence[int], said: Sequence[int]) -> list[int]:
    a = 0
    while a < len(drafts) and drafts[a] == said[a]:
        a += 1
    return [*drafts[:a], said[a]]


def _choice(tokens: Sequence[int], error: int | None = None) -> int:
    state = 1
    for before, token in pairwise([0, *tokens]):
        state = (state * 31 + token * 7 + before) % 10007
    wrong = error is not None and state % error == 0
    return (state + wrong) % _VOCABULARY


def _greedy(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(_choice(tokens))
    return tokens[len(prompt) :]


def _rounds(k: int) -> int:
    """Rounds that the text takes when both models always know all of it."""
    tokens, rounds = list(_PROMPT), 0
    while len(tokens) < len(_PROMPT) + _BUDGET:
        ahead = list(tokens)
        for _ in range(k):
            ahead.append(_choice(ahead, 6))
        said = [_choice(ahead[: len(tokens) + j]) for j in range(k + 1)]
        tokens, rounds = tokens + _gained(ahead[len(tokens) :], said), rounds + 1
    return rounds
