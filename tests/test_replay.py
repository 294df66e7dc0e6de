"""Replay: each slot's token and state after each phase, for a run written by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_film import recorded
from tiny_run import TRACE, changed, fill, make_trace

from specviz.record.replay import Frame, Replay, Slots
from specviz.record.schema import (
    ACCEPTED,
    BONUS,
    DRAFTED,
    EMPTY,
    MODELS,
    PADDING,
    PENDING,
    PHASES,
    PROMPT,
    STALE,
    STATES,
    Table,
)
from specviz.record.trace import Trace

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
    frames = list(Replay(TRACE).frames())
    assert [(frame.round, frame.phase) for frame in frames] == list(PICTURES)
    for frame, expected in zip(frames, PICTURES.values(), strict=True):
        assert picture(frame.target) + picture(frame.draft) == expected, (frame.round, frame.phase)


def test_a_frame_tells_which_token_lies_where():
    frame = Replay(TRACE).frame(0, "synchronise")
    assert frame.requests.tolist() == [0, 1]
    assert frame.lengths.tolist() == [5, 5]
    assert frame.starts.tolist() == [0, 0]
    assert frame.target.token.tolist() == [[10, 11, 12, 13, 14, 15], [20, 21, 22, 23, 22, 23]]
    assert frame.draft.index.tolist() == [[0, 1, 2, 3, 4, -1], [0, 1, 2, 1, 2, -1]]
    assert {
        values.dtype.name
        for values in (frame.requests, frame.lengths, frame.starts, frame.draft.position)
    } == {"int32"}
    assert frame.target.state.dtype == np.uint8


class Plainly:
    """A replay in plain loops, with a dictionary as the cache.

    It maps (model, row, slot) to (request, token, index, position, round, age). An age is the
    number of the last write and, for a moved slot, the age that it had before.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.cells, self.writes = trace, {}, 0

    def apply(self, stage: int) -> None:
        moves = self.entries(self.trace.moves, stage)
        feeds = self.entries(self.trace.feeds, stage)
        for step in sorted({step for step, _ in (*moves, *feeds)}):
            self.writes += 1
            before = dict(self.cells)
            for at in (at for of, at in moves if of == step):
                model, source, first, row, slot, length = (
                    int(self.trace.moves[name][at])
                    for name in ("model", "from_row", "from_slot", "to_row", "to_slot", "length")
                )
                for j in range(length):
                    self.cells.pop((model, row, slot + j), None)
                    if (model, source, first + j) in before:
                        self.cells[model, row, slot + j] = (
                            *before[model, source, first + j][:-1],
                            (self.writes, *before[model, source, first + j][-1]),
                        )
            self.writes += 1
            for at in (at for of, at in feeds if of == step):
                model, row, slot, *cell = (
                    int(self.trace.feeds[name][at])
                    for name in (
                        "model",
                        "row",
                        "slot",
                        "request",
                        "token",
                        "index",
                        "position",
                        "round",
                    )
                )
                self.cells[model, row, slot] = (*cell, (self.writes,))

    def entries(self, table: Table, stage: int) -> list[tuple[int, int]]:
        """The step and the number of each entry of a stage."""
        round, phase = divmod(stage, len(PHASES))
        found = []
        for at, step in enumerate(table["step"].tolist()):
            if table["round"][at] == round and table["phase"][at] == phase:
                found.append((step, at))
        return found

    def born(self, request: int) -> list[int]:
        """The round in which each token of a request was committed, -1 for its prompt."""
        rows, found = self.trace.rows, [-1] * len(self.trace.prompt(request))
        for round, of, gained in zip(
            *(rows[name].tolist() for name in ("round", "request", "gained")), strict=True
        ):
            found += [round] * gained * (of == request)
        return found

    def states(self, frame: Frame, number: int, row: int, model: int) -> list[int]:
        request, n = int(frame.requests[number]), int(frame.lengths[number])
        text, origins = (
            self.trace.prompt(request) + self.trace.output(request),
            self.trace.origins(request),
        )
        start, pending = int(frame.starts[number]), int(frame.pending[number])
        held = {
            slot: self.cells.get((model, row, slot)) for slot in range(frame.target.state.shape[1])
        }
        own = {
            slot: cell
            for slot, cell in held.items()
            if cell and cell[0] == request and slot >= start
        }
        born = self.born(request)
        right = {
            slot: cell
            for slot, cell in own.items()
            if cell[2] < n and text[cell[2]] == cell[1] and born[cell[2]] <= cell[4]
        }
        last = {
            cell[2]: max(each[-1] for each in right.values() if each[2] == cell[2])
            for cell in right.values()
        }
        valid = {slot: cell[2] for slot, cell in right.items() if cell[-1] == last[cell[2]]}
        found = []
        for slot in held:
            fresh = (
                slot in own
                and own[slot][2] >= n
                and own[slot][4] == frame.round
                and PHASES.index(frame.phase) < 3
            )
            state = DRAFTED if fresh else STALE if slot in own else EMPTY
            state = PADDING if slot < start else origins[valid[slot]] if slot in valid else state
            found.append(
                PENDING
                if slot == pending and slot not in valid and n - 1 not in valid.values()
                else int(state)
            )
        return found


