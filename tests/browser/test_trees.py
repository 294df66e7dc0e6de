"""A page of a run whose drafts branch: the panel of the tree, and what it lights up elsewhere."""

import functools
import re

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import specviz as sv
from browser.runs import record
from browser.stepper import LOOKS
from browser.test_page import VISIT, check_layout
from specviz.record.schema import PHASES
from specviz.views.stepper.film import film

pytestmark = pytest.mark.browser
SCHEDULE, _, VERIFY, ACCEPT, _ = range(len(PHASES))


@functools.cache
def branching() -> sv.Trace:
    return sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=3),
        strategy="inplace",
        drafter="tree",
        num_draft_tokens=6,
        batch_size=3,
        max_new_tokens=16,
        record=True,
        progress=False,
    ).trace


def moved_row() -> tuple[int, int]:
    """Return a round and a row in which the target's K/V of accepted drafts moves."""
    trace = branching()
    moves = trace.moves
    at = np.flatnonzero((moves["phase"] == ACCEPT) & (moves["model"] == 0))[0]
    number = int(moves["round"][at])
    rows = trace.rows["row"][trace.rows["round"] == number].tolist()
    return number, rows.index(int(moves["to_row"][at]))


def entry_of(number: int, row: int) -> dict[str, list[int]]:
    rows = branching().rows
    at = np.flatnonzero(rows["round"] == number)[row]
    return {name: rows[name][at].tolist() for name in ("parents", "path", "accepted", "drafted")}


def test_each_step_says_in_words_what_it_shows(saved_page):
    stages = [s for each in film(branching(), judge=False)["rounds"] for s in each["stages"]]
    words = [stage["words"] for stage in stages]
    seen = saved_page(branching(), judge=False).page.evaluate(VISIT, len(words))
    assert [told for told, (_, text, _) in zip(words, seen, strict=True) if told not in text] == []
    broken = re.compile("undefined|NaN|null|Infinity|object Object")
    for step, _, labels in seen:
        assert [label for label in labels if not label or broken.search(label)] == [], step


def test_the_table_of_the_tree_is_what_the_record_says(saved_page):
    stepper = saved_page(branching(), judge=False)
    number, row = moved_row()
    entry = entry_of(number, row)
    stepper.go(5 * number + SCHEDULE, row)
    assert len(stepper.table("tree")) == 1
    stepper.go(5 * number + ACCEPT, row)
    head, *lines = stepper.table("tree")
    assert head[:3] == ["draft", "follows", "depth"]
    assert [line[0] for line in lines] == [f"d{n + 1}" for n in range(entry["drafted"])]
    follows = ["pending" if p < 0 else f"d{p + 1}" for p in entry["parents"]]
    assert [line[1] for line in lines] == follows[: entry["drafted"]]
    accepted = [n for n, line in enumerate(lines) if line[-1].startswith("accepted")]
    assert accepted == entry["path"][: entry["accepted"]]


def test_a_draft_lights_its_branch_in_the_batch_and_its_query_in_the_mask(saved_page):
    stepper = saved_page(branching(), judge=False)
    number, row = moved_row()
    stepper.go(5 * number + VERIFY, row)
    mask = stepper.count("blue", "mask")
    before = [stepper.count("blue", panel) for panel in ("tree", "stage")]
    last = entry_of(number, row)["path"]
    deepest = max(last)
    stepper.find(f"d{deepest + 1} ", "tree")
    after = [stepper.count("blue", panel) for panel in ("tree", "stage")]
    assert all(new > old for new, old in zip(after, before, strict=True))
    # The first draft follows the pending token alone, so fewer slots are framed.
    stepper.find("d1 ", "tree")
    assert stepper.count("blue") < after[1]
    stepper.page.mouse.move(1, 1)
    assert [stepper.count("blue", panel) for panel in ("tree", "stage")] == before
    stepper.look("mask")
    rows = branching().rows
    pending = int(rows["pending"][rows["round"] == number][row])
    stepper.find(f"row {row}, slot {pending + 1 + deepest}:")
    assert stepper.count("blue", "mask") > mask


def test_arrow_keys_go_from_draft_to_draft_and_not_from_step_to_step(saved_page):
    stepper = saved_page(branching(), judge=False)
    number, row = moved_row()
    step = 5 * number + ACCEPT
    stepper.go(step, row)
    stepper.canvas("tree").focus()
    said = stepper.panel("tree").locator(".sv-said")
    stepper.page.keyboard.press("ArrowRight")
    expect(said).to_have_text(re.compile("^d1 "))
    stepper.page.keyboard.press("ArrowRight")
    child = entry_of(number, row)["parents"].index(0)
    expect(said).to_have_text(re.compile(f"^d{child + 1} "))
    stepper.is_at(step, row)
    stepper.press("ArrowRight")
    stepper.is_at(step + 1)


def test_arrows_stand_in_the_phase_that_accepts_alone(saved_page):
    stepper = saved_page(branching(), judge=False)
    number, row = moved_row()
    stepper.go(5 * number + ACCEPT, row)
    moved = stepper.count("green")
    stepper.go(5 * number + ACCEPT + 1, row)
    # The arrows' lines alone: all else that is green is the same in both phases.
    assert moved - stepper.count("green") > 20


def test_a_run_of_chains_has_no_such_panel(saved_page):
    stepper = saved_page(record("inplace"))
    expect(stepper.root.locator(".sv-tree")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("width", [700, 1400])
def test_nothing_is_covered_and_everything_has_a_name(saved_page, look, width):
    window = {"width": width, "height": 900}
    stepper = saved_page(branching(), judge=False, **LOOKS[look], viewport=window)
    number, row = moved_row()
    stepper.go(5 * number + ACCEPT, row)
    check_layout(stepper)
    found = Axe().run(stepper.page).response
    assert found["passes"]
    assert [each["id"] for each in found["violations"]] == []
