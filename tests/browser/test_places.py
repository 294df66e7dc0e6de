"""Where a page opens, jumps, links to a step."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

import specviz as sv
from browser.runs import parting, record, steps_of
from browser.stepper import Stepper
from specviz.record.schema import PHASES
from specviz.views.stepper.widget import StepThrough

pytestmark = pytest.mark.browser
ACCEPT = PHASES.index("accept")


@pytest.fixture(scope="module")
def eqspec() -> sv.Trace:
    return record("eqspec")


@pytest.fixture(scope="module")
def broken() -> sv.Trace:
    strategy = sv.strategy("eqspec", break_invariant="mask", rows=[2], from_round=1)
    pair, prompts = sv.load_pair(device="cpu"), sv.load_prompts(limit=4)
    given = {"batch_size": 4, "max_new_tokens": 16, "record": True, "progress": False}
    return sv.generate(pair, prompts, strategy=strategy, **given).trace


@pytest.fixture
def opened(offline_page, tmp_path):
    """Export a view, and open the file with the end of an address."""

    def go(view: StepThrough, link: str = "") -> Stepper:
        path = tmp_path / "run.html"
        view.export_html(path)
        page = pages.enter_context(offline_page())
        page.goto(path.as_uri() + link)
        return Stepper(page.locator(".specviz")).wait()

    with ExitStack() as pages:
        yield go


def notice(stepper: Stepper) -> str:
    return stepper.root.locator(".sv-notice").inner_text()


# ---------------------------------------------------------------- where it opens


def test_a_run_with_a_violation_opens_at_it_and_says_so(opened, broken):
    first = sv.check_invariants(broken)[0]
    stepper = opened(sv.step_through(broken))
    stepper.is_at(first.round * len(PHASES) + PHASES.index(first.phase), first.row)
    assert first.row == 2
    assert "Opens at the first violation: mask, round 1" in notice(stepper)
    stepper.press("ArrowRight")
    assert notice(stepper) == "", "the next step removes it"


def test_a_comparison_opens_at_the_first_difference(opened, eqspec):
    other = record("repadding")
    number, request, index = parting(eqspec, other)
    stepper = opened(sv.step_through(eqspec, other))
    stepper.is_at(number * len(PHASES) + ACCEPT)
    new = index - len(eqspec.prompt(request))
    assert notice(stepper) == "Opens at the first difference of the two texts."
    stepper.press("d")
    stepper.is_at(number * len(PHASES) + ACCEPT)
    assert notice(stepper).startswith(f"First difference: request {request}, new token {new}, ")
    line = stepper.root.locator(".sv-difference")
    assert line.inner_text() == notice(stepper)
    assert " → p of “" in line.inner_text()


def test_others_open_at_the_first_uneven_acceptance(opened, eqspec):
    here = eqspec.rows["gained"][eqspec.rows["round"] == 0]
    assert here.min() < here.max()
    stepper = opened(sv.step_through(eqspec))
    stepper.is_at(ACCEPT, int(here.argmax()))
    assert "rows first gain different numbers of tokens" in notice(stepper)
    for width in (1400, 1000, 720, 390):
        stepper.page.set_viewport_size({"width": width, "height": 900})
        stepper.frame()
        cut = "(words) => words.scrollHeight - words.clientHeight"
        assert stepper.root.locator(".sv-words").evaluate(cut) <= 1, width


def test_what_was_asked_for_is_not_explained(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=1))
    stepper.is_at(5)
    assert notice(stepper) == ""


# ---------------------------------------------------------------- jumps


def test_a_jump_to_a_violation_chooses_its_row(opened, broken):
    """The mask panel then speaks of the row whose mask is broken."""
    stepper = opened(sv.step_through(broken, round=0))
    stepper.press("v")
    first = sv.check_invariants(broken)[0]
    stepper.is_at(first.round * len(PHASES) + PHASES.index(first.phase), first.row)
    assert re.match(r"Violation \(mask\): round 1, row 2 \(request \d+\)", notice(stepper))
    assert "leak" in (stepper.canvas("mask").get_attribute("aria-label") or "")


def test_rejections_are_those_of_the_chosen_row(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=0, row=1))
    rows = eqspec.rows
    mine = (rows["request"] == 1) & (rows["accepted"] < rows["drafted"])
    goals = [5 * int(number) + ACCEPT for number in rows["round"][mine]]
    anyones = steps_of(eqspec, "rejection")
    assert goals[:6] != anyones[:6], "else this test shows nothing"
    for goal in goals[:6]:
        stepper.press("r")
        stepper.is_at(goal)
    stepper.press("Shift+R")
    stepper.is_at(goals[4])


def test_a_jump_without_a_target_says_so(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=0))
    stepper.press("v")
    stepper.is_at(0)
    assert notice(stepper) == "No later violation in this run."
    stepper.press("Shift+E")
    assert notice(stepper) == "No earlier EOS in this run."


def test_a_notice_takes_no_room(opened, eqspec):
    """And lies within the window, also of a narrow one."""
    stepper = opened(sv.step_through(eqspec, round=0))
    height = stepper.root.bounding_box()["height"]
    stepper.press("v")
    assert stepper.root.bounding_box()["height"] == height
    box = stepper.root.locator(".sv-notice span").bounding_box()
    words = stepper.root.locator(".sv-words").bounding_box()
    assert words["y"] <= box["y"], "it covers nothing: it has a place behind the sentence"
    assert box["y"] + box["height"] <= words["y"] + words["height"] + 1
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= stepper.page.viewport_size["height"]


# ---------------------------------------------------------------- links


def test_a_link_opens_its_step(opened, eqspec):
    stepper = opened(sv.step_through(eqspec), "#round=2&phase=verify&row=3")
    stepper.is_at(2 * len(PHASES) + 2, 3)
    assert notice(stepper) == ""


def test_the_address_follows_the_step(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=0))
    stepper.press("ArrowRight", "ArrowDown")
    expect(stepper.page).to_have_url(re.compile(r"#round=0&phase=draft&row=1$"))
    assert stepper.page.evaluate("history.length") <= 2, "stepping must not fill the history"
    stepper.page.reload()
    stepper.wait().is_at(1, 1)


def test_a_changed_address_moves_the_view(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=0))
    stepper.page.evaluate("location.hash = '#round=1&phase=accept'")
    stepper.is_at(5 + ACCEPT, 0)


def test_a_link_to_what_is_not_there_says_so(opened, eqspec):
    stepper = opened(sv.step_through(eqspec, round=0), "#round=999")
    assert "The link names a round that is none of 0 to" in notice(stepper)


def test_a_page_inside_another_works_without_an_address(opened, eqspec):
    """In a sandbox without its origin, as in a saved notebook."""
    page = opened(sv.step_through(eqspec, round=0)).page
    path = Path(page.url.partition("#")[0].removeprefix("file://"))
    around = path.with_name("around.html")
    around.write_text(
        "<!DOCTYPE html><title>around</title>"
        "<iframe sandbox='allow-scripts' src='run.html' width='900' height='700'></iframe>"
    )
    page.goto(around.as_uri())
    frame = page.frame_locator("iframe")
    root = frame.locator(".specviz[data-ready]")
    root.wait_for()
    root.focus()
    page.keyboard.press("ArrowRight")
    expect(frame.locator(".specviz")).to_have_attribute("data-step", "1")
    page.wait_for_timeout(400)  # for as long as the address waits
