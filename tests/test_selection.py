"""Selection of drafts on acceptance tables: against brute force, and against a plain loop."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from selection import QUEUE, compared, drawn, outcome

from specviz.scheduling.selection import largest
from specviz.simulation import (
    Acceptance,
    AcceptanceTable,
    Costs,
    Policy,
    Tetris,
    Threshold,
    Workload,
    replay,
    simulate,
)


def test_of_equal_chances_the_earlier_position_comes_first() -> None:
    """Of one batch, and of several at once."""
    equal = np.zeros((3, 4))
    every = np.ones((3, 4), bool)
    some = np.array([True, False, True])[:, None] & every
    without = np.where(some, equal, -np.inf)
    assert largest(equal, every, 4).tolist() == [2, 1, 1]
    assert largest(without, some, 4).tolist() == [2, 0, 2]
    together = largest(np.stack([equal, without]), np.stack([every, some]), np.array([[4], [3]]))
    assert together.tolist() == [[2, 1, 1], [2, 0, 1]]


def test_a_threshold_stops_a_row_where_the_draft_is_not_sure() -> None:
    log_q = np.log([[0.9, 0.4, 0.9], [0.9, 0.5, 0.6], [0.1, 1.0, 1.0]])
    working, waited = np.array([True, True, True]), np.zeros(3, int)
    assert Threshold(0.5).choose(log_q, working, 3, waited).tolist() == [1, 3, 0]
    assert Threshold(0.0).choose(log_q, working, 3, waited).tolist() == [3, 3, 3]
    idle = np.array([True, False, True])
    assert Threshold(0.5).choose(log_q, idle, 3, waited).tolist() == [1, 0, 0]


def table(texts: int = 12, depth: int = 6, longest: int = 20) -> AcceptanceTable:
    """A table as a draft model that knows its chances would give."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(longest // 4, longest, texts)
    offsets = np.concatenate([[0], np.cumsum(tokens)])
    positions = int(offsets[-1])
    q = generator.uniform(0.2, 1.0, (positions, 1)) * np.ones((1, depth))
    right = generator.random((positions, depth)) < q
    left = np.repeat(offsets[1:], tokens) - np.arange(positions)
    accepted = np.minimum(np.logical_and.accumulate(right, axis=1).sum(1), left)
    return AcceptanceTable(
        prompt_tokens=generator.integers(1, 9, texts).astype(np.int32),
        offsets=offsets.astype(np.int64),
        drafts=np.zeros((positions, depth), np.int32),
        log_q=np.log(q).astype(np.float32),
        entropy=np.zeros((positions, depth), np.float32),
        accepted=accepted.astype(np.int8),
    )


def plain_rounds(table: AcceptanceTable, batch_size: int, k: int, extra: int) -> list[int]:
    """The tokens of each round of TETRIS in place, one row after the other."""
    waiting = list(range(len(table.prompt_tokens)))
    rows: list[list[int]] = []  # position and end of each
    gained = []
    while waiting or rows:
        while waiting and len(rows) < batch_size:
            text = waiting.pop(0)
            rows.append([int(table.offsets[text]), int(table.offsets[text + 1])])
        drafts = []
        for number, (at, _) in enumerate(rows):
            chance = 0.0
            for j in range(k + extra):
                chance += float(table.log_q[at, j])
                drafts.append((-chance, j, number))
        counts = [0] * len(rows)
        for _, _, number in sorted(drafts)[: k * len(rows)]:
            counts[number] += 1
        total = 0
        for row, count in zip(rows, counts, strict=True):
            gain = min(int(table.accepted[row[0]]), count) + 1
            gain = min(gain, row[1] - row[0])
            row[0] += gain
            total += gain
        gained.append(total)
        # As in the engine: the last live rows take the places of those that have finished.
        live = [row for row in rows if row[0] < row[1]]
        inside = [row for row in rows[: len(live)] if row[0] < row[1]]
        outside = [row for row in rows[len(live) :] if row[0] < row[1]]
        assert len(inside) + len(outside) == len(live)
        rows = [row if row[0] < row[1] else outside.pop(0) for row in rows[: len(live)]]
    return gained


@pytest.mark.parametrize(
    ("batch_size", "k", "extra"), [(1, 2, 3), (4, 1, 2), (4, 3, 3), (20, 2, 1)]
)
def test_a_replay_of_tetris_is_a_plain_loop(batch_size: int, k: int, extra: int) -> None:
    policy = Policy("inplace", batch_size, k, selector=Tetris(extra))
    found = replay(table(), policy)
    expected = plain_rounds(table(), batch_size, k, extra)
    assert sum(expected) == table().new_tokens.sum()
    assert len(found.rounds) == len(expected)
    assert sorted(found.rounds["gained_tokens"]) == sorted(expected)
    verified = found.rounds["verified_tokens"]
    assert (verified == k * found.rounds["rows"]).all()


