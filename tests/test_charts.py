"""What the charts hold, from recorded runs of tiny pairs and from hand-made tables: cells, labels, escaping, contrast."""

import base64
import json
import re
import struct
import zlib
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from conftest import make_pair, make_prompts
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import TRACE

import specviz as sv
from specviz import metrics
from specviz.record.schema import PHASES
from specviz.util.text import escape, label, shorten, visible
from specviz.views import charts, display
from specviz.views.charts import PHASE_LOOKS
from specviz.views.charts.picture import LOOKS, RIGHT, _Painter
from specviz.views.stepper.cells import Row, batch_rows, choose_window
from specviz.views.stepper.png import with_palette
from specviz.views.stepper.sentences import sentence
from specviz.views.theme import AMBER, BLUE, GREEN, ORANGE, THEMES, Theme, repainted

K = 4
MARKUP = re.compile(r"</?(span|b|br)( style=\"color:[^\"<>]*\")?>")


@pytest.fixture(scope="module")
def traces():
    """Recorded runs of the same prompts: right-aligned, left-aligned, and a static batch that keeps finished rows."""
    pair, prompts = make_pair("llama"), make_prompts()[3:9]
    settings = {
        "num_draft_tokens": K,
        "batch_size": 4,
        "max_new_tokens": 24,
        "record": True,
        "progress": False,
    }
    kinds = {
        "eqspec": "eqspec",
        "inplace": "inplace",
        "static": sv.strategy("eqspec", refill=False),
    }
    return {
        name: sv.generate(pair, prompts, strategy=kind, **settings).trace
        for name, kind in kinds.items()
    }


def kinds_of(figure: go.Figure) -> dict[str, go.Bar | go.Scatter]:
    return {trace.meta["kind"]: trace for trace in figure.data}


def plain(text: str) -> str:
    return MARKUP.sub("", text)


def whole_cache(trace, round, phase):
    """A picture in which nothing is folded."""
    return kinds_of(
        charts.batch_picture(trace, round, phase, slots=int(trace.rounds["slots"].max()) + 2 * K)
    )


# ---------------------------------------------------------------- batch_picture


@pytest.mark.parametrize("name", ["eqspec", "inplace", "static"])
def test_picture_has_each_kind_of_cell_as_often_as_the_record_says(traces, name):
    """After accept: prompts whole, earlier tokens, this round's accepted drafts, bonus and rejected drafts."""
    trace = traces[name]
    for round in range(trace.num_rounds):
        rows = batch_rows(trace, round)
        cells = Counter(
            {
                kind: len(bars.x)
                for kind, bars in whole_cache(trace, round, "accept").items()
                if kind in LOOKS
            }
        )
        prompts = [len(trace.prompt(row.request)) for row in rows]
        assert cells["prompt"] == sum(prompts)
        assert cells["accepted_now"] == sum(row.kept for row in rows)
        assert cells["bonus_now"] == sum(row.gained > row.kept for row in rows)
        assert cells["rejected_now"] == sum(
            row.accepted < min(row.drafted, row.gained) for row in rows
        )
        assert cells["rejected_now"] + cells["unreached_now"] == sum(
            row.drafted - row.accepted for row in rows
        )
        assert cells["padding"] == sum(row.start for row in rows)
        idle = sum(
            row.gained == 0 for row in rows
        )  # a finished row's last token may still be pending
        assert sum(row.length for row in rows) - sum(prompts) - (
            cells["accepted"] + cells["bonus"]
        ) in range(idle + 1)


@pytest.mark.parametrize(
    ("phase", "kind"), [("draft", "drafted"), ("verify", "drafted"), ("schedule", "pending")]
)
def test_picture_before_judgement(traces, phase, kind):
    for trace in traces.values():
        for round in range(0, trace.num_rounds, 5):
            rows = batch_rows(trace, round)
            found = whole_cache(trace, round, phase)
            assert (
                not {"accepted_now", "bonus_now", "rejected_now", "unreached_now", "gained"}
                & found.keys()
            )
            working = sum(row.gained > 0 for row in rows)
            count = len(found[kind].x) if kind in found else 0
            assert count in range(
                working * (K if kind == "drafted" else 1),
                len(rows) * (K if kind == "drafted" else 1) + 1,
            )


