"""Verdicts that the step-through draws: what queries saw wrongly, and what became of each draft."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import decoded
from tiny_run import TRACE, changed

import specviz as sv
from specviz.checks import invariants
from specviz.checks.fates import FATES, draft_fates
from specviz.checks.forward_rules import WrongQueries, ranges
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

FORWARDS = (("schedule", "target"), ("draft", "draft"), ("verify", "target"))


def record(name: str, **options: Any) -> Trace:
    return decoded(sv.strategy(name, **options), max_new_tokens=12).trace


def wrong_queries(trace: Trace) -> list[WrongQueries]:
    _, forwards = invariants.check(trace)
    found = []
    for number in range(trace.num_rounds):
        for phase, model in FORWARDS:
            stage = number * len(PHASES) + PHASES.index(phase)
            found += forwards.wrong.get((stage, MODELS.index(model)), [])
    return found


def altered_feed(entry: int, column: str, value: int) -> Trace:
    """The tiny run without its hole, with another value in one entry of `feeds`."""
    feeds = {name: values.copy() for name, values in TRACE.feeds.items()}
    feeds[column][entry] = value
    no_holes = {name: values[:0] for name, values in TRACE.holes.items()}
    return replace(TRACE, feeds=feeds, holes=no_holes)


def entry_of(number: int, phase: str, row: int, index: int) -> int:
    """The entry of `feeds` where the tiny run fed this index to the phase's model."""
    feeds = TRACE.feeds
    model = dict(FORWARDS)[phase] == "draft"
    at = (feeds["round"] == number) & (feeds["phase"] == PHASES.index(phase))
    at &= (feeds["model"] == model) & (feeds["row"] == row) & (feeds["index"] == index)
    (entry,) = np.flatnonzero(at)
    return int(entry)


@pytest.mark.parametrize("name", ["autoregressive", "eqspec", "exspec", "inplace", "masking"])
def test_the_queries_of_a_valid_run_saw_what_they_should(name):
    assert wrong_queries(record(name)) == []


@pytest.mark.parametrize(
    ("place", "column", "value", "leaks", "holes"),
    [
        # Row 0 of round 1 starts in slot 0 and has 5 tokens: index 4 may see slots 0 to 4.
        ((1, "verify", 0, 4), "visible_stop", 6, [(5, 6)], []),
        ((1, "verify", 0, 5), "visible_start", 2, [], [(0, 2)]),
        # A prefill is judged by what it wrote: request 2 enters row 1 in round 2, where slots 0 to
        # 3 are padding.
        ((2, "schedule", 1, 1), "visible_start", 3, [(3, 4)], []),
    ],
    ids=["one slot too many", "first two tokens missed", "prefill"],
)
def test_a_query_that_saw_too_much_or_too_little(place, column, value, leaks, holes):
    entry = entry_of(*place)
    assert wrong_queries(altered_feed(entry, column, value)) == [
        WrongQueries(entry, 1, leaks=leaks, holes=holes, lost=0)
    ]
    # The tiny run's only hole hides index 0 from the first entry of `feeds`.
    hidden = int(TRACE.holes["feed"][0])
    assert wrong_queries(TRACE) == [WrongQueries(hidden, 1, leaks=[], holes=[(0, 1)], lost=0)]


def test_neighbouring_queries_with_the_same_leak_are_one_entry():
    trace = record("repadding")
    found = wrong_queries(trace)
    feeds = trace.feeds
    padding = [each for each in found if each.leaks == [(0, int(feeds["slot"][each.feed]))]]
    assert any(each.count > 1 for each in padding)
    for each in found:
        entries = np.arange(each.feed, each.feed + each.count)
        assert len(set(feeds["row"][entries].tolist())) == 1


def test_kv_that_slipped_by_a_slot_is_lost_somewhere():
    """The slot that a slip leaves behind holds no token that counts, and the last one fell off."""
    found = wrong_queries(record("inplace", break_invariant="kv", rows=(1,), from_round=1))
    assert found
    assert all(each.lost >= 1 and each.leaks for each in found)


