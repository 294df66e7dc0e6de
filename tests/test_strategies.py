"""What sets the strategies apart: scheduling, what is moved and lost, and how some fail."""

import math

import numpy as np
import pytest
import torch
from conftest import (
    NEW_TOKENS,
    check_refusal,
    decoded,
    generate,
    generate_one_by_one,
    make_pair,
    make_prompts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import specviz as sv
from specviz.engine.kv.layout import Columns
from specviz.record.schema import DECISIONS, FALLBACKS
from specviz.scheduling.scheduler import Scheduler


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return generate_one_by_one()


def exact(result: sv.Result, expected: list[list[int]]) -> float:
    return float(
        np.mean([ours == theirs for ours, theirs in zip(result.tokens, expected, strict=True)])
    )


# the scheduler, without a model


def choose(
    lengths: dict[int, int], *, batch_size: int = 2, fallback: str = "realign", max_wait: int = 3
) -> tuple[list[int], str]:
    scheduler = Scheduler(batch_size, fallback, max_wait)
    scheduler.update(lengths)
    return scheduler.choose(lengths)


def test_a_full_group_of_equal_length_is_preferred_and_else_the_fallback_decides():
    lengths = {0: 5, 1: 7, 2: 9, 3: 7}
    for fallback in FALLBACKS:
        assert choose(lengths, fallback=fallback) == ([1, 3], "grouped")
        expected = ([0, 1, 2], "realigned") if fallback == "realign" else ([1, 3], "partial")
        assert choose(lengths, batch_size=3, fallback=fallback) == expected
    # A pool smaller than the batch is one group if its lengths agree.
    assert choose({4: 6, 9: 6}, batch_size=8) == ([4, 9], "grouped")


def test_a_row_that_is_overdue_goes_before_those_that_came_first():
    scheduler, lengths, served = Scheduler(1, "wait", 2), {7: 4, 8: 5, 9: 6}, []
    for _ in range(7):
        scheduler.update(lengths)
        served.append(scheduler.choose(lengths))
    assert [row for (row,), _ in served] == [7, 7, 8, 9, 7, 8, 9]
    assert [decision for _, decision in served[:4]] == ["grouped", "grouped", "overdue", "overdue"]


def test_a_row_that_was_passed_over_too_often_is_taken():
    scheduler, lengths = Scheduler(2, "wait", 2), {0: 3, 1: 4, 2: 4}
    taken = []
    for _ in range(4):
        scheduler.update(lengths)
        taken.append(scheduler.choose(lengths))
    assert taken == [
        ([1, 2], "grouped"),
        ([1, 2], "grouped"),
        ([0, 1], "overdue"),
        ([1, 2], "grouped"),
    ]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 20),
    st.sampled_from(FALLBACKS),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_every_round_serves_a_batch_and_waiting_is_bounded(
    lengths, batch_size, max_wait, arriving, fallback, random
):
    """For 150 rounds, rows gain 1 to 6 tokens when served, and some leave and others come."""
    pool, scheduler = dict(enumerate(lengths)), Scheduler(batch_size, fallback, max_wait)
    size, longest_wait, following = len(pool), 0, len(pool)
    for _ in range(150):
        longest_wait = max([longest_wait, *scheduler.update(pool).values()])
        group, decision = scheduler.choose(pool)
        equal = len({pool[row] for row in group}) == 1
        assert decision in DECISIONS
        assert len(set(group)) == len(group)
        assert set(group) <= set(pool)
        assert decision in ("realigned", "overdue") or equal
        assert len(group) == min(batch_size, len(pool)) or (
            decision == "partial" and fallback != "realign"
        )
        for row in group:
            pool[row] += random.randint(1, 6)
        if arriving and random.random() < 0.3:
            del pool[group[0]]
            pool[following], arriving, following = (
                random.randint(1, 12),
                arriving - 1,
                following + 1,
            )
    if fallback == "wait":
        assert longest_wait <= max_wait + math.ceil(size / batch_size)


# what they do


def test_rollback_keeps_the_rows_together_and_reports_what_it_throws_away(expected):
    result = decoded("rollback")
    rows = result.rows
    assert result.tokens == expected
    for number in np.unique(rows["round"]):
        here = (rows["round"] == number) & (rows["finished"] == 0)
        assert len(set(rows["gained"][here])) <= 1
    assert rows["discarded"].sum() > 0
    assert (decoded("eqspec").rows["discarded"] == 0).all()


def test_what_rollback_throws_away_is_what_the_target_had_agreed_to():
    """Kept and discarded tokens together are the row's own acceptance, up to EOS and budget."""
    trace = decoded("rollback").trace
    agreed = trace.rows["drafts"] == trace.rows["target_top_ids"][:, :-1, 0]
    own = np.cumprod(agreed, axis=1).sum(axis=1)
    taken = trace.rows["gained"] + trace.rows["discarded"]
    working = trace.rows["gained"] > 0
    assert (taken[working] <= own[working] + 1).all()
    assert (taken[working] == own[working] + 1).mean() > 0.5  # the others were cut by EOS or budget


