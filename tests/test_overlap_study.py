"""The measurement of two lanes: known clocks give known figures, and a table is gone on with."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import check_refusal, make_pair, make_prompts
from test_timeline import T, V, planned

import specviz as sv
from specviz.engine.lanes import workers
from specviz.record.schema import PHASES
from specviz.studies import overlap
from specviz.studies.overlap import latency_s, measure_overlap

ASKED = {"num_draft_tokens": 3, "max_new_tokens": 8, "repetitions": 2, "progress": False}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_cores", lambda: 2)


def lane_of(spans: np.ndarray) -> sv.Result:
    """A lane of one request, which the last of its rounds ends."""
    rounds = len(spans)
    return sv.Result(
        tokens=[[1] * rounds],
        texts=[""],
        meta={},
        rounds={"batch": np.ones(rounds, np.int32)},
        rows={
            "round": np.arange(rounds),
            "request": np.zeros(rounds, np.int32),
            "finished": (np.arange(rounds) == rounds - 1).astype(np.uint8),
        },
        prompts=[[1]],
        budgets=[rounds],
        spans_ms=spans,
    )


def on_a_clock(rounds: int) -> sv.Result:
    """Two lanes that alternate, as in test_timeline."""
    table = planned(rounds)
    lanes = []
    for lane in (0, 1):
        own = table[table["lane"] == lane].sort_values(["round", "start_ms"], kind="stable")
        lanes.append(lane_of(own[["start_ms", "stop_ms"]].to_numpy().reshape(rounds, 5, 2)))
    whole = lane_of(np.zeros((0, 5, 2)))
    return sv.Result(**(vars(whole) | {"lanes": tuple(lanes), "tokens": [[1] * 2 * rounds]}))


def test_known_clocks_give_known_figures() -> None:
    result = on_a_clock(6)
    # The first round of each lane is not steady, because its prompt enters there.
    for lane in result.lanes:
        assert overlap._sides(lane) == pytest.approx(np.tile([T, V], (5, 1)))
    assert overlap._steps(result) == pytest.approx([V] * 9)
    ends = [V * 12 + T, V * 11 + T]
    assert sorted(latency_s(result), reverse=True) == pytest.approx([end / 1e3 for end in ends])
    speed = sum(map(len, result.tokens))
    assert overlap._speed(result) == pytest.approx(speed / (V * 12 + T) * 1e3)


@pytest.mark.slow
def test_a_table_of_tiny_models(tmp_path: Path) -> None:
    pair = make_pair("llama")
    path = tmp_path / "overlap.csv"
    table, found = measure_overlap(pair, make_prompts(), [2, 4], path, **ASKED)
    assert table["batch_size"].tolist() == [2, 4]
    assert np.isfinite(table.to_numpy(float)).all()
    assert (table["ideal_ms"] == table[["draft_ms", "verify_ms"]].max(axis=1)).all()
    assert table["efficiency"].to_numpy() == pytest.approx(table["ideal_ms"] / table["step_ms"])
    predicted = table["one_lane_ms"] / (2 * table["ideal_ms"])
    assert table["predicted_gain"].to_numpy() == pytest.approx(predicted)
    assert (table["gain_low"] <= table["gain"]).all()
    assert (table["gain"] <= table["gain_high"]).all()
    for name in ("two", "one", "half"):
        assert (table[f"{name}_p50_s"] <= table[f"{name}_p99_s"]).all()
    assert table["bubble_share"].between(0, 1).all()
    assert found["prompts"] == len(make_prompts())
    assert json.loads(path.with_suffix(".json").read_text()) == found


def check_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    """At equal work: as many rows and threads. As published: half of both for one lane."""
    asked: list[dict[str, Any]] = []
    result = on_a_clock(6)

    def noted(*_: Any, **options: Any) -> sv.Result:
        asked.append(options)
        return result.lanes[0] if options.get("lanes") is None else result

    monkeypatch.setattr(overlap, "generate", noted)
    monkeypatch.setattr(overlap, "_in_turns", lambda *_: result)
    monkeypatch.setattr(overlap, "_simulated", lambda *_: 1.0)
    monkeypatch.setattr(overlap.torch, "get_num_threads", lambda: 2)
    settings = {"num_draft_tokens": 3, "max_new_tokens": 8}
    overlap._entry(make_pair("llama"), make_prompts(), 4, settings, 2)
    runs = [each for each in asked if not each.get("record")]
    two, one, half = runs[:3]
    assert runs == [two, one, half] * 3, "a repetition that warms up, and two"
    assert (two["batch_size"], two["lanes"]) == (4, 2)
    assert one["batch_size"] == 4, "as many rows in flight"
    assert one["num_threads"] == 2, "on as many threads"
    assert (half["batch_size"], half["num_threads"]) == (2, 1)
    assert "lanes" not in one
    assert "lanes" not in half


def test_both_protocols_get_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    check_protocols(monkeypatch)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 2}, "as many rows in flight"),
        ({"num_threads": 1}, "on as many threads"),
    ],
    ids=str,
)
def test_a_baseline_that_gets_less_is_found(
    changes: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With half of the rows, or of the threads, one lane would look slower than it is."""

    def less(function: Any, *given: Any, **options: Any) -> Any:
        if options.get("num_threads") == 2:  # the baseline at equal work
            options |= changes
        return partial(function, *given, **options)

    monkeypatch.setattr(overlap, "partial", less)
    with pytest.raises(AssertionError, match=said):
        check_protocols(monkeypatch)


