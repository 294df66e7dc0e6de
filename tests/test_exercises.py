"""The notebooks' exercises can be solved, wrong answers are found, and no answer stops a notebook.

Convention, for a notebook NN_name.ipynb:
- notebooks/checks/name.py has a *check* for each exercise, a function decorated with `@exercise`.
  The notebook imports it as `from checks import name as check` and calls `check.some_name(answer)`.
- notebooks/solutions/NN_name.py imports the same, and asserts that each check returns True for the
  right answer.
- tests/mistakes/name.py has WRONG = {check: {sentence: [answer, ...]}}: plausible wrong answers,
  and what the check says of them. A tuple is several arguments; " ... " is any text.

The other tests follow from these: a missing answer prints "not yet", an answer that stops or makes
no sense prints "no", and neither raises anything.
"""

import importlib
import json
import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checks import base
from specviz import metrics

ROOT = Path(__file__).parents[1]
SOLUTIONS = {
    path.stem[3:]: path for path in sorted((ROOT / "notebooks" / "solutions").glob("[0-9]*.py"))
}
NAMES = list(SOLUTIONS)
SLOW = {"capstone", "debug"}  # their checks run whole decoders
Check = Callable[..., bool]


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"checks.{name}")


def checks_of(name: str) -> dict[str, Check]:
    """Return the checks of a module: its own public functions with the decorator."""
    return {
        key: value
        for key, value in vars(module_of(name)).items()
        if getattr(value, "__module__", "") == f"checks.{name}"
        and hasattr(value, "__wrapped__")
        and not key.startswith("_")
    }


def mistakes(name: str) -> dict[str, dict[str, list[Any]]]:
    return importlib.import_module(f"mistakes.{name}").WRONG


@cache
def run_solution(name: str) -> list[tuple[str, tuple, object]]:
    """Return the calls of checks in a solution: name, arguments, what the check returned."""
    module, calls = module_of(name), []

    def watched(key: str, check: Check) -> Check:
        def call(*answers: object) -> bool:
            is_right = check(*answers)
            calls.append((key, answers, is_right))
            return is_right

        return call

    with pytest.MonkeyPatch.context() as patch:
        for key, check in checks_of(name).items():
            patch.setattr(module, key, watched(key, check))
        runpy.run_path(str(SOLUTIONS[name]), run_name="__main__")
    return calls


def right_answer(name: str, key: str) -> tuple:
    """Return the answer of the solution, which the check has accepted."""
    found = [(answers, said) for called, answers, said in run_solution(name) if called == key]
    assert found, f"the solution does not call check.{key}"
    assert [said for _, said in found if said is not True] == []
    return found[0][0]


def stub(*arguments: object, **named: object) -> None:
    """Stand for the stub that an exercise starts with."""


def crash(*arguments: object, **named: object) -> None:
    raise ZeroDivisionError("a slip in the reader's code")


EVERY_CHECK = [
    pytest.param(name, key, id=f"{name}.{key}", marks=[pytest.mark.slow] if name in SLOW else [])
    for name in NAMES
    for key in checks_of(name)
]


@pytest.mark.parametrize("name", NAMES)
def test_notebook_solution_and_mistakes_cover_every_check(name):
    text = {"code": "", "markdown": ""}
    notebook = ROOT / "notebooks" / f"{SOLUTIONS[name].stem}.ipynb"
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text[cell["cell_type"]] += "".join(cell["source"]) + "\n"
    assert checks_of(name)
    assert f"from checks import {name} as check" in text["code"]
    assert [key for key in checks_of(name) if f"check.{key}(" not in text["code"]] == []
    assert f"](solutions/{SOLUTIONS[name].name})" in text["markdown"]
    assert mistakes(name).keys() == checks_of(name).keys()


@pytest.mark.parametrize(("name", "key"), EVERY_CHECK)
def test_right_answer_is_right_as_often_as_it_is_given(name, key, capsys):
    answers = right_answer(name, key)  # given once in the solution
    capsys.readouterr()
    assert checks_of(name)[key](*answers) is True
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(("name", "key"), EVERY_CHECK)
def test_a_wrong_answer_gets_the_sentence_that_helps(name, key, capsys):
    assert mistakes(name)[key], "no wrong answer"
    for sentence, wrong in mistakes(name)[key].items():
        words = re.compile(".*".join(map(re.escape, sentence.split(" ... "))))
        for answer in wrong:
            answers = answer if isinstance(answer, tuple) else (answer,)
            assert checks_of(name)[key](*answers) is False
            said = " ".join(capsys.readouterr().out.split())
            assert said.startswith("no: ")
            assert words.search(said), f"{sentence!r} is not in {said!r}"


@pytest.mark.parametrize(("name", "key"), EVERY_CHECK)
def test_missing_and_crashing_answers_raise_nothing(name, key, capsys):
    right = right_answer(name, key)
    for place, answer in enumerate(right):
        replacements = {None: "not yet: ", ...: "not yet: "}
        if callable(answer):
            replacements |= {stub: "not yet: ", crash: "no: "}
        else:
            replacements[object()] = "no: "
        for replacement, begins in replacements.items():
            capsys.readouterr()
            assert checks_of(name)[key](*right[:place], replacement, *right[place + 1 :]) is False
            assert capsys.readouterr().out.startswith(begins)


def test_the_hunts_answers_are_about_the_row_that_was_named(capsys):
    """Only for the run that is wrong by design does the answer say so."""
    hunt = module_of("invariants")
    for answer, words in (
        ((4, "kv", 1, 4), "row 1 (request 1): kv"),
        ((5, "positions", 3, 1), "row 3 (request 3): positions"),
    ):
        assert hunt.found(*answer) is True
        said = capsys.readouterr().out
        assert words in said
        assert ("nothing was injected" in said) == (answer[0] == 5)


def test_the_hunts_runs_are_the_same_on_every_machine():
    """No choice in them was close, because the answers depend on what was accepted."""
    hunt = module_of("invariants")
    for name in (*hunt._MYSTERIES, *hunt._PRACTICE):
        assert metrics.smallest_gap(hunt._recorded(name)) > 1e-3


def test_a_check_names_the_case(capsys):
    """A wrong answer is reported with its case."""

    @base.exercise
    def double(answer: Callable[[int], int]) -> str:
        base.expect(base.ask(answer, 3), 6, "the number 3")
        return "doubled"

    assert double(lambda x: 2 * x) is True
    assert double(lambda x: x + 2) is False
    assert double(7) is False
    assert capsys.readouterr().out.splitlines() == [
        "right: doubled",
        "no: for the number 3 expected 6, got 5",
        "no: the answer must be a function, but it is int",
    ]
