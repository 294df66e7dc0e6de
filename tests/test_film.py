"""`film` says what the record says.

Lanes, feeds and moves are expanded and compared with it, for every strategy, with and without
faults.
"""

import functools
import gc
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import EOS, make_pair, make_prompts
from tiny_run import TRACE

import specviz as sv
from specviz.engine.strategies import STRATEGIES
from specviz.record.replay import Frame, Replay
from specviz.record.schema import BONUS, EMPTY, MODELS, PADDING, PHASES, PROMPT, STATES
from specviz.record.trace import Trace
from specviz.views.stepper import film as film_module
from specviz.views.stepper.film import film
from specviz.views.stepper.lanes import KINDS

PROMPTS = [prompt for prompt in make_prompts() if len(prompt) < 20]  # eight
BUDGETS = [1, 2, 3, 24, 7, 24, 4, 1]  # some end within the accepted drafts, some at once
# By name: the strategy, its options, and what else is given to `generate`.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "autoregressive": ("autoregressive", {}, {}),
    "rollback": ("rollback", {}, {}),
    "masking by column": ("masking", {"positions": "column"}, {}),
    "repadding": ("repadding", {}, {}),
    "eqspec": ("eqspec", {}, {}),
    "eqspec, static": ("eqspec", {"refill": False}, {}),
    "exspec": ("exspec", {"window": 6}, {}),
    "exspec, partial": ("exspec", {"window": 6, "fallback": "partial"}, {}),
    "exspec, wait": ("exspec", {"window": 8, "fallback": "wait", "max_wait": 2}, {}),
    "inplace": ("inplace", {}, {}),
    "wrong positions": ("eqspec", {"break_invariant": "positions", "from_round": 2}, {}),
    "wrong mask": ("inplace", {"break_invariant": "mask", "rows": [0, 2], "from_round": 1}, {}),
    "slipped kv": ("eqspec", {"break_invariant": "kv", "rows": [1], "from_round": 2}, {}),
    "slipped kv in a pool": ("exspec", {"break_invariant": "kv", "window": 6}, {}),
    "wrong bonus": ("eqspec", {"break_invariant": "bonus"}, {}),
    "lookup": ("eqspec", {}, {"drafter": "lookup"}),
    "one draft": ("eqspec", {}, {"num_draft_tokens": 1}),
    "many drafts": ("masking", {}, {"num_draft_tokens": 8, "max_new_tokens": BUDGETS}),
    "sampled": ("rollback", {}, {"sampling": sv.SamplingParams(0.8)}),
    "tetris": ("inplace", {}, {"selector": sv.selector("tetris", extra=2), "num_draft_tokens": 2}),
    "tetris, realigned": (
        "eqspec",
        {},
        {"selector": sv.selector("tetris", extra=1), "num_draft_tokens": 2},
    ),
    "threshold": ("masking", {}, {"selector": sv.selector("threshold", at_least=0.18)}),
    "one row": ("eqspec", {}, {"batch_size": 1, "prompts": PROMPTS[2:4]}),
}
VERIFY = PHASES.index("verify")


@functools.cache
def recorded(name: str) -> Trace:
    strategy, options, more = RUNS[name]
    given = {"prompts": PROMPTS, "num_draft_tokens": 4, "batch_size": 4, "max_new_tokens": 12}
    given |= more
    chosen = sv.strategy(strategy, **options)
    pair = make_pair("llama")
    return sv.generate(pair, **given, strategy=chosen, record=True, progress=False).trace


@functools.cache
def filmed(name: str) -> dict[str, Any]:
    return film(recorded(name))


every_run = pytest.mark.parametrize("name", RUNS)


