"""Invariants as checks: a valid run violates none, and a fault is named before its consequences."""

import functools
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from conftest import EOS, make_pair, make_prompts

import specviz as sv
from specviz.checks.rerun import tolerance
from specviz.checks.violations import RULES, Violations
from specviz.engine.faults import FAULTS
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

K, ROWS, NEW_TOKENS = 4, 4, 20
SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
TARGET, DRAFTER = range(len(MODELS))


def decode(strategy: Strategy | str, **arguments: Any) -> Trace:
    given = {
        "num_draft_tokens": K,
        "batch_size": ROWS,
        "max_new_tokens": NEW_TOKENS,
        "record": True,
        "progress": False,
    } | arguments
    trace = sv.generate(
        make_pair("llama"), given.pop("prompts", make_prompts()), strategy=strategy, **given
    ).trace
    assert trace is not None
    return trace


@functools.cache
def recorded(name: str, **options: Any) -> Trace:
    """A run of a strategy; options whose value is a tuple are passed as lists."""
    return decode(
        sv.strategy(
            name,
            **{
                key: list(value) if isinstance(value, tuple) else value
                for key, value in options.items()
            },
        )
    )


VALID = [
    ("autoregressive", {}),
    ("rollback", {}),
    ("masking", {}),
    ("repadding", {"ones_mask": False, "draft_bonus": False}),
    ("repadding", {"ones_mask": False, "draft_bonus": False, "skip_unpadding": False}),
    ("eqspec", {}),
    ("exspec", {}),
    ("inplace", {}),
]
STATIC = [(name, options | {"refill": False}) for name, options in VALID if name != "exspec"]
POOLS = [
    ("exspec", {"window": 4}),
    ("exspec", {"fallback": "partial", "window": 6}),
    ("exspec", {"fallback": "wait", "max_wait": 2, "window": 8, "sort_prompts": True}),
]


def case_id(value: object) -> str:
    return (
        "-".join(f"{key}={option}" for key, option in value.items()) or "default"
        if isinstance(value, dict)
        else str(value)
    )


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(("name", "options"), [*VALID, *STATIC, *POOLS], ids=case_id)
def test_valid_runs_violate_nothing(name: str, options: dict[str, Any], batch_size: int) -> None:
    if batch_size > options.get("window", batch_size):
        options = options | {"window": batch_size}
    prompts = make_prompts()[: 4 * batch_size]
    trace = decode(
        sv.strategy(name, **options), batch_size=batch_size, prompts=prompts, max_new_tokens=16
    )
    assert trace.meta["valid"]
    assert sv.check_invariants(trace) == []


@pytest.mark.parametrize(("name", "options"), [*VALID, *POOLS], ids=case_id)
def test_small_budgets_and_other_numbers_of_drafts_violate_nothing(
    name: str, options: dict[str, Any]
) -> None:
    """One-token prompts, EOS within the drafts and a budget of one are among these."""
    chosen = sv.strategy(name, **options)
    trace = decode(chosen, max_new_tokens=[1, 2, 3, 5, 24, 7, 24, 4, 6, 1], num_draft_tokens=1)
    assert sv.check_invariants(trace) == []
    trace = decode(chosen, max_new_tokens=[1, 2, 3, 5, 24, 7, 24, 4, 6, 1], num_draft_tokens=8)
    assert sv.check_invariants(trace) == []
    outputs = [trace.output(request) for request in range(trace.num_requests)]
    assert any(
        output[-1] in EOS and len(output) < budget
        for output, budget in zip(outputs, trace.requests["budget"], strict=True)
    )


@pytest.mark.parametrize(
    "drafter",
    ["lookup", sv.drafter("synthetic", rates=[0.9, 0.8, 0.6, 0.5])],
    ids=["lookup", "synthetic"],
)
def test_other_drafters_violate_nothing(drafter: Any) -> None:
    assert sv.check_invariants(decode("eqspec", drafter=drafter)) == []


