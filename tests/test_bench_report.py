"""The report of a benchmark as text, and the table in the README.

The report says what was measured, and names in it are never markup.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from bench_rows import HOSTILE, row, sample

from specviz.bench import make_table, sections
from specviz.bench.report import ratio_chart, report, save_report, speed_chart
from specviz.bench.table import conditions
from specviz.views.policy import POLICY

ROOT = Path(__file__).parents[1]


def first_part(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return next(part for _, part in sections(make_table(rows)))


def trace(figure: go.Figure, kind: str) -> go.Scatter:
    return next(trace for trace in figure.data if trace.meta == {"kind": kind})


def test_the_page_holds_everything_and_loads_nothing(tmp_path: Path) -> None:
    table = make_table(sample())
    path = save_report(table, conditions(sample(), note=HOSTILE), tmp_path / "a" / "bench.html")
    assert [file.name for file in path.parent.iterdir()] == ["bench.html"]
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    head, _, rest = page.partition("</head>")
    assert f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' in head
    body = rest[: rest.index("<script>")]  # up to the code
    assert HOSTILE not in body
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in body
    assert not re.search(r"\b(src|href)=", head + body)
    headings = ["p, cpu, float32, 64 new tokens", "p, cpu, float32, 128 new tokens"]
    assert re.findall("<h2>(.*)</h2>", body) == [*headings, "Cells without a speed"]
    assert "it &lt;broke&gt;" in body
    assert body.count("<tr") == len(table) + 2
    assert re.search(r">inplace</td>.*>155\.0</td><td>150\.0 – 160\.0</td><td>1\.55</td>", body)
    assert ">failed</td>" in body
    block = r'<script type="application/json" data-place="(chart-\d)">(.*?)</script>'
    charts = dict(re.findall(block, body, re.DOTALL))
    # Two for the first section, one for that with a single B.
    assert list(charts) == ["chart-0", "chart-1", "chart-2"]
    for place, chart in charts.items():
        assert f'<div id="{place}"></div>' in body
        assert json.loads(chart)["data"]


def test_what_recording_costs_stands_beside() -> None:
    rows = sample()
    page = report(make_table(rows), {})
    assert "recording takes" in page
    assert re.search(r">inplace</td>.*<td>16\.1%</td>", page)
    for each in rows:
        each.pop("recorded_tokens_per_s", None)
    assert "recording takes" not in report(make_table(rows), {})


def test_marks_stand_where_their_values_are() -> None:
    figure = speed_chart(first_part(sample()))
    columns = [trace for trace in figure.data if trace.meta == {"kind": "speeds"}]
    assert [len(column.x) for column in columns] == [3, 4]
    assert list(columns[0].x) == pytest.approx([1, 1.55, 0.8])
    assert list(columns[0].marker.symbol) == ["circle", "circle", "square"]
    assert HOSTILE not in str(figure.layout.yaxis.ticktext)


def test_ranges_are_those_of_the_ratios() -> None:
    """A machine that is twice as slow in the second repetition leaves the ratio where it is."""
    rows = [row("autoregressive", speed, repetition=i) for i, speed in enumerate((100, 50))]
    rows += [row("inplace", speed, repetition=i) for i, speed in enumerate((150, 80))]
    figure = speed_chart(first_part(rows))
    speeds = trace(figure, "speeds")
    assert list(speeds.x) == pytest.approx([1, 1.55])
    for lengths in (speeds.error_x.array, speeds.error_x.arrayminus):
        assert list(lengths) == pytest.approx([0, 0.05])


def test_without_autoregressive_decoding_speeds_are_shown() -> None:
    figure = speed_chart(first_part([row("inplace", 70.0), row("eqspec", 90.0)]))
    assert "90" in "".join(trace(figure, "values").text)


def lines_of(part: pd.DataFrame) -> dict[str, go.Scatter]:
    return {re.sub("<.*?>", "", line.name): line for line in ratio_chart(part).data}


def test_lines_are_drawn_for_what_has_several_batch_sizes() -> None:
    lines = lines_of(first_part(sample()))
    assert set(lines) == {"autoregressive", "hf_generate", "inplace"}
    for name, ratio, dash in (("inplace", 1.55, "solid"), ("hf_generate", 0.8, "dash")):
        line = lines[name]
        assert (list(line.x), list(line.y), line.line.dash) == ([1, 4], [ratio] * 2, dash)


def test_of_many_lines_those_with_another_k_or_drafter_are_left_out() -> None:
    names = ("autoregressive", "rollback", "eqspec", "inplace")
    for depths, shown in (((3, 7), {"inplace, K = 3", "inplace, K = 7"}), ((1, 2, 3, 7), set())):
        rows = [row(name, 90.0, size) for name in names for size in (1, 4)]
        for k in depths:
            rows += [row("inplace", 70.0, size, num_draft_tokens=k) for size in (1, 4)]
        assert set(lines_of(first_part(rows))) == {*names, *shown}


@pytest.mark.parametrize("draw", [speed_chart, ratio_chart])
def test_without_a_speed_there_is_nothing_to_draw(draw: Any) -> None:
    with pytest.raises(ValueError, match=r"; pass "):
        draw(first_part([row("inplace", None)]))