class Lanes:
    """Lanes of a film, expanded to (5, T): kind, index, position, request, token."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self.cells = functools.cache(self._expanded)

    def _expanded(self, number: int) -> np.ndarray:
        runs = self._runs(number)
        assert [run[0] for run in runs] == [0, *(run[1] for run in runs[:-1])], "none is missing"
        cells = [cell for run in runs for cell in self._cells(*run)]
        return np.array(cells, np.int64).reshape(-1, 5).T

    def _runs(self, number: int) -> list[Any]:
        lane = self._told["lanes"][number]
        if not lane or isinstance(lane[0], list):
            return lane
        base, count, *runs = lane
        assert base < number
        return [*self._runs(base)[:count], *runs]

    def _cells(
        self, first: int, stop: int, kind: int, index: int, position: int, request: int, tokens: Any
    ) -> list[tuple[int, ...]]:
        size = stop - first
        if request < 0:
            assert tokens == 0
            return [(kind, -1, -1, -1, -1)] * size
        tokens = tokens or self._told["requests"][request]["tokens"][index : index + size]
        # A position that is not known is -1 throughout.
        positions = [-1 if position < 0 else position + j for j in range(size)]
        return [(kind, index + j, positions[j], request, tokens[j]) for j in range(size)]


@functools.cache
def lanes_of(name: str) -> Lanes:
    return Lanes(filmed(name))


@functools.cache
def stages(name: str) -> list[tuple[Frame, dict[str, Any]]]:
    """Every frame with its stage of the film."""
    rounds = filmed(name)["rounds"]
    frames = Replay(recorded(name)).frames()
    return [(each, rounds[each.round]["stages"][PHASES.index(each.phase)]) for each in frames]


def told_stages(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [stage for each in told["rounds"] for stage in each["stages"]]


@pytest.mark.sweep(12)
@every_run
def test_lanes_of_the_caches_are_what_the_frames_hold(name):
    lanes = lanes_of(name)
    kinds = ["held" if PROMPT <= code <= BONUS else state for code, state in enumerate(STATES)]
    kind_of = np.array([KINDS.index(kind) for kind in kinds])
    for frame, stage in stages(name):
        assert stage["width"] == frame.target.state.shape[1]
        for key in ("lengths", "starts", "pending"):
            assert stage[key] == getattr(frame, key).tolist()
        for model in MODELS:
            held = getattr(frame, model)
            found = np.stack([lanes.cells(number) for number in stage[model]], axis=1)  # (5, B, T)
            shown = (held.state != EMPTY) & (held.state != PADDING) & (held.request >= 0)
            names = ("index", "position", "request", "token")
            columns = [np.where(shown, getattr(held, column), -1) for column in names]
            wanted = np.stack([kind_of[held.state], *columns])
            assert np.array_equal(found, wanted), (frame.round, frame.phase, model)


class ExpectedTokens:
    """The lane of tokens of a row, slot by slot, from a frame and the record's tables alone."""

    def __init__(self, trace: Trace, frame: Frame) -> None:
        here = trace.rows["round"] == frame.round
        self.rows = {name: column[here].tolist() for name, column in trace.rows.items()}
        self.trace, self.frame = trace, frame
        self.judged = frame.phase in ("accept", "synchronise")
        names = ("state", "index", "position", "request", "token")
        self.held = [getattr(frame.target, name).tolist() for name in names]
        feeds = trace.feeds
        verified = (feeds["round"] == frame.round) & (feeds["phase"] == VERIFY)
        verified &= feeds["model"] == 0
        columns = ("row", "slot", "index", "position", "token")
        reads = (feeds[name][verified].tolist() for name in columns)
        self.unverified = self._left_out()
        self.verified: dict[tuple[int, int], tuple[int, ...]] = {}
        for cache_row, slot, *read in zip(*reads, strict=True):
            if cache_row in self.rows["row"]:
                row = self.rows["row"].index(cache_row)
                if read[0] >= self.rows["length"][row]:  # a draft, not the pending token
                    self.verified[row, slot] = tuple(read)

    def _left_out(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By row and slot, index and token of the drafts that the target does not read."""
        found = {}
        names = ("pending", "length", "drafted", "verified", "drafts")
        columns = zip(*(self.rows[name] for name in names), strict=True)
        for row, (pending, length, drafted, verified, drafts) in enumerate(columns):
            for number in range(verified, drafted):
                found[row, pending + 1 + number] = (length + number, drafts[number])
        return found

    def cell(self, row: int, slot: int) -> tuple[str, int, int, int, int]:
        """Kind, index, position, request and token; the last four are -1 without a token."""
        if slot < self.frame.target.state.shape[1]:
            code, index, position, request, token = (column[row][slot] for column in self.held)
        else:  # behind the cache, which grows with the next phase
            code, index, position, request, token = EMPTY, -1, -1, -1, -1
        state = STATES[code]
        own = self.rows["request"][row]
        if self.frame.phase == "draft" and (row, slot) in self.verified:
            index, position, token = self.verified[row, slot]
            return "drafted", index, position, own, token
        if self.frame.phase == "draft" and (row, slot) in self.unverified:
            index, token = self.unverified[row, slot]
            return "unverified", index, -1, own, token
        if self._resumes(row, slot):
            state = "pending"
        elif state == "pending" and self._resumes(row):
            return self._stale_kind(row, slot, index, token), index, position, request, token
        if state == "pending":
            index = int(self.frame.lengths[row]) - 1
            text = self.trace.prompt(own) + self.trace.output(own)
            kept = min(self.rows["accepted"][row], self.rows["gained"][row])
            bonus = self.judged and self.rows["gained"][row] > kept
            return "bonus_now" if bonus else "pending", index, ANY, own, text[index]
        if state in ("empty", "padding"):
            return state, -1, -1, -1, -1
        if state == "stale":
            state = self._stale_kind(row, slot, index, token)
        elif self.judged and index >= self.rows["length"][row] and state in ("accepted", "bonus"):
            position = ANY if state == "bonus" else position
            state = f"{state}_now"
        return state, index, position, request, token

    def _resumes(self, row: int, slot: int | None = None) -> bool:
        """Whether a row's last token, just accepted, goes on in another slot (in `slot`)."""
        names = ("finished", "start", "start_after", "pending_after")
        finished, start, start_after, goes_on = (self.rows[name][row] for name in names)
        if self.frame.phase != "accept" or finished or start != start_after:
            return False
        return goes_on != self.frame.pending[row] and slot in (None, goes_on)

    def _stale_kind(self, row: int, slot: int, index: int, token: int) -> str:
        draft = index - self.rows["length"][row]  # from 0
        accepted = self.rows["accepted"][row]
        read = self.verified.get((row, slot), (-1, -1, -1))
        is_draft = (read[0], read[2]) == (index, token)
        if not (self.judged and is_draft and accepted <= draft < self.rows["drafted"][row]):
            return "stale"
        if draft < accepted + self.rows["discarded"][row]:
            return "discarded_now"
        rejected = draft == accepted < self.rows["gained"][row]
        return "rejected_now" if rejected else "unreached_now"


ANY = -2  # a position that another test compares


@pytest.mark.sweep(4)
@every_run
def test_the_lane_of_tokens_is_what_the_record_says(name):
    """All but the position of a pending token, which the next test compares."""
    trace, requests = recorded(name), filmed(name)["requests"]
    lanes, kinds = lanes_of(name), Counter()
    origins = {"p": "prompt", "a": "accepted", "b": "bonus"}
    for frame, stage in stages(name):
        expected = ExpectedTokens(trace, frame)
        for row, number in enumerate(stage["tokens"]):
            for slot, (code, *found) in enumerate(lanes.cells(number).T.tolist()):
                kind = KINDS[code]
                kinds[kind] += 1
                if kind == "held":
                    kind = origins[requests[found[2]]["origins"][found[0]]]
                wanted_kind, *wanted = expected.cell(row, slot)
                if wanted[1] == ANY:
                    wanted[1] = found[1]
                place = (frame.round, frame.phase, row, slot)
                assert (kind, found) == (wanted_kind, wanted), place
    assert kinds["held"]
    if name not in ("autoregressive", "wrong bonus"):
        assert min(kinds["drafted"], kinds["accepted_now"]) > 0
        assert (kinds["unreached_now"] > 0) == (trace.meta["num_draft_tokens"] > 1)
    assert (kinds["discarded_now"] > 0) == (name in ("rollback", "sampled"))
    assert (kinds["unverified"] > 0) == ("selector" in RUNS[name][2])


def test_a_pending_token_has_the_position_that_it_is_fed_with():
    """Derived from columns, it runs ahead of the index by the holes of the row."""
    name = "masking by column"
    lanes, feeds, drifts = lanes_of(name), recorded(name).feeds, 0
    fed = (feeds["phase"] == VERIFY) & (feeds["model"] == 0)
    for frame, stage in stages(name):
        next_round = frame.round + (frame.phase in ("accept", "synchronise"))
        for number, slot in zip(stage["tokens"], stage["pending"], strict=True):
            kind, index, position, request, _ = lanes.cells(number)[:, slot].tolist()
            if KINDS[kind] not in ("pending", "bonus_now"):
                continue
            coming = fed & (feeds["round"] >= next_round)
            coming &= (feeds["request"] == request) & (feeds["index"] == index)
            assert position == (feeds["position"][coming][0] if coming.any() else index)
            drifts += position != index
    assert drifts > 20


@every_run
def test_feeds_are_what_was_read_and_seen(name):
    trace, hidden = recorded(name), filmed(name)["holes"]
    feeds = trace.feeds
    names = ("model", "step", "slot", "index", "position")
    for frame, stage in stages(name):
        found = []
        for model, step, row, slot, count, index, position, see, until, holes in stage["feeds"]:
            unseen = {slot for start, stop in hidden[holes] for slot in range(start, stop)}
            for j in range(count):
                seen = sorted({*range(see, until + j)} - unseen)
                found.append((row, model, step, slot + j, index + j, position + j, seen))
        at = trace.index.feeds_by_stage.at(frame.round * len(PHASES) + PHASES.index(frame.phase))
        rows = {request: row for row, request in enumerate(frame.requests.tolist())}
        places = zip(feeds["request"][at].tolist(), feeds["row"][at].tolist(), strict=True)
        numbers = [rows.get(request, -1 - row) for request, row in places]
        columns = (feeds[column][at].tolist() for column in names)
        seen = [np.flatnonzero(line).tolist() for line in trace.index.visible(at)]
        assert found == list(zip(numbers, *columns, seen, strict=True))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled, monkeypatch):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        film(TRACE)
        assert gc.isenabled() == enabled
        monkeypatch.setattr(film_module, "MAX_RUNS", 0)
        with pytest.raises(ValueError, match="too much to step through"):
            film(TRACE)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