@pytest.mark.parametrize("coupling", ["rejection", "gumbel"])
@pytest.mark.parametrize("name", ["rollback", "exspec", "inplace"])
def test_sampled_runs_violate_nothing(name: str, coupling: str) -> None:
    assert (
        sv.check_invariants(
            decode(name, sampling=sv.SamplingParams(0.8, top_k=20, coupling=coupling))
        )
        == []
    )


@dataclass(frozen=True)
class TwoFromTheLeft(Strategy):
    name: ClassVar[str] = "two_from_the_left"
    valid: ClassVar[bool] = True

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        state.layout.set_starts([2] * len(state.batch))


def test_a_custom_strategy_is_judged_by_its_record() -> None:
    assert sv.check_invariants(decode(TwoFromTheLeft())) == []
    (first, *_) = sv.check_invariants(
        decode(TwoFromTheLeft(break_invariant="kv", rows=[1], from_round=2))
    )
    assert (first.rule, first.round, first.row) == ("kv", 2, 1)


# Faults: the first violation is the fault, in the first round and phase that it hits.


def where_it_strikes(trace: Trace, kind: str, row: int, from_round: int) -> tuple[int, int]:
    """(round, phase) from which on the record has what the fault breaks."""
    rows, feeds = trace.rows, trace.feeds
    if kind in ("positions", "mask"):
        stages = (feeds["round"] * len(PHASES) + feeds["phase"])[
            (feeds["round"] >= from_round) & (feeds["row"] == row)
        ]
        number, phase = divmod(int(stages.min()), len(PHASES))
        return number, phase
    mine = [
        i
        for i in range(rows["row"].size)
        if rows["row"][i] == row and rows["round"][i] >= from_round
    ]
    if kind == "kv":  # K/V of two tokens at least: that of a single one is written again
        mine = [
            i
            for i in mine
            if not rows["finished"][i] and rows["length"][i] + rows["gained"][i] >= 3
        ]
        return int(rows["round"][mine[0]]), SYNCHRONISE
    kept = [
        (i, int(rows["accepted"][i]))
        for i in mine
        if rows["accepted"][i] < min(K, rows["gained"][i])
    ]
    wrong = [
        i
        for i, a in kept
        if rows["emitted"][i, a] == rows["drafts"][i, a] != rows["target_top_ids"][i, a, 0]
    ]
    return int(rows["round"][wrong[0]]), ACCEPT


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", ["eqspec", "exspec", "inplace", "masking", "rollback"])
def test_a_fault_is_named_first_in_its_row_and_round(name: str, kind: str) -> None:
    trace = recorded(name, break_invariant=kind, rows=(1,), from_round=2)
    found = sv.check_invariants(trace)
    assert not trace.meta["valid"]
    assert (found[0].rule, found[0].row) == (kind, 1)
    assert (found[0].round, PHASES.index(found[0].phase)) == where_it_strikes(trace, kind, 1, 2)
    table = found.frame()
    named = table[table["rule"] == kind]
    hit = (trace.rows["row"] == 1) & (trace.rows["round"] >= 2)
    assert set(table["request"]) <= set(trace.rows["request"][hit].tolist())
    assert table["round"].min() >= 2
    assert set(table["rule"]) <= {kind, "kv"}  # wrong K/V is what the others leave behind
    if kind != "kv":
        assert set(named["row"]) == {1}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_in_all_rows_from_the_start_is_named_in_all(kind: str) -> None:
    trace = recorded("eqspec", break_invariant=kind)
    found = sv.check_invariants(trace)
    assert found[0].rule == kind
    firsts = found.first_per_request()
    assert {violation.rule for violation in firsts} == {kind}
    assert set(firsts.frame()["request"]) <= set(range(trace.num_requests))
    assert len(firsts) >= trace.num_requests - 2  # a row may end before it meets a rejection


