"""The scripts of figures/make: they cannot mix conditions, and count what plain loops count."""

import itertools
import json
import math
import os
import re
from collections import Counter
from functools import partial
from typing import Any

import agreement
import beside_openvino
import biases
import calibration
import measure
import moves
import numpy as np
import overlap
import packing
import pandas as pd
import pytest
import replay
import torch
import trees
from conftest import generate, make_pair, make_prompts
from test_timeline import T, V, planned

import specviz as sv
from specviz.engine.drafters.trees import TreeDrafter
from specviz.engine.sampling import SamplingParams

TREE = TreeDrafter(3, 2, 2)


def test_no_file_is_an_orphan():
    """The README of figures/ names each file, with its script; data files come in pairs."""
    told = (measure.FIGURES / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"`([^`\s]+\.[a-z*]+)`", told)
    patterns = [re.escape(name).replace(r"\*", "[^/]*") for name in names]
    files = [path.relative_to(measure.FIGURES) for path in measure.FIGURES.rglob("*.*")]
    for path in files:
        if "make" in path.parts or "__pycache__" in path.parts or path.name == "README.md":
            continue
        name = path.as_posix()
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name
        if path.suffix == ".csv":
            assert path.with_suffix(".json") in files, name


def test_every_table_names_the_script_that_makes_it():
    for path in sorted(measure.DATA.glob("*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        source = (measure.FIGURES.parent / about["script"]).read_text(encoding="utf-8")
        name = path.stem if path.stem in source else path.stem.rpartition("-")[0]
        assert name in source, path.name
        assert path.with_suffix(".csv").is_file(), path.name


def test_a_small_run_leaves_the_table_and_notes_itself(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    path.with_suffix(".json").write_text('{"device": "cpu"}')
    measure.note_small(path, pd.DataFrame({"a": [3], "b": [4], "new": [5]}), "make/t.py")
    about = json.loads(path.with_suffix(".json").read_text())
    assert path.read_text() == "a,b\n1,2\n"
    assert {"device", "script", "last_small_run"} == set(about)
    with pytest.raises(ValueError, match=r"make/t\.py does not give \['b'\]"):
        measure.note_small(path, pd.DataFrame({"a": [3]}), "make/t.py")


def test_what_is_kept_is_of_the_same_conditions(tmp_path):
    about = {"prompts": "abc", "created": "today"}
    made: list[object] = []

    def entry(key: object) -> dict[str, Any]:
        made.append(key)
        return {"value": np.float64(1.5)}

    def get(about: dict[str, str], key: tuple[object, ...]) -> None:
        kept = measure.Kept("t", about, tmp_path)
        assert kept.get(key, partial(entry, key)) == {"value": 1.5}

    get(about, (1, "a"))
    path = measure.Kept("t", about, tmp_path).path
    path.write_text(path.read_text() + '\n{"half a l')  # killed
    get(about | {"created": "later"}, (1, "a"))
    get(about, (2, "b"))
    get(about, (2, "b"))
    get(about | {"prompts": "x"}, (1, "a"))
    assert made == [(1, "a"), (2, "b"), (1, "a")]
    measure.Kept("t", about, tmp_path).done()
    assert not path.exists()


def test_ways_take_turns_and_the_first_turn_does_not_count():
    order: list[str] = []
    times = itertools.count()
    ways = {name: partial(order.append, name) for name in "ab"}
    found = measure.interleaved(ways, 2, clock=lambda: float(next(times)))
    assert order == ["a", "b"] * 3
    assert {name: len(each) for name, each in found.items()} == {"a": 2, "b": 2}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("sampling", [None, SamplingParams(0.9, coupling="gumbel")])
@pytest.mark.parametrize("over_batch", [False, True])
@pytest.mark.parametrize(
    ("drafter", "drafts", "batch_size"),
    [
        (TREE, TREE.grown(), 10),
        (TREE, TREE.grown(), 4),
        (TreeDrafter(7, 1, 1), 7, 10),
        ("model", 5, 4),
    ],
)
def test_a_replay_is_the_engine(drafter, drafts, batch_size, over_batch, sampling):
    """Every round: who is in it, and what each row gains. With four rows, they are refilled."""
    pair, prompts = make_pair("llama"), make_prompts()
    run = {"batch_size": batch_size, "max_new_tokens": 20, "sampling": sampling}
    table, result = replay.draft_everywhere(pair, prompts, drafter, drafts, **run)
    k = drafts if drafter == "model" and not over_batch else 3
    chosen = sv.selector("tetris", extra=drafts - k) if over_batch else "everything"
    run |= {"drafter": drafter, "num_draft_tokens": k, "selector": chosen}
    found = generate(pair, prompts, record=True, **run)
    assert found.tokens == result.tokens
    rows = found.trace.rows
    queue = np.arange(len(prompts))[None]
    replayed = list(replay.replay(table, queue, k, batch_size, over_batch=over_batch))
    assert len(replayed) == rows["round"].max() + 1
    for number, (texts, gained) in enumerate(replayed):
        of_round = rows["round"] == number
        engine = zip(rows["request"][of_round], rows["gained"][of_round], strict=True)
        mine = zip(texts[texts >= 0], gained[texts >= 0], strict=True)
        assert sorted(mine) == sorted(engine)


def table_of(rng: np.random.Generator, texts: int, nodes: int) -> replay.Drafts:
    lengths = rng.integers(3, 12, texts)
    size = int(lengths.sum())
    right = rng.random((size, nodes)) < 0.6
    reached = np.concatenate([np.zeros((size, 1), int), np.cumprod(right, 1).cumsum(1)], 1)
    scores = np.log(rng.random((size, nodes))).cumsum(1)
    return replay.Drafts(np.cumsum([0, *lengths]), scores, reached)


def plain_replay(
    table: replay.Drafts, queue: list[int], nodes: int, batch_size: int
) -> list[list[tuple[int, int]]]:
    """Rows one after the other, N * b best drafts of the batch by a sort."""
    waiting = [[text, int(table.offsets[text])] for text in queue]
    rows, waiting = waiting[:batch_size], waiting[batch_size:]
    found = []
    while rows:
        drafts = [
            (-table.scores[place, j], j, number)
            for number, (_, place) in enumerate(rows)
            for j in range(table.nodes)
        ]
        counts = Counter(number for *_, number in sorted(drafts)[: nodes * len(rows)])
        said, kept = [], []
        for number, (text, place) in enumerate(rows):
            left = int(table.offsets[text + 1]) - place
            gain = min(int(table.reached[place, counts[number]]) + 1, left)
            said.append((text, gain))
            if gain < left:
                kept.append([text, place + gain])
            elif waiting:
                kept.append(waiting.pop(0))
        found.append(said)
        rows = kept
    return found


def test_lanes_with_queues_are_plain_loops():
    rng = np.random.default_rng(0)
    table = table_of(rng, 9, 5)
    queues = rng.integers(0, 9, (3, 14))
    expected = [plain_replay(table, queue.tolist(), 2, 4) for queue in queues]
    replayed = list(replay.replay(table, queues, 2, 4, over_batch=True))
    assert len(replayed) == max(map(len, expected))
    for number, (texts, gained) in enumerate(replayed):
        for lane, rounds in enumerate(expected):
            is_row = texts[lane] >= 0
            mine = zip(texts[lane][is_row].tolist(), gained[lane][is_row].tolist(), strict=True)
            assert list(mine) == (rounds[number] if number < len(rounds) else [])


def test_halves_are_joined_in_the_order_of_the_texts():
    table = table_of(np.random.default_rng(1), 7, 3)
    joined = trees.join_halves([table.texts(half) for half in calibration.halves(7)])
    for name in ("offsets", "scores", "reached"):
        assert np.array_equal(getattr(joined, name), getattr(table, name))


def test_the_fitted_curve_is_the_one_that_made_the_data():
    rng = np.random.default_rng(0)
    log_q = np.log(rng.uniform(0.02, 0.98, (40_000, 1)))
    logits = log_q - np.log(-np.expm1(log_q))
    right = rng.random((40_000, 1)) < 1 / (1 + np.exp(-(0.7 + 1.4 * logits)))
    reached = np.concatenate([np.zeros((40_000, 1), int), right.astype(int)], 1)
    table = replay.Drafts(np.array([0, 40_000]), log_q, reached)
    assert calibration.fit_curves(table)[0] == pytest.approx((0.7, 1.4), abs=0.06)


def test_a_fitted_tree_is_the_best_of_brute_force():
    rng = np.random.default_rng(2)
    observed = [tuple(rng.integers(0, 2, rng.integers(0, 4)).tolist()) for _ in range(60)]
    paths = [path for n in (1, 2, 3) for path in itertools.product(range(2), repeat=n)]

    def accepted(chosen: Any) -> int:
        """The prefixes of what was observed that a tree has, with all before them."""
        held = set(chosen)
        are_held = [[path[: n + 1] in held for n in range(len(path))] for path in observed]
        return sum(int(np.cumprod(each).sum()) for each in are_held)

    best = max(accepted(chosen) for chosen in itertools.combinations(paths, 4))
    assert accepted(trees.fit_paths(observed, 4)) == best


def lane_of(spans: np.ndarray) -> sv.Result:
    """A lane of one request, which the last of its rounds ends."""
    rounds = len(spans)
    numbers = np.arange(rounds)
    rows = {"round": numbers, "request": np.zeros(rounds, np.int32)}
    rows["finished"] = (numbers == rounds - 1).astype(np.uint8)
    return sv.Result(
        tokens=[[1] * rounds], texts=[""], meta={}, rounds={"batch": np.ones(rounds, np.int32)},
        rows=rows, prompts=[[1]], budgets=[rounds], spans_ms=spans,
    )  # fmt: skip


def spans_of(lane: int, times: float = 1.0) -> np.ndarray:
    """Spans of one of two lanes that alternate, as in test_timeline, so many times as long."""
    table = planned(6)
    own = table[table["lane"] == lane].sort_values(["round", "start_ms"], kind="stable")
    return times * own[["start_ms", "stop_ms"]].to_numpy().reshape(6, 5, 2)


def test_lanes_on_known_clocks_give_known_figures():
    lanes = tuple(lane_of(spans_of(lane)) for lane in (0, 1))
    whole = vars(lane_of(np.zeros((0, 5, 2))))
    result = sv.Result(**(whole | {"lanes": lanes, "tokens": [[1] * 12]}))
    # The first round of each lane is not steady, because its prompt enters there.
    for lane in result.lanes:
        assert overlap.sides(lane) == pytest.approx(np.tile([T, V], (5, 1)))
    assert overlap.steps(result) == pytest.approx([V] * 9)
    ends = [V * 11 + T, V * 12 + T]
    assert 1e3 * np.sort(overlap.latency_s(result)) == pytest.approx(ends)
    one, half = lane_of(spans_of(0, 1.5)), lane_of(spans_of(0, 3.0))
    found = overlap.gains({"two": [result], "one": [one], "half": [half]})
    assert found["published_gain"] == pytest.approx(2 * found["gain"])
    assert found["one_p99_s"] == pytest.approx(overlap.latency_s(one).max())


@pytest.mark.parametrize(("rows", "k", "extra"), [(4, 3, 2), (7, 1, 4), (1, 5, 1), (32, 5, 4)])
def test_spread_drafts_are_as_many(rows, k, extra):
    lengths = packing.spread(rows, k, extra)
    assert sum(lengths) == k * rows
    assert 0 <= min(lengths) <= max(lengths) <= k + extra


@pytest.mark.slow
def test_each_way_to_move_is_timed():
    table, _ = moves.moves([2, 3], [16], repetitions=1)
    assert (table.filter(like="_ms") > 0).all(axis=None)
    one_slot = 2 * 48 * 4 * 2 * 14  # heads, depth, bytes, keys and values, layers
    assert table["mbytes"].tolist() == pytest.approx([6 * one_slot / 1e6, 12 * one_slot / 1e6])


@pytest.mark.slow
def test_what_loses_the_distribution_is_told_from_what_does_not():
    table, _ = biases.biases(2)
    assert table["lossless"].tolist() == [True, False, True, False, True, True, False]
    assert math.isclose(table["total_variation_max"].max(), 0.1824, rel_tol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "batch_sizes"), [("float32", (1, 4, 8)), ("float64", (4, 8)), ("bfloat16", (8,))]
)
def test_valid_strategies_agree_on_spec_bench(dtype, batch_sizes, tmp_path, monkeypatch):
    """Any difference from decoding alone is a near tie; in 64 bits there is none."""
    if "SPECVIZ_SPEC_BENCH" not in os.environ:
        pytest.skip("needs SpecBench's prompts: SPECVIZ_SPEC_BENCH names its question.jsonl")
    monkeypatch.setattr(measure, "RUNS", tmp_path)
    table, _ = agreement.agreement(dtype, 12, batch_sizes=batch_sizes, max_new_tokens=16)
    assert len(table) == len(agreement.VALID) * len(batch_sizes) - (1 in batch_sizes)
    assert (table["near_ties"] == table["divergences"]).all(), table.to_string()
    if dtype == "float64":
        assert (table["exact_match"] == 1).all(), table.to_string()


@torch.inference_mode()
def test_the_forward_that_openvino_converts_continues_what_it_wrote():
    model = make_pair("llama").target
    ids = torch.tensor([[5, 9, 3, 7, 2], [4, 4, 8, 1, 6]])
    positions = torch.arange(5).expand(2, 5)
    step = beside_openvino.Step(model)
    first, *flat = step(ids[:, :2], torch.ones_like(ids[:, :2]), positions[:, :2], [])
    past = list(zip(flat[::2], flat[1::2], strict=True))
    then, *flat = step(ids[:, 2:], torch.ones_like(ids), positions[:, 2:], past)
    assert [states.shape[2] for states in flat] == [5] * len(flat)
    torch.testing.assert_close(torch.cat([first, then], dim=1), model(ids).logits)
