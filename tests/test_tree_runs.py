"""Runs with token trees: the text is the target's own, and K/V lies where it is looked for."""

from collections import Counter
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import published
import pytest
import torch
from conftest import (
    CLASSES,
    EOS,
    NEW_TOKENS,
    decoded,
    generate,
    generate_one_by_one,
    in_turn,
    make_pair,
    make_prompts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ragged import AtRandom
from tree_drafters import GUMBEL, SHAPES, TOKENS, Forgetful, RandomTrees, alone, confident, going_on

import specviz as sv
from specviz.engine.batch import Batch, Request
from specviz.engine.kv.layout import Layout
from specviz.engine.kv.moves import METHODS, Move
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

STRATEGIES = ["inplace", "eqspec", "exspec", "masking", "rollback"]
DTYPES = (torch.float32, torch.float64)
ACCEPT, SCHEDULE = PHASES.index("accept"), PHASES.index("schedule")
TARGET = MODELS.index("target")
DRAFT = MODELS.index("draft")
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
GROWN = (
    sv.drafter("tree"),
    sv.drafter("tree", depth=3, width=4, children=3),
    sv.drafter("static_tree"),
)
each_drafter = pytest.mark.parametrize("drafter", GROWN, ids=["tree", "wide tree", "static tree"])


def check_text(
    name: str, dtype: torch.dtype, sampled: bool, budgets: list[int], **options: Any
) -> sv.Result:
    """Decode with random trees; the text is that of the target alone."""
    drafter = RandomTrees(
        options.pop("seed", 0), options.pop("shape", "random"), going_on(name, dtype, sampled)
    )
    sampling = GUMBEL if sampled else None
    result = generate(
        make_pair(name, dtype), make_prompts()[: len(budgets)], drafter=drafter,
        sampling=sampling, max_new_tokens=budgets, **options,
    )  # fmt: skip
    expected = alone(name, dtype, sampled)
    assert result.tokens == [row[:budget] for row, budget in zip(expected, budgets, strict=False)]
    return result


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**30), st.integers(1, 16), st.sampled_from(SHAPES),
    st.sampled_from(list(product(CLASSES, DTYPES))), st.sampled_from(STRATEGIES),
    st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(1, 5),
    st.lists(st.integers(1, TOKENS), min_size=3, max_size=10),
)  # fmt: skip
def test_no_tree_changes_the_text(
    seed: int, k: int, shape: str, kind: Any, strategy: str,
    flags: tuple[bool, bool, bool], batch_size: int, budgets: list[int],
) -> None:  # fmt: skip
    sampled, refill, selected = flags
    more: dict[str, Any] = {"selector": AtRandom(seed)} if selected else {}
    options = {} if refill or strategy == "exspec" else {"refill": False}
    check_text(
        *kind, sampled, budgets, seed=seed, shape=shape, num_draft_tokens=k,
        strategy=sv.strategy(strategy, **options), batch_size=batch_size, **more,
    )  # fmt: skip


@each_strategy
def test_paths_are_accepted_that_branch_and_that_hold_an_eos(strategy: str) -> None:
    """Otherwise the identity above would prove little."""
    budgets = [TOKENS] * 9 + [3]
    result = check_text(
        "llama", torch.float32, False, budgets, strategy=strategy, num_draft_tokens=8,
        batch_size=3 if strategy != "rollback" else 1, record=True,
    )  # fmt: skip
    trace = result.trace
    assert trace is not None
    rows = trace.rows
    going = rows["gained"] > 0
    accepted = rows["accepted"][going]
    assert len(set(accepted.tolist())) > 3
    path = rows["path"][going]
    number = np.arange(path.shape[1])
    assert ((path != number) & (number < accepted[:, None])).any(), "a node was not in place"
    # More was accepted than a row may write: behind an EOS, and behind its budget.
    cut = going & (rows["gained"] <= rows["accepted"])
    ends = [tokens[-1] in EOS for tokens in result.tokens]
    assert {ends[request] for request in rows["request"][cut].tolist()} == {False, True}


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("strategy", "drafter", "sampling"), in_turn(STRATEGIES, GROWN, [None, GUMBEL], every=2)
)
def test_the_drafters_of_trees_keep_the_text(strategy: str, drafter: Any, sampling: Any) -> None:
    result = generate(
        make_pair("llama"), make_prompts(), strategy=strategy, drafter=drafter,
        sampling=sampling, batch_size=4, max_new_tokens=TOKENS,
    )  # fmt: skip
    assert result.tokens == alone("llama", torch.float32, sampling is not None)
    assert result.summary["mean_acceptance_length"].item() > 1.05


OPTIONS: list[dict[str, Any]] = [
    {"num_draft_tokens": "auto"},
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 2, "strategy": "masking"},
    {"strategy": published.strategy("eqspec", as_published=True)},
    {"strategy": published.strategy("exspec", as_published=True)},
    {"strategy": sv.strategy("repadding", ones_mask=False, draft_bonus=False)},
    {"selector": "tetris", "num_draft_tokens": 3},
    {"selector": sv.selector("threshold", at_least=0.05)},
]


