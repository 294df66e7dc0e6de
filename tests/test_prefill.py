"""Prefill: rows of similar length go together, at least cost, and nothing else changes."""

from collections.abc import Iterator
from itertools import chain

import pytest
from conftest import generate, generate_one_by_one, make_pair, make_prompts
from hypothesis import given
from hypothesis import strategies as st

import specviz as sv
from specviz.engine.kv import cache
from specviz.engine.prefill import similar_lengths


def divisions(rows: list[int]) -> Iterator[list[list[int]]]:
    """Every way to divide rows into groups."""
    if not rows:
        yield []
        return
    first, *others = rows
    for groups in divisions(others):
        yield [[first], *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], [first, *group], *groups[i + 1 :]]


def cost(groups: list[list[int]], lengths: list[int], forward_tokens: int) -> int:
    tokens = 0
    for group in groups:
        tokens += forward_tokens + len(group) * max(lengths[row] for row in group)
    return tokens


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 60))
def test_no_other_division_costs_less(lengths: list[int], most: int, forward_tokens: int) -> None:
    groups = similar_lengths(lengths, most, forward_tokens)
    assert sorted(chain(*groups)) == list(range(len(lengths)))
    assert all(group == sorted(group) and len(group) <= most for group in groups)
    possible = []
    for division in divisions(list(range(len(lengths)))):
        if all(len(group) <= most for group in division):
            possible.append(cost(division, lengths, forward_tokens))
    assert cost(groups, lengths, forward_tokens) == min(possible)


@pytest.mark.parametrize(
    ("lengths", "most", "forward_tokens", "expected"),
    [
        ([20, 300, 25, 280], 4, 64, [[0, 2], [1, 3]]),
        ([20, 30, 25, 28], 4, 64, [[0, 1, 2, 3]]),
        ([40] * 5, 4, 64, [[0], [1, 2, 3, 4]]),
        ([40] * 8, 8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ([20, 300, 25, 280, 7], 4, None, [[0, 1, 2, 3], [4]]),
        ([], 4, 64, []),
    ],
    ids=["two lengths", "similar", "one too many", "equal", "unknown cost", "none"],
)
def test_similar_rows_go_together(
    lengths: list[int], most: int, forward_tokens: int | None, expected: list[list[int]]
) -> None:
    assert similar_lengths(lengths, most, forward_tokens) == expected


def forwards(trace: sv.Trace) -> int:
    """Count the forwards of the target that read prompts."""
    feeds = trace.feeds
    of_prompts = (feeds["phase"] == 0) & (feeds["model"] == 0)
    places = zip(feeds["round"][of_prompts], feeds["step"][of_prompts], strict=True)
    return len(set(places))


@pytest.mark.sweep(12)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "masking", "rollback", "exspec"])
def test_a_run_reads_long_and_short_prompts_apart_and_stays_in_step(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair("llama")
    counts = []
    for forward_tokens in (10_000, 8):
        monkeypatch.setattr(cache, "FORWARD_TOKENS", forward_tokens)
        run = generate(
            pair,
            make_prompts(),
            strategy=strategy,
            batch_size=8,
            max_new_tokens=10,
            record=True,
        )
        assert run.tokens == generate_one_by_one(max_new_tokens=10)
        assert sv.check_invariants(run.trace, deep=True, pair=pair) == []
        counts.append(forwards(run.trace))
    assert counts[1] >= counts[0] + 2


def test_the_deterministic_mode_reads_all_rows_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    for forward_tokens in (None, 1):
        monkeypatch.setattr(cache, "FORWARD_TOKENS", forward_tokens)
        options = {"batch_size": 4, "max_new_tokens": 4, "record": True, "deterministic": True}
        run = generate(make_pair("llama"), make_prompts(), **options)
        counts.append(forwards(run.trace))
    assert counts[0] == counts[1]
