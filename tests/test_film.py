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
RUNS: dict[
    str, tuple[str, dict[str, Any], dict[str, Any]]
] = {  # strategy, its options, and what else differs from the settings below
    "autoregressive": ("autoregressive", {}, {}),
    "rollback": ("rollback", {}, {}),
    "masking": ("masking", {}, {}),
    "masking by column": ("masking", {"positions": "column"}, {}),
    "repadding": ("repadding", {}, {}),
    "repadding, valid": ("repadding", {"ones_mask": False, "draft_bonus": False}, {}),
    "eqspec": ("eqspec", {}, {}),
    "eqspec, static": ("eqspec", {"refill": False}, {}),
    "exspec": ("exspec", {"window": 6}, {}),
    "exspec, partial": ("exspec", {"window": 6, "fallback": "partial"}, {}),
    "exspec, wait": ("exspec", {"window": 8, "fallback": "wait", "max_wait": 2}, {}),
    "inplace": ("inplace", {}, {}),
    "wrong positions": (
        "eqspec",
        {"break_invariant": "positions", "rows": [1], "from_round": 2},
        {},
    ),
    "wrong mask": ("inplace", {"break_invariant": "mask", "rows": [0, 2], "from_round": 1}, {}),
    "slipped kv": ("eqspec", {"break_invariant": "kv", "rows": [1], "from_round": 2}, {}),
    "slipped kv in a pool": ("exspec", {"break_invariant": "kv", "window": 6}, {}),
    "wrong bonus": ("eqspec", {"break_invariant": "bonus"}, {}),
    "lookup": ("eqspec", {}, {"drafter": "lookup"}),
    "one draft": ("eqspec", {}, {"num_draft_tokens": 1}),
    "many drafts, small budgets": (
        "masking",
        {},
        {"num_draft_tokens": 8, "max_new_tokens": BUDGETS},
    ),
    "sampled": ("rollback", {}, {"sampling": sv.SamplingParams(0.8)}),
    "one row": ("eqspec", {}, {"batch_size": 1, "prompts": PROMPTS[2:4]}),
}


@functools.cache
def recorded(name: str) -> Trace:
    strategy, options, more = RUNS[name]
    given: dict[str, Any] = {
        "num_draft_tokens": 4,
        "batch_size": 4,
        "max_new_tokens": 12,
        "record": True,
        "progress": False,
    } | more
    trace = sv.generate(
        make_pair("llama"),
        given.pop("prompts", PROMPTS),
        strategy=sv.strategy(strategy, **options),
        **given,
    ).trace
    assert trace is not None
    return trace


@functools.cache
def filmed(name: str) -> dict[str, Any]:
    return film(recorded(name))


every_run = pytest.mark.parametrize("name", RUNS)


