"""TETRIS with capacity="best": the C that writes the most tokens a second, and its exactness."""

import math
from collections import Counter
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    NEW_TOKENS,
    check_refusal,
    generate,
    generate_one_by_one,
    make_pair,
    make_prompts,
)
from hypothesis import given
from hypothesis import strategies as st
from specviz.engine.round_times import RoundTimes
from specviz.engine.selectors.capacity import rising
from specviz.engine.selectors.tetris import largest, score_drafts
from test_graphs import prepared
from test_selectors import ROWS, K, distance, stand_in
from test_tables import BUDGET, DEPTH, tiny

import specviz as sv
from specviz.engine.drafters import Draft
from specviz.engine.run import why_not_captured
from specviz.simulation import Policy

LINES = st.tuples(st.floats(0.5, 50), st.floats(0, 5))
CHANCES = st.lists(st.sampled_from([1.0, 0.7, 0.5, 0.2, 0.01, 0.0]), max_size=12)


def rate(chances: list[float], count: int, rows: int, line: tuple[float, float]) -> float:
    return (rows + math.fsum(chances[:count])) / (line[0] + line[1] * count)


@given(CHANCES, st.integers(1, 5), LINES)
def test_no_other_capacity_writes_more_tokens_a_second(
    drawn: list[float], rows: int, line: tuple[float, float]
) -> None:
    chances = sorted(drawn, reverse=True)
    found = int(rising(torch.tensor(chances, dtype=torch.float64), rows, *line))
    rates = [rate(chances, count, rows, line) for count in range(len(chances) + 1)]
    assert rates[found] == pytest.approx(max(rates), rel=1e-12)


def given_times(monkeypatch: pytest.MonkeyPatch, round_ms: float, token_ms: float) -> None:
    """Let every round take as long as this cost model says."""

    def line(self: RoundTimes, rows: int, drafted: int) -> tuple[float, float]:
        return round_ms + token_ms * rows, token_ms

    monkeypatch.setattr(RoundTimes, "line", line)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("max_wait", [None, 2])
