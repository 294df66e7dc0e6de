"""The map of the run: where a click leads, what a drag adds up, how it zooms, and two runs."""

import re

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from test_charts import contrast

import specviz as sv
from browser.runs import parting, record
from browser.stepper import LOOKS, Stepper
from browser.test_page import PALETTE
from specviz import metrics
from specviz.metrics import bubble_share
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def eqspec() -> sv.Trace:
    return record("eqspec")


@pytest.fixture(scope="module")
def refilled() -> sv.Trace:
    """Eight requests take turns in four rows."""
    return record("eqspec", prompts=8, tokens=24)


def drag(stepper: Stepper, trace: sv.Trace, first: int, last: int) -> None:
    """Drag from within a round to within another, along the first lane or where it waits."""
    start, stop = (round_x(stepper, number) for number in (first, last))
    y = stepper.canvas("map").bounding_box()["y"] + 8
    stepper.page.mouse.move(start, y)
    stepper.page.mouse.down()
    stepper.page.mouse.move((start + stop) / 2, y + 3)
    stepper.page.mouse.move(stop, y + 3)
    stepper.page.mouse.up()
    stepper.frame()


def round_x(stepper: Stepper, number: int) -> float:
    """A page coordinate within a round, as the tooltip of the strip of times names it."""
    x, _ = stepper.find(f"round {number}: ", "map")
    return x + 1


def totals(stepper: Stepper, run: int = 0) -> str:
    return stepper.panel("map").locator(".sv-totals p").nth(run).inner_text()


def expected(trace: sv.Trace, first: int, last: int) -> list[str]:
    """What the map says of rounds `first` to `last`, from the record's own tables."""
    table = metrics.rounds(trace).loc[first:last]
    rows = trace.rows
    inside = (rows["round"] >= first) & (rows["round"] <= last) & (rows["gained"] > 0)
    accepted, verified = (int(rows[name][inside].sum()) for name in ("accepted", "verified"))
    copied = (table["realigned_bytes"] + table["compacted_bytes"]).sum()
    return [
        f"{table['gained_tokens'].sum()} tokens",
        f"{100 * accepted / verified:.0f} % of drafts accepted",
        f"mean acceptance length {1 + accepted / inside.sum():.2f}",
        f"{copied / 1e6:.1f} MB of K/V copied",
    ]


def said_ms(words: str) -> list[float]:
    """The ms of all phases, and of each."""
    names = ", ".join(rf"{name} (<?[\d.]+)" for name in PHASES)
    found = re.search(rf"([\d.]+) ms: {names}", words)
    return [float(value.strip("<")) for value in found.groups()]


