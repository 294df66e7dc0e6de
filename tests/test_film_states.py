"""Films of models that keep states or have windows: what each row goes on from, and sees there.

The expected values are worked out from the record's tables and from the texts.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import test_layer_masks
import test_states
from conftest import NEW_TOKENS, generate, make_prompts
from mutations import edited

import specviz as sv
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace
from specviz.views.stepper.film import film

VERIFY, ACCEPT = 2, 3
STRATEGIES = ("inplace", "eqspec", "exspec", "masking")
Film = dict[str, Any]


@functools.cache
def recorded(strategy: str, fault: str | None = None) -> Trace:
    broken = {"break_invariant": fault, "rows": [1], "from_round": 2} if fault else {}
    how = sv.strategy(strategy, **broken)
    if fault == "window":
        pair = test_layer_masks.pair_of("gemma3_text")
        prompts: list[Any] = make_prompts()
    else:
        pair = test_states.pair_of("lfm2")
        prompts = test_states.PROMPTS
    options = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    return generate(pair, prompts, strategy=how, record=True, **options).trace


def of_rows(made: Film, phase: int) -> Iterator[tuple[Film, int, Film, list[list[Any]]]]:
    """Yield stage, number of the row, its entry and the target's marks, for all rows of a phase."""
    for scene in made["rounds"]:
        stage = scene["stages"][phase]
        for number, row in enumerate(scene["rows"]):
            yield stage, number, row, stage["states"][0][number]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_state_behind_the_last_accepted_draft_is_kept(strategy: str) -> None:
    made = film(recorded(strategy))
    going_on = 0
    for stage, number, row, marks in of_rows(made, ACCEPT):
        indices = {kind: [mark[2] for mark in marks if mark[0] == kind] for kind, *_ in marks}
        left = [row["length"] - 1 + n for n in range(row["verified"] + 1)]
        if not row["gained"]:  # the request has finished, and its row runs along
            continue
        if row["finished"]:
            assert "kept" not in indices
            continue
        going_on += 1
        kept = row["length"] - 1 + min(row["accepted"], row["gained"])
        assert indices["kept"] == [kept]
        assert indices.get("dropped", []) == [index for index in left if index != kept]
        assert set(indices) <= {"kept", "dropped"}
        words = stage["words_of"][number]
        assert re.search(
            rf"of {len(left)} states? it keeps the one after index {kept}, which", words
        )
        drafts = kept - row["length"] + 1
        read = {0: "token but", 1: "the accepted draft but"}.get(
            drafts, f"{drafts} accepted drafts but"
        )
        assert read in words
    assert going_on > 10
    for *_, row, marks in of_rows(made, VERIFY):
        opened = [index for kind, _, index, _ in marks if kind == "open"]
        if row["gained"]:
            assert opened == [row["length"] - 1 + n for n in range(row["verified"] + 1)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mark_stands_in_the_slot_of_the_last_token_that_was_read(strategy: str) -> None:
    trace = recorded(strategy)
    made, replay = film(trace), Replay(trace)
    feeds = pd.DataFrame(trace.feeds)
    seen = 0
    for number, scene in enumerate(made["rounds"]):
        for phase, stage in zip(PHASES, scene["stages"], strict=True):
            held = replay.frame(number, phase).target
            own = feeds.query("round == @number and phase == @VERIFY")
            for row, marks in enumerate(stage["states"][0]):
                left = own[own["request"] == scene["rows"][row]["request"]]
                slot_of = dict(zip(left["index"], left["slot"], strict=True))
                for kind, slot, index, request in marks:
                    if kind in ("open", "dropped"):
                        assert slot == slot_of[index]
                    assert held.index[row, slot] == index
                    assert held.request[row, slot] == request == scene["rows"][row]["request"]
                    seen += 1
    assert seen > 100


def test_a_row_that_goes_on_from_wrong_states_shows_which_are_due() -> None:
    trace = recorded("eqspec", "state")
    made = film(trace)
    broken = {each.request for each in sv.check_invariants(trace) if each.model == "target"}
    assert broken
    of_request: dict[int, set[str]] = {}
    for *_, row, marks in of_rows(made, VERIFY):
        of_request.setdefault(row["request"], set()).update(kind for kind, *_ in marks)
    for request, kinds in of_request.items():
        assert ("wrong" in kinds) == ("due" in kinds) == (request in broken)
    first = sv.check_invariants(trace)
    first = next(each for each in first if each.model == "target")
    for phase in (VERIFY, ACCEPT):  # of the round that reads them, and of the one that left them
        scene = made["rounds"][first.round - (phase == ACCEPT)]
        number = [row["request"] for row in scene["rows"]].index(first.request)
        marks = {mark[0]: mark for mark in scene["stages"][phase]["states"][0][number]}
        due, wrong = marks["due"][2], marks["wrong"][2]
        assert wrong > due
        assert f"after index {due}" in first.expected
        words = scene["stages"][phase]["words_of"][number]
        assert f"the state after index {wrong} instead of the one after index {due}" in words


def test_a_damaged_record_has_a_film() -> None:
    trace = recorded("eqspec")
    reading = np.flatnonzero(trace.states["phase"] == VERIFY)[-1]  # a row that goes on
    for column, value in (("feed", -1), ("feed", 0), ("row", 2), ("round", 0), ("step", 7)):
        damaged = edited(trace, "states", int(reading), **{column: value})
        assert film(damaged)["violations"]
        words = str(film(damaged, judge=False)["rounds"])
        assert ("will go on from no state" in words) == (value == -1)


def test_a_film_that_is_not_judged_calls_no_state_wrong() -> None:
    made = film(recorded("eqspec", "state"), judge=False)
    kinds = {mark[0] for *_, marks in of_rows(made, VERIFY) for mark in marks}
    assert kinds == {"open", "kept"}
    words = " ".join(words for stage, *_ in of_rows(made, ACCEPT) for words in stage["words_of"])
    assert "it keeps" in words
    assert "instead" not in words
    assert "rejected" not in words


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_windows_begin_where_the_last_tokens_do(strategy: str) -> None:
    options = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    pair = test_layer_masks.pair_of("gemma3_text")
    made = film(generate(pair, make_prompts(), strategy=strategy, record=True, **options).trace)
    narrowed = 0
    for scene in made["rounds"]:
        for stage in scene["stages"]:
            for run, window in zip(stage["feeds"], stage["windows"], strict=True):
                count, see, until, hidden = run[4], *run[7:]
                holes = {
                    slot for first, stop in made["holes"][hidden] for slot in range(first, stop)
                }
                for n in range(count):
                    seen = [slot for slot in range(see, until + n) if slot not in holes]
                    assert window["starts"][n] == seen[-test_layer_masks.WIDTH :][0]
                    narrowed += len(seen) > test_layer_masks.WIDTH
                assert "due" not in window
    assert narrowed > 100


def test_windows_that_begin_elsewhere_than_they_should_say_so() -> None:
    trace = recorded("eqspec", "window")
    made, plain = film(trace), film(trace, judge=False)
    rows = set()
    for scene in made["rounds"]:
        for stage in scene["stages"]:
            for run, window in zip(stage["feeds"], stage["windows"], strict=True):
                if "due" in window:
                    assert np.less(window["due"], window["starts"]).any()
                    rows.add(run[2])
    assert rows == {1}
    due = [
        window
        for scene in plain["rounds"]
        for stage in scene["stages"]
        for window in stage["windows"]
        if "due" in window
    ]
    assert not due


def test_what_a_model_lacks_is_not_in_its_film() -> None:
    with_states, with_windows = film(recorded("eqspec")), film(recorded("eqspec", "window"))
    for made, names in ((with_states, {"states"}), (with_windows, {"windows"})):
        keys = set(made["rounds"][0]["stages"][0])
        assert keys & {"states", "windows"} == names
    # The draft model is of the target's kind and keeps states of its own.
    first = with_states["rounds"][0]["stages"][PHASES.index("verify")]
    assert [len(rows) for rows in first["states"]] == [3] * len(MODELS)
    assert "the draft model went on from" in with_states["rounds"][0]["stages"][1]["words_of"][0]
