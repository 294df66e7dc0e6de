"""A record that says one thing wrongly is found out, in every kind of run that it can occur in."""

import re
from typing import Any

import mutations_deep
import mutations_feeds
import mutations_moves
import mutations_rows
import mutations_scores
import mutations_selection
import mutations_tokens
import mutations_trees
import pytest
from conftest import debug_page, make_pair
from mutated_runs import KINDS, record
from mutations import Mutation

import specviz as sv
from specviz.checks.violations import BROKEN, RULES
from specviz.record.schema import COLUMNS

TABLES = (
    mutations_rows,
    mutations_tokens,
    mutations_scores,
    mutations_selection,
    mutations_feeds,
    mutations_moves,
    mutations_trees,
)
ALL: tuple[Mutation, ...] = tuple(each for table in TABLES for each in table.MUTATIONS)
# Columns that no mutation changes: refused when a record is made, or not to be known from it.
NOT_CHANGED = {
    "requests.prompt_offsets": "refused, or another prompt",
    "requests.output_offsets": "refused, or another output",
    "rounds.batch": "refused: it is the number of entries in rows",
    "rows.round": "refused: it is the number of entries in rows",
    **{
        f"rounds.{phase}_ms": "docs: times"
        for phase in ("schedule", "draft", "verify", "accept", "synchronise")
    },
    "feeds.step": "docs: order of steps",
    "moves.step": "docs: order of steps",
    "pool.round": "as pool.request",
}


@pytest.mark.sweep(24)
@pytest.mark.parametrize("kind", KINDS)
def test_a_correct_record_has_no_findings(kind: str) -> None:
    assert record(kind).meta["valid"]
    assert sv.check_invariants(record(kind), deep=True, pair=make_pair("llama")) == []


# The runs that a mutation applies to are dealt into so many shares. The mutations that one rule
# finds take turns: the fast tests have one share of each, and the slow tests have the others.
SHARES = 3


def shares(mutations: tuple[Mutation, ...]) -> list[Any]:
    """Each mutation with the numbers of the shares that a test looks into."""
    of_rule: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        of_rule.setdefault(mutation.rules[0], []).append(mutation)
    found = []
    for mutation in mutations:
        turns = of_rule[mutation.rules[0]]
        count = min(SHARES, len(turns))  # a rule of one mutation has all shares in the fast tests
        turn = turns.index(mutation) % count
        fast = tuple(share for share in range(SHARES) if share % count == turn)
        found.append(pytest.param(mutation, fast, id=mutation.name))
        others = tuple(share for share in range(SHARES) if share not in fast)
        if others:
            slow = pytest.mark.slow
            found.append(pytest.param(mutation, others, id=f"{mutation.name}, others", marks=slow))
    return found


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("mutation", "parts"), shares(mutations_deep.MUTATIONS))
def test_what_only_the_models_can_tell_is_found_by_deep(
    mutation: Mutation, parts: tuple[int, ...]
) -> None:
    assert missed(mutation, parts, deep=True, pair=make_pair("llama")) == {}


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("mutation", "parts"), shares(ALL))
def test_what_is_wrong_is_found(mutation: Mutation, parts: tuple[int, ...]) -> None:
    """By one of the rules that are named for it, in every kind of run that it applies to."""
    assert missed(mutation, parts) == {}


def missed(mutation: Mutation, parts: tuple[int, ...], **options: Any) -> dict[str, set[str]]:
    """The kinds of runs in which no rule finds the mutation that should; what is found there."""
    kinds = applicable(mutation)
    assert kinds, f"no kind of run has {mutation.needs}"
    found = {}
    count = min(SHARES, len(kinds))  # no share is empty
    chosen = {part % count for part in parts}
    for number, (kind, entry) in enumerate(kinds.items()):
        if number % count not in chosen:
            continue
        violations = sv.check_invariants(mutation.change(record(kind), entry), **options)
        found[kind] = {each.rule for each in violations}
    return {kind: rules for kind, rules in found.items() if not rules & set(mutation.rules)}


def applicable(mutation: Mutation) -> dict[str, int]:
    """The kinds of runs that have what a mutation needs, and the entry that it changes there."""
    entries = {kind: mutation.entry(record(kind)) for kind in KINDS}
    return {kind: entry for kind, entry in entries.items() if entry is not None}


def test_the_table_is_large_and_names_what_it_does() -> None:
    names = [mutation.name for mutation in ALL]
    assert len(names) >= 100
    assert len(set(names)) == len(names)
    assert len(KINDS) >= 8
    for mutation in ALL:
        assert mutation.needs, mutation.name
        assert mutation.rules, mutation.name
        assert set(mutation.rules) <= set(RULES), mutation.name


def test_every_rule_finds_some() -> None:
    assert {rule for mutation in ALL for rule in mutation.rules} == set(RULES)


def test_the_step_through_has_words_for_every_rule() -> None:
    assert BROKEN.keys() == RULES.keys()


def test_the_docs_have_the_table_of_the_rules() -> None:
    rules = re.findall(r"^\| \*\*(\w+)\*\* \| (.*) \|$", debug_page("Invariants"), re.MULTILINE)
    assert dict(rules) == RULES


def test_every_column_is_changed_or_there_is_a_reason() -> None:
    names = " ".join(mutation.name for mutation in ALL)
    changed = set(re.findall(r"\b(?:\w+)\.(?:\w+)", names))
    columns = {f"{table}.{column}" for table, forms in COLUMNS.items() for column in forms}
    assert columns - changed == set(NOT_CHANGED)
