"""The notebooks' exercises can be solved, wrong answers are found, and no answer stops a notebook.

Convention, for a notebook NN_name.ipynb:
- notebooks/checks/name.py has a *check* for each exercise, a function decorated with `@exercise`.
  The notebook imports it as `from checks import name as check` and calls
  `check.some_name(answer)`.
- notebooks/solutions/NN_name.py imports the same, and asserts that each check returns True for the
  right answer.
- tests/mistakes/name.py has WRONG = {name of the check: [arguments, ...]}, one or more plausible
  wrong answers for each check, each a tuple.

The right answers are those of the solutions, so they are written down once. The other tests follow
from them and from the wrong ones: a missing answer prints "not yet", an answer that stops or makes
no sense prints "no", and neither raises anything.
"""

import importlib
import json
import pkgutil
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import checks
from checks import base
from specviz import metrics

ROOT = Path(__file__).parents[1]
NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(checks.__path__)
    if module.name != "base" and not module.ispkg  # `decoders` are what the reader debugs
)
Check = Callable[..., bool]


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"checks.{name}")


def checks_of(name: str) -> dict[str, Check]:
    """Return the checks of a module: its own public functions with the decorator."""
    module = module_of(name)
    found = {}
    for key, value in vars(module).items():
        is_own = getattr(value, "__module__", "") == module.__name__ and not key.startswith("_")
        if is_own and hasattr(value, "__wrapped__"):
            found[key] = value
    return found


def only(folder: str, pattern: str) -> Path:
    """Return the only file that matches the pattern."""
    found = sorted((ROOT / folder).glob(pattern))
    assert len(found) == 1, f"{len(found)} files {folder}/{pattern}"
    return found[0]


@cache
def mistakes(name: str) -> dict[str, list[tuple]]:
    return runpy.run_path(str(ROOT / "tests" / "mistakes" / f"{name}.py"))["WRONG"]


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

    solution = only("notebooks/solutions", f"[0-9][0-9]_{name}.py")
    with pytest.MonkeyPatch.context() as patch:
        for key, check in checks_of(name).items():
            patch.setattr(module, key, watched(key, check))
        runpy.run_path(str(solution), run_name="__main__")
    return calls


def right_answer(name: str, key: str) -> tuple:
    answers = [answers for called, answers, _ in run_solution(name) if called == key]
    assert answers, f"the solution does not call check.{key}"
    return answers[0]


def stub(*arguments: object, **named: object) -> None:
    """Stand for the stub that an exercise starts with."""


def crash(*arguments: object, **named: object) -> None:
    raise ZeroDivisionError("a slip in the reader's code")


SLOW = {"capstone", "debug"}  # their checks run whole decoders
EVERY_CHECK = [
    pytest.param(name, key, id=f"{name}.{key}", marks=[pytest.mark.slow] if name in SLOW else [])
    for name in NAMES
    for key in checks_of(name)
]


def test_there_are_exercises():
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_notebook_solution_and_mistakes_cover_every_check(name):
    text = {"code": "", "markdown": ""}
    notebook = only("notebooks", f"[0-9][0-9]_{name}.ipynb")
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text[cell["cell_type"]] += "".join(cell["source"]) + "\n"
    solution = only("notebooks/solutions", f"[0-9][0-9]_{name}.py")
    assert checks_of(name)
    assert f"from checks import {name} as check" in text["code"]
    assert [key for key in checks_of(name) if f"check.{key}(" not in text["code"]] == []
    assert f"](solutions/{solution.name})" in text["markdown"]
    assert mistakes(name).keys() == checks_of(name).keys()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES],
)
def test_solution_is_right(name, capsys):
    assert {key for key, _, _ in run_solution(name)} == checks_of(name).keys()
    assert [(key, said) for key, _, said in run_solution(name) if said is not True] == []


@pytest.mark.parametrize(("name", "key"), EVERY_CHECK)
def test_right_answer_is_right_as_often_as_it_is_given(name, key, capsys):
    answers = right_answer(name, key)  # given once in the solution
    capsys.readouterr()
    assert checks_of(name)[key](*answers) is True
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(("name", "key"), EVERY_CHECK)
def test_wrong_answers_are_wrong(name, key, capsys):
    assert mistakes(name)[key], "no wrong answer"
    for answers in mistakes(name)[key]:
        assert checks_of(name)[key](*answers) is False
        assert capsys.readouterr().out.startswith("no: ")


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
        assert metrics.smallest_gap(hunt._RECORDED[name]) > 1e-3


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
