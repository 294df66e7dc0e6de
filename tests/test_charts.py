"""What the charts hold, from recorded runs of tiny pairs and from hand-made tables."""

import colorsys
import re
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from tiny_run import TRACE

from specviz import metrics
from specviz.record.schema import PHASES
from specviz.views import charts
from specviz.views.charts import PHASE_LOOKS
from specviz.views.theme import AMBER, BLUE, GREEN, ORANGE, SHADES, THEMES, Theme, repainted

MARKUP = re.compile(r"</?(span|b|br)( style=\"color:[^\"<>]*\")?>")


def kinds_of(figure: go.Figure) -> dict[str, go.Bar | go.Scatter]:
    return {trace.meta["kind"]: trace for trace in figure.data}


def plain(text: str) -> str:
    return MARKUP.sub("", text)


def texts_of(part: go.Scatter) -> list[str]:
    return [plain(text) for text in part.text]


@pytest.mark.parametrize(
    ("chart", "name", "given"),
    [
        (charts.pick_ragged_round, "run", None),
        (charts.acceptance_map, "run", None),
        (charts.acceptance_by_position, "run", None),
        (charts.stage_bars, "runs['bad']", {"good": TRACE, "bad": None}),
    ],
)
def test_what_was_not_recorded_cannot_be_drawn(chart, name, given):
    words = f"{name}=None: this run was not recorded; call generate(..., record=True)"
    with pytest.raises(ValueError, match=re.escape(words)):
        chart(given)


def test_names_cannot_inject_markup():
    """Every string of a chart is our own markup around text without any."""
    name = "<b>&<a href='x'>$x$</span>&lt;%{x}<br>"
    trace = replace(TRACE, meta=TRACE.meta | {"strategy": name})
    drawn = [charts.acceptance_map(trace), charts.acceptance_by_position(trace)]
    for figure in (*drawn, charts.stage_bars({name: trace})):
        for part in figure.data:
            for text in [*(getattr(part, "text", None) or ()), part.name or ""]:
                assert not re.search(r"[<>$]|&(?!(amp|lt|gt|#36);)", plain(text)), text


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
    """Every colour that text stands on, except hatches (see `test_text_on_every_fill`)."""
    shades = kinds_of(charts.acceptance_map(TRACE))["acceptance"].colorscale
    scored = kinds_of(charts.score_map([[1.0]], [1]))["scores"].colorscale
    seen = kinds_of(charts.token_tree([-1]))["mask"].colorscale
    looks = (*PHASE_LOOKS.values(), *charts.TREE_LOOKS.values())
    return [look.fill for look in looks] + [colour for _, colour in (*shades, *scored, *seen)]


@pytest.mark.parametrize("page", PAGES)
def test_text_on_every_fill(page):
    theme = PAGES[page]
    paper, _ = rgba(theme.paper)
    for fill in fills():
        ground = over(fill, paper)
        assert contrast(over(theme.ink, ground), ground) >= 4.5, fill
    for look in PHASE_LOOKS.values():
        if look.hatch:
            ground = over(look.hatch, over(look.fill, paper))
            assert contrast(over(theme.ink, ground), ground) >= 4.5, look.legend
    assert contrast(over(theme.muted, paper), paper) >= 4.5


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("colour", [GREEN, ORANGE, AMBER, BLUE])
def test_outlines_stand_out(page, colour):
    paper, _ = rgba(PAGES[page].paper)
    assert contrast(colour, paper) >= 3


def hue(colour: str | tuple[int, int, int]) -> float:
    """0 to 360."""
    red, green, blue = bytes.fromhex(colour[1:]) if isinstance(colour, str) else colour
    return 360 * colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)[0]


