"""What sets the strategies apart: scheduling, what is moved and lost, and how some fail."""

import math
import re

import numpy as np
import pytest
import torch
from conftest import generate_one_by_one, make_pair, make_prompts
from hypothesis import given, settings
from hypothesis import strategies as st

import specviz as sv
from specviz.engine.kv.layout import Columns
from specviz.engine.strategies import Strategy
from specviz.engine.strategies.scheduler import Scheduler
from specviz.record.schema import DECISIONS, FALLBACKS

NEW_TOKENS = 24


def run(strategy: Strategy | str, **options: object) -> sv.Result:
    arguments = {
        "batch_size": 4,
        "max_new_tokens": NEW_TOKENS,
        "progress": False,
        "record": True,
    } | options
    return sv.generate(make_pair("llama"), make_prompts(), strategy=strategy, **arguments)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return generate_one_by_one("llama", torch.float32, NEW_TOKENS)


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


def test_a_full_group_of_equal_length_is_preferred() -> None:
    for fallback in FALLBACKS:
        assert choose({0: 5, 1: 7, 2: 9, 3: 7}, fallback=fallback) == ([1, 3], "grouped")


def test_without_a_full_group_the_fallback_decides() -> None:
    lengths = {0: 5, 1: 7, 2: 9, 3: 7}
    assert choose(lengths, batch_size=3) == ([0, 1, 2], "realigned")
    assert choose(lengths, batch_size=3, fallback="partial") == ([1, 3], "partial")
    assert choose(lengths, batch_size=3, fallback="wait") == ([1, 3], "partial")


def test_a_pool_smaller_than_the_batch_is_one_group_if_its_lengths_agree() -> None:
    assert choose({4: 6, 9: 6}, batch_size=8) == ([4, 9], "grouped")


def test_where_there_is_a_choice_those_go_first_that_came_first() -> None:
    scheduler, lengths, served = Scheduler(1, "realign", 3), {7: 4, 8: 4, 9: 4}, []
    for _ in range(3):
        waited = scheduler.update(lengths)
        served += scheduler.choose(lengths)[0]
    assert served == [7, 7, 7]
    assert waited == {7: 0, 8: 2, 9: 2}
    scheduler.update([9, 8, 3])  # 7 has left, 3 has come
    assert scheduler.choose({9: 4, 8: 4, 3: 4}) == ([8], "grouped")


def test_a_row_that_is_overdue_goes_before_those_that_came_first() -> None:
    scheduler, lengths, served = Scheduler(1, "wait", 2), {7: 4, 8: 5, 9: 6}, []
    for _ in range(7):
        scheduler.update(lengths)
        served.append(scheduler.choose(lengths))
    assert [row for (row,), _ in served] == [7, 7, 8, 9, 7, 8, 9]
    assert [decision for _, decision in served[:4]] == ["grouped", "grouped", "overdue", "overdue"]


def test_a_row_that_was_passed_over_too_often_is_taken() -> None:
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
@settings(max_examples=200, deadline=None)
def test_every_round_serves_a_batch_and_waiting_is_bounded(
    lengths, batch_size, max_wait, arriving, fallback, random
) -> None:
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


def test_rollback_keeps_the_rows_together_and_reports_what_it_throws_away(
    expected: list[list[int]],
) -> None:
    result = run("rollback")
    rows = result.rows
    assert result.tokens == expected
    for number in np.unique(rows["round"]):
        here = (rows["round"] == number) & (rows["finished"] == 0)
        assert len(set(rows["gained"][here])) <= 1
    assert rows["discarded"].sum() > 0
    assert (run("eqspec").rows["discarded"] == 0).all()


def test_what_rollback_throws_away_is_what_the_target_had_agreed_to() -> None:
    """Kept and discarded tokens together are the row's own acceptance, up to EOS and budget."""
    result = run("rollback")
    trace = result.trace
    agreed = trace.rows["drafts"] == trace.rows["target_top_ids"][:, :-1, 0]
    own = np.cumprod(agreed, axis=1).sum(axis=1)
    taken = trace.rows["gained"] + trace.rows["discarded"]
    working = trace.rows["gained"] > 0
    assert (taken[working] <= own[working] + 1).all()
    assert (taken[working] == own[working] + 1).mean() > 0.5  # the others were cut by EOS or budget


