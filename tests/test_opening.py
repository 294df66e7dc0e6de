"""Where the step-through opens if nobody says it."""

from dataclasses import replace

import pytest
from tiny_run import OUTPUTS, PROMPTS, TRACE

import specviz as sv
from specviz.record.schema import PHASES
from specviz.record.trace import Trace, flatten_requests
from specviz.views.stepper.difference import difference_words
from specviz.views.stepper.opening import Fault, Opening, first_fault, opening

ACCEPT = PHASES.index("accept")


def with_output(request: int, index: int, token: int) -> Trace:
    """TRACE with another text: one new token differs."""
    outputs = [[*output] for output in OUTPUTS]
    outputs[request][index] = token
    return replace(TRACE, requests=flatten_requests(PROMPTS, outputs, [6, 9, 9]))


def test_a_run_opens_at_the_first_uneven_acceptance():
    found = opening(TRACE, None, [None])
    assert (found.step, found.row) == (ACCEPT, 1), "in round 0, row 1 gains 3 and row 0 gains 1"
    assert found.words.endswith("round 0, 1 to 3. Row 1 gains most.")


def test_rows_that_gain_alike_open_at_the_start():
    rows = TRACE.rows | {"gained": TRACE.rows["gained"] * 0 + 1}
    assert opening(replace(TRACE, rows=rows), None, [None]) == Opening()


def test_a_run_with_a_violation_opens_at_it():
    fault = Fault(step=2 * len(PHASES) + 2, run=0, request=2, rule="mask")
    found = opening(TRACE, None, [fault])
    assert (found.step, found.row) == (12, 1), "request 2 is in row 1 in round 2"
    assert found.words == "Opens at the first violation: mask, round 2, verify, request 2."


def test_equal_texts_open_at_the_first_violation_of_either():
    late, early = (
        Fault(step=step, run=run, request=0, rule="kv") for run, step in enumerate((9, 7))
    )
    found = opening(TRACE, TRACE, [late, early])
    assert found.step == 7
    assert "of the second run: kv, round 1, verify" in found.words


@pytest.mark.parametrize(("request_", "index"), [(0, 2), (1, 3)])
def test_a_comparison_opens_at_the_first_difference(request_, index):
    """Even where a run breaks an invariant before: what the reader asks is where texts part."""
    other = with_output(request_, index, 77)
    fault = Fault(step=0, run=0, request=0, rule="mask")
    found = opening(TRACE, other, [fault, None])
    assert found.step == 1 * len(PHASES) + ACCEPT, "both tokens are emitted in round 1"
    assert found.row == request_
    assert found.words == "Opens at the first difference of the two texts."
    line = difference_words((TRACE, other), (None, None))
    assert f"request {request_}, new token {index}, round 1 of A" in line, "it says the place"


def test_the_first_violation_is_the_earliest_one():
    entry = {"round": 1, "phase": 2, "row": 0, "request": 4, "rule": "mask"}
    entries = [entry, entry | {"round": 0, "phase": 3, "request": 5, "rule": "bonus"}]
    assert first_fault(entries, 1) == Fault(3, 1, 5, "bonus")
    assert first_fault([], 0) is first_fault(None, 0) is None


def test_the_widget_opens_there_and_what_is_asked_for_takes_precedence():
    broken = replace(TRACE, rows=TRACE.rows | {"start": TRACE.rows["start"] * 0 + 1})
    first = sv.check_invariants(broken)[0]
    step = first.round * len(PHASES) + PHASES.index(first.phase)
    assert sv.step_through(broken).step == step
    assert sv.step_through(broken, round=2).step == 2 * len(PHASES)
    unjudged = sv.step_through(broken, judge=False)
    assert (unjudged.step, unjudged.row) == (ACCEPT, 1), "it must not lead to what readers look for"