def test_every_cell_lies_in_its_row_and_column(traces):
    """Cells of one lane never overlap, and those of a row share their upper edge."""
    for trace in traces.values():
        for phase in PHASES:
            bars = [trace for kind, trace in whole_cache(trace, 2, phase).items() if kind in LOOKS]
            places = [
                (x, base) for trace in bars for x, base in zip(trace.x, trace.base, strict=True)
            ]
            assert len(places) == len(set(places))
            assert len({base for _, base in places}) <= 2 * len(batch_rows(trace, 2))


def test_rows_end_in_one_column_after_realignment_and_in_several_before(traces):
    trace = traces["eqspec"]
    round = charts.pick_ragged_round(trace)
    before, after = (
        kinds_of(charts.batch_picture(trace, round, phase))["bonus_now"]
        for phase in ("accept", "synchronise")
    )
    assert len(set(before.x)) > 1
    assert len(set(after.x)) == 1
    assert sorted(before.text) == sorted(after.text)


def test_only_realignment_draws_arrows(traces):
    trace = traces["eqspec"]
    round = charts.pick_ragged_round(trace)
    moved = [row for row in batch_rows(trace, round) if row.start != row.start_after]
    found = kinds_of(charts.batch_picture(trace, round, "synchronise"))
    assert len(found["moves"].x) == 3 * len(moved)
    assert [plain(text) for text in found["moved"].text] == [
        f"moved {abs(shift)} slot" + "s" * (abs(shift) != 1)
        for shift in (row.start_after - row.start for row in moved)
    ]
    assert "moves" not in kinds_of(charts.batch_picture(trace, round, "accept"))
    assert "moves" not in kinds_of(charts.batch_picture(traces["inplace"], round, "synchronise"))


def test_arrows_and_their_labels_keep_away_from_the_next_rows_positions(traces):
    """Whichever way a row moves, a figure of 8.5 px below an arrow's head of 11 px keeps 4 px, and no label lies on a cell."""
    trace, directions, lefts = (
        traces["eqspec"],
        set(),
        [],
    )  # lefts: how far from a label the cells in its lane begin
    for round in range(trace.num_rounds):
        found = kinds_of(charts.batch_picture(trace, round, "synchronise"))
        if "moves" not in found:
            continue
        directions |= {
            row.start_after > row.start
            for row in batch_rows(trace, round)
            if row.start_after != row.start
        }
        numbers = np.array(sorted(set(found["positions"].y)))
        for level in set(found["moves"].y) - {None}:
            assert (numbers[numbers > level] - level >= 4 + 8.5 / 2 + 11 / 2).all()
        edges = [(x - w / 2, y, y + h) for x, w, y, h in all_cells(found)]
        for x, level in zip(found["moved"].x, found["moved"].y, strict=True):
            lefts += [left - x for left, top, bottom in edges if top < level < bottom]
    assert directions == {True, False}
    assert min(lefts) > 0


def all_cells(found):
    """(middle, width, top, height) of every drawn cell."""
    for bars in (bars for kind, bars in found.items() if kind in LOOKS):
        yield from zip(bars.x, bars.width, bars.base, bars.y, strict=True)


def test_an_arrow_from_beyond_the_window_is_cut_and_its_row_stays_in_view():
    """A long row has ended, so the others move left by more slots than are drawn."""
    rows = [
        make_row(length=30, start=20, start_after=0),
        make_row(length=25, start=25, start_after=5),
        make_row(length=50, start=0, start_after=0),
    ]
    window = choose_window(rows, 8, moved=True)
    assert not window.shared
    assert window.firsts == (30 + 4 - 8, 30 + 4 - 8, 50 + 4 - 8)
    painter = _Painter(TRACE, rows, window, THEMES["light"], "synchronise")
    found = {trace.meta["kind"]: trace for trace in painter.motion()}
    left, right = painter.x(0, window.firsts[0]), painter.x(0, window.firsts[0] + 8)
    assert [x for x in found["moves"].x if x is not None] == [right + RIGHT, painter.x(0, 32)] * 2
    assert [plain(text) for text in found["moved"].text] == ["moved 20 slots", "moved 20 slots"]
    assert all(left <= x <= right for x in found["begins"].x if x is not None)