def test_masking_moves_nothing_and_leaves_holes() -> None:
    result = run(sv.strategy("masking", refill=False), batch_size=10)
    trace = result.trace
    assert not trace.moves["round"].size
    np.testing.assert_array_equal(
        np.diff(trace.rounds["slots"]), 6
    )  # K + 1 columns a round, whatever was accepted
    pending = trace.rows["pending"]
    assert all(
        len(set(pending[trace.rows["round"] == number])) == 1 for number in range(trace.num_rounds)
    )
    assert trace.holes["feed"].size


def test_masking_makes_room_when_rows_come_and_go() -> None:
    """With refill the columns of rows that left are dropped when the slab is full."""
    pair, prompts = make_pair("llama"), make_prompts() * 4
    result = sv.generate(
        pair,
        prompts,
        strategy="masking",
        batch_size=3,
        max_new_tokens=6,
        record=True,
        progress=False,
    )
    assert (
        result.tokens
        == [row[:6] for row in generate_one_by_one("llama", torch.float32, NEW_TOKENS)] * 4
    )
    assert (np.diff(result.rounds["slots"]) < 0).any()
    assert (result.trace.moves["to_slot"] < result.trace.moves["from_slot"]).any()


def test_columns_move_with_their_rows() -> None:
    layout = Columns(3, 20, 3, torch.device("cpu"), by_column=False, max_positions=None)
    layout.frontier = 4
    for row, n in enumerate((5, 3, 2)):
        layout.enter(row, n)
    layout.advance([6, 5, 3], [1, 2, 1], 7)
    before = (
        layout.slots(torch.tensor([2]), torch.arange(3)[None]),
        layout.visible(torch.tensor([2]), torch.tensor([[2]]), 10),
    )
    layout.take([0, 2])
    after = (
        layout.slots(torch.tensor([1]), torch.arange(3)[None]),
        layout.visible(torch.tensor([1]), torch.tensor([[2]]), 10),
    )
    assert before[0].tolist() == after[0].tolist() == [[3, 4, 7]]
    assert before[1].tolist() == after[1].tolist()
    assert before[1][0, 0].nonzero()[:, 0].tolist() == [3, 4, 7]


def test_repadding_without_unpadding_only_wastes_room(expected: list[list[int]]) -> None:
    wasteful = run(sv.strategy("repadding", ones_mask=False, draft_bonus=False, refill=False))
    thrifty = run(sv.strategy("eqspec", refill=False))
    assert wasteful.tokens == thrifty.tokens == expected
    assert wasteful.rounds["slots"].max() > thrifty.rounds["slots"].max()


def test_exspec_never_prefills_a_row_twice_and_groups_are_rectangles() -> None:
    for fallback in FALLBACKS:
        result = run(sv.strategy("exspec", window=8, fallback=fallback, max_wait=2))
        trace = result.trace
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


def test_exspec_records_its_pool() -> None:
    result = run(sv.strategy("exspec", window=8, fallback="wait", max_wait=2))
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
    assert not run("eqspec").trace.pool["round"].size


def test_equal_prompts_are_grouped_and_nothing_moves_within_a_group() -> None:
    """Copies of one prompt advance alike, so every round is grouped and no K/V is realigned."""
    pair = make_pair("llama")
    strategy = sv.strategy("exspec", window=4)
    result = sv.generate(
        pair,
        [[7, 8, 9]] * 4,
        strategy=strategy,
        batch_size=4,
        max_new_tokens=12,
        record=True,
        progress=False,
    )
    assert {result.meta["decisions"][code] for code in result.rounds["decision"]} == {"grouped"}
    assert not result.trace.moves["round"].size


def test_sorted_prompts_come_back_in_the_callers_order(expected: list[list[int]]) -> None:
    result = run(sv.strategy("exspec", window=4, sort_prompts=True))
    assert result.tokens == expected
    lengths = [len(prompt) for prompt in make_prompts()]
    first = [int(request) for request in result.rows["request"][result.rows["round"] == 0]]
    assert sorted(lengths[request] for request in first) == sorted(lengths)[: len(first)]