@pytest.mark.parametrize("name", ["eqspec", "rollback", "inplace"])
def test_a_wrong_bonus_shows_in_sampled_runs_too(name: str) -> None:
    chosen = sv.strategy(name, break_invariant="bonus", rows=[1], from_round=2)
    found = sv.check_invariants(decode(chosen, sampling=sv.SamplingParams(0.8)))
    assert {(violation.rule, violation.row) for violation in found} == {("bonus", 1)}


# The methods that fail, each for the reason that the paper names.


def test_positions_from_columns_go_wrong_in_the_round_after_a_rejection() -> None:
    trace = recorded("masking", positions="column")
    found, rows = sv.check_invariants(trace), trace.rows
    first = found[0]
    assert (first.rule, first.phase) == ("positions", "draft")
    before = rows["round"] == first.round - 1
    assert (
        rows["gained"][rows["round"] < first.round - 1] == K + 1
    ).all()  # nothing was rejected before
    holes = set(rows["row"][before & (rows["gained"] < K + 1) & (rows["finished"] == 0)].tolist())
    assert {
        v.row for v in found if (v.round, v.phase, v.rule) == (first.round, "draft", "positions")
    } == holes


def test_a_mask_of_ones_goes_wrong_in_the_first_padded_prefill() -> None:
    trace = recorded("repadding")
    found = sv.check_invariants(trace)
    padded = set(trace.rows["row"][(trace.rows["round"] == 0) & (trace.rows["start"] > 0)].tolist())
    fed = set(
        trace.feeds["row"][
            (trace.feeds["round"] == 0) & (trace.feeds["phase"] == SCHEDULE)
        ].tolist()
    )
    in_prefill = [
        violation for violation in found if (violation.round, violation.phase) == (0, "schedule")
    ]
    assert found[0] == in_prefill[0]
    for rule in ("positions", "mask"):
        assert {violation.row for violation in in_prefill if violation.rule == rule} == padded & fed
    assert {violation.rule for violation in in_prefill} == {"positions", "mask"}
    assert "padding" in next(
        violation.found for violation in in_prefill if violation.rule == "mask"
    )


def test_a_bonus_from_the_draft_goes_wrong_at_the_first_rejection() -> None:
    trace = recorded("repadding", ones_mask=False, skip_unpadding=False)
    found, rows = sv.check_invariants(trace), trace.rows
    assert {violation.rule for violation in found} == {"bonus"}
    chosen = rows["target_top_ids"][:, :, 0]
    rejected = [
        i
        for i in range(rows["row"].size)
        if rows["gained"][i]
        and rows["emitted"][i, rows["gained"][i] - 1] != chosen[i, rows["gained"][i] - 1]
    ]
    assert [(v.round, v.row) for v in found] == [
        (int(rows["round"][i]), int(rows["row"][i])) for i in rejected
    ]


def test_accumulating_padding_is_not_a_violation() -> None:
    """With that mistake alone the text is right, so only waste could be reported."""
    trace = recorded("repadding", ones_mask=False, draft_bonus=False)
    least = [
        trace.rows["start"][trace.rows["round"] == number].min()
        for number in range(trace.num_rounds)
    ]
    assert max(least) > 0
    assert sv.check_invariants(trace) == []


# Damaged records, for what no fault does.


def edited(trace: Trace, table: str, which: Any, **columns: Any) -> Trace:
    """`trace` with other values in some entries of a table."""
    changed = {name: values.copy() for name, values in getattr(trace, table).items()}
    for name, value in columns.items():
        changed[name][which] = value
    return replace(trace, **{table: changed})


def without(trace: Trace, table: str, which: Any) -> Trace:
    """`trace` without some entries of a table."""
    return replace(
        trace,
        **{
            table: {
                name: np.delete(values, which, axis=0)
                for name, values in getattr(trace, table).items()
            }
        },
    )


def first_of(violations: Violations) -> tuple[str, int, int, int]:
    """Return rule, round, phase and row of the first violation."""
    first = violations[0]
    return first.rule, first.round, PHASES.index(first.phase), first.row