def test_one_thing_has_one_colour_everywhere():
    """The palette of the step-through's style sheet, and the hues of the charts."""
    css = (files("specviz.views.stepper") / "static" / "stepper.css").read_text(encoding="utf-8")
    light, dark = css.split('.specviz[data-theme="dark"] {')[:2]
    for name, shades in SHADES.items():
        found = [re.search(rf"--sv-{name}: (#\w+);", part)[1] for part in (light, dark)]
        assert tuple(found) == shades, name
    charted = {"green": GREEN, "orange": ORANGE, "amber": AMBER, "blue": BLUE}
    for name, colour in charted.items():
        for shade in SHADES[name]:
            assert abs(hue(colour) - hue(shade)) < 8, name
    for phase, name in (("accept", "green"), ("verify", "target"), ("draft", "draft")):
        assert abs(hue(PHASE_LOOKS[phase].colour) - hue(SHADES[name][0])) < 8
    assert hue(charts.TREE_LOOKS["accepted"].colour) == hue(GREEN)
    assert charts.TREE_LOOKS["draft"].colour == PHASE_LOOKS["draft"].colour


def test_contrast_of_known_pairs():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(rgba("#767676")[0], (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


def test_only_the_auto_theme_needs_a_page():
    text = charts.acceptance_map(TRACE).to_json()
    assert "var(" in text
    assert "var(" not in repainted(text)
    assert THEMES["light"].ink in repainted(text)
    for theme in ("light", "dark"):
        figure = charts.acceptance_map(TRACE, theme=theme)
        assert "var(" not in figure.to_json()
        assert figure.layout.paper_bgcolor == THEMES[theme].paper


# ---------------------------------------------------------------- charts of counts


def make_run(accepted: list[list[int]], drafts: int = 5, finished: tuple[int, ...] = ()):
    """Rounds of rows with these numbers of accepted drafts.

    In the rounds of `finished` the first row ends.
    """
    rows = [
        (round, row, a, drafts, a + 1, round in finished and row == 0, 0)
        for round, counts in enumerate(accepted)
        for row, a in enumerate(counts)
    ]
    names = ("round", "request", "accepted", "drafted", "gained", "finished", "discarded")
    columns = np.array(rows, np.int32).reshape(-1, len(names)).T
    rounds = {f"{phase}_ms": np.full(len(accepted), 2.0**n) for n, phase in enumerate(PHASES)}
    rounds["batch"] = np.array([len(counts) for counts in accepted], np.int32)
    rounds["decision"] = np.zeros(len(accepted), np.uint8)
    meta = {"strategy": "eqspec", "drafter": "model", "num_draft_tokens": drafts}
    meta |= {"batch_size": 3, "decisions": ["batch"]}
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
    with pytest.raises(ValueError, match="run must have drafts"):
        charts.pick_ragged_round(run)


def test_acceptance_map_is_uneven():
    found = kinds_of(charts.acceptance_map(make_run([[1, 5, 0], [2, 5], [3, 5]])))
    grid = np.array(found["acceptance"].z, float)
    assert np.array_equal(grid, [[1, 2, 3], [5, 5, 5], [0, np.nan, np.nan]], equal_nan=True)
    assert texts_of(found["mean values"]) == ["3.00", "6.00", "1.00"]
    assert texts_of(found["requests"]) == ["request 0", "request 1", "request 2"]
    lengths = found["means"].width
    assert lengths[1] == pytest.approx(2 * lengths[0])


def test_acceptance_map_counts_rounds_from_zero():
    """As tables and pictures do; each number stands over its cell."""
    found = kinds_of(charts.acceptance_map(make_run([[1, 2]] * 12)))
    assert texts_of(found["ticks"]) == ["0", "5", "10"]
    heat = found["acceptance"]
    assert list(found["ticks"].x) == [heat.x0 + round * heat.dx for round in (0, 5, 10)]
    assert texts_of(found["axis"]) == ["its round"]


def test_acceptance_map_of_many_requests_leaves_the_words_out():
    figure = charts.acceptance_map(make_run([[1] * 200] * 90))
    assert not {"requests", "mean values"} & kinds_of(figure).keys()
    assert figure.layout.height < 900
    assert len(figure.to_json()) < 200_000


def test_acceptance_map_needs_rounds():
    with pytest.raises(ValueError, match="run must have rounds"):
        charts.acceptance_map(make_run([]))


def test_stage_bars_are_as_long_as_their_phases_and_say_how_long():
    runs = {"<eq>": make_run([[1, 2]] * 3), "other": make_run([[0, 0]] * 2)}
    found = kinds_of(charts.stage_bars(runs))
    widths = [found[phase].width[0] for phase in PHASES]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 2, 4, 8, 16])
    assert texts_of(found["runs"]) == ["&lt;eq&gt;", "other"]
    assert texts_of(found["totals"]) == ["31.0", "31.0"]
    small = plain(found["small phases"].text[0]).split(" · ")
    told = [*(found[phase].text[0] for phase in PHASES), *small]
    assert sorted(text.rsplit(" ", 1)[0] for text in told if text) == sorted(PHASES)
    speeds = [metrics.summary(run)["tokens_per_s"].item() for run in runs.values()]
    assert texts_of(found["speed values"]) == [f"{speed:.0f}" for speed in speeds]


