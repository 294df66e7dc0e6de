"""The run map's data: what each row gained, what happened to it, who waits, what was copied."""

import functools
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import make_pair, make_prompts
from test_lanes import in_turns
from tiny_run import TRACE

import specviz as sv
from specviz import metrics
from specviz.record.schema import ACCEPTED, BONUS
from specviz.record.trace import Trace, flatten_requests
from specviz.views.stepper.arguments import are_lanes
from specviz.views.stepper.film import film
from specviz.views.stepper.reel import reel
from specviz.views.stepper.runmap import SIGNS

PROMPTS = [prompt for prompt in make_prompts() if len(prompt) < 20]  # eight
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "refilled": ("eqspec", {}, {}),
    "static": ("eqspec", {"refill": False}, {}),
    "cut to the minimum": ("rollback", {}, {}),
    "pool": ("exspec", {"window": 6, "fallback": "wait", "max_wait": 2}, {}),
    "in place": ("inplace", {}, {}),
    "no drafts": ("autoregressive", {}, {}),
    "faulty": ("inplace", {"break_invariant": "mask", "rows": [0], "from_round": 2}, {}),
    "short budgets": ("masking", {}, {"max_new_tokens": [1, 2, 3, 24, 7, 24, 4, 1]}),
    "tree": ("inplace", {}, {"drafter": "tree"}),
}
every_run = pytest.mark.parametrize("name", RUNS)


@functools.cache
def recorded(name: str) -> Trace:
    strategy, options, more = RUNS[name]
    given = {"batch_size": 3, "max_new_tokens": 16, "num_draft_tokens": 3, **more}
    return sv.generate(
        make_pair("llama"),
        PROMPTS,
        strategy=sv.strategy(strategy, **options),
        record=True,
        progress=False,
        **given,
    ).trace


@functools.cache
def filmed(name: str) -> dict[str, Any]:
    return film(recorded(name))


def entries(told: dict[str, Any]) -> list[tuple[int, int, dict[str, Any], list[int]]]:
    """(round, request, the row, its entry in the map) of every row, round after round."""
    return [
        (number, row["request"], row, entry)
        for number, each in enumerate(told["rounds"])
        for row, entry in zip(each["rows"], each["map"], strict=True)
    ]


def signs(entry: list[int]) -> set[str]:
    return {name for place, name in enumerate(SIGNS) if entry[3] >> place & 1}


@pytest.mark.sweep(10)
@every_run
def test_accepted_and_own_tokens_are_those_of_the_texts(name):
    trace = recorded(name)
    counted = defaultdict(lambda: np.zeros(2, int))
    for _, request, row, (accepted, own, thrown, _) in entries(filmed(name)):
        counted[request] += (accepted, own)
        assert accepted + own == row["gained"]
        assert accepted + thrown == row["drafted"]
        assert min(accepted, own, thrown) >= 0
    for request in range(trace.num_requests):
        origins = trace.origins(request)
        found = [(origins == ACCEPTED).sum(), (origins == BONUS).sum()]
        assert counted[request].tolist() == found


@pytest.mark.sweep(9)
@every_run
def test_copied_bytes_are_those_of_the_table_of_rounds(name):
    told = [each["bytes"] for each in filmed(name)["rounds"]]
    table = metrics.rounds(recorded(name))
    assert told == (table["realigned_bytes"] + table["compacted_bytes"]).tolist()


@pytest.mark.sweep(7)
@every_run
def test_the_rows_that_k_v_is_copied_into_are_marked(name):
    trace = recorded(name)
    columns = (trace.rows[column].tolist() for column in ("round", "row", "request"))
    request_in = {(number, row): request for number, row, request in zip(*columns, strict=True)}
    places = zip(trace.moves["round"].tolist(), trace.moves["to_row"].tolist(), strict=True)
    expected = {(at[0], request_in[at]) for at in places if at in request_in}
    found = {
        (number, request) for number, request, _, e in entries(filmed(name)) if "moved" in signs(e)
    }
    assert found == expected


@pytest.mark.sweep(3)
@every_run
def test_every_request_ends_once_and_as_its_status_says(name):
    trace = recorded(name)
    ends = defaultdict(list)
    for _, request, row, entry in entries(filmed(name)):
        for each in signs(entry) & {"eos", "budget", "stopped"}:
            ends[request].append(each)
            assert row["gained"] > 0
            assert row["length"] + row["gained"] == len(
                trace.prompt(request) + trace.output(request)
            )
    assert [ends[request] for request in range(trace.num_requests)] == [
        [status] for status in trace.meta["status"]
    ]