class Lanes:
    """Lanes of a film, expanded to (5, T): kind, index, position, request, token."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._known: dict[int, np.ndarray] = {}

    def cells(self, number: int) -> np.ndarray:
        if number not in self._known:
            runs = self.runs(number)
            assert [run[0] for run in runs] == [0, *(run[1] for run in runs[:-1])], (
                "runs follow each other"
            )
            self._known[number] = (
                np.array([cell for run in runs for cell in self._cells(*run)], np.int64)
                .reshape(-1, 5)
                .T
            )
        return self._known[number]

    def runs(self, number: int) -> list[Any]:
        lane = self._told["lanes"][number]
        if not lane or isinstance(lane[0], list):
            return lane
        base, count, *runs = lane
        assert base < number
        return [*self.runs(base)[:count], *runs]

    def _cells(
        self, first: int, stop: int, kind: int, index: int, position: int, request: int, tokens: Any
    ) -> list[tuple[int, ...]]:
        if request < 0:
            assert tokens == 0
            return [(kind, -1, -1, -1, -1)] * (stop - first)
        size = stop - first
        tokens = tokens or self._told["requests"][request]["tokens"][index : index + size]
        return [(kind, index + j, position + j, request, tokens[j]) for j in range(size)]


def stages(trace: Trace, told: dict[str, Any]):
    """Every frame with its stage of the film."""
    for frame in Replay(trace).frames():
        yield frame, told["rounds"][frame.round]["stages"][PHASES.index(frame.phase)]


@every_run
def test_lanes_of_the_caches_are_what_the_frames_hold(name):
    trace, told = recorded(name), filmed(name)
    lanes = Lanes(told)
    kind_of = {
        code: KINDS.index("held" if PROMPT <= code <= BONUS else state)
        for code, state in enumerate(STATES)
    }
    for frame, stage in stages(trace, told):
        assert stage["width"] == frame.target.state.shape[1]
        for key in ("lengths", "starts", "pending"):
            assert stage[key] == getattr(frame, key).tolist()
        for model in MODELS:
            held = getattr(frame, model)
            found = np.stack([lanes.cells(number) for number in stage[model]], axis=1)  # (5, B, T)
            assert np.array_equal(found[0], np.vectorize(kind_of.get)(held.state))
            shown = (held.state != EMPTY) & (held.state != PADDING) & (held.request >= 0)
            for plane, column in enumerate(("index", "position", "request", "token"), 1):
                assert np.array_equal(found[plane], np.where(shown, getattr(held, column), -1)), (
                    frame.round,
                    frame.phase,
                    model,
                    column,
                )


class ExpectedTokens:
    """The lane of tokens of a row, slot by slot, from a frame and the record's tables alone."""

    def __init__(self, trace: Trace, frame: Frame) -> None:
        here = trace.rows["round"] == frame.round
        self.rows = {name: column[here].tolist() for name, column in trace.rows.items()}
        self.trace, self.frame = trace, frame
        self.judged = frame.phase in ("accept", "synchronise")
        feeds = trace.feeds
        verified = (
            (feeds["round"] == frame.round) & (feeds["phase"] == VERIFY) & (feeds["model"] == 0)
        )
        columns = ("row", "slot", "index", "position", "token")
        self.verified: dict[tuple[int, int], tuple[int, int, int]] = {}
        for cache_row, slot, *read in zip(
            *(feeds[name][verified].tolist() for name in columns), strict=True
        ):
            if cache_row in self.rows["row"]:
                row = self.rows["row"].index(cache_row)
                if read[0] >= self.rows["length"][row]:  # a draft, not the pending token
                    self.verified[row, slot] = tuple(read)

    def cell(self, row: int, slot: int) -> tuple[str, int, int, int, int]:
        """Kind, index, position, request and token; the last four are -1 without a token."""
        held = self.frame.target
        state = STATES[held.state[row, slot]]
        names = ("index", "position", "request", "token")
        index, position, request, token = (int(getattr(held, name)[row, slot]) for name in names)
        if self.frame.phase == "draft" and (row, slot) in self.verified:
            index, position, token = self.verified[row, slot]
            return "drafted", index, position, self.rows["request"][row], token
        if state == "pending":
            index = int(self.frame.lengths[row]) - 1
            request = self.rows["request"][row]
            text = self.trace.prompt(request) + self.trace.output(request)
            kept = min(self.rows["accepted"][row], self.rows["gained"][row])
            bonus = self.judged and self.rows["gained"][row] > kept
            return "bonus_now" if bonus else "pending", index, ANY, request, text[index]
        if state in ("empty", "padding"):
            return state, -1, -1, -1, -1
        if state == "stale":
            kind = self._stale_kind(row, slot, index, token)
            return kind, index, position, request, token
        if self.judged and index >= self.rows["length"][row] and state in ("accepted", "bonus"):
            kind = f"{state}_now"
            return kind, index, ANY if kind == "bonus_now" else position, request, token
        return state, index, position, request, token

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


VERIFY = PHASES.index("verify")
ANY = -2  # a position that another test compares


@every_run
def test_the_lane_of_tokens_is_what_the_record_says(name):
    """All but the position of a pending token, which the next test compares."""
    trace, told = recorded(name), filmed(name)
    lanes, kinds = Lanes(told), Counter()
    for frame, stage in stages(trace, told):
        expected = ExpectedTokens(trace, frame)
        for row, number in enumerate(stage["tokens"]):
            for slot, (code, *found) in enumerate(lanes.cells(number).T.tolist()):
                kind = KINDS[code]
                kinds[kind] += 1
                if kind == "held":
                    letter = told["requests"][found[2]]["origins"][found[0]]
                    kind = {"p": "prompt", "a": "accepted", "b": "bonus"}[letter]
                wanted_kind, *wanted = expected.cell(row, slot)
                if wanted[1] == ANY:
                    wanted[1] = found[1]
                place = (frame.round, frame.phase, row, slot)
                assert (kind, found) == (wanted_kind, wanted), place
    assert kinds["held"]
    if name not in ("autoregressive", "wrong bonus"):
        assert min(kinds[kind] for kind in ("drafted", "accepted_now")) > 0
        assert (kinds["unreached_now"] > 0) == (trace.meta["num_draft_tokens"] > 1)
    assert (kinds["discarded_now"] > 0) == (name in ("rollback", "sampled"))


