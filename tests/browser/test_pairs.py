"""Two runs on a page: paired rows on one axis, and only what differs in colour."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import specviz as sv
from browser.runs import record
from browser.stepper import LOOKS, Stepper
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
ACCEPT = PHASES.index("accept")
SOFT = ("green-soft", "amber-soft", "orange-soft", "blue-soft")
COLOURS = (*SOFT, "green", "amber", "orange", "blue", "target", "draft", "held")
# Of each tip of the batch: where it first is from the left and from the top.
TIPS = """(canvas) => {
  const tip = canvas.closest('.specviz').querySelector('.sv-tip');
  const box = canvas.getBoundingClientRect();
  const found = {};
  for (let y = box.top + 3; y < box.bottom; y += 3)
    for (let x = box.left + 104; x < box.right; x += 3) {
      const at = { clientX: x, clientY: y, bubbles: true };
      canvas.dispatchEvent(new PointerEvent('pointermove', at));
      const words = tip.hidden ? '' : tip.textContent;
      const name = /^([AB]):.*row (\\d+), slot (\\d+):/.exec(words);
      if (!name) continue;
      const key = name.slice(1).join(' ');
      const known = found[key] ?? [x, y, x, y];
      found[key] = [
        Math.min(known[0], x), Math.min(known[1], y), Math.max(known[2], x), Math.max(known[3], y)
      ];
    }
  return found;
}"""


@pytest.fixture(scope="module")
def broken() -> sv.Trace:
    strategy = sv.strategy("inplace", break_invariant="kv", rows=[2], from_round=3)
    pair, prompts = sv.load_pair(device="cpu"), sv.load_prompts(limit=4)
    given = {"batch_size": 4, "max_new_tokens": 64, "record": True, "progress": False}
    return sv.generate(pair, prompts, strategy=strategy, **given).trace


def at_acceptance(saved_page, *traces: sv.Trace, **options: object) -> Stepper:
    stepper = saved_page(*traces, **options)
    stepper.go(2 * len(PHASES) + ACCEPT)
    return stepper


@pytest.mark.parametrize("width", [1440, 1280, 700])
def test_rows_of_a_request_stand_one_above_the_other(saved_page, broken, width):
    """Before the fault, both runs hold the same: every slot has the same x in both."""
    viewport = {"width": width, "height": 900}
    stepper = at_acceptance(saved_page, broken, record("inplace"), viewport=viewport)
    places = stepper.canvas("stage").evaluate(TIPS)
    pairs = {key[2:]: key for key in places if key.startswith("A")}
    assert len(pairs) >= 4 * 8
    for slot, key in pairs.items():
        left, _, right, bottom = places[key]
        left_b, top_b, right_b, _ = places[f"B {slot}"]
        assert abs(left - left_b) <= 3, slot
        assert abs(right - right_b) <= 3, slot
        assert 0 < top_b - bottom <= 9, f"nothing stands between the rows of {slot}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_only_what_differs_is_in_colour(saved_page, broken, theme):
    stepper = saved_page(broken, record("inplace"), color_scheme=theme)
    stepper.go(2 * len(PHASES) + ACCEPT)
    assert {name: stepper.count(name) for name in COLOURS} == dict.fromkeys(COLOURS, 0)
    stepper.press("d")
    seen = [name for name in ("amber-soft", "target", "held") if stepper.count(name) > 50]
    assert seen == ["amber-soft", "target", "held"]
    rows = stepper.table("stage")
    assert rows[0][:2] == ["slot", "differs"]
    assert {line[1] for line in rows[1:]} == {"yes", ""}


@pytest.mark.parametrize("first", ["repadding", "eqspec"])
def test_rows_that_lie_elsewhere_open_by_positions(offline_page, tmp_path, first):
    """By slots, right-aligned rows share no place with those of another strategy."""
    path = tmp_path / "run.html"
    sv.step_through(record(first), record("inplace")).export_html(path)
    with offline_page() as page:
        page.goto(path.as_uri())
        stepper = Stepper(page.locator(".specviz")).wait()
        expect(stepper.button("positions")).to_have_attribute("aria-pressed", "true")
        assert stepper.table("stage")[0][0] == "position"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
def test_a_comparison_fits_on_a_screen(saved_page, broken, width, height):
    stepper = saved_page(broken, record("inplace"), viewport={"width": width, "height": height})
    for step in (0, 8, 13, 29):
        stepper.go(step)
        assert stepper.page.evaluate("document.scrollingElement.scrollHeight") <= height


def test_one_run_is_told_and_the_other_by_a_key_or_a_button(saved_page, broken):
    stepper = at_acceptance(saved_page, broken, record("inplace"))
    words = stepper.root.locator(".sv-words")
    expect(words.nth(0)).to_be_visible()
    expect(words.nth(1)).to_be_hidden()
    assert words.nth(0).inner_text().startswith("A · Accept.")
    stepper.press("b")
    assert words.nth(1).inner_text().startswith("B · Accept.")
    expect(stepper.root.locator(".sv-lens").nth(0)).to_be_hidden()
    expect(stepper.panel("verify", 1)).to_be_visible()
    stepper.root.get_by_role("group", name="run in the lens").locator("button").first.click()
    expect(words.nth(0)).to_be_visible()


def test_a_request_in_one_batch_alone_has_an_empty_partner(saved_page):
    """Two rows at a time against four: the others enter later."""
    both = [record("inplace", batch_size=size) for size in (4, 2)]
    stepper = saved_page(*both)
    stepper.go(ACCEPT, 3)
    label = stepper.canvas("stage").get_attribute("aria-label")
    assert label.startswith("4 requests of both runs by slots.")
    head, *lines = stepper.table("stage")
    assert head[2] == "A token"
    assert all(line[6:] == [""] * 4 for line in lines), "B holds nothing of request 3 yet"


@pytest.mark.parametrize(
    ("width", "look"), [(1280, "light"), (390, "light"), (1280, "forced light")]
)
def test_a_comparison_is_accessible(saved_page, broken, width, look):
    options = {"viewport": {"width": width, "height": 844}, **LOOKS[look]}
    stepper = at_acceptance(saved_page, broken, record("inplace"), **options)
    for keys in ([], ["b", "t"]):
        stepper.press(*keys)
        found = Axe().run(stepper.page).response
        assert [each["id"] for each in found["violations"]] == []
    assert stepper.page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