@every_run
def test_moves_are_those_of_the_record(name):
    trace = recorded(name)
    names = ("model", "step", "from_row", "from_slot", "to_row", "to_slot", "length")
    for frame, stage in stages(name):
        rows = trace.rows["row"][trace.rows["round"] == frame.round].tolist()
        at = trace.index.moves_by_stage.at(frame.round * len(PHASES) + PHASES.index(frame.phase))
        wanted = [list(move) for move in np.stack([trace.moves[name][at] for name in names], 1)]
        found = [[*move] for move in stage["moves"]]
        for move in found:
            for place in (2, 4):  # rows of the batch become those of the cache
                move[place] = rows[move[place]] if move[place] >= 0 else -1 - move[place]
        assert found == wanted


@every_run
def test_rounds_and_rows_are_those_of_the_record(name):
    trace, told = recorded(name), filmed(name)
    rows, requests = trace.rows, told["requests"]
    entries = [(number, row) for number, each in enumerate(told["rounds"]) for row in each["rows"]]
    assert [number for number, _ in entries] == rows["round"].tolist()
    for n, (_, row) in enumerate(entries):
        for column, values in rows.items():
            if values.ndim == 1 and column != "round":
                assert row[column] == values[n], column
        k, first, last = row["drafted"], row["length"], row["length"] + row["gained"]
        assert row["drafts"] == rows["drafts"][n, :k].tolist()
        assert row["emitted"] == rows["emitted"][n, : row["gained"]].tolist()
        assert row["emitted"] == requests[row["request"]]["tokens"][first:last]
        assert_probabilities(row["q"], rows["draft_logprob"][n, :k])
        assert_probabilities(row["p"], rows["target_logprob"][n, :k])
        for model, columns in (("target", k + 1), ("draft", k)):
            assert len(row[model]) == columns
            for j, choices in enumerate(row[model]):
                ids = rows[f"{model}_top_ids"][n, j]
                assert [token for token, _ in choices] == ids[ids >= 0].tolist()
                logprobs = rows[f"{model}_top_logprobs"][n, j]
                assert_probabilities([p for _, p in choices], logprobs[ids >= 0])
    pool = [
        {"round": number, **row}
        for number, each in enumerate(told["rounds"])
        for row in each["pool"]
    ]
    assert pool == [
        dict(zip(trace.pool, values, strict=True))
        for values in zip(*(column.tolist() for column in trace.pool.values()), strict=True)
    ]
    assert bool(pool) == (trace.meta["strategy"] == "exspec")


