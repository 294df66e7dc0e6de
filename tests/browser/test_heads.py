"""A page of a run in which a draft head drafts.

It says what the head is called, and what its K/V was made from.
"""

import functools
import re
from dataclasses import replace

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import make_prompts
from tiny_heads import STEPS, pair_with

import specviz as sv
from browser.runs import record
from browser.stepper import LOOKS
from browser.test_page import VISIT, check_layout
from specviz.record.schema import PHASES
from specviz.views.stepper.film import film

pytestmark = pytest.mark.browser
_, DRAFT, VERIFY, ACCEPT, _ = range(len(PHASES))
HEADS = ("eagle3", "clover", "medusa")


@functools.cache
def headed(kind: str) -> sv.Trace:
    return sv.generate(
        pair_with("llama", kind),
        [prompt for prompt in make_prompts() if len(prompt) < 20][:4],
        drafter=kind,
        strategy="eqspec",
        num_draft_tokens=STEPS,
        batch_size=3,
        max_new_tokens=12,
        record=True,
        progress=False,
    ).trace


def accepting(kind: str) -> tuple[int, int]:
    """Return a round and a row with an accepted draft whose request goes on."""
    rows = headed(kind).rows
    entry = np.flatnonzero((rows["accepted"] > 0) & (rows["finished"] == 0))[0]
    number = int(rows["round"][entry])
    return number, int(entry - np.flatnonzero(rows["round"] == number)[0])


@pytest.mark.parametrize("kind", HEADS)
def test_each_step_says_in_words_what_it_shows(saved_page, kind):
    stages = [stage for each in film(headed(kind))["rounds"] for stage in each["stages"]]
    words = [stage["words"] for stage in stages]
    seen = saved_page(headed(kind)).page.evaluate(VISIT, len(words))
    assert [told for told, (_, text, _) in zip(words, seen, strict=True) if told not in text] == []
    broken = re.compile("undefined|NaN|null|Infinity|object Object")
    for step, text, labels in seen:
        assert [label for label in labels if not label or broken.search(label)] == [], step
        assert "draft model" not in f"{text} {labels}", step


def test_a_slot_says_what_it_was_read_with_until_it_is_read_again(saved_page):
    stepper = saved_page(headed("eagle3"))
    number, row = accepting("eagle3")
    rows = headed("eagle3").rows
    entry = np.flatnonzero(rows["round"] == number)[row]
    index = int(rows["length"][entry])
    own = f"token {index}, read with the head's own feature of token {index - 1}"
    true = f"token {index}, read with the target's feature of token {index - 1}"
    for step, words in (
        (5 * number + VERIFY, own),
        (5 * number + ACCEPT, own),
        (5 * number + 5 + DRAFT, true),
    ):
        stepper.go(step, row)
        head, *lines = stepper.table("stage")
        assert head[-2:] == ["eagle3 head K/V", "what the eagle3 head read"]
        (line,) = (line for line in lines if line[3] == str(index))
        assert line[-1] == words
        stepper.find(words)


def test_guesses_are_broken_bars(saved_page):
    trace = headed("eagle3")
    number, row = accepting("eagle3")
    # Of this drafter all K/V counts as read with true features.
    certain = replace(trace, meta={**trace.meta, "draft_kv": "none"})
    full, dashed = (saved_page(each, judge=False) for each in (certain, trace))
    for stepper in (full, dashed):
        stepper.go(5 * number + ACCEPT, row)
    assert 0 < dashed.count("draft") < full.count("draft")
    for stepper, present in ((full, False), (dashed, True)):
        said = stepper.panel("stage").locator("canvas").nth(1).get_attribute("aria-label")
        assert ("K/V read with the head's own feature" in said) == present


def test_a_run_with_a_draft_model_keeps_its_words(saved_page):
    stepper = saved_page(record("inplace"))
    said = stepper.panel("stage").locator("canvas").nth(1).get_attribute("aria-label")
    assert "draft K/V" in said
    assert "head" not in said
    assert stepper.table("stage")[0][-1] == "draft K/V"


def test_a_head_without_kv_shows_none(saved_page):
    stepper = saved_page(headed("medusa"))
    stepper.go(DRAFT, 0)
    assert stepper.table("stage")[0][-1] == "target K/V"
    assert stepper.count("draft", "stage") == 0
    assert "nothing to mask" in stepper.canvas("mask").get_attribute("aria-label")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
@pytest.mark.parametrize("width", [700, 1400])
def test_nothing_is_covered_and_everything_has_a_name(saved_page, look, kind, width):
    window = {"width": width, "height": 900}
    stepper = saved_page(headed(kind), **LOOKS[look], viewport=window)
    number, row = accepting(kind)
    stepper.go(5 * number + DRAFT, row)
    check_layout(stepper)
    found = Axe().run(stepper.page).response
    assert found["passes"]
    assert [each["id"] for each in found["violations"]] == []