def test_a_pending_token_has_the_position_that_it_is_fed_with():
    """Derived from columns, it runs ahead of the index by the holes of the row."""
    trace, told = recorded("masking by column"), filmed("masking by column")
    lanes, feeds, drifts = Lanes(told), trace.feeds, 0
    fed = (feeds["phase"] == PHASES.index("verify")) & (feeds["model"] == 0)
    for frame, stage in stages(trace, told):
        after = frame.phase in ("accept", "synchronise")
        for row, number in enumerate(stage["tokens"]):
            kind, index, position, request, _ = lanes.cells(number)[
                :, stage["pending"][row]
            ].tolist()
            if KINDS[kind] not in ("pending", "bonus_now"):
                continue
            coming = (
                fed
                & (feeds["request"] == request)
                & (feeds["index"] == index)
                & (feeds["round"] >= frame.round + after)
            )
            assert position == (feeds["position"][coming][0] if coming.any() else index)
            drifts += position != index
    assert drifts > 20


@every_run
def test_feeds_are_what_was_read_and_seen(name):
    trace, told = recorded(name), filmed(name)
    feeds = trace.feeds
    by_stage = trace.index.feeds_by_stage
    for frame, stage in stages(trace, told):
        found = []
        for model, step, row, slot, count, index, position, see, until, holes in stage["feeds"]:
            for j in range(count):
                seen = set(range(see, until + j)) - {
                    hidden for a, b in told["holes"][holes] for hidden in range(a, b)
                }
                found.append((row, model, step, slot + j, index + j, position + j, sorted(seen)))
        at = by_stage.at(frame.round * len(PHASES) + PHASES.index(frame.phase))
        rows = {request: row for row, request in enumerate(frame.requests.tolist())}
        numbers = [
            rows.get(q, -1 - r)
            for q, r in zip(feeds["request"][at].tolist(), feeds["row"][at].tolist(), strict=True)
        ]
        columns = (
            feeds[column][at].tolist() for column in ("model", "step", "slot", "index", "position")
        )
        seen = [np.flatnonzero(line).tolist() for line in trace.index.visible(at)]
        assert found == list(zip(numbers, *columns, seen, strict=True))


@every_run
def test_lists_of_holes_are_kept_once(name):
    told = filmed(name)
    assert told["holes"][0] == []
    assert len({json.dumps(hidden) for hidden in told["holes"]}) == len(told["holes"])
    used = {
        run[-1] for each in told["rounds"] for stage in each["stages"] for run in stage["feeds"]
    }
    assert used | {0} == set(range(len(told["holes"])))
    if "masking" in name:
        assert len(told["holes"]) > 9


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


def row_numbers(trace: Trace, frame: Frame) -> list[int]:
    """The row of the cache of each row of the batch."""
    return trace.rows["row"][trace.rows["round"] == frame.round].tolist()


@every_run
def test_moves_are_those_of_the_record(name):
    trace, told = recorded(name), filmed(name)
    moves = trace.moves
    by_stage = trace.index.moves_by_stage
    for frame, stage in stages(trace, told):
        rows = row_numbers(trace, frame)
        at = by_stage.at(frame.round * len(PHASES) + PHASES.index(frame.phase))
        names = ("model", "step", "from_row", "from_slot", "to_row", "to_slot", "length")
        wanted = [
            list(values)
            for values in zip(*(moves[column][at].tolist() for column in names), strict=True)
        ]
        found = [[*move] for move in stage["moves"]]
        for move in found:
            for place in (2, 4):
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
        k, gained = row["drafted"], row["gained"]
        assert row["drafts"] == rows["drafts"][n, :k].tolist()
        assert row["emitted"] == rows["emitted"][n, :gained].tolist()
        assert (
            row["emitted"]
            == requests[row["request"]]["tokens"][row["length"] : row["length"] + gained]
        )
        assert_probabilities(row["q"], rows["draft_logprob"][n, :k])
        assert_probabilities(row["p"], rows["target_logprob"][n, :k])
        for model, columns in (("target", k + 1), ("draft", k)):
            assert len(row[model]) == columns
            for j, choices in enumerate(row[model]):
                kept = rows[f"{model}_top_ids"][n, j] >= 0
                assert [token for token, _ in choices] == rows[f"{model}_top_ids"][n, j][
                    kept
                ].tolist()
                assert_probabilities(
                    [p for _, p in choices], rows[f"{model}_top_logprobs"][n, j][kept]
                )
    pool = [
        {"round": number, **row}
        for number, each in enumerate(told["rounds"])
        for row in each["pool"]
    ]
    assert pool == [
        dict(zip(trace.pool, values, strict=True))
        for values in zip(*(v.tolist() for v in trace.pool.values()), strict=True)
    ]
    assert bool(pool) == (trace.meta["strategy"] == "exspec")


