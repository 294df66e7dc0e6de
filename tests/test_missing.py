"""Records of logs that lack something: what is checked, what tables hold, and what is drawn."""

import math
from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import make_pair
from masking_decoder import PROMPTS, K, MaskingDecoder, writer
from test_film import Lanes
from tiny_run import TRACE

import specviz as sv
from specviz import metrics
from specviz.record.schema import MISSING
from specviz.record.trace import Trace
from specviz.views import charts
from specviz.views.stepper.film import film
from specviz.views.stepper.lanes import KINDS


class Partial:
    """Passes on to a writer what is not among `dropped`; "feeds" drops whole forwards."""

    def __init__(self, log: sv.TraceWriter, dropped: tuple[str, ...]) -> None:
        self._log = log
        self._dropped = dropped

    def forward(self, model: str, **given: Any) -> None:
        if "feeds" not in self._dropped:
            self._log.forward(model, **self._kept(given))

    def round(self, end: sv.RoundEnd) -> None:
        known = {each.name for each in fields(end)}
        self._log.round(replace(end, **dict.fromkeys(known & {*self._dropped})))

    def _kept(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name not in self._dropped}


@cache
def lacking(*dropped: str, slip: int = 1, **settings: Any) -> Trace:
    """Four rounds of `MaskingDecoder`, with a fault, whose log lacks some arguments."""
    log = writer(**settings)
    MaskingDecoder(make_pair("llama"), PROMPTS, Partial(log, dropped), K, slip).decode(4)
    return log.trace()


LOGS: dict[str, tuple[tuple[str, ...], set[str], set[str]]] = {
    # What is dropped, what is missing beside what this decoder never logs, and the rules that find
    # the slip.
    "nothing": ((), set(), {"positions", "mask", "kv"}),
    "positions": (("positions",), {"positions.target"}, {"mask", "kv"}),
    "visible": (("visible",), {"visible.target"}, {"positions"}),
    "slots": (("slots", "visible"), {"slots.target", "visible.target"}, {"positions"}),
    "choices": (("choices",), {"candidates.target"}, {"positions", "mask", "kv"}),
    "feeds": (("feeds",), {"feeds.target"}, set()),
    "all but rounds": (("feeds", "choices"), {"feeds.target", "candidates.target"}, set()),
}
NEVER = {
    "feeds.draft", "candidates.draft", "logprobs.target", "logprobs.draft", "times", "kv_bytes",
    "finished",
}  # fmt: skip


@pytest.mark.sweep(7)
@pytest.mark.parametrize("name", LOGS)
def test_what_is_missing_is_recorded_and_its_rules_are_skipped(name):
    dropped, missing, rules = LOGS[name]
    trace = lacking(*dropped)
    assert set(trace.meta["missing"]) == NEVER | missing
    found = sv.check_invariants(trace)
    assert {each.rule for each in found} == rules
    printed = str(found).splitlines()
    assert [line for line in printed if line.startswith("not checked: ")] == [
        f"not checked: {each}" for each in found.unchecked
    ]
    assert printed[0].startswith("round " if rules else "all invariants that were checked hold")
    # Of each rule that would find the slip, it says that it was not checked.
    skipped = [each.partition(" (target)")[0].split(", ") for each in found.unchecked]
    for rule in {"positions", "mask", "kv"} - rules:
        assert any(rule in names for names in skipped), rule


@pytest.mark.sweep(7)
@pytest.mark.parametrize("name", LOGS)
def test_every_view_opens_and_says_what_is_missing(name):
    trace = lacking(*LOGS[name][0])
    told = film(trace)
    gaps = told["gaps"]
    assert gaps["time"] == "Times of the phases were not logged."
    assert gaps["bytes"] == "How many bytes a token's K/V takes was not logged."
    assert gaps["masks"][1].startswith("Forwards of the draft model were not logged")
    is_seen = not LOGS[name][1] & {"visible.target", "feeds.target"}
    assert (gaps["masks"][0] is None) == is_seen
    assert gaps["choices"] == ("choices" in LOGS[name][0])
    assert gaps["unchecked"] == sv.check_invariants(trace).unchecked
    assert not any("0.0 kB" in s["words"] for r in told["rounds"] for s in r["stages"])
    charts.acceptance_map(trace)
    charts.acceptance_by_position(trace)
    bars = charts.stage_bars({"mine": trace}).to_json()
    assert "times were not logged" in bars


def test_tokens_are_drawn_where_no_forward_was_logged():
    """The lanes of tokens hold the same tokens as those of the whole log, in other slots."""
    whole, least = (film(lacking(*dropped, slip=0)) for dropped in ((), ("feeds", "choices")))
    lanes = Lanes(whole), Lanes(least)
    for number, phase, row in product(range(4), range(5), range(4)):
        stages = (told["rounds"][number]["stages"][phase] for told in (whole, least))
        shown = [
            held(each.cells(stage["tokens"][row]), phase)
            for each, stage in zip(lanes, stages, strict=True)
        ]
        assert shown[0] == shown[1], (number, phase, row)


