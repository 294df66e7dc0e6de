"""A record that says one thing wrongly is found out, in every kind of run that it can occur in."""

import re
from collections import Counter
from typing import Any

import mutations_cache
import mutations_deep
import mutations_rows
import mutations_run
import pytest
from conftest import debug_page
from mutated_runs import KINDS, pair_of, record
from mutations import Mutation

import specviz as sv
from specviz.checks.violations import BROKEN, RULES
from specviz.record.schema import COLUMNS

ALL = (*mutations_rows.MUTATIONS, *mutations_cache.MUTATIONS, *mutations_run.MUTATIONS)
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
    assert sv.check_invariants(record(kind), deep=True, pair=pair_of(kind)) == []


def shares(mutations: tuple[Mutation, ...]) -> list[Any]:
    """Each mutation with each third of the runs that it applies to.

    The fast tests have one third; all three of a mutation that is the only one of its rule.
    """
    of_rule = Counter(mutation.rules[0] for mutation in mutations)
    return [
        pytest.param(
            mutation,
            (turn + later) % 3,
            marks=pytest.mark.slow if later and of_rule[mutation.rules[0]] > 1 else (),
            id=f"{mutation.name}, {later}",
        )
        for turn, mutation in enumerate(mutations)
        for later in range(3)
    ]


def missed(mutation: Mutation, share: int, **options: Any) -> dict[str, set[str]]:
    """The runs of this share in which no rule finds the mutation that should; what is found."""
    entries = {kind: mutation.entry(record(kind)) for kind in KINDS}
    kinds = [kind for kind, entry in entries.items() if entry is not None]
    assert kinds, "no kind of run has what it changes"
    count = min(3, len(kinds))  # no share is empty
    found = {}
    for kind in kinds[share % count :: count]:
        if options.get("deep"):
            options["pair"] = pair_of(kind)
        violations = sv.check_invariants(mutation.change(record(kind), entries[kind]), **options)
        found[kind] = {each.rule for each in violations}
    return {kind: rules for kind, rules in found.items() if not rules & set(mutation.rules)}


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("mutation", "share"), shares(mutations_deep.MUTATIONS))
def test_what_only_the_models_can_tell_is_found_by_deep(mutation: Mutation, share: int) -> None:
    assert missed(mutation, share, deep=True) == {}


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("mutation", "share"), shares(ALL))
def test_what_is_wrong_is_found(mutation: Mutation, share: int) -> None:
    """By one of the rules that are named for it, in every kind of run that it applies to."""
    assert missed(mutation, share) == {}


def test_every_rule_finds_some() -> None:
    assert len({mutation.name for mutation in ALL}) == len(ALL) >= 100
    assert {rule for mutation in ALL for rule in mutation.rules} == set(RULES)


def test_the_step_through_has_words_for_every_rule() -> None:
    assert BROKEN.keys() == RULES.keys()


def test_the_docs_have_the_table_of_the_rules() -> None:
    rules = re.findall(r"^\| \*\*(\w+)\*\* \| (.*) \|$", debug_page("Invariants"), re.MULTILINE)
    assert rules == list(RULES.items())


def test_every_column_is_changed_or_there_is_a_reason() -> None:
    names = " ".join(mutation.name for mutation in ALL)
    changed = set(re.findall(r"\b(?:\w+)\.(?:\w+)", names))
    columns = {f"{table}.{column}" for table, forms in COLUMNS.items() for column in forms}
    assert columns - changed == set(NOT_CHANGED)