def assert_probabilities(found: list[float | None], logprobs: np.ndarray) -> None:
    """Four digits of each, None for none."""
    assert [p is None for p in found] == np.isnan(logprobs).tolist()
    assert np.allclose(
        [p for p in found if p is not None],
        np.exp(logprobs[~np.isnan(logprobs)]),
        rtol=6e-4,
        atol=1e-25,
    )
    assert all(
        len(f"{p:.10e}".split("e")[0].rstrip("0")) <= 5 and 0 <= p <= 1
        for p in found
        if p is not None
    )


@every_run
def test_violations_lie_where_they_happened(name):
    trace, told = recorded(name), filmed(name)
    found = sv.check_invariants(trace)
    assert [violation["message"] for violation in told["violations"]] == [
        str(violation) for violation in found
    ]
    places = {
        (v, n, p)
        for n, each in enumerate(told["rounds"])
        for p, stage in enumerate(each["stages"])
        for v in stage["violations"]
    }
    assert places == {(v, each.round, PHASES.index(each.phase)) for v, each in enumerate(found)}
    assert bool(found) == (not trace.meta["valid"])


def test_who_does_not_judge_is_not_told_what_is_violated():
    told, plain = filmed("wrong mask"), film(recorded("wrong mask"), judge=False)
    assert told["violations"]
    assert plain["violations"] is None
    pairs = [
        zip(*(each["stages"] for each in both), strict=True)
        for both in zip(told["rounds"], plain["rounds"], strict=True)
    ]
    stages = [stage for pair in pairs for stage in pair]
    assert any("Violation" in one["words"] for one, _ in stages)
    for one, other in stages:
        assert other["violations"] == other["faults"] == []
        assert "iolat" not in " ".join([other["words"], *other["words_of"]])
        judged = {"words", "words_of", "violations", "faults"}
        assert {name: value for name, value in one.items() if name not in judged} == {
            name: value for name, value in other.items() if name not in judged
        }


@every_run
def test_a_film_is_plain_json(name):
    told = filmed(name)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert plain_types(told) <= {dict, list, str, int, float, bool, type(None)}
    assert len(json.dumps(told["lanes"])) < len(json.dumps(told))
    numbers = [
        stage[which]
        for each in told["rounds"]
        for stage in each["stages"]
        for which in ("tokens", "target", "draft")
    ]
    assert {n for lanes in numbers for n in lanes} == set(
        range(len(told["lanes"]))
    )  # none is missing, none unused
    assert len({json.dumps(lane) for lane in told["lanes"]}) == len(told["lanes"])


def plain_types(value: Any) -> set[type]:
    """The exact types of everything in it: numpy's float64 would pass for a float."""
    inner = (
        [*value, *value.values()] if type(value) is dict else value if type(value) is list else []
    )
    return {type(value)}.union(*map(plain_types, inner))


def test_options_are_told_where_they_are_not_the_usual_ones():
    """Those of a strategy's name say nothing."""
    for name, kind in STRATEGIES.items():
        assert (
            film(
                replace(
                    TRACE, meta=TRACE.meta | {"strategy": name, "strategy_options": kind().options}
                )
            )["options"]
            == {}
        )
    options = {
        "window": 8,
        "fallback": "realign",
        "max_wait": 4,
        "refill": False,
        "break_invariant": None,
        "sort_prompts": True,
    }
    told = film(replace(TRACE, meta=TRACE.meta | {"strategy_options": options}))["options"]
    assert told == {"window": 8, "max_wait": 4, "refill": False, "sort_prompts": True}


