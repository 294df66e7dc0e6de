"""A rule as data: where something is wrong in a `RoundTable`, and the words for it.

Contract: a rule names wrong entries; `Rule.check` reports them. Not known here: any rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from types import ModuleType
from typing import Any

import numpy as np

from specviz.checks.table import RoundTable
from specviz.record.schema import Array, missing_in, says_layout

# Whether each entry (N,), or each of its columns (N, m), is wrong. With it may come what the words
# name. None stands for a rule that says nothing of this record.
Wrong = Array | tuple[Array, Mapping[str, Array]] | None


@dataclass(frozen=True, eq=False)
class Rule:
    """One thing that must hold of a row in a round.

    Attributes:
        name: one of `violations.RULES`.
        phase: the phase that breaks it.
        wrong: from the table to what is wrong. Its docstring has the words: what is expected, and
            behind a semicolon what is found. Names in braces stand for columns of the table and for
            values that come with `wrong`, of the wrong entry; {number} for its wrong column, from
            1. The format "token" names a token.
        needs: what a log may lack: "layout" or "budget"; "" for nothing.
        unless: names and phases: what has been found there for the same row, also by this rule,
            explains this finding. So rules that come first have the last word.
        count, slot: the name of the value that has the number of affected tokens, or the affected
            slot.
        model: the model whose cache it is about, a place in MODELS.
    """

    name: str
    phase: str
    wrong: Callable[[RoundTable], Wrong]
    needs: str = ""
    unless: tuple[tuple[str, str], ...] = ()
    count: str = ""
    slot: str = ""
    model: int | None = None

    @cached_property
    def words(self) -> tuple[str, str]:
        """What is expected, and what is found: two clauses with names in braces."""
        # `python -OO` strips docstrings.
        sentence = self.wrong.__doc__ or f"{self.name} should hold; it does not"
        sentence = " ".join(sentence.split()).removesuffix(".")
        expected, _, found = sentence.partition("; ")
        return expected[0].lower() + expected[1:], found

    def check(self, table: RoundTable) -> None:
        """Report what is wrong in a table."""
        meta = table.trace.meta
        if (self.needs == "layout" and not says_layout(meta)) or self.needs in missing_in(meta):
            return
        answer = self.wrong(table)
        if answer is None:
            return
        wrong, values = answer if isinstance(answer, tuple) else (answer, {})
        for place in np.argwhere(wrong).tolist():
            entry = table.entry(place[0])
            if any(table.has_finding(*each, entry) for each in self.unless):
                continue
            words = _Words(table, values, place[0], place[1] + 1 if len(place) > 1 else 0)
            more: dict[str, Any] = {"model": self.model}
            if self.count:
                more["count"] = words.value(self.count)
            if self.slot:
                more["slots"] = [words.value(self.slot)]
            expected, found = map(words.format, self.words)
            table.report(self.name, self.phase, entry, expected, found, **more)


class _Words(Formatter):
    """Fills in the words of one place."""

    def __init__(
        self, table: RoundTable, values: Mapping[str, Array], entry: int, number: int
    ) -> None:
        self._table, self._values = table, values
        self._entry, self._number = entry, number

    def value(self, name: str) -> Any:
        """Return a value of the place."""
        if name == "number":
            return self._number
        column = self._values[name] if name in self._values else getattr(self._table, name)
        at = column[self._entry]
        return at[self._number - 1] if np.ndim(at) else at

    def get_value(self, key: int | str, args: object, kwargs: object) -> Any:
        return self.value(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "token":
            return self._table.token(value)
        return str(super().format_field(value, format_spec))


def rule(name: str, phase: str, **more: Any) -> Callable[[Callable[[RoundTable], Wrong]], Rule]:
    """Return what makes a `Rule` of a function from a table to what is wrong."""
    return lambda wrong: Rule(name, phase, wrong, **more)


def rules_of(module: ModuleType) -> list[Rule]:
    """Return the rules that a module defines, in their order."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]