def test_a_click_leads_to_a_round_of_a_request(saved_page, refilled):
    stepper = saved_page(refilled)
    stepper.press("ArrowRight")  # to the draft, a phase that a click keeps
    for request in (5, 0, 3):
        entries = np.flatnonzero(refilled.rows["request"] == request)
        entry = int(entries[len(entries) // 2])
        number = int(refilled.rows["round"][entry])
        stepper.page.mouse.click(*stepper.find(f"request {request}, round {number}: ", "map"))
        row = int((refilled.rows["round"][:entry] == number).sum())
        stepper.is_at(5 * number + 1, row)


def test_the_map_says_what_happened_to_each_request(saved_page, refilled):
    stepper = saved_page(refilled)
    head, *lines = stepper.table("map")
    told = [dict(zip(head, line, strict=True)) for line in lines]
    assert [int(line["request"]) for line in told] == list(range(8))
    assert [int(line["tokens"]) for line in told] == [len(refilled.output(n)) for n in range(8)]
    ends = {"eos": "EOS", "budget": "budget"}
    assert [line["end"] for line in told] == [ends[each] for each in refilled.meta["status"]]
    assert [line["violations"] for line in told] == ["0"] * 8
    first = int(refilled.rows["round"][(refilled.rows["request"] == 7).argmax()])
    assert told[7]["waits"] == str(first)
    stepper.find(f"request 7 waits: rounds 0–{first - 1}", "map")
    assert "waits; enters" in stepper.panel("map").locator(".sv-legend").get_attribute("aria-label")


def test_a_drag_selects_rounds_with_their_totals(saved_page, eqspec):
    stepper = saved_page(eqspec)
    last = eqspec.num_rounds - 1
    for words in expected(eqspec, 0, last):
        assert words in totals(stepper)
    drag(stepper, eqspec, 7, 3)
    assert totals(stepper).startswith("rounds 3–7 ")
    for words in expected(eqspec, 3, 7):
        assert words in totals(stepper)
    ms = metrics.stages(eqspec).loc[3:7]
    sums = [
        ms["total_ms"].sum(),
        *(ms[f"{name}_ms"].sum() for name in ("schedule", "draft", "verify", "accept", "sync")),
    ]
    assert np.allclose(said_ms(totals(stepper)), sums, rtol=0.06, atol=0.06)
    assert stepper.step == 0
    heard = stepper.panel("map").locator(".sv-said")
    expect(heard).to_contain_text("rounds 3–7: ")
    stepper.page.keyboard.press("Escape")
    stepper.frame()
    assert totals(stepper).startswith(f"all {last + 1} rounds ")


def test_keys_select_the_same_as_a_drag(saved_page, eqspec):
    stepper = saved_page(eqspec)
    stepper.press(*["Shift+ArrowRight"] * 3, "s", *["Shift+ArrowRight"] * 4, "s")
    by_keys = totals(stepper)
    assert by_keys.startswith("rounds 3–7 ")
    stepper.press("ArrowRight", "End")
    assert totals(stepper) == by_keys
    stepper.press("Shift+S")
    assert totals(stepper).startswith("all ")
    drag(stepper, eqspec, 3, 7)
    assert totals(stepper) == by_keys


def test_a_drag_along_the_axis_goes_through_the_steps(saved_page, eqspec):
    stepper = saved_page(eqspec)
    last = 5 * eqspec.num_rounds - 1
    box = stepper.canvas("map").bounding_box()
    y = box["y"] + box["height"] - 6
    stepper.page.mouse.move(box["x"] + box["width"] / 2, y)
    stepper.page.mouse.down()
    stepper.frame()
    middle = stepper.step
    assert 0.35 * last < middle < 0.65 * last
    stepper.page.mouse.move(box["x"] + box["width"] - 2, y)
    stepper.is_at(last)
    stepper.page.mouse.move(box["x"] + 70, y)
    stepper.is_at(0)
    stepper.page.mouse.up()
    assert totals(stepper).startswith("all ")


def test_the_map_zooms_by_keys_once_it_has_the_focus(saved_page, eqspec):
    stepper = saved_page(eqspec)
    whole, slots = stepper.digest("map"), stepper.digest()
    stepper.press("+")
    assert stepper.digest("map") == whole
    assert stepper.digest() != slots
    stepper.press("0")
    slider = stepper.root.get_by_role("slider", name="step")
    slider.focus()
    seen = [whole]
    for key in ("+", "+", ".", "-"):
        stepper.page.keyboard.press(key)
        seen.append(stepper.digest("map"))
    assert len(set(seen)) == len(seen)
    assert stepper.digest() == slots
    stepper.page.keyboard.press("0")
    assert stepper.digest("map") == whole
    stepper.button("less of the run").click()
    assert stepper.digest("map") == seen[1]
    stepper.button("the whole run").click()
    assert stepper.digest("map") == whole


def test_the_wheel_zooms_only_with_the_focus_or_ctrl(saved_page, eqspec):
    stepper = saved_page(eqspec)
    box = stepper.canvas("map").bounding_box()
    stepper.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    whole = stepper.digest("map")
    stepper.page.mouse.wheel(0, -200)
    assert stepper.digest("map") == whole
    stepper.root.get_by_role("slider", name="step").focus()
    stepper.page.mouse.wheel(0, -200)
    expect_changed(stepper, whole)
    stepper.page.mouse.wheel(0, 5000)
    stepper.page.wait_for_timeout(50)
    assert stepper.digest("map") == whole
    assert stepper.page.evaluate("scrollY") == 0


def expect_changed(stepper: Stepper, before: str) -> None:
    for _ in range(40):
        if stepper.digest("map") != before:
            return
        stepper.page.wait_for_timeout(25)
    raise AssertionError("the map looks as before")


def test_by_time_or_by_rounds(saved_page, eqspec):
    stepper = saved_page(eqspec)
    by_rounds = stepper.digest("map")
    stepper.press("x")
    assert (
        stepper.panel("map")
        .get_by_role("button", name="time", exact=True)
        .get_attribute("aria-pressed")
        == "true"
    )
    assert stepper.digest("map") != by_rounds
    drag(stepper, eqspec, 2, 4)
    selected = totals(stepper)
    assert selected.startswith("rounds 2–4 ")
    stepper.button("rounds").click()
    stepper.frame()
    assert totals(stepper) == selected


def test_two_runs_stand_on_one_axis(saved_page, eqspec):
    """Who wins is said in ms and in rounds, and a click in the second run leads there."""
    other = record("repadding")
    stepper = saved_page(eqspec, other)
    ms = [metrics.rounds(trace)["total_ms"].sum() for trace in (eqspec, other)]
    fast = int(ms[1] < ms[0])
    words = totals(stepper, 2)
    assert words.startswith(f"The {('first', 'second')[fast]} run ")
    units = {"ms": 1, "s": 1000}
    said = [float(value) * units[unit] for value, unit in re.findall(r"([\d.]+) (ms|s)\b", words)]
    assert np.allclose(said, sorted(ms), rtol=0.01)
    rounds = [eqspec.num_rounds, other.num_rounds]
    assert f"{min(rounds)} rounds" in words or "both take" in words
    number, request, _ = parting(eqspec, other)
    label = stepper.panel("map").locator(".sv-legend").get_attribute("aria-label")
    assert "text differs from here" in label
    stepper.find("ahead", "map")
    stepper.page.mouse.click(*stepper.find(f"request {request}, round {number}: ", "map"))
    stepper.is_at(5 * number)
    canvas = stepper.canvas("map").bounding_box()
    second = canvas["y"] + 0.45 * canvas["height"]
    stepper.page.mouse.click(canvas["x"] + canvas["width"] * 0.3, second)
    stepper.frame()
    assert f"round {stepper.step // 5} /" in stepper.root.locator(".sv-title").nth(1).inner_text()


def test_two_lanes_stand_on_one_clock(saved_page):
    """Each with its name and its bubbles; the table and the words say lanes, not runs."""
    two = sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=4),
        lanes=2,
        batch_size=4,
        max_new_tokens=16,
        record=True,
        progress=False,
    )
    first, second = (lane.trace for lane in two.lanes)
    stepper = saved_page(first, second)
    label = stepper.panel("map").locator(".sv-legend").get_attribute("aria-label")
    assert "bubble: the lane waits" in label
    assert "text differs from here" not in label
    assert stepper.count("target", "map") > 50
    assert stepper.count("amber-soft", "map") > 50
    words = totals(stepper, 2)
    shares = [int(share) for share in re.findall(r"waits (\d+) % of it", words)]
    assert sum(shares) / 200 == pytest.approx(bubble_share(two.timeline), abs=0.01)
    _, *lines = stepper.table("map")
    assert {line[0] for line in lines} == {"lane 0", "lane 1"}


