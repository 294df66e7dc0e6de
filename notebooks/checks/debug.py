"""Checks of 16_debug: symptoms, mended decoders, and what a sampler emits."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from checks import attempts
from checks.base import Answer, WrongAnswerError, ask, exercise, expect, rounded
from checks.decoders import lookup as _lookup
from checks.decoders import mystery as _mystery
from checks.decoders import refill as _refill
from checks.decoders import repad as _repad
from checks.decoders.mending import mended
from specviz.record.schema import Array

SYMPTOMS = {
    "a": "fluent, but different",
    "b": "gibberish after a while",
    "c": "right text, low acceptance",
    "d": "only the longest row right",
    "e": "wrong only for B > 1",
    "f": "wrong only after refill",
    "g": "wrong only with EOS",
    "h": "right-looking text, wrong distribution",
}
_OF_CHANGES = ("a", "d", "c", "g", "h", "f")
_NEW_TOKENS = 24
_PROMPTS = (5, 0, 9, 4)  # bundled ones, of 10 to 28 tokens
_ENDING = (8, 14, 10)  # whose texts end with EOS before that
_MOST_FORWARDS = 150  # more than any decoder needs that speculates
_MOST_ROUNDS = 14  # of the mystery, once it is mended


@exercise
def symptoms(answer: Sequence[str]) -> str:
    """Check exercise 1: the symptom of each of six changes, as letters."""
    found = [str(letter).strip().lower() for letter in answer]
    if len(found) != len(_OF_CHANGES):
        raise WrongAnswerError(f"expected {len(_OF_CHANGES)} letters, got {len(found)}")
    for number, (letter, right) in enumerate(zip(found, _OF_CHANGES, strict=True), 1):
        if letter not in SYMPTOMS:
            raise WrongAnswerError(f"there is no symptom {letter!r}; choose from a to h")
        if letter != right:
            raise WrongAnswerError(
                f"change {number} does not lead to {letter!r}, {SYMPTOMS[letter]}: which texts can "
                "it touch, from which round on, and does the target read anything wrong?"
            )
    return "six of six"


@exercise
def repad(old: str, new: str) -> str:
    """Check exercise 2: a line of `repad`, and the line in its place."""
    _same_texts(mended(_repad, old, new), attempts.bundled(_PROMPTS))
    return "four rows of different lengths, and each is the target's own text"


@exercise
def refill(old: str, new: str) -> str:
    """Check exercise 3: a line of `refill`, and the line in its place."""
    decoder = mended(_refill, old, new)
    for batch_size in (2, 3):
        _same_texts(decoder, attempts.bundled(_PROMPTS), batch_size=batch_size)
    return "batches of two and three rows, and every request is the target's own text"


@exercise
def lookup(old: str, new: str) -> str:
    """Check exercise 4: a line of `lookup`, and what comes in its place."""
    decoder = mended(_lookup, old, new)
    _same_texts(decoder, attempts.with_example(_ENDING, _NEW_TOKENS))
    _same_texts(decoder, attempts.bundled(_PROMPTS[:2]))
    return "texts end behind their first EOS, and prompts that contain EOS are continued"


@exercise
def emitted(answer: Answer) -> str:
    """Check answer(p, q, drawn): distribution of the token that comes of one draft, (V,).

    The draft is drawn from `drawn`, and judged with p and q.
    """
    rng = np.random.default_rng(0)
    for number in range(200):
        p, q, drawn = rng.dirichlet(np.ones(int(rng.integers(2, 7))), 3).reshape(3, -1)
        if number % 2:
            drawn = q
        wanted = _emitted(p, q, drawn)
        found = np.asarray(ask(answer, p.copy(), q.copy(), drawn.copy()), dtype=float)
        case = f"p = {rounded(p, 2)}, q = {rounded(q, 2)} and drawn = {rounded(drawn, 2)}"
        if found.shape != p.shape:
            raise WrongAnswerError(f"for {case} expected {p.size} numbers, got {found.shape}")
        if not np.abs(found - wanted).max() < 1e-9:
            raise WrongAnswerError(
                f"for {case} expected {rounded(wanted, 2)}, got {rounded(found, 2)}"
            )
    return "where drafts are drawn from q itself, the result is p, whatever q is"


@exercise
def mystery(old: str, new: str) -> str:
    """Check exercise 6: a line of `mystery`, and the line in its place."""
    decoder = mended(_mystery, old, new)
    rounds = _same_texts(decoder, attempts.bundled(_PROMPTS))
    if rounds > _MOST_ROUNDS:
        raise WrongAnswerError(
            f"the texts are right, as they were, and took {rounds} forwards of the target; "
            f"{_MOST_ROUNDS} are enough"
        )
    return f"the same texts, in {rounds} forwards of the target"


def _same_texts(decoder: ModuleType, prompts: list[tuple[int, ...]], **options: Any) -> int:
    """Return the forwards of the target. Raise WrongAnswerError unless all texts are its own."""
    pair = attempts.pair()
    given = [list(prompt) for prompt in prompts]
    with attempts.counted((pair.target,), _MOST_FORWARDS, _too_many) as forwards:
        outputs = decoder.decode(
            pair.target, pair.draft, given, max_new_tokens=_NEW_TOKENS, **options
        )
    right = attempts.texts(tuple(prompts), _NEW_TOKENS)
    expect(len(outputs), len(right), "the number of texts")
    for number, (found, wanted) in enumerate(zip(outputs, right, strict=True)):
        if found != wanted:
            raise WrongAnswerError(
                f"text {number} of {len(right)} is the target's own up to new token "
                f"{attempts.common(found, wanted)}, and not from there on"
            )
    return len(forwards)


def _too_many(count: int) -> Exception:
    return WrongAnswerError(
        f"it has called the target {count} times, which is more than without drafts"
    )


def _emitted(p: Array, q: Array, drawn: Array) -> Array:
    """Add up all that may happen, draft by draft."""
    rest = np.maximum(p - q, 0)
    found = np.zeros_like(p)
    for token, chance in enumerate(drawn):
        accepted = min(1.0, p[token] / q[token])
        found[token] += chance * accepted
        found += chance * (1 - accepted) * rest / rest.sum()
    return found