def held(cells: np.ndarray, phase: int) -> list[tuple[str, int, int]]:
    """(kind, index, token) of what a lane of tokens shows but stale K/V of earlier rounds."""
    found = []
    for code, index, _, _, token in cells.T.tolist():
        # Without forwards, K/V of the pending token never comes.
        kind = "held" if KINDS[code] == "pending" and phase == 2 else KINDS[code]
        # Overwritten: the rejected draft's slot holds the target's own token in the one.
        if kind not in ("empty", "padding", "stale", "rejected_now", "unreached_now"):
            found.append((kind, index, token))
    return sorted(found)


def test_tables_have_nan_for_what_is_missing():
    trace = lacking("feeds", "choices")
    rounds = metrics.rounds(trace)
    unknown = [
        "cache_slots", "padding_share", "hole_share", "realigned_bytes", "compacted_bytes",
        "schedule_ms", "total_ms",
    ]  # fmt: skip
    assert rounds[unknown].isna().all(axis=None)
    assert rounds["gained_tokens"].sum() == sum(len(trace.output(i)) for i in range(4))
    summary = metrics.summary(trace).iloc[0]
    assert math.isnan(summary["total_s"])
    assert math.isnan(summary["tokens_per_s"])
    assert summary["mean_acceptance_length"] > 1
    assert metrics.stages(trace)["verify_share"].isna().all()
    assert metrics.stage_totals(trace)["ms_per_round"].isna().all()
    assert math.isnan(metrics.smallest_gap(trace))
    waste = metrics.waste(trace).iloc[0]
    assert math.isnan(waste["target_read"])
    assert math.isnan(waste["draft_read"])


def test_a_log_with_some_times_keeps_them():
    log = writer()
    end = {"rows": [0], "requests": [0], "drafts": [[1]], "accepted": [0], "emitted": [[3]]}
    log.round(sv.RoundEnd(**end, ms={"verify": 2.0}))
    table = metrics.rounds(log.trace())
    assert table["verify_ms"].tolist() == [2.0]
    assert table["draft_ms"].isna().all()


ROW = {"rows": [1], "requests": [1]}


def _feed(log: sv.TraceWriter, token: int, index: int, start: int) -> None:
    """Feed one token of a row that begins in slot `start`."""
    log.forward(
        "target",
        **ROW,
        tokens=[[token]],
        indices=[[index]],
        positions=[[index]],
        slots=[[start + index]],
        visible=[[[start, start + index + 1]]],
    )


def test_moves_that_were_not_logged_leave_the_layout_open():
    """A decoder that realigns without saying so is not accused of misplaced K/V."""
    log, told = writer(), writer(missing=["moves"])
    end = sv.RoundEnd(**ROW, drafts=[[]], accepted=[0], emitted=[[7]], choices=[[7]])
    for each in (log, told):
        _feed(each, 35, 0, start=3)
        _feed(each, 89, 1, start=3)
        each.round(end)
        _feed(each, 7, 2, start=1)  # moved by two slots since
        each.round(end)
    assert {each.rule for each in sv.check_invariants(log.trace())} >= {"mask"}
    trace = told.trace()
    assert not sv.check_invariants(trace)
    assert "Moves of K/V were not logged." in film(trace)["gaps"]["bytes"]
    assert metrics.rounds(trace)["realigned_bytes"].isna().all()
    # A record that lacks nothing has no gaps.
    assert "gaps" not in film(TRACE)
    assert sv.check_invariants(TRACE).unchecked == []


def test_deep_needs_all_that_a_forward_is_computed_from():
    trace = lacking("positions")
    problem = "deep=True feeds the record .* without position ids of the target model; leave deep"
    with pytest.raises(ValueError, match=problem):
        sv.check_invariants(trace, deep=True, pair=make_pair("llama"))


def test_the_names_of_what_is_missing_are_checked():
    with pytest.raises(ValueError, match="missing='speed' is unknown; choose one of"):
        writer(missing=["speed"])
    trace = lacking()
    ms = np.full(trace.num_rounds, np.nan, np.float32)
    known = [name for name in trace.meta["missing"] if name != "times"]
    with pytest.raises(sv.TraceError, match="must hold finite times"):
        Trace(
            {**trace.meta, "missing": known},
            **{**trace.tables, "rounds": {**trace.rounds, "draft_ms": ms}},
        )
    assert set(trace.meta["missing"]) <= MISSING.keys()
