"""The report of a benchmark as text, and the table in the README.

The report says what was measured, and names in it are never markup.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bench_rows import HOSTILE, row, sample

from specviz.bench import make_table, sections
from specviz.bench.charts import ratio_chart, speed_chart
from specviz.bench.report import report, save_report
from specviz.bench.table import conditions
from specviz.views.policy import POLICY

ROOT = Path(__file__).parents[1]


def parts() -> list[pd.DataFrame]:
    return [part for _, part in sections(make_table(sample()))]


def test_the_page_holds_everything_and_loads_nothing() -> None:
    table = make_table(sample())
    page = report(table, conditions(sample(), note=HOSTILE))
    assert page.startswith("<!DOCTYPE html>")
    head, _, rest = page.partition("</head>")
    assert f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' in head
    body = rest[: rest.index("<script>")]  # up to the code
    assert HOSTILE not in body
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in body
    assert not re.search(r"\b(src|href)=", head + body)
    assert body.count("<h2>") == 3
    for text in (
        "p, cpu, float32, 64 new tokens",
        "p, cpu, float32, 128 new tokens",
        "Cells without a speed",
        "it &lt;broke&gt;",
    ):
        assert text in body
    assert body.count("<tr") == len(table) + 2
    assert re.search(r">inplace</td>.*>155\.0</td><td>150\.0 – 160\.0</td><td>1\.55</td>", body)
    assert ">failed</td>" in body
    charts = re.findall(
        r'<script type="application/json" data-place="(chart-\d)">(.*?)</script>', body, re.DOTALL
    )
    assert [place for place, _ in charts] == [
        "chart-0",
        "chart-1",
        "chart-2",
    ]  # two for the first section, one for that with a single B
    assert all(
        f'<div id="{place}"></div>' in body and json.loads(chart)["data"] for place, chart in charts
    )


def test_what_recording_costs_stands_beside() -> None:
    page = report(make_table(sample()), {})
    assert "recording takes" in page
    assert re.search(r">inplace</td>.*<td>16\.1%</td>", page)
    without = [
        {name: value for name, value in entry.items() if name != "recorded_tokens_per_s"}
        for entry in sample()
    ]
    assert "recording takes" not in report(make_table(without), {})


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    path = save_report(make_table(sample()), {}, tmp_path / "a" / "bench.html")
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [file.name for file in path.parent.iterdir()] == ["bench.html"]


def test_marks_stand_where_their_values_are() -> None:
    figure = speed_chart(parts()[0])
    columns = [trace for trace in figure.data if (trace.meta or {}).get("kind") == "speeds"]
    assert [len(trace.x) for trace in columns] == [3, 4]
    first = columns[0]
    edge = next(trace for trace in figure.data if trace.meta == {"kind": "edges"})
    left, one = edge.x[0], edge.x[3]  # where 0 and 1 are
    assert [(x - left) / (one - left) for x in first.x] == pytest.approx([1, 0.8, 1.55])
    assert list(first.marker.symbol) == ["circle", "square", "circle"]
    assert [
        text
        for trace in figure.data
        if trace.name == "methods"
        for text in trace.text
        if HOSTILE in text
    ] == []


def test_ranges_are_those_of_the_ratios() -> None:
    """A machine that is twice as slow in the second repetition leaves the ratio where it is."""
    speeds = {"autoregressive": (100.0, 50.0), "inplace": (150.0, 80.0)}
    ((_, part),) = sections(
        make_table(
            [
                row(name, speed, repetition=i)
                for name, pair in speeds.items()
                for i, speed in enumerate(pair)
            ]
        )
    )
    figure = speed_chart(part)
    edge = next(trace for trace in figure.data if trace.meta == {"kind": "edges"})
    ranges = next(trace for trace in figure.data if trace.meta == {"kind": "ranges"})
    left, one = edge.x[0], edge.x[3]
    assert [(x - left) / (one - left) for x in ranges.x if x is not None] == pytest.approx(
        [1, 1, 1.5, 1.6]
    )


def test_without_autoregressive_decoding_speeds_are_shown() -> None:
    ((_, part),) = sections(make_table([row("inplace", 70.0), row("eqspec", 90.0)]))
    figure = speed_chart(part)
    assert any(
        "90" in text for trace in figure.data if trace.name == "values" for text in trace.text
    )


def test_lines_are_drawn_for_what_has_several_batch_sizes() -> None:
    figure = ratio_chart(parts()[0])
    lines = {
        re.sub("<.*?>", "", line.name): (list(line.x), list(line.y), line.line.dash)
        for line in figure.data
    }
    assert lines["inplace"] == ([1, 4], [1.55, 1.55], "solid")
    assert lines["hf_generate"] == ([1, 4], [0.8, 0.8], "dash")
    assert set(lines) == {"autoregressive", "hf_generate", "inplace"}


def test_of_many_lines_those_with_another_k_or_drafter_are_left_out() -> None:
    def part_of(depths: tuple[int, ...]) -> pd.DataFrame:
        own = [
            row(name, 90.0 * size, size)
            for name in ("autoregressive", "rollback", "eqspec", "inplace")
            for size in (1, 4)
        ]
        ((_, part),) = sections(
            make_table(
                [
                    *own,
                    *(
                        row("inplace", 70.0, size, num_draft_tokens=k)
                        for k in depths
                        for size in (1, 4)
                    ),
                ]
            )
        )
        return part

    names = [
        {re.sub("<.*?>", "", line.name) for line in ratio_chart(part_of(depths)).data}
        for depths in ((3, 7), (1, 2, 3, 7))
    ]
    assert names[0] == {
        "autoregressive",
        "rollback",
        "eqspec",
        "inplace",
        "inplace, K = 3",
        "inplace, K = 7",
    }
    assert names[1] == {"autoregressive", "rollback", "eqspec", "inplace"}


@pytest.mark.parametrize("draw", [speed_chart, ratio_chart])
def test_without_a_speed_there_is_nothing_to_draw(draw: Any) -> None:
    ((_, part),) = sections(make_table([row("inplace", None)]))
    with pytest.raises(ValueError, match=r"; pass "):
        draw(part)


def test_the_table_in_the_readme_is_the_measured_one() -> None:
    """Each figure of the README's table is that of figures/data/bench.csv.

    It is the figure for the strategy, K and B, for 64 tokens and drafts of the model.
    """
    table = pd.read_csv(ROOT / "figures" / "data" / "bench.csv", dtype={"num_draft_tokens": str})
    table = table[(table["max_new_tokens"] == 64) & table["drafter"].isin(["none", "model"])]
    measured = {
        (e.strategy, "5" if e.num_draft_tokens == "0" else e.num_draft_tokens, e.batch_size):
        f"{e.tokens_per_s:.0f} ({e.ratio_to_autoregressive:.2f})"
        for e in table.itertuples()
    }  # fmt: skip
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    begin = next(
        i
        for i, line in enumerate(lines)
        if line.startswith("| tokens/s (ratio to `autoregressive`) |")
    )
    sizes = [int(text) for text in re.findall(r"B = (\d+)", lines[begin])]
    written = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("| `"):
            break
        name, *cells = (text.strip() for text in line.strip("|").split("|"))
        strategy, k = re.fullmatch(r"`(.+?)`(?:, K = (\w+))?", name).groups()
        written |= {
            (strategy, k or "5", size): cell
            for size, cell in zip(sizes, cells, strict=True)
            if cell != "-"
        }
    assert len(written) > 8
    assert written == {place: measured[place] for place in written}
