"""The exported page, opened from disk.

It needs no other file, is safe, and is readable at any width, in both themes, on paper and with a
screen reader.
"""

import base64
import functools
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from test_charts import contrast
from tiny_run import TRACE

import specviz as sv
from browser.runs import record, stages_of, steps_of
from browser.stepper import LOOKS, Stepper
from specviz.engine.strategies import STRATEGIES, Strategy
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
THEMES = ("light", "dark")
PANELS = ("stage", "verify", "mask", "time")

PWN = "window.__pwned = 1"
HOSTILE = (
    f"</script><script>{PWN}</script>", f"<img src=x onerror='{PWN}'>", "<!--<script>", "]]>",
    f"'\"`${{{PWN}}}", "&lt;b&gt;", f"{{{{constructor.constructor('{PWN}')()}}}}",
    "line\u2028and\u2029paragraph", "\u202eright to left\u2066", "\x1b[31mred\x1b[0m\x07\0",
    "javascript:alert(1)", "a\u0301\u0302\u0303\u0304\u0305", "👩‍👩‍👧‍👦🏳️‍🌈",
    "\ud800", " \t\r\n", "x" * 500, "",
)  # fmt: skip


def disguised() -> sv.Trace:
    """A run whose tokens and models have names that want to be more than text."""
    trace = record("eqspec")
    ids = sorted(trace.meta["token_texts"], key=int)
    texts = {token: HOSTILE[number % len(HOSTILE)] for number, token in enumerate(ids)}
    names = {"target": HOSTILE[0], "draft": HOSTILE[1], "device": HOSTILE[0]}
    return replace(trace, meta=trace.meta | names | {"token_texts": texts})


@pytest.fixture(scope="module")
def eqspec() -> sv.Trace:
    return record("eqspec")


# ---------------------------------------------------------------- alone and safe


def test_a_page_asks_for_nothing_and_may_not(saved_page, eqspec):
    stepper = saved_page(eqspec)
    stepper.press("End", "t", "t", "?")
    asked = "performance.getEntriesByType('resource').map((each) => each.name)"
    assert stepper.page.evaluate(asked) == []
    assert stepper.page.evaluate("!navigator.serviceWorker?.controller")
    check_policy(stepper.page)


POLICY = {
    "default-src": "'none'",
    "script-src": "'unsafe-inline'",
    "style-src": "'unsafe-inline'",
    "base-uri": "'none'",
}
REFUSED = """new Promise((done) => {
  const refused = (event) => done(event.effectiveDirective);
  document.addEventListener('securitypolicyviolation', refused, { once: true });
  %s
})"""


REQUESTS = {
    "connect-src": "fetch('http://127.0.0.1:9/').catch(() => {});",
    "img-src": "new Image().src = 'http://127.0.0.1:9/x.png';",
    "script-src-elem": """
      const added = document.createElement('script');
      added.src = 'http://127.0.0.1:9/x.js';
      document.body.append(added);""",
}


def check_policy(page: Page) -> None:
    """The page's own policy allows inline script and style, and it stops every request."""
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert dict(rule.strip().split(" ", 1) for rule in policy.split(";")) == POLICY
    for directive, request in REQUESTS.items():
        assert page.evaluate(REFUSED % request) == directive


def test_a_page_is_one_small_file(tmp_path):
    path = tmp_path / "run.html"
    sv.step_through(record("eqspec", prompts=8, tokens=64, batch_size=8)).export_html(path)
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]
    assert path.stat().st_size < 10**6


@pytest.mark.parametrize("theme", THEMES)
def test_text_stays_text(saved_page, theme):
    stepper = saved_page(disguised(), color_scheme=theme)
    shown = set()
    for step in (0, 7, 8, 23):
        stepper.go(step)
        for panel in ("stage", "verify"):
            shown |= {cell for line in stepper.table(panel) for cell in line}
    told = ("</script><script>", "<img·src=x·onerror=", "${window.__pwned", "{{constructor")
    for words in (*told, "&lt;b&gt;"):
        assert any(words in cell for cell in shown), words
    assert not any(re.search("[\x00-\x1f\x7f\u2028-\u202e\u2066\u2067]", cell) for cell in shown)
    page = stepper.page
    assert page.evaluate("window.__pwned") is None
    assert page.locator("img, iframe, object, embed, .specviz script, .specviz a").count() == 0
    assert "undefined" not in stepper.root.inner_text()