def test_the_first_violation_is_marked(saved_page):
    trace = record("repadding")
    first = sv.check_invariants(trace)[0]
    stepper = saved_page(trace)
    label = stepper.canvas("map").get_attribute("aria-label")
    assert f"First violation: round {first.round}, request {first.request}." in label
    assert stepper.count("red", "map") > 100
    plain = saved_page(trace, judge=False)
    assert "iolation" not in plain.panel("map").evaluate("(map) => map.innerHTML")
    assert plain.count("red", "map") == 0


DRAWN = ("green", "bonus", "stale", "blue", "red", "grey", "ink")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_blocks_and_signs_stand_out(saved_page, eqspec, theme):
    """WCAG asks for a contrast of 3 for graphics."""
    stepper = saved_page(eqspec, color_scheme=theme)
    colours = stepper.root.evaluate(PALETTE, [*DRAWN, "panel"])
    ground = colours.pop("panel")[:3]
    assert [name for name, value in colours.items() if contrast(value[:3], ground) < 3] == []


@pytest.mark.parametrize(("width", "look"), [(390, "dark"), (1280, "light"), (1280, "forced dark")])
def test_the_map_is_low_and_accessible(saved_page, width, look):
    trace = record("eqspec", prompts=8, tokens=24, batch_size=8)
    stepper = saved_page(trace, viewport={"width": width, "height": 900}, **LOOKS[look])
    assert stepper.canvas("map").bounding_box()["height"] < 160
    assert stepper.page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
    slider = stepper.root.get_by_role("slider", name="step")
    slider.focus()
    stepper.press("s", "Shift+ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^round 1 of 0 to"))
    found = Axe().run(stepper.page).response
    assert [each["id"] for each in found["violations"]] == []