def make_row(length: int, start: int, start_after: int) -> Row:
    slots = {
        "start": start,
        "start_after": start_after,
        "pending": start + length - 1,
        "pending_after": start_after + length + 1,
    }
    return Row(
        request=0,
        length=length,
        drafted=4,
        accepted=1,
        gained=2,
        finished=False,
        discarded=0,
        **slots,
    )


def test_row_labels(traces):
    trace = traces["eqspec"]
    round = charts.pick_ragged_round(trace)
    rows, found = batch_rows(trace, round), kinds_of(charts.batch_picture(trace, round))
    assert [plain(text) for text in found["rows"].text] == [
        f"row {number}" for number in range(len(rows))
    ]
    assert [plain(text).removesuffix(" · end") for text in found["lengths"].text] == [
        f"n {r.length} → {r.length + r.gained}" for r in rows
    ]
    assert [plain(text) for text in found["gained"].text] == [f"+{row.gained}" for row in rows]
    before = kinds_of(charts.batch_picture(trace, round, "verify"))
    assert [plain(text) for text in before["lengths"].text] == [f"n {row.length}" for row in rows]


def test_idle_rows_are_named(traces):
    trace = traces["static"]
    round = int(trace.rows["round"][trace.rows["gained"] == 0][0])
    labels = [plain(text) for text in kinds_of(charts.batch_picture(trace, round))["gained"].text]
    assert [text == "idle" for text in labels] == [
        row.gained == 0 for row in batch_rows(trace, round)
    ]


def test_legend_names_what_is_drawn_and_nothing_else(traces):
    for phase in PHASES:
        figure = charts.batch_picture(traces["inplace"], 2, phase)
        shown = [trace.meta["kind"] for trace in figure.data if trace.showlegend]
        assert len(shown) == len(set(shown))
        assert {kind for kind in shown if kind in LOOKS} == {
            kind for kind in kinds_of(figure) if kind in LOOKS
        }
        assert [plain(trace.name) for trace in figure.data if trace.meta["kind"] == "prompt"] == [
            LOOKS["prompt"].legend
        ]


def test_positions_stand_over_tokens_with_the_sign_of_their_kind(traces):
    trace = traces["eqspec"]
    found = kinds_of(charts.batch_picture(trace, charts.pick_ragged_round(trace)))
    signs = Counter(plain(text).partition(" ")[2] for text in found["positions"].text)
    ticks = sum(len(found[kind].x) for kind in ("accepted", "accepted_now") if kind in found)
    dots = sum(len(found[kind].x) for kind in ("bonus", "bonus_now") if kind in found)
    assert signs == Counter(
        {"✓": ticks, "●": dots, "": len(found["prompt"].x) if "prompt" in found else 0}
    )


def test_earlier_slots_are_folded(traces):
    trace = traces["eqspec"]
    round = charts.pick_ragged_round(trace)
    figure = charts.batch_picture(trace, round, slots=10)
    last = max(row.stop for row in batch_rows(trace, round))
    assert {plain(text) for text in kinds_of(figure)["folded"].text} == {f"{last - 10} folded"}
    assert figure.layout.width > max(
        max(bars.x) for bars in figure.data if bars.meta["kind"] in LOOKS
    )