def test_masking_moves_nothing_and_leaves_holes():
    trace = decoded(sv.strategy("masking", refill=False), batch_size=10).trace
    assert not trace.moves["round"].size
    # K + 1 columns a round, whatever was accepted
    np.testing.assert_array_equal(np.diff(trace.rounds["slots"]), 5)
    pending = trace.rows["pending"]
    assert all(
        len(set(pending[trace.rows["round"] == number])) == 1 for number in range(trace.num_rounds)
    )
    assert trace.holes["feed"].size


@pytest.mark.slow
def test_masking_makes_room_when_rows_come_and_go():
    """With refill the columns of rows that left are dropped when the slab is full."""
    run = {"strategy": "masking", "batch_size": 3, "max_new_tokens": 6, "record": True}
    result = generate(make_pair("llama"), make_prompts() * 4, **run)
    assert result.tokens == [row[:6] for row in generate_one_by_one()] * 4
    assert (np.diff(result.rounds["slots"]) < 0).any()
    assert (result.trace.moves["to_slot"] < result.trace.moves["from_slot"]).any()


def test_columns_move_with_their_rows():
    layout = Columns(3, 20, 3, torch.device("cpu"), by_column=False, max_positions=None)
    layout.frontier = 4
    for row, n in enumerate((5, 3, 2)):
        layout.enter(row, n)
    layout.advance([6, 5, 3], [1, 2, 1], 7)

    def held(row: int) -> list[list[int]]:
        """The slots of the row's three tokens, and those that its last token sees."""
        visible = layout.visible(torch.tensor([row]), torch.tensor([[2]]), 10)
        slots = layout.slots(torch.tensor([row]), torch.arange(3)[None])
        return [slots[0].tolist(), visible[0, 0].nonzero()[:, 0].tolist()]

    assert held(2) == [[3, 4, 7]] * 2
    layout.take([0, 2])
    assert held(1) == [[3, 4, 7]] * 2


@pytest.mark.slow
def test_repadding_without_unpadding_only_wastes_room(expected):
    wasteful = decoded(sv.strategy("repadding", ones_mask=False, draft_bonus=False, refill=False))
    thrifty = decoded(sv.strategy("eqspec", refill=False))
    assert wasteful.tokens == thrifty.tokens == expected
    assert wasteful.rounds["slots"].max() > thrifty.rounds["slots"].max()


def test_exspec_never_prefills_a_row_twice_and_groups_are_rectangles():
    for fallback in FALLBACKS:
        trace = decoded(sv.strategy("exspec", window=8, fallback=fallback, max_wait=2)).trace
        prefilled = (trace.feeds["phase"] == 0) & (trace.feeds["model"] == 0)
        fed = list(
            zip(trace.feeds["request"][prefilled], trace.feeds["index"][prefilled], strict=True)
        )
        assert len(fed) == len(set(fed)) == sum(len(prompt) - 1 for prompt in make_prompts())
        for number in range(trace.num_rounds):
            here = trace.rows["round"] == number
            assert len(set(trace.rows["pending"][here])) == 1
            if trace.meta["decisions"][trace.rounds["decision"][number]] in ("grouped", "partial"):
                assert len(set(trace.rows["length"][here])) == 1


def test_exspec_records_its_pool():
    result = decoded(sv.strategy("exspec", window=8, fallback="wait", max_wait=2))
    pool, rows = result.trace.pool, result.trace.rows
    for number in range(result.trace.num_rounds):
        here = pool["round"] == number
        assert here.sum() <= 8
        chosen = here & (pool["chosen"] == 1)
        np.testing.assert_array_equal(
            pool["request"][chosen], rows["request"][rows["round"] == number]
        )
    assert pool["waited"].max() >= 1
    assert set(result.meta["decisions"]) == set(DECISIONS)
    assert not decoded("eqspec").trace.pool["round"].size


def test_equal_prompts_are_grouped_and_nothing_moves_within_a_group():
    """Copies of one prompt advance alike, so every round is grouped and no K/V is realigned."""
    run = {"strategy": sv.strategy("exspec", window=4), "batch_size": 4, "max_new_tokens": 12}
    result = generate(make_pair("llama"), [[7, 8, 9]] * 4, record=True, **run)
    assert {result.meta["decisions"][code] for code in result.rounds["decision"]} == {"grouped"}
    assert not result.trace.moves["round"].size


def test_sorted_prompts_come_back_in_the_callers_order(expected):
    result = decoded(sv.strategy("exspec", window=4, sort_prompts=True))
    assert result.tokens == expected
    lengths = [len(prompt) for prompt in make_prompts()]
    first = [int(request) for request in result.rows["request"][result.rows["round"] == 0]]
    assert sorted(lengths[request] for request in first) == sorted(lengths)[: len(first)]


# how they fail


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "strategy",
    [sv.strategy("masking", positions="column"), sv.strategy("repadding")],
    ids=lambda s: s.name,
)
def test_the_failing_ones_fail(strategy, name):
    """Learned positions have no id beyond the last; the columns that go beyond count as that."""
    run = {"strategy": strategy, "batch_size": 4, "max_new_tokens": NEW_TOKENS}
    result = generate(make_pair(name), make_prompts(), **run)
    assert not result.meta["valid"]
    assert exact(result, generate_one_by_one(name)) <= 0.3
    assert all(len(row) <= NEW_TOKENS for row in result.tokens)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("switches", [{"draft_bonus": True}, {"ones_mask": True}], ids=str)