def assert_probabilities(found: list[float | None], logprobs: np.ndarray) -> None:
    """Four digits of each, None for none."""
    assert [p is None for p in found] == np.isnan(logprobs).tolist()
    known = [p for p in found if p is not None]
    assert known == [float(f"{p:.4g}") for p in known]
    assert np.allclose(known, np.exp(logprobs[~np.isnan(logprobs)]), rtol=6e-4, atol=1e-25)
    assert all(0 <= p <= 1 for p in known)


@every_run
def test_violations_lie_where_they_happened(name):
    trace, told = recorded(name), filmed(name)
    found = sv.check_invariants(trace)
    assert [each["message"] for each in told["violations"]] == [str(each) for each in found]
    places = {
        (number, frame.round, frame.phase)
        for frame, stage in stages(name)
        for number in stage["violations"]
    }
    assert places == {(number, each.round, each.phase) for number, each in enumerate(found)}
    assert bool(found) == (not trace.meta["valid"])


def test_who_does_not_judge_is_not_told_what_is_violated():
    told, plain = filmed("wrong mask"), film(recorded("wrong mask"), judge=False)
    assert told["violations"]
    assert plain["violations"] is None
    judged = {"words", "words_of", "violations", "faults"}
    pairs = list(zip(told_stages(told), told_stages(plain), strict=True))
    assert any("Violation" in one["words"] for one, _ in pairs)
    for one, other in pairs:
        assert other["violations"] == other["faults"] == []
        assert "iolat" not in " ".join([other["words"], *other["words_of"]])
        assert all(other[name] == value for name, value in one.items() if name not in judged)


