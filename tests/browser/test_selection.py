"""A page of a run that verifies another number of drafts in each row.

It says where each row's verification stops, and what the round's capacity is spent on.
"""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import specviz as sv
from browser.runs import record, stages_of
from browser.stepper import LOOKS
from browser.test_page import VISIT, check_layout
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
_, DRAFT, VERIFY, ACCEPT, _ = range(len(PHASES))
OTHERS = "not verified: the selector spent the capacity on other rows (score"


@functools.cache
def selected(name: str, **options: float) -> sv.Trace:
    return sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=6),
        strategy="inplace",
        selector=sv.selector(name, **options),
        num_draft_tokens=3,
        batch_size=4,
        max_new_tokens=16,
        record=True,
        progress=False,
    ).trace


@pytest.fixture(scope="module")
def tetris() -> sv.Trace:
    return selected("tetris", extra=2)


def cut_round(trace: sv.Trace) -> tuple[int, int]:
    """Return a round, and a row of it that leaves drafts out and verifies some."""
    rows = trace.rows
    partly = (rows["verified"] < rows["drafted"]) & (rows["verified"] > 0) & (rows["round"] > 0)
    entry = int(np.flatnonzero(partly)[0])
    number = int(rows["round"][entry])
    return number, entry - int(trace.index.row_bounds[number])


def shares(trace: sv.Trace, number: int, column: str = "verified") -> list[int]:
    return [int(n) for n in trace.rows[column][trace.rows["round"] == number]]


def test_each_step_says_in_words_what_it_shows(saved_page, tetris):
    words = [stage["words"] for stage in stages_of(tetris)]
    seen = saved_page(tetris).page.evaluate(VISIT, len(words))
    assert [told for told, (_, text, _) in zip(words, seen, strict=True) if told not in text] == []
    broken = re.compile("undefined|NaN|null|Infinity|object Object")
    for step, _, labels in seen:
        assert [label for label in labels if not label or broken.search(label)] == [], step


def test_tables_name_the_drafts_that_are_not_verified(saved_page, tetris):
    """In the batch they stand only after the phase that drafts, in the cards to the round's end."""
    stepper = saved_page(tetris)
    number, _ = cut_round(tetris)
    columns = zip(shares(tetris, number, "drafted"), shares(tetris, number), strict=True)
    for row, (drafted, verified) in enumerate(columns):
        for phase in (DRAFT, VERIFY, ACCEPT):
            stepper.go(5 * number + phase, row)
            states = [line[2] for line in stepper.table("stage")[1:]]
            shown = sum(state == "drafted, not verified" for state in states)
            assert shown == (drafted - verified if phase == DRAFT else 0)
            cards = stepper.table("verify")[1:]
            assert len(cards) == drafted + 1
            left_out = [OTHERS in line[5] for line in cards]
            assert left_out == [False] * (verified + 1) + [True] * (drafted - verified)
            assert [line[0] for line in cards[verified + 1 :]] == [
                f"d{n + 1}" for n in range(verified, drafted)
            ]


def test_what_is_pointed_at_says_why_and_with_which_score(saved_page, tetris):
    stepper = saved_page(tetris)
    number, row = cut_round(tetris)
    first = shares(tetris, number)[row]
    entry = int(tetris.index.row_bounds[number]) + row
    score = f"{tetris.rows['scores'][entry, first]:.2f}".replace("-", "\u2212")
    stepper.go(5 * number + DRAFT, row)
    stepper.find(f"draft {first + 1}, {OTHERS}\xa0{score})")
    stepper.find(f"— {OTHERS}\xa0{score})", "verify")


def test_no_colour_is_needed_to_see_where_a_verification_stops(tetris, tmp_path):
    """Each such draft has its sign, each row its bracket and its share in words."""
    number, row = cut_round(tetris)
    drafted = shares(tetris, number, "drafted")
    verified = shares(tetris, number)
    left_out = [k - n for k, n in zip(drafted, verified, strict=True)]
    picture = tmp_path / "draft.svg"
    for phase, of_drafts in (("draft", "to be verified"), ("verify", "verified")):
        view = sv.step_through(tetris, round=number, phase=phase, row=row)
        view.export_svg(picture, width=1400)
        text = picture.read_text(encoding="utf-8")
        in_cells = sum(left_out) if phase == "draft" else 0
        assert len(re.findall(">⊘<", text)) == in_cells + left_out[row]
        for k, n in zip(drafted, verified, strict=True):
            if n < k:
                assert f">{n} of {k} drafts {of_drafts}<" in text
        brackets = len(re.findall(r"stroke-width=\"2\"", text)) - plain(picture, number, phase)
        assert brackets >= 3 * (sum(n > 0 for n in left_out) + 1)