def test_each_mistake_of_repadding_alone_breaks_the_text(switches, expected):
    off = {"skip_unpadding": False, "ones_mask": False, "draft_bonus": False}
    result = decoded(sv.strategy("repadding", **(off | switches)))
    assert exact(result, expected) < 1
    assert not result.meta["valid"]


def test_a_bonus_from_the_draft_keeps_the_mismatch_and_nothing_after_full_acceptance():
    strategy = sv.strategy("repadding", skip_unpadding=False, ones_mask=False)
    rows = decoded(strategy).trace.rows
    for drafts, emitted, gained in zip(
        rows["drafts"], rows["emitted"], rows["gained"], strict=True
    ):
        assert gained <= len(drafts)
        assert emitted[:gained].tolist() == drafts[:gained].tolist()


# fault injection


# test_invariants has every strategy with every kind.
@pytest.mark.sweep(24)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("eqspec", kind) for kind in ("positions", "mask", "kv", "bonus")),
        ("inplace", "kv"),
        ("masking", "positions"),
        ("exspec", "mask"),
        ("rollback", "bonus"),
    ],
)
def test_a_fault_breaks_its_rows_from_its_round_on(name, kind, expected):
    """The batch holds all prompts at once, so that each prompt stays in its row."""
    options = {"refill": False} if name != "exspec" else {}
    honest = decoded(sv.strategy(name, **options), batch_size=10)
    fault = {"break_invariant": kind, "rows": (2, 4), "from_round": 1}
    broken = decoded(sv.strategy(name, **options, **fault), batch_size=10)
    hit = set(broken.rows["request"][np.isin(broken.rows["row"], (2, 4))].tolist())
    changed = {i for i, tokens in enumerate(broken.tokens) if tokens != expected[i]}
    assert changed
    assert changed <= hit
    assert (honest.meta["valid"], broken.meta["valid"]) == (True, False)
    first = [run.trace.rows["drafts"][run.trace.rows["round"] == 0] for run in (honest, broken)]
    assert np.array_equal(*first)  # nothing is wrong in round 0


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "eqspec",
            {"break_invariant": "kvv"},
            "break_invariant='kvv' is unknown; choose one of positions, mask, kv, bonus",
        ),
        ("repadding", {"break_invariant": "kv"}, "break_invariant='kv' needs a valid strategy"),
        ("eqspec", {"rows": [1]}, "rows=[1] and from_round=0 need a fault; give break_invariant"),
        (
            "eqspec",
            {"break_invariant": "kv", "rows": [-1]},
            "rows must be a list of row numbers, got [-1]",
        ),
        (
            "eqspec",
            {"break_invariant": "kv", "rows": "all"},
            "rows must be a list of row numbers, got 'all'",
        ),
        (
            "eqspec",
            {"break_invariant": "kv", "from_round": -1},
            "from_round must be an int >= 0, got -1",
        ),
        ("eqspec", {"refill": "no"}, "refill must be a bool, got 'no'"),
        ("masking", {"positions": "slot"}, "positions='slot' is unknown"),
        ("repadding", {"ones_mask": 1}, "ones_mask must be a bool, got 1"),
        ("exspec", {"window": 0}, "window must be an int >= 1, got 0"),
        ("exspec", {"window": True}, "window must be an int >= 1, got True"),
        (
            "exspec",
            {"fallback": "hope"},
            "fallback='hope' is unknown; choose one of realign, partial, wait",
        ),
        ("exspec", {"max_wait": 0}, "max_wait must be an int >= 1, got 0"),
        ("exspec", {"refill": False}, "refill=False leaves exspec without a pool"),
        ("exspec", {"sort_prompts": "yes"}, "sort_prompts must be a bool, got 'yes'"),
        (
            "eqspec",
            {"window": 3},
            "strategy 'eqspec' takes no option 'window'; its options are ",
        ),
    ],
    ids=str,
)
def test_options_are_checked_when_they_are_given(name, options, said):
    check_refusal(lambda: sv.strategy(name, **options), said)


def test_a_window_smaller_than_the_batch_is_refused_before_a_model_runs():
    run = {"strategy": sv.strategy("exspec", window=4), "batch_size": 8}
    check_refusal(
        lambda: sv.decode(make_pair("llama"), make_prompts(), **run),
        "window=4 is smaller than batch_size=8; pass a window of at least the batch size",
    )


def test_the_list_of_strategies():
    table = sv.strategies().set_index("strategy")
    assert list(table.index) == [
        "autoregressive",
        "rollback",
        "masking",
        "repadding",
        "eqspec",
        "exspec",
        "inplace",
    ]
    assert table["valid"].to_dict() == dict.fromkeys(table.index, True) | {"repadding": False}
    assert table.drop(columns="valid").map(bool).all(axis=None)
    assert "window=32" in table.loc["exspec", "options"]
