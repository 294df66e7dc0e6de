"""Selection of drafts on acceptance tables: against brute force, and against a plain loop."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import check_refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from specviz.studies.selection import QUEUE, _bootstrap, compare_selectors

from specviz.cli.main import main as cli
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
from specviz.simulation.selection import largest

# Few different values, so that ties are frequent.
PROBABILITIES = st.sampled_from([1.0, 0.5, 0.25])


def batches(rows: int, depth: int) -> st.SearchStrategy[np.ndarray]:
    values = st.lists(PROBABILITIES, min_size=rows * depth, max_size=rows * depth)
    return values.map(lambda drawn: np.log(np.array(drawn)).reshape(rows, depth))


def best_sum(chances: np.ndarray, capacity: int) -> float:
    """The largest sum of chances that prefixes of at most `capacity` drafts can have."""
    rows, depth = chances.shape
    sums = np.concatenate([np.zeros((rows, 1)), np.exp(chances).cumsum(1)], 1)
    return max(
        sum(sums[row, length] for row, length in enumerate(lengths))
        for lengths in itertools.product(range(depth + 1), repeat=rows)
        if sum(lengths) <= capacity
    )


@settings(deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: batches(*shape)),
    st.integers(0, 17),
)
def test_the_chosen_drafts_are_the_best_prefixes(log_q: np.ndarray, capacity: int) -> None:
    rows, depth = log_q.shape
    chances = log_q.cumsum(1)
    chosen = largest(chances[None], np.ones((1, rows), bool), np.array([capacity]))[0]
    assert chosen.sum() == min(capacity, rows * depth)
    reached = sum(np.exp(chances[row, :count]).sum() for row, count in enumerate(chosen))
    assert reached == pytest.approx(best_sum(chances, capacity))
    more = largest(chances[None], np.ones((1, rows), bool), np.array([capacity + 1]))[0]
    assert (more >= chosen).all(), "a larger capacity removes no draft"


def test_of_equal_chances_the_earlier_position_comes_first() -> None:
    equal = np.zeros((1, 3, 4))
    every = np.ones((1, 3), bool)
    assert largest(equal, every, np.array([4])).tolist() == [[2, 1, 1]]
    assert largest(equal, np.array([[True, False, True]]), np.array([4])).tolist() == [[2, 0, 2]]


def test_a_threshold_stops_a_row_where_the_draft_is_not_sure() -> None:
    log_q = np.log([[[0.9, 0.4, 0.9], [0.9, 0.5, 0.6], [0.1, 1.0, 1.0]]])
    working = np.array([[True, True, True]])
    assert Threshold(0.5).choose(log_q, working, 3).tolist() == [[1, 3, 0]]
    assert Threshold(0.0).choose(log_q, working, 3).tolist() == [[3, 3, 3]]
    idle = np.array([[True, False, True]])
    assert Threshold(0.5).choose(log_q, idle, 3).tolist() == [[1, 0, 0]]


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
    assert found.series is not None
    expected = plain_rounds(table(), batch_size, k, extra)
    assert sum(expected) == table().new_tokens.sum()
    assert len(found.series) == len(expected)
    assert sorted(found.series["gained_tokens"]) == sorted(expected)
    verified = found.series["verified_tokens"]
    assert (verified == k * found.series["rows"]).all()


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


def test_the_slowest_requests_and_a_static_batch_are_those_of_a_plain_loop() -> None:
    """The columns p99_rounds_per_token, of both, and static_rounds_percent."""
    small, samples, batch_size, k, extra = table(), 3, 4, 2, 2
    found, _ = compare_selectors(
        small, [batch_size], [k], [extra], samples=samples, seed=5, progress=False
    )
    pace: dict[int, list[float]] = {0: [], extra: []}
    static: dict[int, list[int]] = {0: [], extra: []}
    for texts in _bootstrap(small, samples, QUEUE * batch_size, 5).tolist():
        for e in pace:
            _, own = plain_queue(small, texts, batch_size, k, e, refill=True)
            pace[e].append(float(np.percentile(own / small.new_tokens[texts], 99)))
            rounds, _ = plain_queue(small, texts[:batch_size], batch_size, k, e, refill=False)
            static[e].append(rounds)
    entry = found.iloc[0]
    assert entry["p99_rounds_per_token"] == pytest.approx(np.mean(pace[0]))
    assert entry["tetris_p99_rounds_per_token"] == pytest.approx(np.mean(pace[extra]))
    longer = 100 * (sum(static[extra]) / sum(static[0]) - 1)
    assert entry["static_rounds_percent"] == pytest.approx(longer)


def test_a_replica_chooses_among_its_own_rows() -> None:
    """Beside replicas that have more rows left, its rows may not verify more."""
    texts = np.random.default_rng(2).integers(0, len(table().prompt_tokens), (4, 9))
    policy = Policy("inplace", 4, 1, selector=Tetris(3))
    together = simulate(table().writing(texts), policy, Costs(verify=1.0))
    for number, own in enumerate(texts):
        alone = simulate(table().writing(own[None]), policy, Costs(verify=1.0))
        assert together.finished_s[number].tolist() == alone.finished_s[0].tolist()


def test_with_nothing_to_choose_from_tetris_is_uniform() -> None:
    uniform = replay(table(), Policy("eqspec", 4, 3))
    same = replay(table(), Policy("eqspec", 4, 3, selector=Tetris(0)))
    assert uniform.series is not None
    assert same.series is not None
    pd.testing.assert_frame_equal(uniform.series, same.series)
    assert same.policy.name == "eqspec+tetris:extra=0"
    assert uniform.policy.name == "eqspec"


def test_a_threshold_verifies_fewer_drafts_and_wastes_fewer() -> None:
    every = replay(table(), Policy("inplace", 4, 5))
    sure = replay(table(), Policy("inplace", 4, 5, selector=Threshold(0.6)))
    kept = [(r.totals.gained_tokens - r.totals.row_rounds).sum() for r in (every, sure)]
    verified = [r.totals.verified_tokens.sum() for r in (every, sure)]
    assert verified[1] < verified[0]
    assert kept[1] / verified[1] > kept[0] / verified[0]


@pytest.mark.parametrize(
    ("call", "begins"),
    [
        (lambda: Tetris(-1), "extra must be an int >= 0, got -1"),
        (lambda: Tetris(1.5), "extra must be an int >= 0, got 1.5"),
        (lambda: Tetris(score="best"), "score='best' is unknown; choose one of chosen"),
        (lambda: Tetris(max_wait=0), "max_wait must be an int >= 1, got 0"),
        (
            lambda: Tetris(score="entropy", times=(20.0, 0.3)),
            "times need scores that are chances of acceptance",
        ),
        (lambda: Threshold(1.5), "at_least must be a number from 0 to 1, got 1.5"),
        (lambda: Threshold("sure"), "at_least must be a number from 0 to 1, got 'sure'"),
        (lambda: Policy(selector="tetris"), "selector must be a selector, got 'tetris'"),
        (
            lambda: replay(table(), Policy(num_draft_tokens=5, selector=Tetris(2))),
            "policy must draft at most as many tokens as the table's depth 6, got 7",
        ),
        (
            lambda: simulate(
                Workload.drawn(4, 5, 5, Acceptance.geometric(0.5)),
                Policy(selector=Tetris(1)),
                Costs(verify=1.0),
            ),
            "selector must do without q for this workload, got tetris:extra=1",
        ),
        (lambda: compare_selectors(table(), [], progress=False), "batch_sizes is empty"),
        (lambda: compare_selectors(table(), [0], progress=False), "batch_sizes[0] must be"),
        (lambda: compare_selectors(table(), [1], [9], progress=False), "table must be deeper"),
        (lambda: compare_selectors(table(), max_waits=[0], progress=False), "max_waits[0] must be"),
        (lambda: compare_selectors(table(), samples=0, progress=False), "samples must be an int"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], object], begins: str) -> None:
    check_refusal(call, begins)


def test_a_draft_model_that_knows_its_chances_gains_by_selection() -> None:
    large = table(texts=60, longest=80)
    found, conditions = compare_selectors(large, [4], [2, 3], [1, 4], samples=20, progress=False)
    assert list(zip(found["num_draft_tokens"], found["extra"], strict=True)) == [
        (2, 1),
        (2, 4),
        (3, 1),
    ]
    assert (found["gain_low"] > 0).all()
    assert (found["gain_low"] < found["gain_percent"]).all()
    assert (found["gain_percent"] < found["gain_high"]).all()
    assert (found["tetris_success_rate"] > found["success_rate"]).all()
    assert conditions["samples"] == 20
    again, _ = compare_selectors(large, [4], [2, 3], [1, 4], samples=20, progress=False)
    pd.testing.assert_frame_equal(found, again)


def test_a_limit_on_waiting_helps_the_rows_that_are_passed_over() -> None:
    large = table(texts=60, longest=80)
    # Every fifth text's draft is as often right as it was, but never sure.
    unsure = np.repeat(np.arange(60) % 5 == 0, large.new_tokens)
    unfair = replace(large, log_q=large.log_q - 9 * unsure[:, None].astype(np.float32))
    found, _ = compare_selectors(unfair, [8], [1], [2], [4, 1], samples=30, progress=False)
    assert found["max_wait"].isna().tolist() == [True, False, False]
    assert found["max_wait"][1:].tolist() == [4, 1]
    slowest = found["tetris_p99_rounds_per_token"].tolist()
    assert slowest == sorted(slowest, reverse=True)
    assert slowest[2] < 0.9 * slowest[0]
    assert found["static_rounds_percent"][2] < found["static_rounds_percent"][0]


def test_the_command_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table().save(tmp_path / "table.safetensors")
    out = tmp_path / "selection.csv"
    small = ["--batch-sizes", "2", "--num-draft-tokens", "2", "--extras", "1", "--samples", "3"]
    assert cli(["study", "selection", "--table", str(path), *small, "--out", str(out)]) == 0
    assert "gain_percent" in capsys.readouterr().out
    assert pd.read_csv(out)["drafter"].tolist() == ["model"]
    assert json.loads(out.with_suffix(".json").read_text())["samples"] == 3
    other = replace(table(), meta={"drafter": "eagle3"}).save(tmp_path / "other.safetensors")
    both = ["--table", str(path), str(other)]
    assert cli(["study", "selection", *both, *small, "--out", str(out)]) == 0
    assert pd.read_csv(out)["drafter"].tolist() == ["model", "eagle3"]
    assert json.loads(out.with_suffix(".json").read_text())["drafter"] == ["model", "eagle3"]