def plain(path: Path, number: int, phase: str) -> int:
    """Count the thick strokes of a run without a bracket, which are outlines of cells."""
    sv.step_through(record("inplace"), round=number, phase=phase).export_svg(path, width=1400)
    return len(re.findall(r"stroke-width=\"2\"", path.read_text(encoding="utf-8")))


def test_the_strip_shows_what_the_capacity_is_spent_on(saved_page, tetris):
    stepper = saved_page(tetris)
    number, _ = cut_round(tetris)
    verified = shares(tetris, number)
    capacity = int(tetris.rounds["capacity"][number])
    whole = f"of the round's capacity of {capacity} drafts"
    stepper.go(5 * number)
    stepper.find(f"1 {whole}: not spent yet")
    last = len(verified) - 1
    stepper.go(5 * number + DRAFT, 0)
    x, y = stepper.find(f"{sum(verified)} {whole}: row {last}, draft {verified[-1]}")
    stepper.page.mouse.click(x, y)
    stepper.is_at(5 * number + DRAFT, last)
    gets = ", ".join(f"row {row} gets {n}" for row, n in enumerate(verified))
    label = stepper.canvas("stage").get_attribute("aria-label")
    assert f". Capacity: {capacity} drafts; {gets}; {capacity - sum(verified)} not used." in label
    for row in range(min(len(verified), 6)):
        assert stepper.count(f"row{row}") > 250 * verified[row]


def test_unused_capacity_stays_empty(saved_page):
    trace = selected("threshold", at_least=0.5)
    stepper = saved_page(trace)
    capacity = int(trace.rounds["capacity"][0])
    assert sum(shares(trace, 0)) < capacity
    stepper.go(DRAFT)
    stepper.find(f"{capacity} of the round's capacity of {capacity} drafts: not used")
    stepper.find("not verified: the selector stopped before it (score", "verify")


def test_a_run_without_a_selector_has_no_strip(saved_page):
    stepper = saved_page(record("inplace"))
    stepper.go(DRAFT)
    assert "Capacity" not in stepper.canvas("stage").get_attribute("aria-label")
    assert "selector" not in stepper.root.inner_text()
    assert stepper.count("row0") == 0
    legend = stepper.panel("stage").locator("canvas.sv-legend").get_attribute("aria-label")
    assert "not verified" not in legend


def test_jumps_go_by_what_was_verified(saved_page, tetris):
    """A row whose verified drafts are all accepted is not a rejection. Jumps follow request 0."""
    names = ("round", "gained", "verified", "accepted")
    mine = tetris.rows["request"] == 0
    entries = list(zip(*(tetris.rows[name][mine].tolist() for name in names), strict=True))
    wanted = {
        "r": {r for r, gained, verified, accepted in entries if gained and accepted < verified},
        "a": {r for r, _, verified, accepted in entries if 0 < verified == accepted},
    }
    assert all(wanted.values())
    stepper = saved_page(tetris)
    for key, rounds in wanted.items():
        stepper.press("Home")
        for number in sorted(rounds):
            stepper.press(key)
            stepper.is_at(5 * number + ACCEPT)


def test_the_legend_names_the_sign_and_the_bracket(saved_page, tetris):
    stepper = saved_page(tetris)
    stepper.go(DRAFT)
    legend = stepper.panel("stage").locator("canvas.sv-legend").get_attribute("aria-label")
    assert "⊘ behind ]: not verified" in legend


@pytest.mark.parametrize("look", LOOKS)
def test_a_selection_is_accessible_and_keeps_the_layout(saved_page, tetris, look):
    stepper = saved_page(tetris, **LOOKS[look], viewport={"width": 700, "height": 1000})
    number, row = cut_round(tetris)
    stepper.go(5 * number + DRAFT, row)
    check_layout(stepper)
    found = Axe().run(stepper.page).response
    assert found["passes"]
    assert [each["id"] for each in found["violations"]] == []