def test_a_log_without_status_ends_by_its_tokens():
    meta = {key: value for key, value in TRACE.meta.items() if key != "status"}
    told = film(replace(TRACE, meta=meta), judge=False)
    found = [(request, signs(entry)) for _, request, _, entry in entries(told)]
    assert found == [
        (0, set()),
        (1, {"moved"}),
        (0, set()),
        (1, {"eos"}),
        (0, {"budget"}),
        (2, {"refill", "stopped", "moved"}),
    ]
    assert told["waits"] == [[2, 0, 2]]
    assert told["rounds"][0]["map"] == [[0, 1, 2, 0], [2, 1, 0, 16]]


@every_run
def test_a_request_waits_whenever_it_is_unfinished_and_not_in_the_batch(name):
    told = filmed(name)
    present = defaultdict(set)
    for number, request, _, _ in entries(told):
        present[request].add(number)
    expected = [
        (request, number)
        for request, numbers in sorted(present.items())
        for number in range(max(numbers))
        if number not in numbers
    ]
    found = [(request, n) for request, first, stop in told["waits"] for n in range(first, stop)]
    assert sorted(found) == expected
    refilled = {request for _, request, _, entry in entries(told) if "refill" in signs(entry)}
    assert refilled == {request for request, numbers in present.items() if min(numbers) > 0}


def test_violations_are_marked_in_the_rows_that_have_them():
    told = filmed("faulty")
    marked = [(n, request) for n, request, _, e in entries(told) if "violation" in signs(e)]
    assert sorted(marked) == sorted(
        {(each["round"], each["request"]) for each in told["violations"]}
    )
    assert min(marked)[0] == 2
    plain = film(recorded("faulty"), judge=False)
    assert not any("violation" in signs(entry) for _, _, _, entry in entries(plain))


def test_a_log_that_lacks_moves_says_no_bytes():
    lacking = replace(TRACE, meta=TRACE.meta | {"missing": ["kv_bytes"]})
    assert [each["bytes"] for each in film(lacking)["rounds"]] == [None] * TRACE.num_rounds


@functools.cache
def two_lanes() -> sv.Result:
    return in_turns(1, max_new_tokens=[1, 20] * 5)


def test_both_lanes_stand_on_one_clock():
    """Each phase of the film begins when the timeline says, and no sooner than the one before."""
    result = two_lanes()
    for number, lane in enumerate(result.lanes):
        told = film(lane.trace)
        table = result.timeline
        own = table[table["lane"] == number].sort_values("start_ms", kind="stable")
        begins = np.array(told["begins"])
        assert np.allclose(begins.ravel(), own["start_ms"], atol=1e-3)
        assert told["meta"]["lane"] == number
        assert "begins_ms" not in told["meta"]
    assert "begins" not in filmed("refilled")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda begins: begins[1:], id="a round is missing"),
        pytest.param(lambda begins: [each[1:] for each in begins], id="a phase is missing"),
        pytest.param(lambda begins: [*begins[:-1], begins[0]], id="backwards"),
        pytest.param(lambda begins: [[-1.0, *begins[0][1:]], *begins[1:]], id="before the run"),
        pytest.param(lambda begins: [["soon", *begins[0][1:]], *begins[1:]], id="words"),
        pytest.param(lambda _: {"round": 0}, id="no list"),
    ],
)
def test_a_clock_that_cannot_be_is_no_clock(wrong):
    trace = two_lanes().lanes[0].trace
    begins = wrong(trace.meta["begins_ms"])
    assert "begins" not in film(replace(trace, meta=trace.meta | {"begins_ms": begins}))


def test_lanes_of_one_run_are_not_compared():
    """Each request is in one of them, and no text of theirs "differs"."""
    first, second = (lane.trace for lane in two_lanes().lanes)
    shown = reel(first, second, judge=True)
    assert shown["_difference"].startswith("Two lanes of one run.")
    assert "difference" not in shown["_opening"]["words"]
    assert repr(sv.step_through(second, first)).count("requests") == 2
    assert not are_lanes(first, first)
    other = in_turns(1, max_new_tokens=8, batch_size=8).lanes[1].trace
    prompts = [[9, *other.prompt(each)[1:]] for each in range(other.num_requests)]
    outputs = [other.output(each) for each in range(other.num_requests)]
    requests = flatten_requests(prompts, outputs, other.requests["budget"].tolist())
    assert not are_lanes(first, replace(other, requests=requests))
