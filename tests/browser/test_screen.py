"""One screen: eight rows are followed without scrolling, and nothing moves while stepping."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import specviz as sv
from browser.runs import record, steps_of
from browser.stepper import Stepper
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
LAPTOP = {"width": 1280, "height": 800}
PARTS = (".sv-top", ".sv-map", ".sv-words", ".sv-stage", ".sv-stage canvas", ".sv-lens")
OVERFLOW = "(box) => box.scrollHeight - box.clientHeight"
LENSES = ("rows", "verify", "mask", "verify", "moves")  # by phase


@pytest.fixture(scope="module")
def eight() -> sv.Trace:
    return record("eqspec", prompts=8, tokens=64, batch_size=8)


@pytest.fixture
def stepper(saved_page, eight) -> Stepper:
    return saved_page(eight, viewport=LAPTOP, reduced_motion="reduce")


def boxes(stepper: Stepper) -> list[dict[str, float]]:
    return [stepper.root.locator(part).first.bounding_box() for part in PARTS]


def test_a_run_of_eight_rows_fits_a_laptop(stepper):
    sizes = "[document.scrollingElement.scrollHeight, document.scrollingElement.scrollWidth]"
    height, width = stepper.page.evaluate(sizes)
    assert height <= LAPTOP["height"]
    assert width <= LAPTOP["width"]
    head, *_ = boxes(stepper)
    assert head["height"] <= 90
    stage, lens = (stepper.root.locator(part).bounding_box() for part in (".sv-stage", ".sv-lens"))
    assert lens["x"] >= stage["x"] + stage["width"]
    assert abs(lens["height"] - stage["height"]) < 1


def test_beside_a_file_browser_the_legend_stands_in_the_lens(saved_page, eight):
    """As much room as JupyterLab leaves at 1280 x 800."""
    lab = {"width": 864, "height": 679}
    stepper = saved_page(eight, viewport=lab, reduced_motion="reduce")
    assert stepper.page.evaluate("document.scrollingElement.scrollHeight") <= lab["height"]
    tabs = stepper.root.locator(".sv-tabs")
    assert tabs.bounding_box()["height"] < 40, "one line"
    expect(stepper.root.locator(".sv-stage .sv-legend")).to_be_hidden()
    stepper.root.get_by_role("button", name="legend", exact=True).click()
    assert seen(stepper) == ["legend"]
    stepper.go(8)
    stepper.frame()
    assert ["✓ accepted"] in stepper.table("legend")
    cut = "(words) => words.scrollHeight - words.clientHeight"
    assert stepper.root.locator(".sv-words").evaluate(cut) <= 1
    stepper.page.set_viewport_size(LAPTOP)
    expect(stepper.root.locator(".sv-stage .sv-legend")).to_be_visible()
    expect(stepper.root.get_by_role("button", name="legend", exact=True)).to_be_hidden()


@pytest.mark.parametrize("runs", [1, 2])
def test_the_header_stays_in_sight(saved_page, eight, runs):
    low = {"width": 1280, "height": 420}
    stepper = saved_page(eight, eight if runs == 2 else None, viewport=low)
    head = stepper.root.locator(".sv-top")
    assert head.bounding_box()["height"] <= 90
    stepper.page.evaluate("scrollTo(0, 200)")
    stepper.frame()
    assert stepper.page.evaluate("scrollY") > 100
    assert head.bounding_box()["y"] == 0
    stepper.button("next phase").click()
    stepper.is_at(1)
    assert head.bounding_box()["y"] == 0


def test_nothing_moves_while_stepping(stepper, eight):
    before = boxes(stepper)
    for step in (*range(11), *steps_of(eight, "eos")[:1], 5 * eight.num_rounds - 1):
        stepper.go(step)
        stepper.frame()
        assert boxes(stepper) == before, step
    for key in ("ArrowDown", "c", "c", "l", "l"):
        stepper.press(key)
        assert boxes(stepper) == before, key


def seen(stepper: Stepper) -> list[str]:
    panels = stepper.root.locator(".sv-lens .sv-panel:visible")
    return panels.evaluate_all(
        "(all) => all.map((each) => each.className.replace('sv-panel sv-', ''))"
    )


def test_the_lens_follows_the_phase_until_a_click_pins_it(stepper):
    for phase in range(len(PHASES)):
        stepper.go(10 + phase)
        assert seen(stepper) == [LENSES[phase]]
    tab = stepper.root.get_by_role("button", name="mask", exact=True)
    tab.click()
    expect(tab).to_have_attribute("aria-pressed", "true")
    for phase in range(len(PHASES)):
        stepper.go(10 + phase)
        assert seen(stepper) == ["mask"]
    tab.click()
    assert seen(stepper) == ["moves"]
    stepper.press("l", "ArrowLeft")
    assert seen(stepper) == ["moves"]
    stepper.press("l")
    assert seen(stepper) == ["verify"]


def test_the_cards_of_a_row_fit_the_lens(stepper):
    stepper.go(8)
    assert stepper.root.locator(".sv-inside").evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("size", [LAPTOP, {"width": 1000, "height": 800}], ids=["laptop", "lab"])
def test_the_cards_of_a_single_row_fit_the_lens(saved_page, size):
    """Its batch is lower than the cards of K = 5."""
    one = record("inplace", prompts=1, tokens=32, batch_size=1)
    stepper = saved_page(one, viewport=size, reduced_motion="reduce")
    stepper.go(3)
    stepper.frame()
    assert stepper.root.locator(".sv-inside").evaluate(OVERFLOW) <= 0
    assert stepper.page.evaluate("document.scrollingElement.scrollHeight") <= size["height"]


def test_the_lens_says_where_k_v_ends(stepper, eight):
    """The slot before that of the token whose K/V does not exist yet."""
    stepper.go(9)
    here = eight.rows["round"] == 1
    head, *lines = stepper.table("moves")
    column = head.index("K/V ends at slot")
    assert [line[column] for line in lines] == [
        str(slot - 1) for slot in eight.rows["pending_after"][here]
    ]


MOVING = """async (root) => {
  const canvas = root.querySelector('.sv-stage canvas'), seen = new Set();
  root.dispatchEvent(new KeyboardEvent('keydown', { key: 'c', bubbles: true }));
  const began = performance.now();
  while (performance.now() - began < 900) {
    await new Promise((done) => requestAnimationFrame(done));
    seen.add(canvas.toDataURL());
  }
  return seen.size;
}"""


@pytest.mark.parametrize(("motion", "most"), [("reduce", 2), ("no-preference", 1000)])
def test_rows_move_from_slots_to_positions(saved_page, eight, motion, most):
    stepper = saved_page(eight, viewport=LAPTOP, reduced_motion=motion)
    stepper.go(8)
    stepper.page.wait_for_timeout(500)
    slots = stepper.digest()
    pictures = stepper.root.evaluate(MOVING)
    assert pictures <= most
    assert motion == "reduce" or pictures > 2
    expect(stepper.button("positions")).to_have_attribute("aria-pressed", "true")
    assert stepper.digest() != slots
    stepper.find("row 0, slot ")  # what is pointed at is found there, too
    stepper.page.mouse.move(2, 2)
    stepper.button("slots").click()
    stepper.page.wait_for_timeout(900)
    assert stepper.digest() == slots


def test_full_screen_and_presentation(stepper):
    stepper.press("f")
    expect(stepper.page.locator(".specviz:is(:fullscreen, .sv-window)")).to_have_count(1)
    stepper.press("f")
    expect(stepper.page.locator(".specviz:is(:fullscreen, .sv-window)")).to_have_count(0)
    height = stepper.root.locator(".sv-words").evaluate(
        "(each) => each.getBoundingClientRect().height / parseFloat(each.style.height)"
    )
    stepper.press("p")
    enlarged = stepper.root.locator(".sv-words").evaluate(
        "(each) => each.getBoundingClientRect().height / parseFloat(each.style.height)"
    )
    assert enlarged / height > 1.09
    stepper.go(8)
    stepper.find("row 1, slot ")
    assert scrolls(stepper) == [False, False]
    stepper.press("p")
    expect(stepper.root).not_to_have_attribute("style", re.compile("zoom"))


def scrolls(stepper: Stepper) -> list[bool]:
    """Whether the page has to be scrolled down, and sideways."""
    stepper.frame()
    return stepper.page.evaluate(
        "(({ scrollHeight, scrollWidth }) => "
        "[scrollHeight > innerHeight, scrollWidth > innerWidth])(document.scrollingElement)"
    )


def test_a_presentation_is_as_large_as_the_screen_allows(stepper):
    stepper.press("p")
    for width, height, size in ((1280, 800, 1.15), (1440, 900, 1.3), (1920, 1080, 1.4)):
        stepper.page.set_viewport_size({"width": width, "height": height})
        expect(stepper.root).to_have_css("zoom", str(size))
        for step in (3, 9, 12):
            stepper.go(step)
            assert scrolls(stepper) == [False, False], (width, step)


def test_a_presentation_of_two_runs_is_as_large_as_the_screen_allows(saved_page):
    stepper = saved_page(record("eqspec"), record("inplace"), viewport=LAPTOP)
    stepper.press("p")
    for width, height, size in ((1280, 800, 1.15), (1440, 900, 1.3), (1920, 1080, 1.4)):
        stepper.page.set_viewport_size({"width": width, "height": height})
        expect(stepper.root).to_have_css("zoom", str(size))
        for step in (3, 9, 12):
            stepper.go(step)
            assert scrolls(stepper) == [False, False], (width, step)


def test_a_presentation_that_fits_nowhere_is_the_smallest(saved_page, eight):
    other = record("masking", prompts=8, tokens=64, batch_size=8)
    stepper = saved_page(eight, other, viewport=LAPTOP)
    stepper.press("p")
    expect(stepper.root).to_have_css("zoom", "1.1")


def test_the_whole_map_is_a_key_away(stepper):
    legend = stepper.panel("map").locator(".sv-legend")
    expect(legend).to_be_hidden()
    stepper.press("h")
    expect(legend).to_be_visible()
    stepper.press("h")
    expect(legend).to_be_hidden()


def test_the_tour_has_seven_stops(stepper):
    stepper.button("tour of a minute").click()
    tour = stepper.root.get_by_role("group", name="tour", exact=True)
    said = []
    for number in range(1, 8):
        expect(tour).to_contain_text(f"{number} of 7")
        said.append(tour.locator("p").inner_text())
        assert Axe().run(stepper.page).response["violations"] == [] or number not in (1, 6)
        tour.get_by_role("button", name="next" if number < 7 else "done").click()
    assert len(set(said)) == 7
    assert "gained most" in said[4]
    expect(tour).to_be_hidden()
    expect(stepper.button("slots")).to_have_attribute("aria-pressed", "true")
    stepper.press("g")
    expect(tour).to_be_visible()
    stepper.press("g")
    expect(tour).to_be_hidden()


def test_the_bonus_of_masking_stands_where_it_is_stored(saved_page):
    """In the phase that accepts, and the draft that was rejected for it keeps its slot."""
    trace = record("masking")
    rows = trace.rows
    rejects = (rows["accepted"] < rows["drafted"]) & (rows["finished"] == 0)
    entry = int(rejects.argmax())
    row = int((rows["round"][:entry] == rows["round"][entry]).sum())
    stepper = saved_page(trace, viewport=LAPTOP)
    stepper.go(5 * int(rows["round"][entry]) + 3, row)
    states = {line[0]: line[2] for line in stepper.table("stage")[1:]}
    assert states[str(rows["pending_after"][entry])] == "bonus, now pending"
    rejected = int(rows["pending"][entry] + 1 + rows["accepted"][entry])
    assert states[str(rejected)].startswith("rejected")
