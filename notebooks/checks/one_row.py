"""Checks of 01_one_row: draft, verify and accept for a single row, with toy models."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real

from checks.base import Answer, WrongAnswerError, ask, exercise, expect
from checks.decoders.common import count_accepted
from specviz.checks.equivalence import divergence

# Drafts, and the target's choices after 0, 1, ... K of them.
ROUNDS = (
    ([7, 3, 3, 9], [7, 3, 5, 9, 2]),
    ([4, 4, 4, 4], [4, 4, 4, 4, 1]),
    ([8, 2, 6, 5], [2, 2, 6, 5, 5]),
)
_VOCABULARY = 50
_PROMPT = [3, 14, 15]
_BUDGET = 40


class ToyReader:
    """A toy model with a memory, like a KV cache.

    Its choice depends on every token that it holds, and on their order.

    Attributes:
        held: the tokens that it has read and not forgotten.
        forwards: number of calls of `read`.
        error: one in `error` of its choices differs from the target's; None for the target itself.
    """

    def __init__(self, error: int | None = None) -> None:
        self.held: list[int] = []
        self.forwards = 0
        self.error = error

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Read `tokens` behind those that it holds; return its choice after each of them."""
        self.forwards += 1
        choices = []
        for token in tokens:
            self.held.append(token)
            choices.append(_choice(self.held, self.error))
        return choices

    def forget(self, count: int) -> None:
        """Drop the last `count` tokens. Raises ValueError if it holds fewer."""
        if not 0 <= count <= len(self.held):
            raise ValueError(
                f"count must be an int from 0 to {len(self.held)}, the tokens held, got {count}; "
                "forget fewer"
            )
        del self.held[len(self.held) - count :]


@exercise
def emitted(answer: Sequence[Sequence[int]]) -> str:
    """Check exercise 1: what the row gains in each of `ROUNDS`."""
    found = [list(tokens) for tokens in answer]
    if len(found) != len(ROUNDS):
        raise WrongAnswerError(
            f"the answer must have {len(ROUNDS)} lists, one for each round, but it has {len(found)}"
        )
    for tokens, (drafts, choices) in zip(found, ROUNDS, strict=True):
        expect(tokens, _gained(drafts, choices), f"drafts {drafts} and target choices {choices}")
    return (
        "the drafts up to the first disagreement are accepted, then the target adds its own token, "
        "also after the last draft"
    )


@exercise
def accept(answer: Answer) -> str:
    """Check exercise 2: a function of drafts (K,) and target choices (K + 1,): gained tokens."""
    rng = random.Random(0)
    cases = [*ROUNDS, ([], [6])]
    for k in (1, 1, 2, 3, 5, 5, 8, 8):
        drafts = [rng.randrange(3) for _ in range(k)]
        choices = [rng.randrange(3) for _ in range(k + 1)]
        cases.append((drafts, choices))
    for drafts, choices in cases:
        found = ask(answer, list(drafts), list(choices))
        expect(
            list(found), _gained(drafts, choices), f"drafts {drafts} and target choices {choices}"
        )
    return f"right for {len(cases)} rounds, from K = 0 to K = 8"


@exercise
def expected_length(answer: Answer) -> str:
    """Check exercise 3: the mean acceptance length if drafts are accepted with chance `rate`."""
    cases = [(0.5, 1), (0.5, 2), (0.8, 5), (0.87, 10), (0.0, 5), (1.0, 5), (0.3, 0)]
    for rate, k in cases:
        found, wanted = ask(answer, rate, k), math.fsum(rate**j for j in range(k + 1))
        close = isinstance(found, Real) and math.isclose(float(found), wanted, rel_tol=1e-6)
        expect(found if not close else wanted, wanted, f"a rate of {rate} and K = {k}")
    return "from 1, for a draft that is never right, to K + 1, for one that always is"


@exercise
def decode(answer: Answer) -> str:
    """Check exercise 4: (target, draft, prompt, K, budget) -> new tokens, without waste."""
    for k in (4, 1, 2):
        text, rounds = _text(k)
        target, draft = ToyReader(), ToyReader(error=6)
        found = list(ask(answer, target, draft, list(_PROMPT), k, _BUDGET))
        at = divergence(found, text)
        if at is not None:
            raise WrongAnswerError(
                f"with K = {k} the text differs from new token {at} on: "
                f"expected {text[at : at + 3]}, got {found[at : at + 3]}"
            )
        needed = rounds + 1  # one forward reads the prompt
        if target.forwards > needed:
            raise WrongAnswerError(
                f"with K = {k} the text is right, but it took {target.forwards} forwards of the "
                f"target, and {needed} are enough: at the end the draft holds {draft.held[:8]}..., "
                f"but the text begins with {[*_PROMPT, *text][:8]}..."
            )
    return "the target's text, in as few rounds as the drafts allow"


def _gained(drafts: Sequence[int], choices: Sequence[int]) -> list[int]:
    return list(choices[: count_accepted(drafts, choices) + 1])


def _choice(tokens: Sequence[int], error: int | None = None) -> int:
    state = 1
    for before, token in pairwise([0, *tokens]):
        state = (state * 31 + token * 7 + before) % 10007
    wrong = error is not None and state % error == 0
    return (state + wrong) % _VOCABULARY


def _text(k: int) -> tuple[list[int], int]:
    """Return the target's text and the rounds that it takes when both models hold all of it."""
    tokens = list(_PROMPT)
    rounds = 0
    while len(tokens) < len(_PROMPT) + _BUDGET:
        ahead = list(tokens)
        for _ in range(k):
            ahead.append(_choice(ahead, 6))
        choices = [_choice(ahead[: len(tokens) + j]) for j in range(k + 1)]
        tokens += _gained(ahead[len(tokens) :], choices)
        rounds += 1
    return tokens[len(_PROMPT) :][:_BUDGET], rounds
