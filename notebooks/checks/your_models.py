"""Checks of 09_your_models: which pairs fit, exact and partial match, an honest speedup."""

import random
from statistics import median
from typing import Any

from checks.base import Answer, WrongAnswerError, ask, exercise, expect, expect_close
from specviz.checks.equivalence import partial_match

_EOS = 0


@exercise
def taken(a: bool, b: bool, c: bool, d: bool) -> str:
    """Check which of the pairs A to D `load_pair` accepts."""
    for name, answer, wanted in (("A", a, True), ("B", b, False), ("C", c, False), ("D", d, True)):
        if not isinstance(answer, bool):
            raise WrongAnswerError(
                f"the answer for {name} must be True or False, but it is {type(answer).__name__}"
            )
        expect(answer, wanted, f"pair {name}")
    return (
        "padding is cut; another vocabulary and layers that forget are refused; "
        "a draft that is too large is only slow"
    )


@exercise
def match(answer: Answer) -> str:
    """Check a function of outputs and references that returns (exact, partial)."""
    rng = random.Random(0)
    for _ in range(100):
        references = []
        for _ in range(rng.randint(1, 5)):
            references.append([rng.randint(1, 3) for _ in range(rng.randint(1, 6))])
        outputs = [_changed(reference, rng) for reference in references]
        pairs = list(zip(outputs, references, strict=True))
        exact = sum(a == b for a, b in pairs) / len(pairs)
        partial = sum(partial_match(a, b) for a, b in pairs) / len(pairs)
        found = ask(answer, [list(each) for each in outputs], [list(each) for each in references])
        case = f"outputs {outputs}, references {references}"
        for name, ours, theirs in zip(("exact", "partial"), found, (exact, partial), strict=True):
            expect_close(ours, theirs, case, f"{name} ")
    return "right for 100 sets of texts, the same as the library's"


def _changed(reference: list[int], rng: random.Random) -> list[int]:
    """Return the reference, its beginning, more than it, or it with one token changed."""
    kind = rng.randrange(4)
    at = rng.randrange(len(reference))
    if kind == 0:
        return list(reference)
    if kind == 1:
        return reference[: max(at, 1)]
    return [*reference, 4] if kind == 2 else [*reference[:at], 5, *reference[at + 1 :]]


@exercise
def speedup(answer: Answer) -> str:
    """Check a function of runs, strategy, B and eos that returns a ratio of medians."""
    rng = random.Random(0)
    for _ in range(50):
        runs = [
            _run(name, size, number, rng)
            for number in range(4)
            for name in ("autoregressive", "eqspec")
            for size in (1, 8)
        ]
        for size in (1, 8):
            wanted = _speed(runs, "eqspec", size) / _speed(runs, "autoregressive", size)
            found = ask(answer, runs, "eqspec", size, _EOS)
            expect_close(found, wanted, f"eqspec at B = {size}")
    return "tokens up to EOS count, the warm-up run does not, and both have the same B"


def _run(strategy: str, size: int, number: int, rng: random.Random) -> dict[str, Any]:
    texts = []
    for _ in range(4):
        kept = rng.randint(3, 12)
        texts.append([rng.randint(1, 9) for _ in range(kept)] + [_EOS] * (12 - kept))
    return {
        "strategy": strategy,
        "B": size,
        "seconds": rng.uniform(1, 2) * (1 if number else 9) / size,
        "texts": texts,
    }


def _speed(runs: list[dict[str, Any]], strategy: str, size: int) -> float:
    own = [run for run in runs if (run["strategy"], run["B"]) == (strategy, size)][1:]
    return median(sum(_kept(text) for text in run["texts"]) / run["seconds"] for run in own)


def _kept(text: list[int]) -> int:
    """Return the number of tokens up to and including EOS."""
    return text.index(_EOS) + 1 if _EOS in text else len(text)