@pytest.mark.sweep(15)
@pytest.mark.parametrize(("drafter", "options"), in_turn(GROWN, OPTIONS, every=2), ids=str)
def test_trees_keep_the_text_with_every_option(drafter: Any, options: dict[str, Any]) -> None:
    result = generate(
        make_pair("llama"), make_prompts(), drafter=drafter, batch_size=4,
        max_new_tokens=NEW_TOKENS, **options,
    )  # fmt: skip
    assert result.tokens == generate_one_by_one()


# ---- EXSPEC's pool ----


def should_be_grouped(lengths: list[int], batch_size: int) -> bool:
    """Whether a batch of one length can be formed of the pool's rows."""
    return max(Counter(lengths).values()) >= min(batch_size, len(lengths))


@pytest.mark.parametrize("fallback", ["realign", "partial"])
def test_a_pool_groups_rows_of_trees_by_length(fallback: str) -> None:
    """By length alone, as it groups chains: how many drafts a tree has plays no part in it."""
    strategy = sv.strategy("exspec", window=10, fallback=fallback)
    result = check_text(
        "llama", torch.float32, False, [TOKENS] * 10, strategy=strategy, num_draft_tokens=6,
        batch_size=2, record=True,
    )  # fmt: skip
    trace = result.trace
    assert trace is not None
    assert sv.check_invariants(trace) == []
    names = [trace.meta["decisions"][code] for code in trace.rounds["decision"].tolist()]
    pool = trace.pool
    grouped = 0
    for number, name in enumerate(names):
        here = pool["round"] == number
        chosen = pool["length"][here & (pool["chosen"] == 1)].tolist()
        if should_be_grouped(pool["length"][here].tolist(), 2):
            assert name == "grouped"
            assert len(chosen) == min(2, here.sum())
            grouped += 1
        assert len(set(chosen)) == 1 or name == "realigned"
    other = {"realign": "realigned", "partial": "partial"}[fallback]
    assert Counter(names) == {"grouped": grouped, other: len(names) - grouped}
    assert 0 < grouped < len(names), "some rounds found a group and some did not"
    rows = trace.rows
    assert (rows["path"] > np.arange(rows["path"].shape[1])).any(), "a branch was accepted"


@each_drafter
def test_copies_of_a_prompt_stay_one_group(drafter: Any) -> None:
    """They advance alike. So every round finds its group, and no row is moved to meet another."""
    result = generate(
        confident(torch.float32), [make_prompts()[3]] * 4, drafter=drafter, batch_size=4,
        strategy=sv.strategy("exspec", window=4), max_new_tokens=TOKENS, record=True,
    )  # fmt: skip
    assert len({tuple(tokens) for tokens in result.tokens}) == 1
    decisions = [result.meta["decisions"][code] for code in result.rounds["decision"].tolist()]
    assert Counter(decisions) == {"grouped": len(decisions)}
    assert result.trace is not None
    assert set(result.trace.moves["phase"].tolist()) <= {ACCEPT}, "trees are compacted, no more"
    assert (result.rows["accepted"] > 1).any()


# ---- the draft's K/V ----


@cache
def in_double(strategy: Strategy | str, drafter: Any, keep: bool = True) -> Trace:
    """A run without near ties, so that what is drafted depends on right K/V alone."""
    trace = generate(
        confident(torch.float64), make_prompts(), strategy=strategy, drafter=drafter,
        batch_size=3, max_new_tokens=TOKENS, record=True, levers=sv.Levers(keep_draft=keep),
    ).trace  # fmt: skip
    assert trace is not None
    return trace


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("strategy", "name"), in_turn(STRATEGIES, ["tree", "wide tree", "static_tree"], every=2)
)
def test_the_draft_reads_what_it_would_read_anew(strategy: str, name: str) -> None:
    """It proposes the same trees with the same q in all rounds, and as many are accepted."""
    options = {"depth": 4, "width": 3, "children": 3} if name == "wide tree" else {}
    kept, anew = (
        in_double(strategy, sv.drafter(name.split()[-1], **options), keep).rows
        for keep in (True, False)
    )
    for column in ("round", "row", "request", "length", "drafts", "parents", "accepted", "gained"):
        assert np.array_equal(kept[column], anew[column]), column
    np.testing.assert_allclose(kept["draft_logprob"], anew["draft_logprob"], atol=1e-5)
    assert kept["accepted"].max() >= 3
    moved_on = kept["path"] != np.arange(kept["path"].shape[1])
    assert (moved_on & (kept["path"] >= 0)).any()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("strategy", ["inplace", "masking"])
def test_drafts_that_a_draft_model_has_not_kept_are_read_again(strategy: str) -> None:
    right = in_double(strategy, sv.drafter("tree"), keep=False).rows
    found = in_double(strategy, Forgetful()).rows
    assert np.array_equal(found["drafts"], right["drafts"])
    np.testing.assert_allclose(found["draft_logprob"], right["draft_logprob"], atol=1e-5)


