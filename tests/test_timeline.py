"""The clock of both lanes: tables of times, pauses, and the Gantt chart."""

import numpy as np
import pandas as pd
import pytest
from conftest import check_refusal, generate, make_pair, make_prompts

import specviz as sv
from specviz.engine import lanes
from specviz.generation.result import Result
from specviz.metrics import bubble_share, bubbles
from specviz.record.schema import PHASES
from specviz.views.charts import gantt
from specviz.views.charts.gantt import BUBBLE

RUN = {"max_new_tokens": 12, "batch_size": 4, "num_draft_tokens": 4}
V, T = 30.0, 20.0  # ms of a verification and of drafting


def timeline(*spans: np.ndarray) -> pd.DataFrame:
    """That of lanes whose phases began and ended so."""
    parts = [Result([], [], {}, {}, {}, prompts=[], budgets=[], spans_ms=each) for each in spans]
    return Result([], [], {}, {}, {}, prompts=[], budgets=[], lanes=tuple(parts)).timeline


def planned(rounds: int) -> pd.DataFrame:
    """Lanes that alternate: one drafts for T ms while the other verifies for V ms."""
    spans = np.zeros((2, rounds, len(PHASES), 2))
    for lane in (0, 1):
        for number in range(rounds):
            verified = max(T, V) * (2 * number + lane) + T
            ends = [verified - T, verified, verified + V, verified + V, verified + V]
            spans[lane, number, :, 0] = [verified - T, *ends[:-1]]
            spans[lane, number, :, 1] = ends
    return timeline(*spans)


def test_pauses_are_what_no_phase_fills():
    """Of a step of 30 ms, a lane that drafts waits 10: once a round, and at both ends."""
    table = planned(4)
    assert len(table) == 2 * 4 * 5
    assert table["start_ms"].is_monotonic_increasing
    pauses = bubbles(table)
    inner = pauses[(pauses["start_ms"] > 60) & (pauses["stop_ms"] < 200)]
    assert (inner["stop_ms"] - inner["start_ms"]).round(6).unique().tolist() == [10.0]
    elapsed = table["stop_ms"].max() - table["start_ms"].min()
    assert elapsed == 8 * V + T
    busy = 2 * 4 * (V + T)
    assert bubble_share(table) == pytest.approx(1 - busy / (2 * elapsed))
    assert np.isnan(bubble_share(timeline(np.zeros((0, 5, 2)))))


def test_a_run_in_one_lane_has_a_timeline_too():
    result = generate(make_pair("llama"), make_prompts(), **RUN)
    table = result.timeline
    assert table["lane"].unique().tolist() == [0]
    assert table["phase"].tolist() == list(PHASES) * len(result.rounds["batch"])
    took = (table["stop_ms"] - table["start_ms"]).to_numpy().reshape(-1, 5)
    for number, phase in enumerate(PHASES):
        assert took[:, number] == pytest.approx(result.rounds[f"{phase}_ms"], abs=1e-3)
    assert table["start_ms"].iloc[0] == 0
    assert result.elapsed_ms >= result.stages["total_ms"].sum() - 1e-3


def boxes_of(figure: object, kind: str) -> list[tuple[float, float, float]]:
    """Left edge, width and top of each box of a kind."""
    (bars,) = [trace for trace in figure.data if (trace.meta or {}).get("kind") == kind]
    left = np.array(bars.x) - np.array(bars.width) / 2
    return [*zip(left.round(3), np.round(bars.width, 3), bars.base, strict=True)]


def test_the_chart_draws_each_phase_and_pause_to_scale():
    table = planned(3)
    figure = gantt(table, theme="light")
    verified = boxes_of(figure, "verify")
    drafted = boxes_of(figure, "draft")
    assert len(verified) == len(drafted) == 6
    assert len({top for _, _, top in verified}) == 2
    scale = verified[0][1] / V
    assert [width for _, width, _ in drafted] == pytest.approx([T * scale] * 6, abs=0.01)
    assert len(boxes_of(figure, "bubble")) == len(bubbles(table))
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert len(legend) == len(PHASES) + 1
    assert any(BUBBLE.legend in name for name in legend)
    (bars,) = [trace for trace in figure.data if (trace.meta or {}).get("kind") == "verify"]
    assert sorted(bars.text) == ["0", "0", "1", "1", "2", "2"]


def test_the_chart_shows_a_part():
    table = planned(6)
    figure = gantt(table, start_ms=60, stop_ms=120, theme="dark")
    widths = sorted(width for _, width, _ in boxes_of(figure, "verify"))
    # One verification lies in it whole; the two others are cut to 10 and 20 ms.
    assert widths == pytest.approx([132, 264, 396], abs=0.01)
    for kind in (*PHASES, "bubble"):
        for left, width, _ in boxes_of(figure, kind):
            assert left + 0.01 >= 74
            assert left + width <= 900 - 34 + 0.01


def test_a_long_chart_is_in_seconds():
    table = planned(6)
    table[["start_ms", "stop_ms"]] *= 12_300 / table["stop_ms"].max()
    words = str(gantt(table, theme="light").to_dict())
    assert "12.3 s; the lanes wait" in words
    assert ">2 s<" in words
    assert ">12 s<" in words
    assert " ms" not in words


def test_the_chart_refuses_what_it_cannot_draw():
    table = planned(2)
    check_refusal(lambda: gantt([1]), "table must be")
    check_refusal(lambda: gantt(table.drop(columns="lane")), "table lacks lane")
    check_refusal(lambda: gantt(table, start_ms=1e6), "table must have a phase")
    check_refusal(lambda: gantt(table, start_ms="a"), "start_ms must be a number >= 0 or None")
    check_refusal(lambda: gantt(table.iloc[:0]), "table must have a phase")


@pytest.mark.slow
def test_a_step_through_shows_one_lane(monkeypatch):
    """The rule: a lane's record is stepped through on its own."""
    monkeypatch.setattr(lanes, "_cores", lambda: 1)
    result = generate(make_pair("llama"), make_prompts(), lanes=2, record=True, **RUN)
    check_refusal(
        lambda: sv.step_through(result),
        "trace must be a Trace",
        "lanes[0].trace and lanes[1].trace",
    )
    check_refusal(lambda: sv.step_through(result.trace), "trace=None", "result.lanes[0].trace")
    check_refusal(lambda: sv.check_invariants(result.trace), "trace=None", "each of result.lanes")
    for lane in result.lanes:
        view = sv.step_through(lane.trace)
        assert view.film