def test_rows_far_from_each_other_are_folded_one_by_one(traces):
    """All drafts then begin in one column, wherever the rows lie."""
    trace = traces["inplace"]
    round = charts.pick_ragged_round(trace)
    rows = batch_rows(trace, round)
    assert max(row.length for row in rows) - min(row.length for row in rows) > 10
    window = choose_window(rows, 10)
    assert not window.shared
    needed = max(row.stop for row in rows) - min(row.end(False) for row in rows) + 1
    together = choose_window(rows, 10, needed)
    assert (together.shared, together.slots, len(set(together.firsts))) == (True, needed, 1)
    assert not choose_window(rows, 10, needed - 1).shared
    assert (
        len(
            {row.start + row.length - first for row, first in zip(rows, window.firsts, strict=True)}
        )
        == 1
    )
    begins = kinds_of(charts.batch_picture(trace, round, slots=10))["begins"]
    assert len(set(begins.x) - {None}) == 1
    assert choose_window(batch_rows(traces["eqspec"], round), 10).shared


def test_hand_written_run():
    """Row 0 rejects both drafts, row 1 accepts both: cells, texts and places are known."""
    found = kinds_of(charts.batch_picture(TRACE, 0))
    assert [plain(text) for text in found["gained"].text] == ["+1", "+3"]
    assert list(found["rejected_now"].text) == ["✗" + label("<14>", 4)]
    assert list(found["unreached_now"].text) == ["–" + label("<15>", 4)]
    assert list(found["accepted_now"].text) == [label("<22>", 5), label("<23>", 5)]
    assert list(found["bonus_now"].text) == [label("<19>", 5), label("<24>", 5)]
    assert (
        found["bonus_now"].x[0] == found["rejected_now"].x[0]
    )  # the bonus takes the slot of the first rejected draft
    assert len(found["padding"].x) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"round": 99}, "no round 99"),
        ({"round": -1}, "no round -1"),
        ({"round": 0, "phase": "bonus"}, "phase='bonus'"),
        ({"round": 0, "slots": 4}, "choose 5 or more"),
        ({"round": 0, "theme": "pink"}, "theme='pink'"),
    ],
)
def test_picture_rejects(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        charts.batch_picture(TRACE, **arguments)


@pytest.mark.parametrize(
    ("chart", "name"),
    [
        (lambda: charts.batch_picture(None, 0), "trace"),
        (lambda: sentence(None, 0, "accept"), "trace"),
        (lambda: charts.pick_ragged_round(None), "run"),
        (lambda: charts.acceptance_map(None), "run"),
        (lambda: charts.acceptance_by_position(None), "run"),
        (lambda: charts.stage_bars({"good": TRACE, "bad": None}), "runs['bad']"),
    ],
    ids=[
        "batch_picture",
        "sentence",
        "pick_ragged_round",
        "acceptance_map",
        "acceptance_by_position",
        "stage_bars",
    ],
)
def test_what_was_not_recorded_cannot_be_drawn(chart, name):
    with pytest.raises(
        ValueError,
        match=re.escape(f"{name}=None: this run was not recorded; call generate(..., record=True)"),
    ):
        chart()


# ---------------------------------------------------------------- text


def test_token_texts_cannot_bring_markup_along():
    """Every string of a picture is our own markup around text in which nothing is left to interpret."""
    hostile = [
        "<b>&",
        "<a href='javascript:x'>",
        "$x$",
        "</span>",
        "&lt;",
        "\x00\x07",
        "\u202e",
        "%{x}",
        "\ud800",
        "e\u0301",
        "<br>",
    ]
    texts = {str(token): hostile[token % len(hostile)] for token in range(100)}
    trace = replace(TRACE, meta=TRACE.meta | {"token_texts": texts, "strategy": "<i>eq</i>"})
    for phase in PHASES:
        figure = charts.batch_picture(trace, 1, phase)
        for part in figure.data:
            for text in [*(part.text or ()), *(part.hovertext or ()), part.name]:
                rest = plain(text)
                assert not re.search(r"[<>$]|&(?!(amp|lt|gt|#36);)", rest), text
                assert rest.isprintable(), text
        json.loads(figure.to_json()).keys()


@given(st.text())
def test_shown_text_hides_nothing(text):
    shown = visible(text)
    assert not re.search(r"\s", shown)
    assert all(character.isprintable() for character in shown)
    assert not re.search(r"[<>$]", escape(shown))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" self", "·self"),
        ("\n    x", "↵·⁴x"),
        ("a b  c", "a·b·²c"),
        ("\t\r", "⇥␍"),
        ("\x07\u200b\ud800", "\\x07\\u200b\\ud800"),
        ("\u0301", "◌\u0301"),
        (" " * 12, "·¹²"),
        ("", "∅"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


@given(st.text(), st.integers(1, 8))
def test_shortened_text_fits(text, columns):
    short = shorten(text, columns)
    assert len(short) <= columns
    assert short in (text, short[:-1] + "…")


def test_wide_letters_count_twice():
    assert shorten("汉字汉字", 5) == "汉字…"
    assert shorten("汉字", 4) == "汉字"


# ---------------------------------------------------------------- colours


def rgba(colour: str) -> tuple[tuple[float, ...], float]:
    """Channels 0..255 and opacity of #rrggbb or rgba(...)."""
    if colour.startswith("#"):
        return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)), 1.0
    *channels, alpha = map(float, re.findall(r"[\d.]+", colour))
    return tuple(channels), alpha


