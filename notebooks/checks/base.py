"""What all checks share: they print a sentence about an answer and return whether it is right.

Contract: a missing or crashing answer raises nothing. A check is a function of the reader's answer.
It raises `WrongAnswerError` or `NotYetError` with a sentence, or returns the sentence for a right
answer.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from specviz.util.text import wrapped


class WrongAnswerError(ValueError):
    """The answer is wrong. The message says for which case, what was expected and what it gave."""


class NotYetError(Exception):
    """There is no answer yet. The message says what is missing."""


Answer = Callable[..., Any]  # a function of the reader


def exercise(check: Callable[..., str]) -> Callable[..., bool]:
    """Turn `check` into a function for a notebook.

    It prints "right: ...", "no: ..." or "not yet: ...", and returns whether the answer was right.
    """

    @functools.wraps(check)
    def call(*answers: Any) -> bool:
        try:
            if any(answer is None or answer is ... for answer in answers):
                raise NotYetError("put your answer in place of the `...`")
            print(wrapped(f"right: {check(*answers)}"))
            return True
        except NotYetError as missing:
            print(wrapped(f"not yet: {missing}"))
        except WrongAnswerError as wrong:
            print(wrapped(f"no: {wrong}"))
        except Exception as error:  # the reader's code may raise anything
            said = f"no: your answer stopped with {type(error).__name__}: {error}"
            print(wrapped(said))
        return False

    return call


def ask(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Call the reader's function. Raises NotYetError if it returns nothing, as a stub does."""
    if not callable(answer):
        raise WrongAnswerError(f"the answer must be a function, but it is {type(answer).__name__}")
    found = answer(*arguments)
    if found is None or found is ...:
        raise NotYetError("your function returns nothing yet")
    return found


def expect_close(found: Any, wanted: float, case: str, name: str = "") -> None:
    """Raise WrongAnswerError unless the number `found` is `wanted`; name: of the number."""
    if not abs(float(found) - wanted) < 1e-9:
        raise WrongAnswerError(f"for {case} expected {name}{wanted:.3f}, got {float(found):.3f}")


def rounded(values: Any, digits: int = 3) -> Any:
    """Return numbers of a sentence, as nested lists."""
    return np.round(np.asarray(values, float), digits).tolist()


def expect(found: object, wanted: object, case: str) -> None:
    """Raise WrongAnswerError unless `found` equals `wanted`; case: what was asked, in words."""
    if found != wanted:
        raise WrongAnswerError(f"for {case} expected {wanted!r}, got {found!r}")