def test_stage_bars_without_runs_or_times():
    with pytest.raises(ValueError, match="runs is empty"):
        charts.stage_bars({})
    assert max(kinds_of(charts.stage_bars({"untimed": TRACE}))["verify"].width) == 0


def test_acceptance_by_position():
    run = make_run([[0, 5], [2, 5]])
    found = kinds_of(charts.acceptance_by_position(run))
    assert texts_of(found["values"]) == ["0.75", "0.75", "0.50", "0.50", "0.50"]
    assert texts_of(found["conditional values"]) == ["0.75", "1.00", "0.67", "1.00", "1.00"]
    heights = found["acceptance"].y
    assert heights[2] / heights[0] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="run must have drafts"):
        charts.acceptance_by_position(make_run([[0]], drafts=0))


SCORES = [[0.9, 0.72, 0.36], [0.6, 0.54, np.nan], [0.95, 0.38, np.nan]]


def test_score_map_draws_the_frontier_behind_each_rows_last_verified_draft():
    found = kinds_of(charts.score_map(SCORES, [2, 0, 3]))
    heat, frontier = found["scores"], found["frontier"]
    edges = [x for x, y in zip(frontier.x, frontier.y, strict=True) if x is not None and y]
    left = heat.x0 - heat.dx / 2
    assert {(x - left) / heat.dx for x in edges} == {2, 0, 3}
    top = heat.y0 - heat.dy / 2
    ends = list(zip(frontier.x, frontier.y, strict=True))
    for row, count in enumerate((2, 0, 3)):
        x = left + count * heat.dx
        assert (x, top + row * heat.dy) in ends
        assert (x, top + (row + 1) * heat.dy) in ends
    assert texts_of(found["counts"]) == ["2 verified", "0 verified", "3 verified"]
    assert plain(found["title"].text[0]) == "5 of 7 drafts are verified"


def test_score_map_of_many_rows_leaves_the_words_out():
    figure = charts.score_map([[0.5] * 8] * 90, [1] * 90)
    assert not {"rows", "counts"} & kinds_of(figure).keys()
    assert figure.layout.height < 700


@pytest.mark.parametrize(
    ("scores", "verified", "name"),
    [
        ([0.5, 0.5], [1], "scores"),
        ([[0.5, 1.5]], [1], "scores"),
        ([[-0.5]], [1], "scores"),
        ([[]], [0], "scores"),
        ([["x"]], [0], "scores"),
        ([[0.5, 0.4]], [3], "verified"),
        ([[0.5, 0.4]], [-1], "verified"),
        ([[0.5, 0.4]], [0.5], "verified"),
        ([[0.5, 0.4]], [1, 1], "verified"),
        ([[0.5, 0.4]], [np.nan], "verified"),
    ],
)
def test_score_map_refuses_what_it_cannot_draw(scores, verified, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        charts.score_map(scores, verified)