def over(colour: str, page: tuple[float, ...]) -> tuple[float, ...]:
    channels, alpha = rgba(colour)
    return tuple(alpha * c + (1 - alpha) * p for c, p in zip(channels, page, strict=True))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """WCAG 2 contrast ratio of two opaque colours."""

    def luminance(colour):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (value / 255 for value in colour)
        ]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# ink, muted and page: ours, and those that theme "auto" finds in JupyterLab
PAGES = {
    "light": THEMES["light"],
    "dark": THEMES["dark"],
    "lab light": Theme("rgba(0,0,0,0.87)", "rgba(0,0,0,0.54)", "#ffffff"),
    "lab dark": Theme("rgba(255,255,255,1)", "rgba(255,255,255,0.7)", "#111111"),
}


def fills() -> list[str]:
    """Every colour that text stands on, hatches over their fills left to `test_text_on_every_fill`."""
    traces = [
        kind for kind in charts.acceptance_map(TRACE).data if kind.meta["kind"] == "acceptance"
    ]
    gains = kinds_of(charts.batch_picture(TRACE, 0))["gained"].marker.color
    return (
        [look.fill for look in (*LOOKS.values(), *PHASE_LOOKS.values())]
        + [colour for _, colour in traces[0].colorscale]
        + list(gains)
    )


@pytest.mark.parametrize("page", PAGES)
def test_text_on_every_fill(page):
    theme = PAGES[page]
    paper, _ = rgba(theme.paper)
    for fill in fills():
        ground = over(fill, paper)
        assert contrast(over(theme.ink, ground), ground) >= 4.5, fill
    for look in (*LOOKS.values(), *PHASE_LOOKS.values()):
        if look.hatch:
            ground = over(look.hatch, over(look.fill, paper))
            assert contrast(over(theme.ink, ground), ground) >= 4.5, look.legend
    assert contrast(over(theme.muted, paper), paper) >= 4.5


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("colour", [GREEN, ORANGE, AMBER, BLUE])
def test_outlines_stand_out(page, colour):
    paper, _ = rgba(PAGES[page].paper)
    assert contrast(colour, paper) >= 3


