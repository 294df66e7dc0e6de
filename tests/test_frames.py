"""Replay: which token lies in which slot after each phase, and in which state, for a run written by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_run import TRACE, changed, fill, make_trace

from specviz.frames import Slots
from specviz.trace import MODELS, STATES

LETTERS = dict(zip(".-PABdx?", STATES, strict=True))
# After each phase: the target's rows, then the draft's. Worked out by hand from the tables above.
PICTURES = {
    (0, "schedule"): ["PPP?..", "--P?..", "PPP?..", "--P?.."],
    (0, "draft"): ["PPP?..", "--P?..", "PPPPd.", "--PPd."],
    (0, "verify"): ["PPPPdd", "--PPdd", "PPPPd.", "--PPd."],
    (0, "accept"): ["PPPP?x.", "--PPAA?", "PPPP?..", "--PPA.?"],
    (0, "synchronise"): ["PPPP?x", "PPAA?x", "PPPP?.", "PPAx?."],
    (1, "schedule"): ["PPPP?x.", "PPAA?x.", "PPPP?..", "PPAx?.."],
    (1, "draft"): ["PPPP?x.", "PPAA?x.", "PPPPBd.", "PPAABd."],
    (1, "verify"): ["PPPPBdd", "PPAABdd", "PPPPBd.", "PPAABd."],
    (1, "accept"): ["PPPPBA?", "PPAAB?x", "PPPPBA?", "PPAAB?."],
    (1, "synchronise"): ["PPPPBA?", "PPAAB?x", "PPPPBA?", "PPAAB?."],
    (2, "schedule"): ["PPPPBA?..", "----PP?..", "PPPPBA?..", "----PP?.."],
    (2, "draft"): ["PPPPBA?..", "----PP?..", "PPPPBABd.", "----PPPd."],
    (2, "verify"): ["PPPPBABdd", "----PPPdd", "PPPPBABd.", "----PPPd."],
    (2, "accept"): ["PPPPBABAA?", "----PPP?x.", "PPPPBABA.?", "----PPP?.."],
    (2, "synchronise"): ["PPPPBABAA?", "------PPP?", "PPPPBABA.?", "------PPP?"],
}


def picture(slots: Slots) -> list[str]:
    letters = "".join(LETTERS)
    return ["".join(letters[state] for state in row) for row in slots.state]


def test_slot_states_are_those_worked_out_by_hand():
    frames = list(TRACE.frames())
    assert [(frame.round, frame.phase) for frame in frames] == list(PICTURES)
    for frame, expected in zip(frames, PICTURES.values(), strict=True):
        assert picture(frame.target) + picture(frame.draft) == expected, (frame.round, frame.phase)


def test_a_frame_tells_which_token_lies_where():
    frame = TRACE.frame(0, "synchronise")
    assert frame.requests.tolist() == [0, 1]
    assert frame.lengths.tolist() == [5, 5]
    assert frame.starts.tolist() == [0, 0]
    assert frame.target.token.tolist() == [[10, 11, 12, 13, 14, 15], [20, 21, 22, 23, 22, 23]]
    assert frame.draft.index.tolist() == [[0, 1, 2, 3, 4, -1], [0, 1, 2, 1, 2, -1]]
    assert {values.dtype.name for values in (frame.requests, frame.lengths, frame.starts, frame.draft.position)} == {"int32"}
    assert frame.target.state.dtype == np.uint8


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(len(PICTURES))))
def test_frames_in_any_order_equal_frames_in_order(order):
    in_order, trace = list(TRACE.frames()), make_trace()
    for number in order:
        expected = in_order[number]
        frame = trace.frame(expected.round, expected.phase)
        for model in MODELS:
            for name in ("request", "token", "index", "position", "state"):
                assert np.array_equal(getattr(getattr(frame, model), name), getattr(getattr(expected, model), name))


@pytest.mark.parametrize(("number", "phase"), [(3, "draft"), (-1, "draft"), (0, "sync")])
def test_a_frame_that_does_not_exist_is_refused(number, phase):
    with pytest.raises(ValueError, match=f"no phase '{phase}' of round {number}"):
        TRACE.frame(number, phase)


def test_moves_of_one_step_read_before_they_write():
    """Two rows swap places in the last phase; each then holds the other's request, so its own cells are empty."""
    names = "round phase step model from_row from_slot to_row to_slot length"
    swap = changed("moves", **fill("moves", names, [(2, 4, 0, 0, 0, 0, 1, 0, 9), (2, 4, 0, 0, 1, 0, 0, 0, 9)]))
    before, after = swap.frame(2, "accept").target.token, swap.frame(2, "synchronise").target.token
    assert np.array_equal(after[:, :9], before[::-1, :9])


def test_a_token_written_elsewhere_leaves_no_pending_slot():
    """With holes, the pending token's K/V lies behind start + n - 1, and the slot there stays what it was."""
    feeds = TRACE.feeds
    entry = (feeds["round"] == 1) & (feeds["phase"] == 2) & (feeds["row"] == 1) & (feeds["index"] == 4)
    trace = changed("feeds", slot=np.where(entry, 6, feeds["slot"]).astype(np.int32))
    last = (feeds["round"] == 1) & (feeds["phase"] == 2) & (feeds["row"] == 1) & (feeds["index"] == 6)
    trace = replace(trace, feeds=trace.feeds | {"slot": np.where(last, 4, trace.feeds["slot"]).astype(np.int32)})
    assert picture(trace.frame(1, "verify").target)[1] == "PPAAddB"


def test_a_finished_row_may_stay_without_gaining():
    trace = changed("rows", gained=np.array([1, 3, 2, 1, 3, 0], np.int32))
    assert trace.frame(2, "accept").lengths.tolist() == [10, 3]
    assert picture(trace.frame(2, "accept").target)[1] == "----PPPxx."


def test_slots_of_different_shapes_are_refused():
    slots = TRACE.frame(0, "draft").target
    with pytest.raises(ValueError, match=r"share one \(B, T\) shape"):
        replace(slots, state=slots.state[:1])