def test_a_faulty_mask_leaks_in_the_rows_that_it_hits_and_in_no_other():
    trace = record("eqspec", break_invariant="mask", rows=(1,), from_round=1)
    found = wrong_queries(trace)
    assert found
    assert {int(trace.feeds["row"][each.feed]) for each in found} == {1}
    assert {each.lost for each in found} == {0}


def test_ranges_of_a_mask():
    assert ranges(np.array([1, 1, 0, 0, 1], bool)) == [(0, 2), (4, 5)]
    assert ranges(np.zeros(3, bool)) == []


def fates(trace: Trace, judge: bool = True) -> list[list[str]]:
    return [[FATES[code] for code in codes] for codes in draft_fates(trace, judge=judge)]


def choices(*rows: list[int]) -> np.ndarray:
    """The target's choices as the record keeps them, (N, K+1, 1)."""
    return np.array(rows, np.int32)[:, :, None]


# What the target says after each draft of the tiny run's six entries, so that all is right.
RIGHT = choices(
    [19, 0, 0], [22, 23, 24], [15, 16, 0], [2, 0, 0], [17, 18, 40], [39, 0, 0]
)  # fmt: skip


def test_fates_of_the_tiny_run():
    """By hand: in each round the drafts up to the first rejection, or all of them and a bonus."""
    rejected_first = ["rejected", "unreached", "unreached"]
    assert fates(changed("rows", target_top_ids=RIGHT)) == [
        rejected_first,
        ["accepted", "accepted", "bonus"],
        ["accepted", "rejected", "unreached"],
        rejected_first,
        ["accepted", "accepted", "bonus"],
        rejected_first,
    ]


def test_a_token_that_the_target_did_not_choose_is_wrong():
    other = RIGHT.copy()
    other[1, 1] = 77  # an accepted draft
    other[2, 1] = 77  # the token behind the accepted ones
    trace = changed("rows", target_top_ids=other)
    assert fates(trace)[1] == ["accepted", "wrong", "bonus"]
    assert fates(trace)[2] == ["accepted", "wrong", "unreached"]
    assert fates(trace, judge=False) == fates(changed("rows", target_top_ids=RIGHT))
    # What the target would have drawn is not in the record of a sampled run.
    sampled = replace(trace, meta=trace.meta | {"sampling": {"coupling": "rejection"}})
    assert "wrong" not in {fate for row in fates(sampled) for fate in row}


@pytest.mark.parametrize(
    ("drafted", "verified", "accepted", "gained", "discarded", "expected"),
    [
        # Rows that others or the end cut short.
        (2, 2, 0, 1, 2, ["kept", "discarded", "discarded"]),
        (2, 2, 0, 1, 1, ["kept", "unreached", "unreached"]),
        (2, 2, 1, 2, 1, ["accepted", "kept", "discarded"]),
        (2, 2, 2, 1, 0, ["accepted", "ended", "ended"]),
        (2, 2, 2, 2, 0, ["accepted", "accepted", "ended"]),
        (1, 1, 1, 2, 0, ["accepted", "bonus", "none"]),
        (0, 0, 0, 1, 0, ["bonus", "none", "none"]),
        (2, 2, 0, 0, 0, ["none", "none", "none"]),
        # Drafts that were not verified.
        (2, 0, 0, 1, 0, ["bonus", "unverified", "none"]),
        (2, 1, 1, 2, 0, ["accepted", "bonus", "none"]),
        (2, 1, 0, 1, 0, ["rejected", "unverified", "none"]),
        (2, 0, 0, 0, 0, ["none", "none", "none"]),
    ],
)
def test_fates_of_drafts_that_were_not_all_judged(
    drafted, verified, accepted, gained, discarded, expected
):
    columns = {name: values.copy() for name, values in TRACE.rows.items()}
    given = {"drafted": drafted, "verified": verified, "accepted": accepted}
    for name, value in (given | {"gained": gained, "discarded": discarded}).items():
        columns[name][0] = value
    assert fates(changed("rows", **columns), judge=False)[0] == expected