def test_contrast_of_known_pairs():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(rgba("#767676")[0], (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


def test_kinds_differ_in_more_than_colour():
    signs = {kind: (look.sign, bool(look.hatch), look.outline_px) for kind, look in LOOKS.items()}
    assert len(set(signs.values())) == len(signs)
    assert len({look.legend for look in LOOKS.values()}) == len(LOOKS)


def test_auto_theme_is_repainted_for_pictures():
    text = repainted(charts.acceptance_map(TRACE).to_json())
    assert "var(" not in text
    assert THEMES["light"].ink in text


def test_explicit_themes_need_no_page(traces):
    for theme in ("light", "dark"):
        figure = charts.batch_picture(traces["eqspec"], 0, theme=theme)
        assert "var(" not in figure.to_json()
        assert figure.layout.paper_bgcolor == THEMES[theme].paper


# ---------------------------------------------------------------- sentences


def test_sentences_carry_the_numbers_of_the_round(traces):
    """What the pictures show; `test_sentences` looks at more of them."""
    assert (
        sentence(TRACE, 0, "accept")
        == "Row 1 accepts 2 of 2 drafts, row 0 none; with one more token, rows gain 1 to 3."
    )
    assert sentence(TRACE, 0, "synchronise").startswith(
        "Row 1 moves by 2 slots so that all end in slot 4 again: 0.3 kB"
    )  # 4*64 + 3*16
    assert sentence(traces["inplace"], 0, "synchronise").startswith("Nothing has to move")
    assert [plain(text) for text in kinds_of(charts.batch_picture(TRACE, 0))["sentence"].text] == [
        sentence(TRACE, 0, "accept")
    ]


# ---------------------------------------------------------------- charts of counts


def make_run(accepted: list[list[int]], drafts: int = 5, finished: tuple[int, ...] = ()):
    """Rounds of rows with these numbers of accepted drafts; in the rounds of `finished` the first row ends."""
    rows = [
        (round, row, a, drafts, a + 1, round in finished and row == 0, 0)
        for round, counts in enumerate(accepted)
        for row, a in enumerate(counts)
    ]
    names = ("round", "request", "accepted", "drafted", "gained", "finished", "discarded")
    columns = np.array(rows, np.int32).reshape(-1, len(names)).T
    rounds = {"batch": np.array([len(counts) for counts in accepted], np.int32)}
    rounds |= {
        f"{phase}_ms": np.full(len(accepted), 2.0**number, np.float32)
        for number, phase in enumerate(PHASES)
    }
    meta = {
        "strategy": "eqspec",
        "drafter": "model",
        "num_draft_tokens": drafts,
        "batch_size": 3,
        "decisions": ["batch"],
    }
    rounds["decision"] = np.zeros(len(accepted), np.uint8)
    return SimpleNamespace(meta=meta, rounds=rounds, rows=dict(zip(names, columns, strict=True)))


@pytest.mark.parametrize(
    ("accepted", "finished", "round"),
    [
        ([[2, 2, 2], [0, 3, 5], [0, 5, 5]], (), 1),  # both extremes, and more values between
        ([[1, 2, 3], [0, 0, 5]], (), 1),  # extremes count more than variety
        ([[0, 3], [1, 1, 1]], (), 1),  # a full batch counts most
        ([[0, 3, 5], [0, 3, 4]], (0,), 1),  # no row of it ends
        ([[0, 3, 5], [0, 2, 5]], (), 0),  # the first of equals
        ([[4, 4, 4]], (), 0),
    ],
)
def test_most_ragged_round(accepted, finished, round):
    assert charts.pick_ragged_round(make_run(accepted, finished=finished)) == round


@pytest.mark.parametrize(
    "run", [make_run([]), make_run([[0, 0]], drafts=0)], ids=["no rounds", "no drafts"]
)
def test_no_round_is_ragged(run):
    with pytest.raises(ValueError, match="drafted nothing"):
        charts.pick_ragged_round(run)


def test_acceptance_map_is_uneven():
    found = kinds_of(charts.acceptance_map(make_run([[1, 5, 0], [2, 5], [3, 5]])))
    grid = [
        [value for value in line if value is not None and not np.isnan(value)]
        for line in found["acceptance"].z
    ]
    assert grid == [[1, 2, 3], [5, 5, 5], [0]]
    assert [plain(text) for text in found["mean values"].text] == ["3.00", "6.00", "1.00"]
    assert [plain(text) for text in found["requests"].text] == [
        "request 0",
        "request 1",
        "request 2",
    ]
    lengths = found["means"].width
    assert lengths[1] == pytest.approx(2 * lengths[0])


def test_acceptance_map_counts_rounds_from_zero():
    """As tables and pictures do; each number stands over its cell."""
    found = kinds_of(charts.acceptance_map(make_run([[1, 2]] * 12)))
    assert [plain(text) for text in found["ticks"].text] == ["0", "5", "10"]
    heat = found["acceptance"]
    assert list(found["ticks"].x) == [heat.x0 + round * heat.dx for round in (0, 5, 10)]
    assert [plain(text) for text in found["axis"].text] == ["its round"]


def test_acceptance_map_of_many_requests_leaves_the_words_out():
    figure = charts.acceptance_map(make_run([[1] * 200] * 90))
    assert not {"requests", "mean values"} & kinds_of(figure).keys()
    assert figure.layout.height < 900
    assert len(figure.to_json()) < 200_000


def test_acceptance_map_needs_rounds():
    with pytest.raises(ValueError, match="no rounds"):
        charts.acceptance_map(make_run([]))


def test_stage_bars_are_as_long_as_their_phases_and_say_how_long():
    runs = {"<eq>": make_run([[1, 2]] * 3), "other": make_run([[0, 0]] * 2)}
    found = kinds_of(charts.stage_bars(runs))
    widths = [found[phase].width[0] for phase in PHASES]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 2, 4, 8, 16])
    assert [plain(text) for text in found["runs"].text] == ["&lt;eq&gt;", "other"]
    assert [plain(text) for text in found["totals"].text] == ["31.0", "31.0"]
    told = [found[phase].text[0] for phase in PHASES] + plain(found["small phases"].text[0]).split(
        " · "
    )
    assert sorted(text.rsplit(" ", 1)[0] for text in told if text) == sorted(PHASES)
    speeds = [int(plain(text)) for text in found["speed values"].text]
    assert speeds == [
        round(float(metrics.summary(run)["tokens_per_s"].iloc[0])) for run in runs.values()
    ]