def plain_queue(
    table: AcceptanceTable, texts: list[int], batch_size: int, k: int, extra: int, refill: bool
) -> tuple[int, list[int]]:
    """How many rounds a queue of texts takes, and how many of them each of its requests."""
    waiting, own = list(range(len(texts))), [0] * len(texts)
    at = [int(table.offsets[text]) for text in texts]
    end = [int(table.offsets[text + 1]) for text in texts]
    rows: list[int] = []  # requests
    rounds = 0
    while waiting or rows:
        while waiting and len(rows) < batch_size and (refill or rounds == 0):
            rows.append(waiting.pop(0))
        drafts = []
        for place, request in enumerate(rows):
            chances = np.cumsum(table.log_q[at[request], : k + extra].astype(float))
            drafts += [(-chance, j, place) for j, chance in enumerate(chances)]
        counts = [0] * len(rows)
        for _, _, place in sorted(drafts)[: k * len(rows)]:
            counts[place] += 1
        for request, count in zip(rows, counts, strict=True):
            gain = min(int(table.accepted[at[request]]), count) + 1
            at[request] = min(at[request] + gain, end[request])
            own[request] += 1
        rows = [request for request in rows if at[request] < end[request]]
        rounds += 1
    return rounds, own


@pytest.mark.parametrize("extra", [0, 2])
def test_the_slowest_requests_and_a_static_batch_are_those_of_a_plain_loop(extra: int) -> None:
    small, batch_size, k = table(), 4, 2
    queues = drawn(len(small.prompt_tokens), 3, QUEUE * batch_size)
    found = outcome(small, queues, batch_size, k, extra, None)
    for lane, texts in enumerate(queues.tolist()):
        _, own = plain_queue(small, texts, batch_size, k, extra, refill=True)
        pace = np.percentile(own / small.new_tokens[texts], 99)
        assert found["p99_rounds_per_token"][lane] == pytest.approx(pace)
        rounds, _ = plain_queue(small, texts[:batch_size], batch_size, k, extra, refill=False)
        assert found["static_rounds"][lane] == rounds


def test_with_nothing_to_choose_from_tetris_is_uniform() -> None:
    uniform = replay(table(), Policy("eqspec", 4, 3))
    same = replay(table(), Policy("eqspec", 4, 3, selector=Tetris(0)))
    pd.testing.assert_frame_equal(uniform.rounds, same.rounds)
    assert same.policy.name == "eqspec+tetris:extra=0"
    assert uniform.policy.name == "eqspec"


def test_a_threshold_verifies_fewer_drafts_and_wastes_fewer() -> None:
    every = replay(table(), Policy("inplace", 4, 5))
    sure = replay(table(), Policy("inplace", 4, 5, selector=Threshold(0.6)))
    kept = [(r.rounds["gained_tokens"] - r.rounds["rows"]).sum() for r in (every, sure)]
    verified = [r.rounds["verified_tokens"].sum() for r in (every, sure)]
    assert verified[1] < verified[0]
    assert kept[1] / verified[1] > kept[0] / verified[0]


def test_what_a_table_or_a_workload_lacks_is_said() -> None:
    drawn = Workload.drawn(4, 5, 5, Acceptance.geometric(0.5))
    with pytest.raises(ValueError, match=r"^selector must do without q for this workload"):
        simulate(drawn, Policy(selector=Tetris(1)), Costs(verify=1.0))
    with pytest.raises(ValueError, match=r"^policy must draft at most as many tokens as the table"):
        replay(table(), Policy(num_draft_tokens=5, selector=Tetris(2)))


def gain_of(table: AcceptanceTable, batch_size: int, k: int, extra: int, *waits: int | None) -> Any:
    """What figures/make/selection.py says of TETRIS, for each limit on waiting."""
    queues = drawn(len(table.prompt_tokens), 20, QUEUE * batch_size)
    plain = outcome(table, queues, batch_size, k, 0, None)
    found = [compared(plain, outcome(table, queues, batch_size, k, extra, wait)) for wait in waits]
    return pd.DataFrame(found)


def test_a_draft_model_that_knows_its_chances_gains_by_selection() -> None:
    large = table(texts=60, longest=80)
    for k, extra in ((2, 1), (2, 4), (3, 1)):
        found = gain_of(large, 4, k, extra, None).iloc[0]
        assert 0 < found["gain_low"] < found["gain_percent"] < found["gain_high"]
        assert found["tetris_success_rate"] > found["success_rate"]


def test_a_limit_on_waiting_helps_the_rows_that_are_passed_over() -> None:
    large = table(texts=60, longest=80)
    # Every fifth text's draft is as often right as it was, but never sure.
    unsure = np.repeat(np.arange(60) % 5 == 0, large.new_tokens)
    unfair = replace(large, log_q=large.log_q - 9 * unsure[:, None].astype(np.float32))
    found = gain_of(unfair, 8, 1, 2, None, 4, 1)
    slowest = found["tetris_p99_rounds_per_token"].tolist()
    assert slowest == sorted(slowest, reverse=True)
    assert slowest[2] < 0.9 * slowest[0]
    assert found["static_rounds_percent"][2] < found["static_rounds_percent"][0]
