"""A record as a file for Perfetto."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tiny_run import MOVES, PROMPTS, ROWS, TRACE

from specviz.record.schema import PHASES

Event = dict
SCHEMA = Path(__file__).parent / "data" / "trace-event-format.schema.json"


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> list[Event]:
    path: Path = tmp_path_factory.mktemp("events") / "run.json"
    TRACE.to_chrome_trace(path)
    written = json.loads(path.read_text())
    errors = Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(written)
    assert [(each.json_path, each.message) for each in errors] == []
    check_flows(written["traceEvents"])
    return written["traceEvents"]


def check_flows(events: list[Event]) -> None:
    """Each begins once and ends once, in a slice of its track: no schema can say that."""
    flows = [each for each in events if each["ph"] in "sf"]
    for kind in "sf":
        ids = [each["id"] for each in flows if each["ph"] == kind]
        assert sorted(ids) == list(range(len(ids)))
    for flow in flows:
        here = [
            each
            for each in events
            if each["ph"] == "X" and (each["pid"], each["tid"]) == (flow["pid"], flow["tid"])
        ]
        assert any(each["ts"] <= flow["ts"] <= each["ts"] + each["dur"] for each in here)


def of(events: list[Event], kind: str) -> list[Event]:
    return [each for each in events if each.get("cat") == kind and each["ph"] == "X"]


def test_phases_follow_each_other_for_as_long_as_they_took(events):
    phases = of(events, "phase")
    assert [each["name"] for each in phases] == list(PHASES) * TRACE.num_rounds
    took = [float(TRACE.rounds[f"{each['name']}_ms"][each["args"]["round"]]) for each in phases]
    assert [each["dur"] / 1e3 for each in phases] == pytest.approx(took, abs=1e-3)
    ends = [each["ts"] + each["dur"] for each in phases]
    assert [each["ts"] for each in phases[1:]] == pytest.approx(ends[:-1], abs=0.01)


def test_rows_say_what_they_gained(events):
    rows = of(events, "row")
    told = [(each["args"]["round"], each["tid"], each["args"]["gained"]) for each in rows]
    assert told == [(row[0], row[1], row[6]) for row in ROWS]
    assert rows[1]["name"] == "request 1: +3"
    assert len({each["args"]["request"] for each in rows}) == len(PROMPTS)


def test_copies_of_kv_are_flows(events):
    moves = of(events, "move")
    assert [each["args"]["length"] for each in moves] == [move[-1] for move in MOVES]
    assert {each["args"]["model"] for each in moves} == {"target", "draft"}
    assert moves[0]["name"] == "copy K/V of the target: 4 slots"


def test_a_log_without_times_is_refused(tmp_path):
    bare = replace(TRACE, meta=TRACE.meta | {"missing": ["times"]})
    with pytest.raises(ValueError, match="trace must have times, got a log without them"):
        bare.to_chrome_trace(tmp_path / "run.json")
    assert list(tmp_path.iterdir()) == []