@every_run
def test_a_film_is_plain_json_in_which_lanes_and_holes_are_told_once(name):
    told = filmed(name)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert plain_types(told) <= {dict, list, str, int, float, bool, type(None)}
    assert told["holes"][0] == []
    stages = told_stages(told)
    models = ("tokens", "target", "draft")
    lanes = {number for stage in stages for which in models for number in stage[which]}
    holes = {run[-1] for stage in stages for run in stage["feeds"]}
    for table, used in (("lanes", lanes), ("holes", holes | {0})):
        assert used == set(range(len(told[table])))
        assert len({json.dumps(each) for each in told[table]}) == len(told[table])


def plain_types(value: Any) -> set[type]:
    """The exact types of everything in it: numpy's float64 would pass for a float."""
    inner: list[Any] = []
    if type(value) is dict:
        inner = [*value, *value.values()]
    elif type(value) is list:
        inner = value
    return {type(value)}.union(*map(plain_types, inner))


def test_options_are_told_where_they_are_not_the_usual_ones():
    def told(**meta: Any) -> dict[str, Any]:
        return film(replace(TRACE, meta=TRACE.meta | meta))["options"]

    for name, kind in STRATEGIES.items():
        assert told(strategy=name, strategy_options=kind().options) == {}
    unusual = {"window": 8, "max_wait": 4, "refill": False, "sort_prompts": True}
    usual = {"fallback": "realign", "break_invariant": None}
    assert told(strategy_options=unusual | usual) == unusual


