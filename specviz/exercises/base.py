"""What all checks share: they print one line about an answer and say whether it is right; a missing or crashing answer raises nothing.

A check is a function of the reader's answer. It raises `WrongAnswerError` with a sentence, or `NotYetError`, or returns what to say of a
right one.
"""

import functools
from collections.abc import Callable
from typing import Any


class WrongAnswerError(Exception):
    """The answer is not right; the message says for what case, what was expected and what came."""


class NotYetError(Exception):
    """There is no answer so far; the message says what is wanted."""


def exercise(check: Callable[..., str]) -> Callable[..., bool]:
    """Turn `check` into what a notebook calls: prints "right: ...", "no: ..." or "not yet: ...", and returns whether it was right."""

    @functools.wraps(check)
    def call(*answers: Any) -> bool:
        try:
            if any(answer is None or answer is ... for answer in answers):
                raise NotYetError("put your answer in place of the `...`")
            words, right = f"right: {check(*answers)}", True
        except NotYetError as missing:
            words, right = f"not yet: {missing}", False
        except WrongAnswerError as found:
            words, right = f"no: {found}", False
        except Exception as error:  # the reader's code, which may do anything
            words, right = f"no: your answer stopped with {type(error).__name__}: {error}", False
        print(words)
        return right

    return call


def ask(answer: Callable[..., Any], *arguments: Any) -> Any:
    """What the reader's function says to `arguments`. Raises NotYetError where it says nothing: a stub."""
    if not callable(answer):
        raise WrongAnswerError(f"a function is wanted, and this is {type(answer).__name__}")
    said = answer(*arguments)
    if said is None or said is ...:
        raise NotYetError("the function returns nothing so far")
    return said


def expect(found: object, wanted: object, case: str) -> None:
    """Raises WrongAnswerError unless `found` equals `wanted`; case: what was asked, in words."""
    if found != wanted:
        raise WrongAnswerError(f"for {case} expected {wanted!r}, got {found!r}")
