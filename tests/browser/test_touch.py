"""A phone: what can be pressed is as large as a finger, and a tap explains."""

import re

import pictures
import pytest
from playwright.sync_api import expect

import specviz as sv
from browser.runs import record

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SMALL = """(all) => all.filter((each) => {
  const { width, height } = each.getBoundingClientRect();
  return width && (height < 44 || (width < 44 && !each.closest('.sv-rail')));
}).map((each) => each.outerHTML.slice(0, 90))"""
CUT = """(all) => all.filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent)"""


ROW_AT = """(canvas, [clientX, clientY]) => {
  canvas.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, bubbles: true }));
  const tip = canvas.closest('.specviz').querySelector('.sv-tip');
  return tip.hidden ? '' : tip.textContent;
}"""


@pytest.fixture(scope="module")
def eqspec() -> sv.Trace:
    return record("eqspec")


def test_what_can_be_pressed_is_as_large_as_a_finger(saved_page, eqspec):
    stepper = saved_page(eqspec, **PHONE)
    pressed = stepper.root.locator("button:visible, select:visible")
    assert pressed.count() > 15
    assert pressed.evaluate_all(SMALL) == []
    assert stepper.root.locator("button:visible").evaluate_all(CUT) == [], "labels lie in buttons"
    assert stepper.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("other", [None, "inplace"])
def test_what_steps_stays_in_sight(saved_page, eqspec, other):
    """On a phone that is one line of buttons and the phases."""
    stepper = saved_page(eqspec, record(other) if other else None, **PHONE)
    stepper.go(8)
    last = stepper.root.locator(".sv-inside:visible")
    last.scroll_into_view_if_needed()
    stepper.frame()
    assert stepper.page.evaluate("scrollY") > 600
    kept = [stepper.button(name) for name in ("previous phase", "play", "next phase", "next round")]
    for part in (*kept, stepper.root.locator(".sv-rail")):
        box = part.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 104
    kept[2].click()
    stepper.is_at(9)
    assert stepper.page.evaluate("scrollY") > 600


def test_a_tap_explains(saved_page, eqspec):
    stepper = saved_page(eqspec, **PHONE)
    stepper.go(8)
    canvas = stepper.canvas("stage")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    stepper.page.touchscreen.tap(box["x"] + 200, box["y"] + box["height"] / 3)
    tip = stepper.root.locator(".sv-tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("row")
    shown = tip.bounding_box()
    top, bottom = shown["y"], shown["y"] + shown["height"]
    row = stepper.row

    def row_at(y: float) -> int:
        words = canvas.evaluate(ROW_AT, [box["x"] + 200, y])
        found = re.search(r"\brow (\d+)", words)
        return int(found[1]) if found else -1

    assert row not in (row_at(top + 1), row_at(bottom - 1)), "it lies over the row it explains"
    assert row in (row_at(top - 8), row_at(bottom + 8)), "it lies far from the row"


BACKGROUND = """() => {
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  const ink = getComputedStyle(document.body).color;
  return [scheme, ink];
}"""


def test_the_list_of_replays_is_dark_where_the_system_is(offline_page, tmp_path):
    """The scheme must be the page's own: of the text alone, it would be white on white."""
    path = tmp_path / "index.html"
    path.write_text(pictures.index())
    for scheme, ink in (("dark", "rgb(255, 255, 255)"), ("light", "rgb(0, 0, 0)")):
        with offline_page(color_scheme=scheme) as page:
            page.goto(path.as_uri())
            assert page.evaluate(BACKGROUND) == ["light dark", ink]