def test_a_film_by_hand():
    """Round 0 of the hand-written run.

    Row 0 rejects both drafts, although the second is the token that it commits later. Row 1 accepts
    both.
    """
    told = film(TRACE)
    empty, padding, held, drafted, stale, pending, accepted, bonus, _, _, unreached = range(11)

    def lane(phase: str, which: str, row: int) -> Any:
        stage = told["rounds"][0]["stages"][PHASES.index(phase)]
        return told["lanes"][stage[which][row]]

    assert told["requests"][1] == {
        "prompt": 2,
        "tokens": [20, 21, 22, 23, 24, 2],
        "origins": "ppaabb",
        "budget": 9,
    }
    assert lane("schedule", "tokens", 0) == [
        [0, 3, held, 0, 0, 0, 0],
        [3, 4, pending, 3, 3, 0, 0],
        [4, 6, empty, -1, -1, -1, 0],
    ]
    assert lane("draft", "tokens", 0) == [
        [0, 3, held, 0, 0, 0, 0],
        [3, 4, pending, 3, 3, 0, 0],
        [4, 6, drafted, 4, 4, 0, [14, 15]],
    ]
    assert (
        lane("draft", "target", 0)
        == lane("schedule", "target", 0)
        == [[0, 3, held, 0, 0, 0, 0], [3, 4, pending, -1, -1, -1, 0], [4, 6, empty, -1, -1, -1, 0]]
    )
    assert lane("verify", "tokens", 0) == [
        [0, 4, held, 0, 0, 0, 0],
        [4, 6, drafted, 4, 4, 0, [14, 15]],
    ]
    assert lane("accept", "tokens", 0) == [
        [0, 4, held, 0, 0, 0, 0],
        [4, 5, bonus, 4, 4, 0, 0],
        [5, 6, unreached, 5, 5, 0, 0],
        [6, 7, empty, -1, -1, -1, 0],
    ]
    assert lane("accept", "target", 0) == [
        [0, 4, held, 0, 0, 0, 0],
        [4, 5, pending, 4, 4, 0, [14]],
        [5, 6, stale, 5, 5, 0, 0],
        [6, 7, empty, -1, -1, -1, 0],
    ]
    assert lane("accept", "tokens", 1) == [
        [0, 2, padding, -1, -1, -1, 0],
        [2, 4, held, 0, 0, 1, 0],
        [4, 6, accepted, 2, 2, 1, 0],
        [6, 7, bonus, 4, 4, 1, 0],
    ]
    stage = told["rounds"][0]["stages"][PHASES.index("synchronise")]
    assert stage["moves"] == [[0, 0, 1, 2, 1, 0, 4], [1, 0, 1, 2, 1, 0, 3]]
    assert told["rounds"][0]["stages"][PHASES.index("verify")]["feeds"] == [
        [0, 0, 0, 3, 3, 3, 3, 0, 4, 0],
        [0, 0, 1, 3, 3, 1, 1, 2, 4, 0],
    ]