@pytest.mark.parametrize(
    "name",
    [
        "masking by column",
        "repadding",
        "eqspec, static",
        "exspec",
        "slipped kv",
        "many drafts, small budgets",
    ],
)
def test_frames_are_those_of_a_plain_replay(name):
    trace, seen = recorded(name), set()
    plainly = Plainly(trace)
    for frame in Replay(trace).frames():
        plainly.apply(frame.round * len(PHASES) + PHASES.index(frame.phase))
        rows = trace.rows["row"][trace.rows["round"] == frame.round].tolist()
        for model, slots in enumerate((frame.target, frame.draft)):
            for number, row in enumerate(rows):
                assert slots.state[number].tolist() == plainly.states(frame, number, row, model), (
                    frame.round,
                    frame.phase,
                    model,
                    row,
                )
                cells = [
                    plainly.cells.get((model, row, slot), (-1,) * 4)[:4]
                    for slot in range(slots.state.shape[1])
                ]
                columns = (slots.request, slots.token, slots.index, slots.position)
                assert (
                    list(zip(*(column[number].tolist() for column in columns), strict=True))
                    == cells
                )
                seen |= set(slots.state[number].tolist())
    assert seen >= {EMPTY, PADDING, PROMPT, BONUS, ACCEPTED, DRAFTED, STALE, PENDING}


def test_slots_that_nothing_has_changed_are_the_very_same():
    """A frame shares the unchanged cache with the frame before it.

    That is the target's cache in a draft phase, and the draft's while the target verifies.
    """
    frames = {(frame.round, frame.phase): frame for frame in Replay(TRACE).frames()}
    for number in range(3):
        schedule, draft, verify, accept, _ = (frames[number, phase] for phase in PHASES)
        assert schedule.target is draft.target
        assert draft.draft is verify.draft
        assert draft.target is not verify.target
        assert verify.target is not accept.target


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(len(PICTURES))))
def test_frames_in_any_order_equal_frames_in_order(order):
    in_order, trace = list(Replay(TRACE).frames()), make_trace()
    for number in order:
        expected = in_order[number]
        frame = Replay(trace).frame(expected.round, expected.phase)
        for model in MODELS:
            for name in ("request", "token", "index", "position", "state"):
                assert np.array_equal(
                    getattr(getattr(frame, model), name), getattr(getattr(expected, model), name)
                )


@pytest.mark.parametrize(("number", "phase"), [(3, "draft"), (-1, "draft"), (0, "sync")])
def test_a_frame_that_does_not_exist_is_refused(number, phase):
    with pytest.raises(ValueError, match=f"round={number}, phase='{phase}' is not in the record"):
        Replay(TRACE).frame(number, phase)


def test_moves_of_one_step_read_before_they_write():
    """Two rows swap places in the last phase.

    Each then holds the other's request, so its own cells are empty.
    """
    names = "round phase step model from_row from_slot to_row to_slot length"
    swap = changed(
        "moves", **fill("moves", names, [(2, 4, 0, 0, 0, 0, 1, 0, 9), (2, 4, 0, 0, 1, 0, 0, 0, 9)])
    )
    before, after = (
        Replay(swap).frame(2, "accept").target.token,
        Replay(swap).frame(2, "synchronise").target.token,
    )
    assert np.array_equal(after[:, :9], before[::-1, :9])


def test_a_token_written_elsewhere_leaves_no_pending_slot():
    """With holes, the pending token's K/V lies behind start + n - 1.

    The slot at start + n - 1 keeps its state.
    """
    feeds = TRACE.feeds
    entry = (
        (feeds["round"] == 1) & (feeds["phase"] == 2) & (feeds["row"] == 1) & (feeds["index"] == 4)
    )
    trace = changed("feeds", slot=np.where(entry, 6, feeds["slot"]).astype(np.int32))
    last = (
        (feeds["round"] == 1) & (feeds["phase"] == 2) & (feeds["row"] == 1) & (feeds["index"] == 6)
    )
    trace = replace(
        trace, feeds=trace.feeds | {"slot": np.where(last, 4, trace.feeds["slot"]).astype(np.int32)}
    )
    assert picture(Replay(trace).frame(1, "verify").target)[1] == "PPAAddB"


def test_a_finished_row_may_stay_without_gaining():
    trace = changed("rows", gained=np.array([1, 3, 2, 1, 3, 0], np.int32))
    assert Replay(trace).frame(2, "accept").lengths.tolist() == [10, 3]
    assert picture(Replay(trace).frame(2, "accept").target)[1] == "----PPPxx."


def test_slots_of_different_shapes_are_refused():
    slots = Replay(TRACE).frame(0, "draft").target
    with pytest.raises(ValueError, match=r"share one \(B, T\) shape"):
        replace(slots, state=slots.state[:1])


def test_a_rejected_draft_that_the_text_repeats_later_stays_stale():
    """Its K/V was computed behind another token, although the id at that index is the same."""
    trace, found = recorded("masking by column"), 0
    for frame in Replay(trace).frames():
        held = frame.target
        for number, request in enumerate(frame.requests.tolist()):
            text = trace.prompt(request) + trace.output(request)
            for slot in np.flatnonzero(held.state[number] == STALE).tolist():
                found += held.request[number, slot] == request and text[
                    held.index[number, slot] : held.index[number, slot] + 1
                ] == [held.token[number, slot]]
    assert found > 0