# how they fail


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "strategy",
    [sv.strategy("masking", positions="column"), sv.strategy("repadding")],
    ids=lambda s: s.name,
)
def test_the_failing_ones_fail(strategy: Strategy, name: str) -> None:
    """Learned positions have no id beyond the last; the columns that go beyond count as that."""
    pair = make_pair(name)
    result = sv.generate(
        pair,
        make_prompts(),
        strategy=strategy,
        batch_size=4,
        max_new_tokens=NEW_TOKENS,
        record=True,
        progress=False,
    )
    assert exact(result, generate_one_by_one(name, torch.float32, NEW_TOKENS)) <= 0.3
    assert not result.meta["valid"]
    assert all(len(row) <= NEW_TOKENS for row in result.tokens)


@pytest.mark.parametrize("switches", [{"draft_bonus": True}, {"ones_mask": True}], ids=str)
def test_each_mistake_of_repadding_alone_breaks_the_text(
    switches: dict[str, bool], expected: list[list[int]]
) -> None:
    off = {"skip_unpadding": False, "ones_mask": False, "draft_bonus": False}
    result = run(sv.strategy("repadding", **(off | switches)))
    assert exact(result, expected) < 1
    assert not result.meta["valid"]


def test_a_bonus_from_the_draft_keeps_the_mismatch_and_nothing_after_full_acceptance() -> None:
    strategy = sv.strategy("repadding", skip_unpadding=False, ones_mask=False)
    rows = run(strategy).trace.rows
    for drafts, emitted, gained in zip(
        rows["drafts"], rows["emitted"], rows["gained"], strict=True
    ):
        assert gained <= len(drafts)
        assert emitted[:gained].tolist() == drafts[:gained].tolist()


# fault injection


@pytest.mark.parametrize("kind", ["positions", "mask", "kv", "bonus"])
@pytest.mark.parametrize("name", ["eqspec", "inplace", "masking", "exspec", "rollback"])
def test_a_fault_breaks_its_rows_from_its_round_on(
    name: str, kind: str, expected: list[list[int]]
) -> None:
    """The batch holds all prompts at once, so that each prompt stays in its row."""
    honest = run(sv.strategy(name, refill=False) if name != "exspec" else name, batch_size=10)
    options = {"refill": False} if name != "exspec" else {}
    broken = run(
        sv.strategy(name, break_invariant=kind, rows=[2, 4], from_round=1, **options), batch_size=10
    )
    hit = {
        int(request)
        for row, request in zip(broken.rows["row"], broken.rows["request"], strict=True)
        if row in (2, 4)
    }
    spared = [i for i in range(10) if i not in hit]
    assert [broken.tokens[i] for i in spared] == [expected[i] for i in spared]
    assert any(broken.tokens[i] != expected[i] for i in hit)
    assert (honest.meta["valid"], broken.meta["valid"]) == (True, False)
    first = [
        run_.trace.rows["drafts"][run_.trace.rows["round"] == 0].tolist()
        for run_ in (honest, broken)
    ]
    assert first[0] == first[1]  # nothing is wrong in round 0


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "eqspec",
            {"break_invariant": "kvv"},
            "break_invariant='kvv' is unknown; choose one of positions, mask, kv, bonus",
        ),
        ("repadding", {"break_invariant": "kv"}, "needs a valid strategy"),
        ("eqspec", {"rows": [1]}, "give break_invariant too"),
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
        ("inplace", {"window": 3}, "strategy 'inplace' takes no option 'window'"),
    ],
    ids=str,
)
def test_options_are_checked_when_they_are_given(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        sv.strategy(name, **options)


def test_a_window_smaller_than_the_batch_is_refused_before_a_model_runs() -> None:
    with pytest.raises(
        ValueError,
        match=r"window=4 is smaller than batch_size=8; pass a window of at least the batch size",
    ):
        sv.decode(
            make_pair("llama"),
            make_prompts(),
            strategy=sv.strategy("exspec", window=4),
            batch_size=8,
        )


def test_the_list_of_strategies() -> None:
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
