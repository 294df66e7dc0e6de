"""Runs of specviz, written to a `TraceWriter` call by call: the record must be the same one.

What a log does not hold is left out of the comparison: the pool, decisions and scores.
"""

from typing import Any

import numpy as np
import pytest
from conftest import decoded, make_pair
from relog import relog

import specviz as sv
from specviz.generation.assemble import model_name
from specviz.record.trace import Trace

NOT_IN_A_LOG = {("rounds", "decision"), ("rounds", "capacity"), ("rows", "scores")}
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "eqspec": ("eqspec", {}),
    "exspec": ("exspec", {}),
    "inplace": ("inplace", {}),
    "masking": ("masking", {}),
    "repadding": ("repadding", {}),
    "column": (sv.strategy("masking", positions="column"), {}),
    "trees": ("inplace", {"drafter": "tree"}),
    "trees, holes": ("masking", {"drafter": "tree"}),
    "trees, realigned": ("eqspec", {"drafter": "tree"}),
    "selected": ("eqspec", {"selector": "tetris"}),
    "mask": (sv.strategy("eqspec", break_invariant="mask", rows=[1], from_round=1), {}),
    "bonus": (sv.strategy("inplace", break_invariant="bonus", rows=[1], from_round=1), {}),
    "kv": (sv.strategy("eqspec", break_invariant="kv", rows=[1], from_round=1), {}),
}


def recorded(name: str) -> Trace:
    strategy, options = RUNS[name]
    return decoded(strategy, **options).trace


def differing(one: Trace, other: Trace) -> list[str]:
    """The columns in which two records differ."""
    found = []
    for name, table in one.tables.items():
        for column, values in table.items():
            if name == "pool" or (name, column) in NOT_IN_A_LOG:
                continue
            is_float = values.dtype == np.float32
            if not np.array_equal(values, other.tables[name][column], equal_nan=is_float):
                found.append(f"{name}.{column}")
    return found


@pytest.mark.sweep(16)
@pytest.mark.parametrize("name", RUNS)
def test_a_log_with_the_layout_is_the_record(name):
    trace = recorded(name)
    again = relog(trace, layout=True).trace()
    assert differing(trace, again) == []
    assert again.meta["missing"] == []
    assert list(sv.check_invariants(again)) == list(sv.check_invariants(trace))


@pytest.mark.sweep(16)
@pytest.mark.parametrize("name", [name for name in RUNS if name != "kv"])
def test_the_layout_follows_from_forwards_and_moves(name):
    """All but where a row would go on after its last round, which nothing says."""
    trace = recorded(name)
    again = relog(trace).trace()
    assert set(differing(trace, again)) <= {"rows.pending_after"}
    last = np.flatnonzero(trace.rows["pending_after"] != again.rows["pending_after"])
    for entry in last.tolist():
        later = trace.rows["request"][entry + 1 :]
        assert trace.rows["request"][entry] not in later
    assert list(sv.check_invariants(again)) == list(sv.check_invariants(trace))


@pytest.mark.slow
def test_misplaced_kv_is_named_in_the_round_where_it_was_moved():
    """Its first token moves with it, so where the row should begin is known from `starts` alone."""
    trace = recorded("kv")
    theirs = sv.check_invariants(trace)[0]
    mine = sv.check_invariants(relog(trace).trace())
    first = {(each.round, each.phase, each.row) for each in mine[:2]}
    assert first == {(theirs.round, theirs.phase, theirs.row)}


@pytest.mark.slow
def test_deep_check_runs_a_log_again():
    pair = make_pair("llama")
    names = {"target": model_name(pair.target), "draft": model_name(pair.draft)}
    trace = relog(recorded("eqspec"), dtype="float32", **names).trace()
    assert not sv.check_invariants(trace, deep=True, pair=pair)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["eqspec", "trees"])
def test_a_log_comes_back_from_its_file(name, tmp_path):
    writer = relog(recorded(name))
    writer.save(tmp_path / "log.jsonl")
    read = sv.read_log(tmp_path / "log.jsonl")
    # Times are written to nanoseconds, so that some float32 differ in their last digit.
    assert all(column.endswith("_ms") for column in differing(writer.trace(), read))