@pytest.mark.parametrize("width", [700, 2000])
def test_no_token_breaks_the_layout(saved_page, width):
    stepper = saved_page(disguised(), viewport={"width": width, "height": 1000})
    check_layout(stepper)
    stepper.press("t")
    check_layout(stepper)


def test_a_lone_surrogate_and_a_run_by_hand(saved_page):
    stepper = saved_page(TRACE)
    stepper.press("End")
    stepper.is_at(5 * TRACE.num_rounds - 1)


# ---------------------------------------------------------------- what it shows


VISIT = """async (steps) => {
  const root = document.querySelector('.specviz'), slider = root.querySelector('input[type=range]');
  const list = root.querySelector('select[aria-label=row]');
  const frame = () => new Promise((done) => requestAnimationFrame(done)), seen = [];
  for (let step = 0; step < steps; step++) {
    slider.value = step;
    slider.dispatchEvent(new Event('input'));
    await frame();
    if (step % 4 === 1) {
      list.selectedIndex = step % list.options.length;
      list.dispatchEvent(new Event('change'));
      await frame();
    }
    const shown = [...root.querySelectorAll('.sv-panel:not([hidden]) canvas')];
    const labels = shown.map((canvas) => canvas.getAttribute('aria-label'));
    seen.push([root.dataset.step, root.querySelector('.sv-words').textContent, labels]);
  }
  return seen;
}"""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_step_of_every_strategy(saved_page, strategy):
    """The sentence is the record's own, and each picture says in words what it shows."""
    trace = record(strategy, prompts=6, tokens=8)
    words = [stage["words"] for stage in stages_of(trace)]
    seen = saved_page(trace).page.evaluate(VISIT, len(words))
    assert [int(step) for step, _, _ in seen] == list(range(len(words)))
    assert [told for told, (_, text, _) in zip(words, seen, strict=True) if told not in text] == []
    broken = re.compile("undefined|NaN|null|Infinity|object Object")
    for step, _, labels in seen:
        assert len(labels) >= len(PANELS), step
        assert [label for label in labels if not label or broken.search(label)] == [], step


