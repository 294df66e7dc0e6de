"""The chart of a run's memory: its segments, its budget, and what it says of small parts."""

import pandas as pd
import pytest
from conftest import check_refusal
from test_charts import kinds_of, texts_of

from specviz.views.charts import MEMORY_LOOKS, memory_bars

GB = 10**9
PARTS = [
    ("target weights", "always", 6 * GB),
    ("draft weights", "always", 2 * GB),
    ("target K/V", "always", 5 * GB),
    ("draft K/V", "always", 3 * GB),
    ("features", "always", GB // 100),
    ("draft logits", "always", GB // 10),
    ("target logits", "always", GB // 10),
    ("prefill", "schedule", 4 * GB),
    ("drafting", "draft", GB),
    ("verification", "verify", 0),
]
TABLE = pd.DataFrame(PARTS, columns=["part", "when", "bytes"])
SEGMENTS = [8.0, 5.0, 3.0, 0.2, 0.01, 4.0]  # GB, in the order of MEMORY_LOOKS


def test_segments_are_as_wide_as_their_bytes() -> None:
    """Parts of a kind are added up. Of the phases, the largest counts."""
    kinds = kinds_of(memory_bars({"run": TABLE}, theme="light"))
    widths = [kinds[name].width[0] for name in MEMORY_LOOKS]
    assert [width / widths[0] * 8 for width in widths] == pytest.approx(SEGMENTS)
    ends = [kinds[name].x[0] + kinds[name].width[0] / 2 for name in MEMORY_LOOKS]
    starts = [kinds[name].x[0] - kinds[name].width[0] / 2 for name in MEMORY_LOOKS]
    assert starts[1:] == pytest.approx(ends[:-1])
    assert texts_of(kinds["totals"]) == ["20.2 GB"]
    assert kinds["weights"].text[0] == "weights 8 GB"
    assert texts_of(kinds["small parts"]) == [
        "draft K/V 3 GB · logits 200 MB · other 10 MB · largest phase: prefill"
    ]


def test_a_budget_is_a_line_and_words() -> None:
    """Its place is that of as many bytes; the words say how much is too much."""
    small = TABLE.assign(bytes=TABLE["bytes"] // 2)
    kinds = kinds_of(memory_bars({"a": TABLE, "b": small}, budget_bytes=15e9, theme="dark"))
    left = kinds["weights"].x[0] - kinds["weights"].width[0] / 2
    scale = kinds["weights"].width[0] / (8 * GB)
    assert kinds["budget"].x[0] == pytest.approx(left + 15 * GB * scale)
    assert texts_of(kinds["totals"]) == ["20.2 GB, 5.21 GB too much", "10.1 GB"]
    assert texts_of(kinds["budget words"]) == ["budget 15 GB"]
    for words in kinds["totals"].x:
        assert words > kinds["budget"].x[0] or words < kinds["budget"].x[0] - 150


def test_weights_may_be_left_out() -> None:
    kinds = kinds_of(memory_bars({"run": TABLE}, weights=False))
    assert kinds["weights"].width[0] == 0
    assert kinds["weights"].showlegend is False
    assert texts_of(kinds["totals"]) == ["12.2 GB"]
    assert "budget" not in kinds


def test_names_cannot_inject_markup() -> None:
    kinds = kinds_of(memory_bars({"<b>&<a href='x'>": TABLE}, heading="<i>"))
    assert texts_of(kinds["names"]) == ["&lt;b&gt;&amp;&lt;a href='x'&gt;"]
    assert "<i>" not in kinds["title"].text[0]


def test_what_cannot_be_drawn_is_refused() -> None:
    check_refusal(lambda: memory_bars({}), "tables is empty")
    check_refusal(lambda: memory_bars({"a": [1]}), "tables['a'] must be a DataFrame")
    check_refusal(lambda: memory_bars({"a": TABLE[["part"]]}), "tables['a'] lacks bytes, when")
    check_refusal(lambda: memory_bars({"a": TABLE}, budget_bytes=0), "budget_bytes must be")
