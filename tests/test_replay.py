"""Replay: each slot's token and state after each phase, for a run written by hand."""

import numpy as np
import pytest
from test_film import recorded
from tiny_run import TRACE, changed, fill

from specviz.record.replay import Frame, Replay, Slots
from specviz.record.schema import (
    ACCEPTED,
    BONUS,
    DRAFTED,
    EMPTY,
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


def numbers(table: Table, entry: int, names: tuple[str, ...]) -> list[int]:
    return [int(table[name][entry]) for name in names]


class Plainly:
    """A replay in plain loops, with a dictionary as the cache.

    It maps (model, row, slot) to (request, token, index, position, round, age). An age is the
    number of the last write and, for a moved slot, the age that it had before.
    """

    def __init__(self, trace: Trace):
        self.trace, self.cells, self.writes = trace, {}, 0

    def apply(self, stage: int):
        moves = self.entries(self.trace.moves, stage)
        feeds = self.entries(self.trace.feeds, stage)
        for step in sorted({step for step, _ in (*moves, *feeds)}):
            self.writes += 1
            before = dict(self.cells)
            for at in (at for of, at in moves if of == step):
                names = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")
                model, source, first, row, slot, length = numbers(self.trace.moves, at, names)
                for j in range(length):
                    self.cells.pop((model, row, slot + j), None)
                    if (model, source, first + j) in before:
                        *cell, age = before[model, source, first + j]
                        self.cells[model, row, slot + j] = (*cell, (self.writes, *age))
            self.writes += 1
            for at in (at for of, at in feeds if of == step):
                names = ("model", "row", "slot", "request", "token", "index", "position", "round")
                model, row, slot, *cell = numbers(self.trace.feeds, at, names)
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
        start, pending = int(frame.starts[number]), int(frame.pending[number])
        text = self.trace.prompt(request) + self.trace.output(request)
        origins = self.trace.origins(request)
        born = self.born(request)
        width = frame.target.state.shape[1]
        own, right, newest = {}, {}, {}
        for slot in range(start, width):
            cell = self.cells.get((model, row, slot))
            if cell is None or cell[0] != request:
                continue
            own[slot] = cell
            _, token, index, _, written, age = cell
            if index < n and text[index] == token and born[index] <= written:
                right[slot] = index, age
                newest[index] = max(newest.get(index, ()), age)
        valid = {slot: index for slot, (index, age) in right.items() if age == newest[index]}
        found = [int(EMPTY)] * width
        found[:start] = [int(PADDING)] * start
        for slot, (_, _, index, _, written, _) in own.items():
            drafting = frame.phase in ("schedule", "draft", "verify")
            fresh = index >= n and written == frame.round and drafting
            found[slot] = int(DRAFTED if fresh else STALE)
        for slot, index in valid.items():
            found[slot] = int(origins[index])
        if 0 <= pending < width and pending not in valid and n - 1 not in valid.values():
            found[pending] = int(PENDING)
        return found


@pytest.mark.parametrize(
    "name",
    [
        "masking by column",
        "repadding",
        "eqspec, static",
        "exspec",
        "slipped kv",
        "many drafts",
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


def test_a_frame_does_not_depend_on_those_before_it():
    replay = Replay(TRACE)
    for number, phase in [(2, "draft"), (0, "verify"), (1, "accept")]:
        frame = replay.frame(number, phase)
        assert picture(frame.target) + picture(frame.draft) == PICTURES[number, phase]
    for number, phase in [(3, "draft"), (-1, "draft"), (0, "sync")]:
        with pytest.raises(ValueError, match=f"round={number}, phase='{phase}' is not in the"):
            replay.frame(number, phase)


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
    here = (feeds["round"] == 1) & (feeds["phase"] == 2) & (feeds["row"] == 1)
    slots = feeds["slot"].copy()
    slots[here & (feeds["index"] == 4)] = 6
    slots[here & (feeds["index"] == 6)] = 4
    trace = changed("feeds", slot=slots)
    assert picture(Replay(trace).frame(1, "verify").target)[1] == "PPAAddB"