@pytest.mark.parametrize("name", ["many drafts", "exspec"])
def test_the_order_of_a_records_tables_does_not_matter(name):
    """Stages back to front, as another recorder might write them.

    What happened at the same time keeps its order.
    """
    trace = recorded(name)
    tables: dict[str, Any] = {}
    for table in ("feeds", "moves", "pool"):
        columns = getattr(trace, table)
        order = np.argsort(
            -columns["round"].astype(np.int64) * len(PHASES) - columns.get("phase", 0),
            kind="stable",
        )
        tables[table] = {column: values[order] for column, values in columns.items()}
        if table == "feeds":
            place = np.empty(order.size, np.int32)
            place[order] = np.arange(order.size)
            tables["holes"] = trace.holes | {"feed": place[trace.holes["feed"]]}
    assert film(replace(trace, **tables)) == filmed(name)


def test_the_step_through_needs_no_torch(tmp_path):
    path = tmp_path / "run.safetensors"
    TRACE.save(path)
    load = f"import sys, specviz as sv; sv.step_through(sv.Trace.load({str(path)!r}))"
    code = f"{load}; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_what_cannot_be_shown_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="trace=None: this run was not recorded"):
        film(None)
    remedy = "record fewer prompts or fewer new tokens"
    monkeypatch.setattr(film_module, "MAX_RUNS", 50)
    with pytest.raises(ValueError, match=rf"more than 50 blocks of slots by round 1.*{remedy}"):
        film(TRACE)
    monkeypatch.setattr(film_module, "MAX_ROWS", 5)
    with pytest.raises(ValueError, match=rf"trace has 6 rows in 3 rounds.*{remedy}"):
        film(TRACE)


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_film_of_a_run_without_rows(rounds):
    empty = {
        table: {name: values[:0] for name, values in getattr(TRACE, table).items()}
        for table in ("rows", "feeds", "holes", "moves")
    }
    blank = {name: np.zeros(rounds, values.dtype) for name, values in TRACE.rounds.items()}
    told = film(replace(TRACE, **empty, rounds=blank))
    assert (len(told["rounds"]), told["lanes"], told["violations"]) == (rounds, [], [])
    assert all(stage["tokens"] == stage["words_of"] == [] for stage in told_stages(told))


def test_non_finite_values_stay_out_of_the_json():
    """Log-probabilities may be unknown, or those of impossible tokens.

    All other non-finite values are refused when a record is made.
    """
    logprobs = np.full((6, 2), -np.inf, np.float32)
    logprobs[0] = np.nan, 0.001
    told = film(replace(TRACE, rows=TRACE.rows | {"draft_logprob": logprobs}))
    json.dumps(told, allow_nan=False)
    assert [row["q"] for row in told["rounds"][0]["rows"]] == [[None, 1], [0, 0]]


def test_runs_hold_what_the_tests_are_about():
    """The runs hold every case: EOS within the accepted drafts, and a budget that cuts.

    Lanes also begin with an earlier lane's runs, and rows take another row's place or wait in a
    pool.
    """
    rows = recorded("many drafts").rows
    cut = (rows["accepted"] + 1 > rows["gained"]) & (rows["finished"] == 1)
    last = rows["emitted"][np.arange(rows["gained"].size), np.maximum(rows["gained"] - 1, 0)]
    assert (cut & np.isin(last, EOS)).any()
    assert (cut & ~np.isin(last, EOS)).any()
    assert any(type(lane[0]) is int for lane in filmed("many drafts")["lanes"])
    assert len(filmed("many drafts")["holes"]) > 9
    assert (recorded("eqspec").moves["from_row"] != recorded("eqspec").moves["to_row"]).any()
    assert (recorded("exspec").pool["chosen"] == 0).any()
    pooled = told_stages(filmed("exspec"))
    assert any(min(move[2], move[4]) < 0 for stage in pooled for move in stage["moves"])
    assert any(run[2] < 0 for stage in pooled for run in stage["feeds"])
