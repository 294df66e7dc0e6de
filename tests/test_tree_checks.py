"""Records of runs whose drafts branch: correct ones have no findings, faults are found."""

import functools
from typing import Any

import numpy as np
import pytest
from conftest import in_turn, make_pair, make_prompts

import specviz as sv
from specviz.checks.attention import Attention
from specviz.checks.branches import Branches
from specviz.engine.faults import TREE_FAULTS
from specviz.record.replay import Replay
from specviz.record.schema import PHASES
from specviz.record.trace import Trace

STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
GUMBEL = sv.SamplingParams(0.9, top_p=0.95, coupling="gumbel")
REJECTION = sv.SamplingParams(0.9)
DRAWN = sv.drafter("static_tree", siblings="drawn")
DRAFTERS: dict[str, tuple[Any, int]] = {
    "tree": (sv.drafter("tree", depth=3, width=2, children=3), 6),
    "static": ("static_tree", 7),
    "drawn": (DRAWN, 7),
}


@functools.cache
def recorded(drafter: str, strategy: str, sampling: Any = None, **fault: Any) -> Trace:
    made, nodes = DRAFTERS[drafter]
    pair = make_pair("llama")
    result = sv.generate(
        pair,
        make_prompts()[1:7],
        strategy=sv.strategy(strategy, **fault),
        drafter=made,
        num_draft_tokens=nodes,
        batch_size=3,
        max_new_tokens=14,
        sampling=sampling,
        record=True,
        progress=False,
    )
    assert result.trace is not None
    # By coins, rollback accepts what all rows accept, which is nothing in so short a run.
    assert strategy == "rollback" or result.trace.rows["accepted"].any()
    assert Branches(result.trace).any
    return result.trace


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("strategy", "drafter", "sampling"),
    in_turn(STRATEGIES, DRAFTERS, [None, GUMBEL, REJECTION], every=3),
)
def test_a_correct_run_has_no_findings(strategy: str, drafter: str, sampling: Any) -> None:
    trace = recorded(drafter, strategy, sampling)
    assert sv.check_invariants(trace, deep=True, pair=make_pair("llama")) == []


@pytest.mark.sweep(4)
@pytest.mark.parametrize("fault", TREE_FAULTS)
@pytest.mark.parametrize("drafter", ["tree", "static"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fault_is_named_first_in_its_row_and_round(
    strategy: str, drafter: str, fault: str
) -> None:
    if (strategy, fault) == ("masking", "compaction"):
        pytest.skip("masking leaves accepted drafts where they are")
    trace = recorded(drafter, strategy, break_invariant=fault, rows=(1,), from_round=1)
    found = sv.check_invariants(trace)
    assert not trace.meta["valid"]
    rule, phase = RULES[fault]
    number = first_hit(trace, fault)
    first = found[0]
    assert (first.round, first.phase, first.row) == (number, phase, 1)
    assert first.rule in rule


RULES = {
    "tree_mask": (("mask",), "verify"),
    "tree_positions": (("positions",), "verify"),
    # Where the target's K/V happens to be in place, the draft's alone is left behind.
    "compaction": (("kv", "caches"), "synchronise"),
}


def first_hit(trace: Trace, fault: str) -> int:
    """The first round in which the fault changes anything in row 1."""
    branches, rows = Branches(trace), trace.rows
    hit = (rows["row"] == 1) & (rows["round"] >= 1) & (rows["gained"] > 0)
    columns = np.arange(branches.depths.shape[1])
    if fault == "compaction":
        hit &= rows["finished"] == 0  # nothing reads what a finished row leaves behind
        return first_left_behind(trace, hit, own_columns=trace.meta["drafter"] == "tree")
    return int(rows["round"][hit & (branches.depths != columns).any(1)][0])


def first_left_behind(trace: Trace, hit: np.ndarray, *, own_columns: bool) -> int:
    """The first round in which a draft whose K/V a later round needs is not in place."""
    rows, feeds = trace.rows, trace.feeds
    for entry in np.flatnonzero(hit).tolist():
        number, pending = int(rows["round"][entry]), int(rows["pending"][entry])
        kept = rows["path"][entry][: rows["gained"][entry] - 1]
        kept = kept[kept >= 0]
        if (kept != np.arange(kept.size)).any():
            return number
        if own_columns:
            fed = (feeds["round"] == number) & (feeds["row"] == 1) & (feeds["model"] == 1)
            fed &= feeds["phase"] == PHASES.index("draft")
            # The draft model reads the last two tokens again in any case.
            for depth, node in enumerate(kept[: rows["gained"][entry] - 2].tolist()):
                slot = feeds["slot"][fed & (feeds["node"] == node + 1)]
                if slot.size and slot[0] != pending + 1 + depth:
                    return number
    raise AssertionError("the fault changes nothing")


@pytest.mark.parametrize("fault", ["positions", "mask", "kv", "bonus"])
def test_the_faults_of_chains_are_found_in_trees(fault: str) -> None:
    trace = recorded("static", "eqspec", break_invariant=fault, rows=(1,), from_round=1)
    found = sv.check_invariants(trace)
    assert (found[0].rule, found[0].row) == (fault, 1)


def test_a_biased_judge_is_named() -> None:
    pair = make_pair("llama")
    for options in ({"siblings": "drawn", "judged_by": "first"}, {"judged_by": "rest"}):
        result = sv.generate(
            pair,
            make_prompts()[2:4],
            drafter=sv.drafter("static_tree", valid=False, **options),
            num_draft_tokens=7,
            max_new_tokens=6,
            sampling=REJECTION,
            record=True,
            progress=False,
        )
        found = sv.check_invariants(result.trace)
        assert {(each.rule, each.round) for each in found} == {("acceptance", 0)}
        assert not result.trace.meta["valid"]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "masking"])
def test_no_query_of_a_correct_run_is_drawn_as_wrong(strategy: str, drafter: str) -> None:
    trace = recorded(drafter, strategy)
    attention, replay = Attention(trace), Replay(trace)
    for frame in replay.frames():
        for model in ("target", "draft"):
            assert attention.wrong(frame, model) == [], (frame.round, frame.phase, model)