@pytest.mark.parametrize("times", [(10.0, 0.5), (3.0, 1.0)])
def test_a_run_verifies_what_the_cost_model_calls_for(
    times: tuple[float, float], max_wait: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round by round against brute force over all C; a replay of the table has the same rounds."""
    given_times(monkeypatch, *times)
    extra = 2
    trace = generate(
        tiny(), make_prompts(), num_draft_tokens=DEPTH - extra, batch_size=3, max_new_tokens=BUDGET,
        selector=sv.selector("tetris", extra=extra, capacity="best", max_wait=max_wait),
        record=True,
    ).trace  # fmt: skip
    assert trace is not None
    assert sv.check_invariants(trace) == []
    counts = trace.rounds["capacity"].tolist()
    used = np.bincount(trace.rows["round"], weights=trace.rows["verified"])
    assert counts == used.tolist()
    assert len(set(counts)) > 2, counts
    waited: Counter[int] = Counter()
    were_due = 0
    for number, count in enumerate(counts):
        active = (trace.rows["round"] == number) & (trace.rows["gained"] > 0)
        requests = trace.rows["request"][active].tolist()
        chances = np.exp(trace.rows["scores"][active]).tolist()
        due = [i for i in range(len(requests)) if waited[requests[i]] >= (max_wait or math.inf)]
        first = [chances[i].pop(0) for i in due]
        ordered = first + sorted(chain(*chances), reverse=True)
        rows = len(requests)
        line = (times[0] + times[1] * rows, times[1])
        rates = [rate(ordered, each, rows, line) for each in range(len(ordered) + 1)]
        assert count >= len(due)
        assert rates[count] == pytest.approx(max(rates[len(due) :]), rel=1e-6)
        for request, verified in zip(requests, trace.rows["verified"][active], strict=True):
            waited[request] = 0 if verified else waited[request] + 1
        were_due += len(due)
    assert (were_due > 0) == (max_wait is not None)

    with pytest.raises(ValueError, match="capacity='best' is not simulated"):
        Policy.of(trace.meta)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [{}, {"strategy": "eqspec"}, {"lanes": 2},
                                     {"drafter": sv.drafter("tree", depth=3)}])  # fmt: skip
def test_the_text_is_the_targets_own(options: dict[str, Any]) -> None:
    """With measured times, whatever they are. Rounds of both sizes are measured first."""
    best = sv.selector("tetris", extra=1, capacity="best", max_wait=3)
    given_options = {"batch_size": 4, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    result = generate(
        make_pair("llama"), make_prompts(), selector=best, **given_options | options, record=True
    )
    assert result.tokens == generate_one_by_one()
    for trace in [lane.trace for lane in result.lanes or ()] or [result.trace]:
        assert trace is not None
        assert sv.check_invariants(trace) == []
        assert trace.rounds["capacity"][:2].tolist()[1:] == [trace.rounds["batch"][1]]


def test_times_make_a_line_once_two_sizes_are_measured() -> None:
    times = RoundTimes()
    times.add(4, 12, 3, draft_ms=99, rest_ms=999)  # the first round
    times.add(4, 12, 3, draft_ms=99, rest_ms=999, cold=True)
    for verified in (12, 4, 12):
        times.add(4, verified, 3, draft_ms=6, rest_ms=10 + 0.5 * (4 + verified))
        assert times.line(4, 3) is None
    times.add(4, 4, 3, draft_ms=6, rest_ms=14)
    assert times.line(4, 3) == pytest.approx((6 + 10 + 0.5 * 4, 0.5))
    assert times.line(4, 6) == pytest.approx((12 + 10 + 0.5 * 4, 0.5))


def choose(scores: list[list[float]], waited: list[int], line: tuple[float, float]) -> list[int]:
    """How many drafts of each row are verified, given the q of each."""
    q = torch.tensor(scores)
    state = stand_in([9] * len(scores), [3] * len(scores))
    state.batch.waited = torch.tensor(waited)
    state.times = SimpleNamespace(line=lambda rows, drafted: line)
    draft = Draft(torch.zeros(q.shape, dtype=torch.long), torch.stack([q, 1 - q], -1).log())
    best = sv.selector("tetris", capacity="best", max_wait=4)
    lengths = best.choose(state, draft, q.numel()).lengths
    assert lengths is not None
    return list(lengths.tolist())


def test_a_row_that_has_waited_is_verified_at_any_price() -> None:
    scores = [[0.9, 0.9], [0.1, 0.1]]
    assert choose(scores, [0, 0], (2.0, 0.5)) == [2, 0]
    assert choose(scores, [0, 4], (2.0, 0.5)) == [2, 1]
    assert choose(scores, [0, 0], (2.0, 9.0)) == [0, 0], "a draft may cost more than it brings"
    assert choose(scores, [0, 4], (2.0, 9.0)) == [0, 1]
    assert choose(scores, [0, 0], (2.0, 0.0)) == [2, 2], "or nothing"


def test_a_score_that_is_not_a_number_brings_nothing() -> None:
    assert choose([[math.nan, math.nan], [0.9, 0.9]], [0, 0], (2.0, 0.5)) == [0, 2]


def lengths_by(capacity: Any) -> Any:
    """A selection of two rows of two drafts, whose capacity is found from their chances."""

    def select(log_q: torch.Tensor, tokens: torch.Tensor) -> list[int]:
        scores = score_drafts(log_q, tokens, "largest")
        usable = torch.ones(ROWS, K, dtype=torch.bool)
        chances = scores.flatten().sort(descending=True).values.exp()
        return list(largest(scores, usable, capacity(chances)).tolist())

    return select


def test_a_capacity_that_stops_going_down_the_scores_keeps_the_distribution() -> None:
    """All cases summed. A search over every C would look at drafts behind the last one judged."""
    for token_ms in (0.3, 0.6, 1.0):
        stops = lengths_by(lambda chances, ms=token_ms: rising(chances, ROWS, 2.0, ms))
        assert max(distance(stops, seed) for seed in range(3)) < 1e-12

    def anywhere(chances: torch.Tensor) -> torch.Tensor:
        """The best C where two drafts cost time, and the others nothing more."""
        ms = torch.tensor([2.0, 3.0, 3.5, 3.5, 3.5], dtype=torch.float64)
        tokens = ROWS + torch.nn.functional.pad(chances.cumsum(0), (1, 0))
        return (tokens / ms).argmax()

    assert max(distance(lengths_by(anywhere), seed) for seed in range(3)) > 0.05


def test_what_cannot_be_combined_is_refused() -> None:
    check_refusal(
        lambda: sv.selector("tetris", capacity="best", score="entropy"), "capacity='best' needs"
    )
    check_refusal(lambda: sv.selector("tetris", capacity=3), "capacity=3 is unknown")
    best = sv.selector("tetris", capacity="best")
    run = {"selector": best, "max_new_tokens": 4}
    check_refusal(
        lambda: generate(make_pair("llama"), make_prompts(), num_draft_tokens="auto", **run),
        "num_draft_tokens='auto' measures rounds",
    )
    # On a machine with CUDA. Here only the reason is looked at.
    on_gpu = SimpleNamespace(device=torch.device("cuda"), target=object(), draft=object())
    for capacity, reason in (("best", "verifies another number of drafts"), ("fixed", None)):
        chosen = sv.selector("tetris", capacity=capacity)
        said = why_not_captured(replace(prepared(selector=chosen), pair=on_gpu))
        assert said is None if reason is None else reason in str(said)