def some_entry(trace: Trace, mask: Any) -> tuple[int, int, int]:
    """Return the middle entry of `rows` that a mask names, its round and its row."""
    entries = np.flatnonzero(mask)
    entry = int(entries[len(entries) // 2])
    return entry, int(trace.rows["round"][entry]), int(trace.rows["row"][entry])


def test_a_row_that_forgets_a_token_breaks_the_lengths() -> None:
    trace = recorded("eqspec")
    rows = trace.rows
    entry, number, row = some_entry(trace, (rows["gained"] > 1) & (rows["finished"] == 0))
    found = sv.check_invariants(edited(trace, "rows", entry, gained=rows["gained"][entry] - 1))
    assert first_of(Violations(v for v in found if v.rule == "lengths")) == (
        "lengths",
        number + 1,
        SCHEDULE,
        row,
    )


def test_a_token_that_is_not_in_the_output_breaks_the_lengths() -> None:
    trace = recorded("eqspec")
    entry, number, row = some_entry(trace, trace.rows["gained"] > 1)
    emitted = trace.rows["emitted"][entry].copy()
    emitted[0] += 1
    assert first_of(sv.check_invariants(edited(trace, "rows", entry, emitted=emitted))) == (
        "lengths",
        number,
        ACCEPT,
        row,
    )


def test_an_output_that_was_not_emitted_breaks_the_lengths() -> None:
    trace = recorded("inplace")
    last = len(trace.prompt(9)) + len(trace.output(9))
    requests = dict(trace.requests)
    requests["output_tokens"] = np.append(requests["output_tokens"], np.int32(1))
    requests["output_offsets"] = requests["output_offsets"] + np.array([0] * 10 + [1])
    requests["budget"] = requests["budget"] + 1
    found = sv.check_invariants(replace(trace, requests=requests))
    entry = np.flatnonzero(
        (trace.rows["request"] == 9) & (trace.rows["length"] + trace.rows["gained"] == last)
    )[0]
    assert ("lengths", trace.rows["round"][entry]) in [
        (violation.rule, violation.round) for violation in found if violation.request == 9
    ]


def test_a_row_that_ends_elsewhere_breaks_the_rectangle() -> None:
    trace = recorded("eqspec")
    rows = trace.rows
    entry, number, row = some_entry(trace, np.diff(rows["round"], append=-1) == 0)
    found = sv.check_invariants(edited(trace, "rows", entry, pending=rows["pending"][entry] + 1))
    assert first_of(found) == ("rectangle", number, SCHEDULE, row)
    assert {violation.rule for violation in found} == {"rectangle"}
    assert "like the others" in found[0].expected


@pytest.mark.parametrize("name", ["inplace", "masking"])
def test_a_pending_token_that_goes_elsewhere_breaks_the_rectangle(name: str) -> None:
    trace = recorded(name)
    entry, number, row = some_entry(trace, trace.rows["gained"] > 0)
    found = sv.check_invariants(
        edited(trace, "rows", entry, pending=trace.rows["pending"][entry] + 1)
    )
    assert ("rectangle", number, VERIFY, row) in [
        (v.rule, v.round, PHASES.index(v.phase), v.row) for v in found
    ]


def test_a_row_too_narrow_for_its_tokens_breaks_the_rectangle() -> None:
    trace = recorded("inplace")
    entry, number, row = some_entry(trace, trace.rows["finished"] == 0)
    found = sv.check_invariants(edited(trace, "rows", entry, start_after=3))
    assert ("rectangle", number, SYNCHRONISE, row) in [
        (v.rule, v.round, PHASES.index(v.phase), v.row) for v in found
    ]


def test_an_output_beyond_its_budget() -> None:
    trace = recorded("inplace")
    request = next(request for request in range(10) if len(trace.output(request)) == NEW_TOKENS)
    found = sv.check_invariants(edited(trace, "requests", request, budget=NEW_TOKENS - 1))
    entry = np.flatnonzero(trace.rows["request"] == request)[-1]
    expected = ("budget", trace.rows["round"][entry], ACCEPT, trace.rows["row"][entry])
    assert first_of(found) == expected
    assert {violation.rule for violation in found} == {"budget"}
    assert (found[0].request, found[0].count, found[0].slot) == (request, 1, None)


def test_tokens_behind_the_first_eos() -> None:
    trace = recorded("inplace")
    request = max(range(10), key=lambda request: len(trace.output(request)))
    output, length = trace.output(request), len(trace.prompt(request))
    others = {token for other in range(10) if other != request for token in trace.output(other)}
    eos = next(token for token in output[3:-6] if token not in others)
    found = sv.check_invariants(replace(trace, meta=trace.meta | {"eos_token_ids": [*EOS, eos]}))
    at = length + output.index(eos) + 1  # tokens up to the EOS, itself included
    ends = trace.rows["length"] + trace.rows["gained"]
    entry = np.flatnonzero((trace.rows["request"] == request) & (ends >= at))[0]
    assert {violation.rule for violation in found} == {"eos"}
    assert first_of(found) == ("eos", trace.rows["round"][entry], ACCEPT, trace.rows["row"][entry])
    assert (
        sum(violation.count for violation in found if "follow" in violation.expected)
        == len(output) - output.index(eos) - 1
    )


@pytest.mark.parametrize(("finished", "rules"), [(1, {"budget"}), (0, {"budget", "eos"})])
def test_a_row_finishes_when_it_ends_and_not_before(finished: int, rules: set[str]) -> None:
    trace, names = recorded("inplace"), set()
    for entry in np.flatnonzero(trace.rows["finished"] != finished)[:40]:
        found = sv.check_invariants(edited(trace, "rows", entry, finished=finished))
        assert (found[0].round, found[0].row, len(found)) == (
            trace.rows["round"][entry],
            trace.rows["row"][entry],
            1,
        )
        names.add(found[0].rule)
    assert names == rules


def test_an_accepted_draft_that_the_target_did_not_choose() -> None:
    trace = recorded("eqspec")
    entry, number, row = some_entry(
        trace, (trace.rows["accepted"] > 1) & (trace.rows["gained"] > 1)
    )
    other = trace.rows["target_top_ids"][entry].copy()
    other[1, 0] += 1
    found = sv.check_invariants(edited(trace, "rows", entry, target_top_ids=other))
    assert [first_of(found), len(found)] == [("acceptance", number, ACCEPT, row), 1]


def test_more_tokens_than_accepted_drafts_allow() -> None:
    trace = recorded("eqspec")
    entry, number, row = some_entry(
        trace, (trace.rows["accepted"] > 1) & (trace.rows["gained"] > 2)
    )
    found = sv.check_invariants(
        edited(trace, "rows", entry, accepted=trace.rows["gained"][entry] - 2)
    )
    assert first_of(found) == ("acceptance", number, ACCEPT, row)


def test_a_draft_that_is_accepted_and_emitted_as_another_token() -> None:
    """It was also fed as another token than the recorded draft, which comes first."""
    trace = recorded("eqspec")
    entry, number, row = some_entry(trace, trace.rows["accepted"] > 0)
    drafts = trace.rows["drafts"][entry].copy()
    drafts[0] += 1
    found = sv.check_invariants(edited(trace, "rows", entry, drafts=drafts))
    assert (number, ACCEPT, row, "acceptance") in [
        (v.round, PHASES.index(v.phase), v.row, v.rule) for v in found
    ]
    assert first_of(found) == ("kv", number, DRAFT, row)


def test_a_draft_cache_that_was_not_moved_with_the_targets() -> None:
    trace = recorded("eqspec")
    moves = trace.moves
    entry = np.flatnonzero(
        (moves["phase"] == SYNCHRONISE) & (moves["model"] == DRAFTER) & (moves["length"] > 6)
    )[3]
    number, row = moves["round"][entry], moves["from_row"][entry]
    found = sv.check_invariants(without(trace, "moves", entry))
    assert first_of(found) == ("caches", number, SYNCHRONISE, row)
    assert (found[0].model, found[0].slot) == ("draft", moves["to_slot"][entry])
    twin = [
        np.flatnonzero(
            np.all(
                [
                    moves[name] == moves[name][entry]
                    for name in moves
                    if name not in ("model", "step")
                ],
                axis=0,
            )
        )
    ]
    both = sv.check_invariants(without(trace, "moves", twin[0]))
    assert [(v.rule, v.model) for v in both[:2]] == [("kv", "target"), ("kv", "draft")]
    assert first_of(both) == ("kv", number, SYNCHRONISE, row)


def after_full_acceptance(trace: Trace) -> tuple[Any, int, int]:
    """Return where the draft is fed its last draft again after a full acceptance.

    Returns the entries of feeds, the round and the row.
    """
    rows, feeds = trace.rows, trace.feeds
    entry, number, row = some_entry(
        trace, (rows["accepted"] == K) & (rows["finished"] == 0) & (rows["gained"] == K + 1)
    )
    index = rows["length"][entry] + K - 1
    fed = (
        (feeds["round"] == number + 1)
        & (feeds["row"] == row)
        & (feeds["model"] == DRAFTER)
        & (feeds["index"] == index)
    )
    assert (feeds["request"][fed] == rows["request"][entry]).all()
    return np.flatnonzero(fed), number + 1, row


def test_a_draft_that_forgets_its_last_token_after_a_full_acceptance() -> None:
    trace = recorded("inplace")
    entries, number, row = after_full_acceptance(trace)
    assert entries.size == 1
    found = sv.check_invariants(without(trace, "feeds", entries))
    assert first_of(found) == ("caches", number, DRAFT, row)
    assert "not been fed" in found[0].found
    assert found[0].model == "draft"


def feed_of(trace: Trace, model: int, phase: int) -> tuple[int, int, int]:
    """An entry of feeds with a few tokens before it, its round and row."""
    feeds = trace.feeds
    entries = np.flatnonzero(
        (feeds["model"] == model) & (feeds["phase"] == phase) & (feeds["index"] > 5)
    )
    entry = int(entries[len(entries) // 2])
    return entry, int(feeds["round"][entry]), int(feeds["row"][entry])


@pytest.mark.parametrize(("model", "phase"), [(TARGET, VERIFY), (DRAFTER, DRAFT)])
def test_feeds_that_were_altered(model: int, phase: int) -> None:
    trace = recorded("masking")
    feeds = trace.feeds
    entry, number, row = feed_of(trace, model, phase)
    for rule, column in (
        ("positions", "position"),
        ("kv", "token"),
        ("mask", "visible_start"),
        ("mask", "visible_stop"),
    ):
        shift = -1 if column == "visible_stop" else 1
        cut = np.flatnonzero(trace.holes["feed"] == entry)
        damaged = without(trace, "holes", cut) if column == "visible_stop" else trace
        found = sv.check_invariants(
            edited(damaged, "feeds", entry, **{column: feeds[column][entry] + shift})
        )
        assert first_of(found) == (rule, number, phase, row), column
        assert found[0].model == MODELS[model]


def test_a_hole_that_is_seen() -> None:
    trace = recorded("masking")
    hole = int(trace.holes["feed"].size // 2)
    feed, slot = int(trace.holes["feed"][hole]), int(trace.holes["start"][hole])
    found = sv.check_invariants(without(trace, "holes", hole))
    assert first_of(found) == (
        "mask",
        trace.feeds["round"][feed],
        trace.feeds["phase"][feed],
        trace.feeds["row"][feed],
    )
    assert found[0].slot == slot
    assert f"it also sees slot {slot}, which holds index" in found[0].found
    assert "of a rejected draft" in found[0].found


def test_a_slot_that_is_not_seen() -> None:
    trace = recorded("inplace")
    entry, *_ = feed_of(trace, TARGET, VERIFY)
    (first, *_) = sv.check_invariants(edited(trace, "feeds", entry, visible_start=2))
    index = trace.feeds["index"][entry]
    assert first.expected == f"the query of index {index} should see slots 0..{index}"
    assert first.found == "it does not see slot 0, which holds index 0"
    assert (first.slot, first.count) == (0, 2)


def test_any_order_of_slots_will_do_if_each_query_sees_its_tokens() -> None:
    """Index 0 and 1 of a prompt trade places, a layout that no strategy here has.

    Queries see the same tokens, so nothing is wrong.
    """
    trace = recorded("inplace")
    feeds = trace.feeds
    prompt = (feeds["phase"] == SCHEDULE) & (feeds["index"] < 2)
    for request in range(trace.num_requests):
        mine = prompt & (feeds["request"] == request)
        if len(trace.prompt(request)) > 3:  # of a shorter one the draft is fed index 1 again
            trace = edited(
                trace,
                "feeds",
                mine & (feeds["index"] == 0),
                slot=1,
                visible_start=1,
                visible_stop=2,
            )
            trace = edited(trace, "feeds", mine & (feeds["index"] == 1), slot=0)
    assert not np.array_equal(trace.feeds["slot"], recorded("inplace").feeds["slot"])
    assert sv.check_invariants(trace) == []


# What is returned.


def test_one_violation_for_each_phase_row_model_and_rule() -> None:
    found = sv.check_invariants(recorded("repadding"))
    table = found.frame()
    keys = ["round", "phase", "model", "row", "request", "rule"]
    assert not table.duplicated(keys).any()
    assert list(table) == [
        "round",
        "phase",
        "model",
        "row",
        "request",
        "rule",
        "slot",
        "count",
        "expected",
        "found",
    ]
    assert set(table["rule"]) <= set(RULES)
    order = [(violation.round, PHASES.index(violation.phase)) for violation in found]
    assert order == sorted(order)
    assert (table["count"] >= 1).all()
    assert [v.request for v in found.first_per_request()] == list(
        dict.fromkeys(v.request for v in found)
    )


def test_a_violation_reads_as_one_line() -> None:
    found = sv.check_invariants(recorded("eqspec", break_invariant="kv", rows=(1,), from_round=2))
    first = found[0]
    assert str(first) == first.message == (
        f"round 2, synchronise phase, target model, row 1 (request {first.request}): kv: "
        f"slot {first.slot} should hold the K/V of index 1; it holds index 0 ({first.count} slots)"
    )  # fmt: skip
    assert str(found).splitlines() == [violation.message for violation in found]
    assert repr(found) == f"<{len(found)} violations, the first: {first}>"
    nothing = sv.check_invariants(recorded("eqspec"))
    assert (str(nothing), repr(nothing), len(nothing.frame())) == ("all invariants hold", "[]", 0)
    assert list(nothing.frame()) == list(found.frame())
    assert isinstance(first, sv.Violation)


def test_checking_a_saved_record_brings_no_torch(tmp_path: Path) -> None:
    recorded("eqspec", break_invariant="mask").save(tmp_path / "run")
    code = (
        "import sys, specviz as sv; "
        "found = sv.check_invariants(sv.Trace.load(sys.argv[1])); "
        "print(len(found) > 0, 'torch' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["True", "False"]


# Deep: the forwards once more.


@pytest.mark.parametrize(("name", "options"), [*VALID, POOLS[2]], ids=case_id)
def test_deep_finds_nothing_in_a_valid_run(name: str, options: dict[str, Any]) -> None:
    assert sv.check_invariants(recorded(name, **options), deep=True, pair=make_pair("llama")) == []


@pytest.mark.parametrize(
    ("model", "dtype"),
    [("gpt2", torch.float32), ("qwen3", torch.float64), ("glm4", torch.bfloat16)],
)
def test_deep_allows_for_rounding_and_no_more(model: str, dtype: torch.dtype) -> None:
    pair = make_pair(model, dtype)
    for fault, found_any in ((None, False), ("positions", True)):
        strategy = sv.strategy("eqspec", break_invariant=fault)
        trace = sv.generate(
            pair,
            make_prompts(),
            strategy=strategy,
            batch_size=4,
            max_new_tokens=8,
            record=True,
            progress=False,
        ).trace
        assert trace is not None
        found = sv.check_invariants(trace, deep=True, pair=pair)
        assert any("fresh prefill" in violation.found for violation in found) == found_any


@pytest.mark.parametrize("name", ["eqspec", "exspec", "masking"])
def test_deep_finds_slipped_kv_where_the_record_finds_it(name: str) -> None:
    trace = recorded(name, break_invariant="kv", rows=(1,), from_round=2)
    shallow, deep = (
        sv.check_invariants(trace),
        sv.check_invariants(trace, deep=True, pair=make_pair("llama")),
    )
    assert first_of(deep) == first_of(shallow)
    assert "fresh prefill" in deep[0].found
    assert (deep[0].slot, deep[0].count) == (shallow[0].slot, shallow[0].count)


def test_deep_finds_what_no_record_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty cache: the last slot of each moved block stays where it was."""
    trace, move = recorded("eqspec"), CachedModel.move
    monkeypatch.setattr(
        CachedModel,
        "move",
        lambda self, moves: move(self, [Move(*block[:4], block[4] - 1) for block in moves]),
    )
    assert sv.check_invariants(trace) == []
    found = sv.check_invariants(trace, deep=True, pair=make_pair("llama"))
    assert {(violation.rule, violation.phase) for violation in found} == {("kv", "synchronise")}
    moves = trace.moves
    first = np.flatnonzero((moves["phase"] == SYNCHRONISE) & (moves["model"] == TARGET))[0]
    last = moves["to_slot"][first] + moves["length"][first] - 1
    assert (found[0].round, found[0].slot) == (moves["round"][first], last)


def test_the_tolerance_lies_between_rounding_and_another_token() -> None:
    for dtype, most in (
        (torch.float64, 2e-8),
        (torch.float32, 4e-4),
        (torch.float16, 0.04),
        (torch.bfloat16, 0.09),
    ):
        assert 3 * torch.finfo(dtype).eps < tolerance(dtype) < most


def test_the_embedded_pair(embedded: sv.Pair) -> None:
    prompts = sv.load_prompts(limit=4)
    for strategy in (
        sv.strategy("eqspec"),
        sv.strategy("inplace", break_invariant="mask", rows=[0]),
    ):
        trace = sv.generate(
            embedded,
            prompts,
            strategy=strategy,
            batch_size=3,
            max_new_tokens=16,
            record=True,
            progress=False,
        ).trace
        assert trace is not None
        found = sv.check_invariants(trace, deep=True, pair=embedded)
        assert [violation.rule for violation in found[:1]] == (
            [] if strategy.promises else ["mask"]
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trace": None}, "trace=None: the run was not recorded"),
        ({"trace": "run"}, "trace must be a Trace, got str"),
        ({"deep": True}, "deep=True runs the models again, so it needs a pair"),
        ({"deep": True, "pair": "pair"}, "pair must be a Pair, got str"),
        ({"pair": make_pair("llama")}, "pass deep=True too"),
        ({"deep": True, "pair": make_pair("gpt2")}, "pair has target GPT2"),
        (
            {"deep": True, "pair": make_pair("llama", torch.float64)},
            "pair has dtype float64, but the record was made with float32",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    given = {"trace": recorded("eqspec")} | arguments
    with pytest.raises(ValueError, match=message):
        sv.check_invariants(given.pop("trace"), **given)