@pytest.mark.sweep(8)
@each_drafter
def test_strategies_that_gain_all_accept_the_same(drafter: Any) -> None:
    found = []
    for strategy in ("inplace", "eqspec", "masking"):
        rows = in_double(strategy, drafter).rows
        columns = [rows[name].tolist() for name in ("request", "length", "accepted")]
        found.append(sorted(zip(*columns, strict=True)))
    assert found[0] == found[1] == found[2]


# ---- what moves ----


def moved(trace: Trace, model: int) -> set[tuple[int, int, int, int]]:
    """Round, row, slot and new slot of all K/V that moves as a tree is compacted."""
    moves = trace.moves
    here = (moves["phase"] == ACCEPT) & (moves["model"] == model)
    assert (moves["from_row"][here] == moves["to_row"][here]).all()
    names = ("round", "from_row", "from_slot", "to_slot", "length")
    columns = zip(*(moves[name][here].tolist() for name in names), strict=True)
    return {(r, row, a + i, b + i) for r, row, a, b, n in columns for i in range(n)}


def wanted(trace: Trace) -> set[tuple[int, int, int, int]]:
    """The same by what was accepted: each draft that a row gains and that was not in place."""
    rows = trace.rows
    names = ("round", "row", "pending", "gained", "path")
    found = set()
    for number, row, pending, gained, path in zip(
        *(rows[name].tolist() for name in names), strict=True
    ):
        for j, draft in enumerate(path[: max(gained - 1, 0)]):
            if draft != j:
                found.add((number, row, pending + 1 + draft, pending + 1 + j))
    return found


MOVING = [sv.strategy(name) for name in STRATEGIES if name != "masking"]
MOVING += [sv.strategy(name, refill=False) for name in ("inplace", "eqspec", "rollback")]


@pytest.mark.parametrize("strategy", MOVING, ids=str)
def test_only_accepted_drafts_move_that_were_not_in_place(strategy: Strategy) -> None:
    """What an EOS or the budget cuts off does not move either."""
    result = check_text(
        "llama", torch.float32, False, [TOKENS] * 9 + [3], strategy=strategy,
        num_draft_tokens=8, batch_size=3, record=True,
    )  # fmt: skip
    trace = result.trace
    assert trace is not None
    assert moved(trace, TARGET) == wanted(trace) != set()
    if strategy.name == "inplace":
        assert set(trace.moves["phase"].tolist()) <= {ACCEPT, SCHEDULE}


@pytest.mark.sweep(6)
@each_drafter
def test_masking_moves_nothing_of_the_target(drafter: Any) -> None:
    """In one static batch, where no row trades places and no column is dropped."""
    strategy = sv.strategy("masking", refill=False)
    trace = decoded(strategy, drafter=drafter, batch_size=10).trace
    assert (trace.moves["model"] == TARGET).sum() == 0
    # A fixed tree keeps the draft's K/V in the target's columns, so that nothing moves at all.
    assert bool(moved(trace, DRAFT)) == (drafter.name == "tree")
    rows = trace.rows
    assert (rows["path"] > np.arange(rows["path"].shape[1])).any(), "a draft was not in place"


def compacted(batch: Batch, layout: Layout, model: str, *, stay: bool) -> list[Move]:
    """What `State.compact` moves in a model's cache."""
    moved: list[Move] = []
    caches = {model: SimpleNamespace(move=moved.extend)}
    state: Any = SimpleNamespace(batch=batch, layout=layout, caches=caches, keep_draft=True)
    State.compact(state, [0], stay)
    return moved


@pytest.mark.parametrize("method", METHODS)
def test_k_v_that_is_in_the_way_is_read_before_it_is_overwritten(method: str) -> None:
    """Under masking the draft's K/V moves to the right, onto K/V that has yet to move."""
    batch = Batch(1, 20, torch.device("cpu"))
    batch.place([Request(0, (1, 2, 3, 4, 5, 6), 9)], [0])
    row = batch.live[0]
    row.gained = 4
    row.path = [3, 5, 6]
    row.draft_path = [1, 3, 0]  # the last one was never fed to the draft model
    layout = Layout(1, torch.device("cpu"))
    moves = compacted(batch, layout, "draft", stay=True)
    pending = row.length - row.gained - 1
    assert moves == [
        Move(0, pending + 1, 0, pending + 3, 1),
        Move(0, pending + 3, 0, pending + 5, 1),
    ]
    slab = torch.arange(20.0).reshape(1, 20, 1, 1)
    METHODS[method]([slab], moves)
    assert slab[0, [pending + 3, pending + 5], 0, 0].tolist() == [pending + 1, pending + 3]
    assert compacted(batch, layout, "target", stay=True) == []
    moves = compacted(batch, layout, "target", stay=False)
    assert moves == [
        Move(0, pending + 3, 0, pending + 1, 1),
        Move(0, pending + 5, 0, pending + 2, 2),
    ]