def test_a_gain_is_over_one_lane_with_as_many_rows() -> None:
    """The published one is over that with half of them, and larger where that one is slower."""
    two = on_a_clock(6)
    slow, slower = (lane_of(planned_spans(times)) for times in (1.5, 3.0))
    found = overlap._gains({"two": [two], "one": [slow], "half": [slower]})
    speeds = [overlap._speed(each) for each in (two, slow, slower)]
    assert found["gain"] == pytest.approx(speeds[0] / speeds[1])
    assert found["published_gain"] == pytest.approx(speeds[0] / speeds[2])
    assert found["published_gain"] == pytest.approx(2 * found["gain"])
    assert found["one_p99_s"] == pytest.approx(latency_s(slow).max())


def planned_spans(times: float) -> np.ndarray:
    """Spans of a lane alone, each phase so many times as long."""
    table = planned(6)
    own = table[table["lane"] == 0].sort_values(["round", "start_ms"], kind="stable")
    return times * own[["start_ms", "stop_ms"]].to_numpy().reshape(6, 5, 2)


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, path = make_pair("llama"), tmp_path / "overlap.csv"
    measured: list[Any] = []
    plain = overlap._entry

    def entry(pair: sv.Pair, prompts: Any, batch_size: int, *others: Any) -> dict[str, Any]:
        measured.append(batch_size)
        if measured == [4, 2]:
            raise KeyboardInterrupt
        return plain(pair, prompts, batch_size, *others)

    monkeypatch.setattr(overlap, "_entry", entry)
    with pytest.raises(KeyboardInterrupt):
        measure_overlap(pair, make_prompts(), [4, 2], path, **ASKED)
    table, _ = measure_overlap(pair, make_prompts(), [4, 2], path, **ASKED)
    assert measured == [4, 2, 2]
    assert table["batch_size"].tolist() == [2, 4]
    with pytest.raises(ValueError, match="max_new_tokens"):
        measure_overlap(pair, make_prompts(), [4], path, **(ASKED | {"max_new_tokens": 9}))
    with pytest.raises(ValueError, match="prompts_digest"):
        measure_overlap(pair, make_prompts()[::-1], [4], path, **ASKED)
    measure_overlap(pair, make_prompts()[::-1], [4], path, fresh=True, **ASKED)
    assert measured == [4, 2, 2, 4], "other conditions: measured again"


def test_what_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*sizes: int, **more: Any) -> Any:
        return lambda: measure_overlap(make_pair("llama"), make_prompts(), sizes, **(ASKED | more))

    check_refusal(call(3), "batch_size must be even", "pass 4")
    check_refusal(call(64), "batch_sizes must be at most 10", "pass more prompts")
    check_refusal(call(2, strategy="masking"), "strategy must be one of")
    check_refusal(lambda: latency_s([1]), "result must be a Result")
    monkeypatch.setattr(workers, "_cores", lambda: 1)
    check_refusal(call(2), "pair.device must run two lanes at the same time", "two cores")
    assert PHASES.index("draft") + 1 == overlap._DRAFTING