def test_stage_bars_without_runs_or_times():
    with pytest.raises(ValueError, match="runs is empty"):
        charts.stage_bars({})
    assert max(kinds_of(charts.stage_bars({"untimed": TRACE}))["verify"].width) == 0


def test_acceptance_by_position():
    run = make_run([[0, 5], [2, 5]])
    found = kinds_of(charts.acceptance_by_position(run))
    assert [plain(text) for text in found["values"].text] == [
        "0.75",
        "0.75",
        "0.50",
        "0.50",
        "0.50",
    ]
    assert [plain(text) for text in found["conditional values"].text] == [
        "0.75",
        "1.00",
        "0.67",
        "1.00",
        "1.00",
    ]
    heights = found["acceptance"].y
    assert heights[2] / heights[0] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="drafted nothing"):
        charts.acceptance_by_position(make_run([[0]], drafts=0))


def test_charts_take_results_and_traces_alike():
    pair, prompts = make_pair("llama"), make_prompts()[:3]
    result = sv.generate(
        pair,
        prompts,
        num_draft_tokens=2,
        max_new_tokens=6,
        batch_size=2,
        record=True,
        progress=False,
    )
    for chart in (
        charts.acceptance_map,
        charts.acceptance_by_position,
        lambda run, **theme: charts.stage_bars({"run": run}, **theme),
    ):
        assert (
            chart(result, theme="light").to_json() == chart(result.trace, theme="light").to_json()
        )


# ---------------------------------------------------------------- display


@pytest.fixture
def browser():
    """Skips where no browser can draw; the one that it starts stays for the whole run."""
    if not display._renderer_starts():
        pytest.skip("kaleido finds no browser")


@pytest.fixture
def no_browser(monkeypatch):
    monkeypatch.setattr(display, "_renderer_starts", lambda: False)


def test_bundle_without_a_browser(no_browser):
    bundle = display.mime_bundle(charts.acceptance_map(TRACE), "a map")
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/plain"}
    assert bundle["text/plain"] == "a map"
    assert bundle["application/vnd.plotly.v1+json"]["config"]["displayModeBar"] is False
    json.dumps(bundle, allow_nan=False)


