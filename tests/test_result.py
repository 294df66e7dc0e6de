"""What a result says of itself, made by hand from a recorded run."""

import re

import pytest
from tiny_run import TRACE

import specviz as sv
from specviz.generation.result import Result
from specviz.views import charts


def make_result(recorded: bool) -> Result:
    tokens, prompts = (
        [of(request) for request in range(TRACE.num_requests)]
        for of in (TRACE.output, TRACE.prompt)
    )
    budgets = TRACE.requests["budget"].tolist()
    texts, trace = ["" for _ in tokens], TRACE if recorded else None
    return Result(
        tokens, texts, TRACE.meta, TRACE.rounds, TRACE.rows, trace, prompts=prompts, budgets=budgets
    )


def test_a_result_says_whether_it_was_recorded_and_how_to_record():
    assert (
        repr(make_result(True))
        == "<Result of eqspec: 3 prompts, 11 new tokens, 3 rounds, recorded>"
    )
    assert (
        repr(make_result(False))
        == "<Result of eqspec: 3 prompts, 11 new tokens, 3 rounds, not recorded: pass record=True>"
    )


def test_a_trace_that_was_not_recorded_is_named_where_it_is_used():
    """The tables and charts of counts need none."""
    result = make_result(False)
    assert result.trace is None
    assert result.summary["new_tokens"].item() == 11
    assert len(charts.acceptance_map(result).data) > 0
    with pytest.raises(ValueError, match=re.escape("trace=None")):
        sv.step_through(result.trace)