def test_tables_and_sentences_agree_with_the_record(saved_page, eqspec):
    """In the round of the first rejection, each row's tables say what the record's columns hold."""
    stepper = saved_page(eqspec)
    step = steps_of(eqspec, "rejection")[0]
    for row, entry in enumerate(np.flatnonzero(eqspec.rows["round"] == step // 5)):
        stepper.go(step, row)
        states = [line[2] for line in stepper.table("stage")[1:]]
        names = ("accepted", "drafted", "gained")
        accepted, drafted, gained = (int(eqspec.rows[name][entry]) for name in names)
        assert sum("accepted now" in state for state in states) == min(accepted, gained)
        assert sum("bonus, now pending" in state for state in states) == 1
        assert sum("rejected" in state for state in states) <= drafted - accepted
        assert len(stepper.table("verify")) >= 2


def test_colours_mean_what_the_record_says(saved_page, eqspec):
    stepper = saved_page(eqspec)
    step = steps_of(eqspec, "rejection")[0]
    colours = ("green-soft", "orange-soft", "amber-soft", "blue-soft")
    stepper.go(step - 1)
    before = {colour: stepper.count(colour) for colour in colours}
    stepper.go(step)
    after = {colour: stepper.count(colour) for colour in colours}
    assert before["blue-soft"] > 500
    assert before["green-soft"] == before["orange-soft"] == 0
    assert after["blue-soft"] < before["blue-soft"]
    assert min(after["green-soft"], after["amber-soft"], after["orange-soft"]) > 500


def test_a_page_takes_keys_at_once(saved_page, eqspec):
    """No click is needed: there is nothing else on the page."""
    stepper = saved_page(eqspec)
    stepper.page.keyboard.press("ArrowRight")
    stepper.is_at(1)
    stepper.page.keyboard.press("?")
    expect(stepper.root.get_by_role("dialog")).to_be_visible()


def test_few_presses_of_the_tab_key_lead_to_the_next_phase(saved_page, eqspec):
    stepper = saved_page(eqspec)
    presses = 0
    while stepper.page.evaluate("document.activeElement.ariaLabel") != "next phase":
        presses += 1
        assert presses <= 4
        stepper.page.keyboard.press("Tab")
    stepper.page.keyboard.press("Enter")
    stepper.is_at(1)
    stepper.page.keyboard.press("ArrowRight")
    stepper.is_at(2)


def test_a_page_inside_another_leaves_the_focus_there(saved_page, eqspec):
    page = saved_page(eqspec).page
    around = Path(page.url.removeprefix("file://")).with_name("around.html")
    around.write_text(
        "<!DOCTYPE html><title>around</title>"
        "<iframe src='run.html' width='800' height='600'></iframe>"
    )
    page.goto(around.as_uri())
    page.frame_locator("iframe").locator(".specviz[data-ready]").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "BODY"


NARROW = """(cells) => cells.filter((cell) => {
  const range = document.createRange(), line = parseFloat(getComputedStyle(cell).fontSize) * 1.6;
  range.selectNodeContents(cell);
  return cell.textContent.length < 12 && range.getBoundingClientRect().height > line;
}).map((cell) => cell.textContent)"""


@pytest.mark.parametrize("width", [700, 2000])
def test_no_short_word_of_a_table_is_broken(saved_page, eqspec, width):
    """What is too wide for its panel can be scrolled to."""
    stepper = saved_page(eqspec, viewport={"width": width, "height": 1000})
    stepper.go(steps_of(eqspec, "rejection")[0])
    stepper.press("t")
    stepper.frame()
    assert stepper.root.locator("td, th").evaluate_all(NARROW) == []
    for box in stepper.root.locator(".sv-table:visible").all():
        inside, shown = box.evaluate("(box) => [box.scrollWidth, box.clientWidth]")
        assert inside <= shown or box.evaluate("(box) => getComputedStyle(box).overflowX") == "auto"
        heading = box.locator("xpath=../..").get_by_role("heading").inner_text()
        assert heading not in box.locator("caption").all_inner_texts()


def test_bars_of_a_pool_are_as_long_as_their_rows(saved_page):
    """The bars' area is proportional to the sum of the lengths, except for the letters on them.

    The scales of two steps are equal, or one is twice the other.
    """
    trace = record("exspec", prompts=8, tokens=16)
    stepper, areas = saved_page(trace), []
    for number in range(3):
        stepper.go(5 * number)
        here = (trace.pool["round"] == number) & (trace.pool["chosen"] > 0)
        areas.append(stepper.count("blue-soft", "pool") / trace.pool["length"][here].sum())
    doublings = np.log2(np.divide(areas, areas[0]))
    assert np.abs(doublings - doublings.round()).max() < 0.27


def run_of(strategy: Strategy, rows: int) -> sv.Trace:
    pair, prompts = sv.load_pair(device="cpu"), sv.load_prompts(limit=rows)
    given = {"batch_size": rows, "max_new_tokens": 16, "record": True, "progress": False}
    return sv.generate(pair, prompts, strategy=strategy, **given).trace


def test_violations_of_many_rows_are_told_together(saved_page):
    """Of each rule, phase and model one entry; it leads to the chosen row, which is its example."""
    trace = run_of(sv.strategy("masking", positions="column"), rows=4)
    stepper, step = saved_page(trace), steps_of(trace, "violation")[1]
    stepper.go(step, 2)
    found = [each for each in sv.check_invariants(trace) if each.round == step // 5]
    here = [each for each in found if PHASES.index(each.phase) <= step % 5]
    kinds = {(each.phase, each.rule, each.model) for each in here}
    stepper.look("invariants")
    items = stepper.panel("invariants").locator("li button")
    assert items.count() == len(kinds) < len(here)
    assert "rows 0–3" in items.first.inner_text()
    assert "in row 2 index" in items.first.inner_text()
    items.first.click()
    expect(stepper.root).to_have_attribute("data-row", "2")


def test_a_wrong_last_token_is_red_in_the_batch(saved_page):
    """And where it is right, none is."""
    trace = faulty("bonus")
    stepper, step = saved_page(trace), steps_of(trace, "violation")[0]
    for row, words, least in ((1, "not the target's own token", 200), (0, "bonus", 0)):
        stepper.go(step, row)
        assert words in {line[2].partition(",")[0] for line in stepper.table("stage")}
        assert stepper.count("red-soft") >= least


def test_pointing_links_the_panels(saved_page, eqspec):
    stepper = saved_page(eqspec)
    stepper.go(steps_of(eqspec, "rejection")[0])
    calm = {panel: stepper.digest(panel) for panel in PANELS}
    stepper.find("row 0, slot 14: accepted")
    changed = [panel for panel in PANELS if stepper.digest(panel) != calm[panel]]
    assert {"stage", "verify"} <= set(changed)
    stepper.page.mouse.move(2, 2)
    expect(stepper.root.locator(".sv-tip")).to_be_hidden()
    assert {panel: stepper.digest(panel) for panel in PANELS} == calm


AT_ONCE = """async (root) => {
  const seen = [];
  const press = () => {
    root.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  };
  const frame = () => new Promise((done) => {
    requestAnimationFrame(() => requestAnimationFrame(done));
  });
  for (let n = 0; n < 3; n++) {
    press();
    seen.push(Number(root.dataset.step));
  }
  await frame();
  return [...seen, Number(root.dataset.step)];
}"""


def test_a_step_is_drawn_at_once_but_once_a_frame(saved_page, eqspec):
    assert saved_page(eqspec).root.evaluate(AT_ONCE) == [1, 1, 1, 3]


def test_what_looks_the_same_is_not_drawn_again(saved_page, eqspec):
    """A dot on a canvas stays there until the panel is drawn again.

    So it stays on the verification from accept to synchronise, and on the legend as long as the
    same kinds are on screen.
    """
    stepper = saved_page(eqspec)
    stepper.go(8)
    stepper.press("l")
    panels = {
        "legend": stepper.panel("stage").locator(".sv-legend"),
        "verify": stepper.canvas("verify"),
        "stage": stepper.canvas("stage"),
    }
    mark = """(canvas) => {
      const context = canvas.getContext('2d');
      context.fillStyle = '#123456';
      context.fillRect(0, 0, 1, 1);
    }"""

    def mark_all() -> None:
        for canvas in panels.values():
            canvas.evaluate(mark)

    def kept() -> set[str]:
        stepper.frame()
        dot = "(canvas) => canvas.getContext('2d').getImageData(0, 0, 1, 1).data[2] === 0x56"
        return {name for name, canvas in panels.items() if canvas.evaluate(dot)}

    mark_all()
    assert kept() == {"legend", "verify", "stage"}
    stepper.press("ArrowRight")
    assert kept() == {"verify"}
    stepper.press("ArrowRight")
    assert kept() == set()
    mark_all()
    stepper.press("ArrowDown")
    assert kept() == {"legend"}
    stepper.page.emulate_media(color_scheme="dark")
    assert kept() == set()


COUNT_AHEAD = """() => {
  const make = OffscreenCanvas.prototype.transferToImageBitmap;
  const show = CanvasRenderingContext2D.prototype.drawImage;
  OffscreenCanvas.prototype.transferToImageBitmap = function () {
    window.made += 1;
    return make.call(this);
  };
  CanvasRenderingContext2D.prototype.drawImage = function (...all) {
    window.shown += 1;
    return show.apply(this, all);
  };
}"""
PRESS = """(root, key) => {
  window.made = window.shown = 0;
  root.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  return window.shown;
}"""
DRAWN_AHEAD = """new Promise((done) => {
  const look = () => (window.made ? done() : setTimeout(look, 20));
  look();
})"""
BYTES = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const parts = [];
  for (let n = 0; n < data.length; n += 32768) {
    parts.push(String.fromCharCode(...data.subarray(n, n + 32768)));
  }
  return btoa(parts.join(''));
}"""


def pictures(stepper: Stepper) -> list[np.ndarray]:
    return [
        np.frombuffer(base64.b64decode(stepper.canvas(name).evaluate(BYTES)), np.uint8)
        for name in PANELS
    ]


@pytest.mark.parametrize(
    ("other", "scale", "key", "steps"),
    [(None, 1.5, "ArrowRight", range(6, 12)), ("repadding", 1, "ArrowLeft", range(14, 8, -1))],
)
def test_a_step_that_was_drawn_ahead_looks_like_any_other(
    saved_page, eqspec, other, scale, key, steps
):
    """Compare pages that draw ahead with pages that cannot, as in an older browser.

    On the first, each step waits until the batch of the next step is drawn. A reader who goes
    back comes to the previous step next.
    """
    second = record(other) if other else None
    looks = {"reduced_motion": "reduce", "device_scale_factor": scale, "color_scheme": "dark"}
    stepper = saved_page(eqspec, second, **looks)
    stepper.go(steps.start - 2 * steps.step, row=1)
    stepper.page.evaluate(COUNT_AHEAD)
    stepper.frame()
    stepper.root.evaluate(PRESS, key)
    arrived = {}
    for step in steps:
        stepper.page.evaluate(DRAWN_AHEAD)
        stepper.frame()
        assert stepper.root.evaluate(PRESS, key) > 0, step
        arrived[step] = pictures(stepper)
    stepper.page.add_init_script("delete window.OffscreenCanvas")
    stepper.page.reload()
    stepper.wait().go(4, row=1)
    for step, ahead in arrived.items():
        stepper.go(step)
        stepper.frame()
        pairs = zip(ahead, pictures(stepper), strict=True)
        differing = [float((one != two).mean()) for one, two in pairs]
        assert max(differing) < 0.002, (step, differing)  # the smoothed edges of some letters


UNDER = """(canvas, [x, y]) => {
  const probe = document.createElement('canvas').getContext('2d');
  const box = canvas.getBoundingClientRect();
  const left = Math.round(x - box.left);
  const top = Math.round(y - box.top);
  const found = new Set();
  const palette = getComputedStyle(canvas.closest('.specviz'));
  for (const name of ['target', 'orange', 'orange-soft']) {
    probe.fillStyle = palette.getPropertyValue(`--sv-${name}`).trim();
    probe.fillRect(0, 0, 1, 1);
    const wanted = probe.getImageData(0, 0, 1, 1).data.join();
    const column = canvas.getContext('2d').getImageData(left, top, 12, 60).data;
    for (let at = 0; at < column.length; at += 4) {
      if (column.slice(at, at + 4).join() === wanted) found.add(name);
    }
  }
  return [...found].sort();
}"""


def test_what_lies_under_a_pending_token_is_drawn_as_stale(saved_page, eqspec):
    """After a rejection, the slot of the target's own token still holds the draft's K/V."""
    stepper, rows = saved_page(eqspec), eqspec.rows
    rejects = (rows["accepted"] < rows["drafted"]) & (rows["finished"] == 0)
    entry = int(rejects.argmax())
    row = int((rows["round"][:entry] == rows["round"][entry]).sum())
    stepper.go(5 * int(rows["round"][entry]) + 3, row)
    head, *lines = stepper.table("stage")
    (line,) = (line for line in lines if line[2] == "bonus, now pending")
    assert dict(zip(head, line, strict=True))["target K/V"] == "stale"
    place = stepper.find(f"row {row}, slot {line[0]}: bonus")
    stepper.page.mouse.move(2, 2)
    stepper.frame()
    assert "orange-soft" in stepper.canvas("stage").evaluate(UNDER, place)


def test_sentence_and_pool_say_the_same_of_who_waits(saved_page):
    trace = record("exspec", prompts=8, tokens=16)
    stepper, waiting = saved_page(trace), 0
    times = "( for the first time|, request \\d+( longest)?: passed over .* before)"
    told = re.compile(rf"\d+ sequences? waits?{times}\.")
    for number in range(trace.num_rounds):
        stepper.go(5 * number)
        if found := told.search(stepper.sentence()):
            assert found[0] in stepper.canvas("pool").get_attribute("aria-label")
            waiting += "passed over" in found[0]
    assert waiting > 3


FAULTY = {"positions": "inplace", "mask": "eqspec", "kv": "eqspec", "bonus": "eqspec"}


@functools.cache
def faulty(fault: str) -> sv.Trace:
    strategy = sv.strategy(FAULTY[fault], break_invariant=fault, rows=[1], from_round=1)
    return run_of(strategy, rows=3)


RED = [(panel, red) for panel in ("stage", "verify", "mask") for red in ("red", "red-soft")]
TELLING = re.compile(r"leak|hole\b|drift|≠|not its|indices|in no slot|yet |though|roken")


def signs_of_a_fault(stepper: Stepper) -> set[str]:
    pictures = stepper.root.locator(".sv-panel:visible canvas:visible")
    labels = pictures.evaluate_all("(all) => all.map((one) => one.ariaLabel)")
    texts = [*labels, stepper.root.inner_text()]
    return {found[0] for text in texts for found in TELLING.finditer(text)}


@pytest.mark.parametrize("fault", FAULTY)
def test_without_judging_no_fault_is_shown(saved_page, fault):
    """No step shows a fault in red or in words. With judging, the faulty row's steps show both."""
    for judge in (True, False):
        stepper, told = saved_page(faulty(fault), judge=judge), set()
        for step in range(5, 11):
            stepper.go(step, 1)
            stepper.frame()  # on a busy machine the mask is drawn a frame later
            told |= signs_of_a_fault(stepper)
            told |= {"red" for panel, red in RED if stepper.count(red, panel)}
        stepper.press("t")
        told |= signs_of_a_fault(stepper)
        assert ("red" in told and len(told) > 1) if judge else told == set(), told


@pytest.mark.parametrize("width", [390, 420, 700, 1200])
def test_the_phases_names_fit(saved_page, eqspec, width):
    names = saved_page(eqspec, viewport={"width": width, "height": 900}).root.locator(".sv-phase")
    hidden = "(names) => names.map((name) => name.scrollWidth - name.clientWidth)"
    assert names.evaluate_all(hidden) == [0] * 5


def test_a_short_run_takes_the_whole_width_of_the_batch(saved_page):
    trace = record("eqspec", prompts=2, tokens=8)
    stepper = saved_page(trace, viewport={"width": 2000, "height": 1000})
    stepper.press("End")
    x, _ = stepper.find(f"slot {int(trace.rounds['slots'][-1]) - 1}:")
    panel = stepper.panel("stage").bounding_box()
    assert x > panel["x"] + 0.75 * panel["width"]


# ---------------------------------------------------------------- for every reader


@pytest.mark.parametrize(
    ("width", "compared"), [(700, False), (700, True), (1000, True), (1400, False), (2000, True)]
)
def test_widths(saved_page, eqspec, width, compared):
    other = record("repadding") if compared else None
    stepper = saved_page(eqspec, other, viewport={"width": width, "height": 900})
    for step in (0, 8, 9):
        stepper.go(step)
        check_layout(stepper)
    stepper.press("t")
    check_layout(stepper)


def check_layout(stepper: Stepper) -> None:
    """Nothing sticks out to the right, and no panel covers another."""
    assert stepper.page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
    boxes = [panel.bounding_box() for panel in stepper.root.locator(".sv-panel:visible").all()]
    assert len(boxes) >= 3  # the map, the batch and what the lens shows
    assert [box for box in boxes if box["width"] < 200 or box["height"] < 20] == []
    assert [pair for pair in combinations(boxes, 2) if overlap(*pair) > 1] == []


def overlap(a: dict[str, float], b: dict[str, float]) -> float:
    """Return the smaller side, in px, of what two rectangles share; 0 or less without overlap."""
    return min(
        min(a[start] + a[size], b[start] + b[size]) - max(a[start], b[start])
        for start, size in (("x", "width"), ("y", "height"))
    )


STATES = ("pictures", "tables", "help", "violations", "two runs")
SEEN = [(state, look) for look in ("light", "forced light") for state in STATES]
SEEN += [(state, look) for look in ("dark", "forced dark") for state in ("pictures", "two runs")]


@pytest.mark.parametrize(("state", "look"), SEEN)
def test_no_accessibility_violation(saved_page, eqspec, state, look):
    broken = record("repadding")
    what = "violation" if state == "violations" else "rejection"
    first = broken if state == "violations" else eqspec
    stepper = saved_page(first, broken if state == "two runs" else None, **LOOKS[look])
    stepper.go(steps_of(first, what)[0])
    stepper.press(*{"tables": "t", "help": "?"}.get(state, ""))
    found = Axe().run(stepper.page).response
    assert found["passes"]
    nodes = [(each["id"], node["html"]) for each in found["violations"] for node in each["nodes"]]
    assert nodes == []


SOFT = [f"{name}-soft" for name in ("green", "orange", "amber", "blue", "red", "grey")]
ROWS = [f"row{number}" for number in range(6)]  # in the strip of the capacity
GROUNDS = [*SOFT, *ROWS, "page", "panel", "held", "prompt"]
TEXTS = {  # colours of text, and on what they stand
    "ink": GROUNDS,
    "muted": ["page", "panel", "grey-soft"],
    "red": ["page", "panel", "red-soft"],
    "orange": ["panel", "blue-soft"],
}
PALETTE = """(root, names) => Object.fromEntries(names.map((name) => {
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(root).getPropertyValue(`--sv-${name}`).trim();
  probe.fillRect(0, 0, 1, 1);
  return [name, [...probe.getImageData(0, 0, 1, 1).data]];
}))"""


@pytest.mark.parametrize("theme", THEMES)
def test_palette_is_readable(saved_page, eqspec, theme):
    """What a canvas draws, no accessibility checker sees: WCAG's contrast, 4.5 for text."""
    page = saved_page(eqspec, color_scheme=theme)
    colours = page.root.evaluate(PALETTE, [*TEXTS, *GROUNDS])
    assert all(colour[3] == 255 for colour in colours.values())
    pairs = [(text, ground) for text, grounds in TEXTS.items() for ground in grounds]
    low = [pair for pair in pairs if contrast(*(colours[name][:3] for name in pair)) < 4.5]
    assert low == []


def moving_step(trace: sv.Trace) -> int:
    """A step that shows K/V being moved."""
    stages = enumerate(stages_of(trace))
    return next(step for step, stage in stages if stage["moves"] and step % 5 == 4)


@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_motion_only_for_those_who_want_it(saved_page, eqspec, motion, moves):
    stepper = saved_page(eqspec, reduced_motion=motion)
    step = moving_step(eqspec)
    stepper.go(step - 1)
    pictures = stepper.canvas("stage").evaluate(
        """async (canvas) => {
          const seen = new Set();
          const began = performance.now();
          const press = new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true });
          const frame = () => new Promise((done) => requestAnimationFrame(done));
          canvas.closest('.specviz').dispatchEvent(press);
          while (performance.now() - began < 500) {
            await frame();
            await frame();
            seen.add(canvas.toDataURL());
          }
          return seen.size;
        }"""
    )
    stepper.is_at(step)
    assert (pictures > 2) == moves
    longest = stepper.root.evaluate(
        """(root) => Math.max(...[root, ...root.querySelectorAll('*')].flatMap((each) => {
          const { transitionDuration, animationDuration } = getComputedStyle(each);
          return `${transitionDuration},${animationDuration}`.split(',').map(parseFloat);
        }))"""
    )
    assert moves or longest < 0.001


def test_paper(saved_page, eqspec):
    """Light, without anything to press, every panel whole; a dark page prints like a light one."""
    stepper = saved_page(eqspec, color_scheme="dark", viewport={"width": 760, "height": 1000})
    page = stepper.page
    stepper.go(steps_of(eqspec, "rejection")[0])
    dark = stepper.digest()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 3
    assert stepper.digest() == dark
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert stepper.digest() != dark
    expect(stepper.root.locator(".sv-words")).to_be_visible()
    for role in ("button", "slider"):
        assert stepper.root.get_by_role(role).filter(visible=True).count() == 0
    ground = "(root) => [root, document.body].map((each) => getComputedStyle(each).backgroundColor)"
    assert {*stepper.root.evaluate(ground)} <= {"rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"}
    check_layout(stepper)
