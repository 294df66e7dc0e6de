"""Records of runs whose drafts branch: correct ones have no findings, faults are found."""

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import published
import pytest
from conftest import in_turn, make_pair, make_prompts
from mutations import edited
from tree_drafters import ChainAsTree

import specviz as sv
from specviz.checks import invariants
from specviz.checks.branches import Branches
from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters.chains import ModelDrafter
from specviz.engine.drafters.trees import TreeDrafter
from specviz.engine.faults import TREE_FAULTS
from specviz.engine.state import State
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


@pytest.mark.sweep(20)
@pytest.mark.parametrize(
    ("strategy", "drafter", "sampling"),
    in_turn(STRATEGIES, DRAFTERS, [None, GUMBEL, REJECTION], every=3),
)
def test_a_correct_run_has_no_findings(strategy: str, drafter: str, sampling: Any) -> None:
    trace = recorded(drafter, strategy, sampling)
    assert sv.check_invariants(trace, deep=True, pair=make_pair("llama")) == []
    _, forwards = invariants.check(trace)
    assert not any(forwards.wrong.values()), "no query is drawn as wrong"


@pytest.mark.sweep(32)
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


@pytest.mark.sweep(4)
@pytest.mark.parametrize("fault", ["positions", "mask", "kv", "bonus"])
def test_the_faults_of_chains_are_found_in_trees(fault: str) -> None:
    trace = recorded("static", "eqspec", break_invariant=fault, rows=(1,), from_round=1)
    found = sv.check_invariants(trace)
    assert (found[0].rule, found[0].row) == (fault, 1)


@pytest.mark.parametrize(
    ("siblings", "judge"), [("drawn", "first"), ("likeliest", "rest"), ("independent", "rest")]
)
def test_a_biased_judge_is_named(siblings: str, judge: str) -> None:
    """Greedily, its trees are judged as any are."""
    drafter = sv.drafter("static_tree", siblings=siblings, judged_by=judge, valid=False)
    trace = short(drafter, 7, sampling=REJECTION)
    assert not trace.meta["valid"]
    found = sv.check_invariants(trace)
    assert {(each.rule, each.round) for each in found} == {("acceptance", 0)}
    assert f"{siblings} children are judged_by={judge!r}" in str(found[0])
    assert short(drafter, 7).meta["valid"]


# Trees that happen to be chains, and rounds that draft fewer tokens than the most.


@dataclass(frozen=True)
class OwnTree(TreeDrafter):
    """A drafter whose name says nothing of trees."""

    name: ClassVar[str] = "own"


@dataclass(frozen=True)
class MayBranch(ModelDrafter):
    """Might make trees, and proposes a chain."""

    branches: ClassVar[bool] = True


def short(drafter: Any, count: int | DraftLength, **options: Any) -> Trace:
    result = sv.generate(
        make_pair("llama"),
        make_prompts()[:4],
        drafter=drafter,
        num_draft_tokens=count,
        max_new_tokens=12,
        record=True,
        progress=False,
        **options,
    )
    assert result.trace is not None
    return result.trace


CHAINS = {
    "static": ("static_tree", 2),
    "drawn": (DRAWN, 2),
    "one draft": ("tree", 1),
    "narrow": (sv.drafter("tree", width=1, children=1), 3),
    "own": (OwnTree(width=1, children=1), 3),
    "own, by q": (ChainAsTree(), 3),
    "a chain": (MayBranch(), 3),
}


@pytest.mark.sweep(7)
@pytest.mark.parametrize("name", CHAINS)
def test_a_tree_that_is_a_chain_is_not_judged_by_the_coins_of_one(name: str) -> None:
    drafter, count = CHAINS[name]
    trace = short(drafter, count, sampling=sv.SamplingParams(1.0))
    assert not Branches(trace).any
    assert sv.check_invariants(trace) == []
    if trace.meta["drafter"] in ("tree", "static_tree"):
        # Older headers do not say whether the drafter makes trees.
        older = {name: value for name, value in trace.meta.items() if name != "branches"}
        assert sv.check_invariants(replace(trace, meta=older)) == []


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", ["static", "narrow", "own", "a chain"])
def test_a_tree_that_is_a_chain_is_scored_by_its_branch(name: str) -> None:
    drafter, count = CHAINS[name]
    selector = sv.selector("threshold", at_least=0.2)
    trace = short(drafter, count, selector=selector)
    assert not Branches(trace).any
    assert sv.check_invariants(trace) == []
    scores = trace.rows["scores"].copy()
    scores[trace.rows["gained"] > 0, 1] -= 0.01
    found = sv.check_invariants(edited(trace, "rows", slice(None), scores=scores))
    assert "verification" in {each.rule for each in found}


class Three(DraftLength):
    name = "three"

    def choose(self, state: State) -> int:
        return 3


@pytest.mark.sweep(3)
@pytest.mark.parametrize("fault", [None, "tree_mask", "tree_positions"])
def test_what_is_found_in_a_round_does_not_depend_on_the_most_drafts(fault: str | None) -> None:
    """The draft model reads drafts that are not proposed, with numbers up to that of the most."""
    strategy = sv.strategy("inplace", break_invariant=fault)
    few = short("tree", 3, strategy=strategy)
    of_many = short("tree", Three(8), strategy=strategy)
    assert few.feeds["node"].max() > 3
    assert all(np.array_equal(few.feeds[name], of_many.feeds[name]) for name in few.feeds)
    found = sv.check_invariants(of_many)
    assert found == sv.check_invariants(few)
    assert bool(found) == (fault is not None)


def test_a_draft_that_was_not_proposed_is_judged_alike_whatever_the_most_drafts() -> None:
    """Its number is no larger than that of the most drafts, so it might pass for one of a chain."""
    found = []
    for count in (3, Three(8)):
        trace = short("tree", count)
        feeds = trace.feeds
        is_more = (feeds["node"] > 3) & (feeds["phase"] == PHASES.index("draft"))
        at = np.flatnonzero(is_more & (feeds["round"] > 0))[0]
        start = feeds["visible_start"][at] + 1
        found.append(sv.check_invariants(edited(trace, "feeds", at, visible_start=start)))
    assert found[0][0].rule == "mask"
    assert found[0] == found[1]


@pytest.mark.parametrize("habit", ["shrink_to_budget", "as_published"])
def test_small_budgets_shorten_trees_without_a_finding(habit: str) -> None:
    trace = short(
        sv.drafter("tree", width=3), 6, strategy=published.strategy("eqspec", **{habit: True})
    )
    assert len(set(trace.rows["drafted"].tolist())) > 2
    assert sv.check_invariants(trace) == []