@pytest.mark.parametrize("live", [True, False])
def test_pictures_are_made_where_notebooks_are_kept(monkeypatch, live):
    shown, asked = [], []
    monkeypatch.setattr(display, "get_ipython", object)
    monkeypatch.setattr(
        display, "display", lambda bundle, metadata, raw: shown.append((bundle, metadata, raw))
    )
    monkeypatch.setattr(display, "to_png", lambda figure: asked.append(figure) or b"png")
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb") if live else monkeypatch.delenv(
        "JPY_SESSION_NAME", raising=False
    )
    charts.show(charts.acceptance_map(TRACE), alt="a map")
    ((bundle, metadata, raw),) = shown
    assert raw
    assert metadata["image/png"]["alt"] == bundle["text/plain"] == "a map"
    assert ("image/png" in bundle) is not live
    assert len(asked) == (not live)


def test_show_does_nothing_outside_ipython(monkeypatch, capsys):
    """Nor does it print the parts, as IPython's own `display` would in a script."""
    monkeypatch.setattr(display, "to_png", None)  # drawing would fail
    charts.show(go.Figure())
    assert capsys.readouterr() == ("", "")


def test_figures_stay_light(traces):
    assert len(charts.batch_picture(traces["eqspec"], 0).to_json()) < 80_000


def test_static_picture(browser):
    figure = charts.batch_picture(TRACE, 0)
    png = base64.b64decode(display.mime_bundle(figure)["image/png"])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (figure.layout.width, figure.layout.height)
    assert len(png) < 100_000


def make_png(rows: list[tuple[int, bytes]], width: int, channels: int) -> bytes:
    """A file with these (filter, bytes) rows."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, len(rows), 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    data = zlib.compress(b"".join(bytes([kind]) + values for kind, values in rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def read_palette_png(png: bytes) -> list[list[tuple[int, ...]]]:
    """Colours of the pixels of a file that `with_palette` wrote."""
    parts, start = {}, 8
    while start < len(png):
        (size,) = struct.unpack(">I", png[start : start + 4])
        parts[png[start + 4 : start + 8]] = png[start + 8 : start + 8 + size]
        assert (
            zlib.crc32(png[start + 4 : start + 8 + size])
            == struct.unpack(">I", png[start + 8 + size : start + 12 + size])[0]
        )
        start += 12 + size
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    palette = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)
    pixels = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)[
        :, 1:
    ]
    return [[tuple(int(value) for value in palette[index]) for index in row] for row in pixels]


def test_palette_keeps_the_pixels():
    """Rows filtered by none, sub and up, as browsers write them; each spelled out by hand."""
    rows = [
        (0, bytes([1, 2, 3, 255, 4, 5, 6, 255])),
        (1, bytes([9, 9, 9, 255, 250, 0, 1, 0])),
        (2, bytes([1, 0, 0, 0, 0, 0, 1, 0])),
    ]
    expected = [[(1, 2, 3), (4, 5, 6)], [(9, 9, 9), (3, 9, 10)], [(10, 9, 9), (3, 9, 11)]]
    assert read_palette_png(with_palette(make_png(rows, 2, 4))) == expected


def test_palette_takes_the_nearest_of_256_colours():
    """600 colours, the first 256 twice: they stay, the others move to a neighbour."""
    colours = np.array([(i // 2 % 256, i // 256 * 40, i % 2) for i in range(600)], np.uint8)
    line = np.concatenate([colours, colours[:256]])
    ((*pixels,),) = read_palette_png(with_palette(make_png([(0, line.tobytes())], len(line), 3)))
    assert pixels[:256] == [tuple(colour) for colour in colours[:256].tolist()]
    assert len(set(pixels)) == 256


@pytest.mark.parametrize(
    "rows", [[(4, bytes(8))], [(0, bytes(8))]], ids=["Paeth filter", "transparent"]
)
def test_other_pictures_stay_as_they_are(rows):
    png = make_png(rows, 2, 4)
    assert with_palette(png) == png