def test_a_film_by_hand():
    """Round 0 of the hand-written run.

    Row 0 rejects both drafts, although the second is the token that it commits later. Row 1 accepts
    both.
    """
    told = film(TRACE)
    held, drafted, stale, pending, accepted, bonus, unreached = (
        KINDS.index(kind)
        for kind in (
            "held",
            "drafted",
            "stale",
            "pending",
            "accepted_now",
            "bonus_now",
            "unreached_now",
        )
    )
    empty, padding = KINDS.index("empty"), KINDS.index("padding")

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


@pytest.mark.parametrize("name", ["masking", "exspec"])
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


def test_a_film_needs_no_torch(tmp_path):
    path = tmp_path / "run.safetensors"
    recorded("exspec").save(path)
    code = (
        "import sys, specviz as sv; from specviz.views.stepper.film import film; "
        f"film(sv.Trace.load({str(path)!r})); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_what_cannot_be_shown_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="trace=None: this run was not recorded"):
        film(None)
    monkeypatch.setattr(film_module, "MAX_ROWS", 5)
    with pytest.raises(
        ValueError, match=r"trace has 6 rows in 3 rounds.*record fewer prompts or fewer new tokens"
    ):
        film(TRACE)
    monkeypatch.setattr(film_module, "MAX_ROWS", 6)
    monkeypatch.setattr(film_module, "MAX_RUNS", 50)
    with pytest.raises(
        ValueError, match=r"trace has more than 50 blocks of slots by round 1.*record fewer"
    ):
        film(TRACE)


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_film_of_a_run_without_rows(rounds):
    empty = {
        table: {name: values[:0] for name, values in getattr(TRACE, table).items()}
        for table in ("rows", "feeds", "holes", "moves")
    }
    trace = replace(
        TRACE,
        **empty,
        rounds={name: np.zeros(rounds, values.dtype) for name, values in TRACE.rounds.items()},
    )
    told = film(trace)
    assert (len(told["rounds"]), told["lanes"], told["violations"]) == (rounds, [], [])
    assert all(
        stage["tokens"] == stage["words_of"] == []
        for each in told["rounds"]
        for stage in each["stages"]
    )


def test_non_finite_values_stay_out_of_the_json():
    """Log-probabilities may be unknown, or those of impossible tokens.

    All other non-finite values are refused when a record is made.
    """
    logprobs = np.full((6, 2), -np.inf, np.float32)
    logprobs[0] = np.nan, 0.001
    told = film(replace(TRACE, rows=TRACE.rows | {"draft_logprob": logprobs}))
    json.dumps(told, allow_nan=False)
    assert [row["q"] for row in told["rounds"][0]["rows"]] == [[None, 1], [0, 0]]


def test_a_film_that_is_not_judged_knows_of_no_violations():
    told = film(recorded("repadding"), judge=False)
    assert told["violations"] is None
    assert not any(
        stage["violations"] or "Violation" in stage["words"]
        for each in told["rounds"]
        for stage in each["stages"]
    )


def test_runs_hold_what_the_tests_are_about():
    """The runs hold every case: EOS within the accepted drafts, and a budget that cuts.

    Lanes also begin with an earlier lane's runs, and rows take another row's place or wait in a
    pool.
    """
    trace = recorded("many drafts, small budgets")
    rows = trace.rows
    cut = (rows["accepted"] + 1 > rows["gained"]) & (rows["finished"] == 1)
    last = rows["emitted"][np.arange(rows["gained"].size), np.maximum(rows["gained"] - 1, 0)]
    assert (cut & np.isin(last, EOS)).any()
    assert (cut & ~np.isin(last, EOS)).any()
    assert any(type(lane[0]) is int for lane in filmed("many drafts, small budgets")["lanes"])
    assert (recorded("eqspec").moves["from_row"] != recorded("eqspec").moves["to_row"]).any()
    assert (recorded("exspec").pool["chosen"] == 0).any()
    assert any(
        move[2] < 0 or move[4] < 0
        for each in filmed("exspec")["rounds"]
        for stage in each["stages"]
        for move in stage["moves"]
    )
    assert any(
        run[2] < 0
        for each in filmed("exspec")["rounds"]
        for stage in each["stages"]
        for run in stage["feeds"]
    )
