"""Words that a reader needs are not cut off: on a phone, with 32 rows, and of two runs."""

import pytest
from playwright.sync_api import Page

import specviz as sv
from browser.runs import record
from browser.stepper import Stepper
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
ACCEPT, SYNCHRONISE = PHASES.index("accept"), PHASES.index("synchronise")
WIDTHS = (390, 1280)
LISTEN = """() => {
  window.drawn = [];
  const { prototype } = CanvasRenderingContext2D;
  const draw = prototype.fillText;
  prototype.fillText = function (text, ...at) { drawn.push(text); draw.call(this, text, ...at); };
}"""
# The list of rows with its chosen option alone is as wide as that option.
ROOM = """(list) => {
  const alone = list.cloneNode(false);
  alone.style.maxWidth = 'none';
  alone.append(list.selectedOptions[0].cloneNode(true));
  list.after(alone);
  const room = list.offsetWidth - alone.offsetWidth;
  alone.remove();
  return room;
}"""
CUT = """(nodes) => nodes
  .filter((node) => node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight)
  .map((node) => node.textContent)"""


def drawn(page: Page, stepper: Stepper, step: int, row: int) -> list[str]:
    """Return what is written into the pictures when the view goes to a step and a row."""
    page.evaluate(LISTEN)
    stepper.go(step, row)
    stepper.frame()
    return list(page.evaluate("drawn"))


@pytest.fixture(scope="module")
def many() -> sv.Trace:
    return record("inplace", prompts=32, tokens=8, batch_size=32)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_the_last_row_of_many_are_whole(saved_page, many, width):
    stepper = saved_page(many, viewport={"width": width, "height": 844})
    said = drawn(stepper.page, stepper, ACCEPT, 31)
    assert "row 31" in said
    assert "request 31" in said or width > 390  # a low map does not show all requests
    assert [text for text in said if text.startswith(("each", "own", "row ", "request"))] != []
    cut = [text for text in said if text.endswith("…")]
    assert [text for text in cut if text.startswith(("ea", "ow", "row", "req"))] == []
    assert stepper.root.get_by_role("combobox", name="row").evaluate(ROOM) >= 0


def test_a_long_token_leaves_its_probability(saved_page, many):
    """On a phone, the card of a token of ten letters has its p at the end."""
    stepper = saved_page(many, viewport={"width": 390, "height": 844})
    said = drawn(stepper.page, stepper, ACCEPT, 8)
    [card] = [text for text in said if text.startswith("·Type") and text[-1].isdigit()]
    assert card.split()[-1].startswith("0.")


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_sentences_of_two_runs_are_whole(saved_page, width):
    strategy = sv.strategy("inplace", break_invariant="kv", rows=[2], from_round=3)
    given = {"batch_size": 4, "max_new_tokens": 24, "record": True, "progress": False}
    pair, prompts = sv.load_pair(device="cpu"), sv.load_prompts(limit=4)
    broken = sv.generate(pair, prompts, strategy=strategy, **given).trace
    right = record("inplace", tokens=24)
    stepper = saved_page(broken, right, viewport={"width": width, "height": 844})
    for step in (0, ACCEPT, SYNCHRONISE):
        stepper.go(step, 2)
        facts = stepper.root.locator(".sv-title span:last-child, .sv-stage h3")
        assert facts.evaluate_all(CUT) == []
        assert stepper.root.locator(".sv-words:visible").evaluate_all(CUT) == []


def test_the_sentence_of_two_lanes_fits_a_phone(offline_page, tmp_path):
    """The page says why it opens where it does; that is its longest sentence."""
    pair, prompts = sv.load_pair(device="cpu"), sv.load_prompts(limit=4)
    given = {"batch_size": 4, "max_new_tokens": 16, "record": True, "progress": False}
    two = sv.generate(pair, prompts, lanes=2, **given)
    path = tmp_path / "lanes.html"
    sv.step_through(*(lane.trace for lane in two.lanes)).export_html(path)
    with offline_page(viewport={"width": 390, "height": 844}) as page:
        page.goto(path.as_uri())
        words = Stepper(page.locator(".specviz")).wait().root.locator(".sv-words:visible")
        assert "gains most" in words.inner_text()
        assert words.evaluate_all(CUT) == []
