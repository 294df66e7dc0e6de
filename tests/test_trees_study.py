"""The studies of trees: replays against the engine, fits against what made the data."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import check_refusal, generate, make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main as cli
from specviz.engine.drafters.tree import TreeDrafter
from specviz.engine.sampling import SamplingParams
from specviz.record.schema import MODELS
from specviz.studies import calibration, static_trees, trees
from specviz.studies.tree_moves import count_moves
from specviz.studies.tree_tables import (
    TreeTable,
    grow_everywhere,
    halves,
    join_halves,
    replay_trees,
)

BUDGET = 20
GUMBEL = SamplingParams(0.9, coupling="gumbel")


@pytest.mark.sweep(16)
@pytest.mark.parametrize("sampling", [None, GUMBEL])
@pytest.mark.parametrize("over_batch", [False, True])
@pytest.mark.parametrize(
    ("drafter", "batch_size"),
    [(TreeDrafter(3, 2, 2), 10), (TreeDrafter(3, 2, 2), 4), (TreeDrafter(7, 1, 1), 10)],
)
def test_a_replay_is_the_engine(
    drafter: TreeDrafter, batch_size: int, over_batch: bool, sampling: SamplingParams | None
) -> None:
    """Every round: who is in it, and what each row gains. With four rows, they are refilled."""
    pair, prompts = make_pair("llama"), make_prompts()
    run: dict[str, Any] = {"batch_size": batch_size, "max_new_tokens": BUDGET, "sampling": sampling}
    table, result = grow_everywhere(pair, prompts, drafter, **run)
    assert table.nodes == drafter.grown()
    nodes = 3
    selector = sv.selector("tetris", extra=table.nodes - nodes) if over_batch else "everything"
    found = generate(
        pair, prompts, drafter=drafter, num_draft_tokens=nodes, selector=selector, record=True,
        **run,
    )  # fmt: skip
    assert found.tokens == result.tokens
    assert found.trace is not None
    rows = found.trace.rows
    queue = np.arange(len(prompts))[None]
    replayed = list(replay_trees(table, queue, nodes, batch_size, over_batch=over_batch))
    assert len(replayed) == rows["round"].max() + 1
    for number, (texts, gained) in enumerate(replayed):
        of_round = rows["round"] == number
        engine = zip(rows["request"][of_round], rows["gained"][of_round], strict=True)
        mine = zip(texts[texts >= 0], gained[texts >= 0], strict=True)
        assert sorted(mine) == sorted(engine)


def table_of(rng: np.random.Generator, texts: int, nodes: int) -> TreeTable:
    lengths = rng.integers(3, 12, texts)
    size = int(lengths.sum())
    right = rng.random((size, nodes)) < 0.6
    reached = np.concatenate([np.zeros((size, 1), int), np.cumprod(right, 1).cumsum(1)], 1)
    scores = np.log(rng.random((size, nodes))).cumsum(1)
    return TreeTable(np.cumsum([0, *lengths]), scores, reached)


def plain_replay(
    table: TreeTable, queue: list[int], nodes: int, batch_size: int
) -> list[list[tuple[int, int]]]:
    """Rows one after the other, N * b best drafts of the batch by a sort."""
    waiting = list(queue)
    rows: list[list[int]] = []
    found = []
    places = [waiting.pop(0) for _ in range(min(batch_size, len(waiting)))]
    rows = [[text, int(table.offsets[text])] for text in places]
    while rows:
        drafts = [
            (-table.scores[place, j], j, number)
            for number, (_, place) in enumerate(rows)
            for j in range(table.nodes)
        ]
        counts = [0] * len(rows)
        for _, _, number in sorted(drafts)[: nodes * len(rows)]:
            counts[number] += 1
        said = []
        for row, count in zip(rows, counts, strict=True):
            left = int(table.offsets[row[0] + 1]) - row[1]
            gain = min(int(table.reached[row[1], count]) + 1, left)
            row[1] += gain
            said.append((row[0], gain))
        found.append(said)
        kept = []
        for row in rows:
            if row[1] < table.offsets[row[0] + 1]:
                kept.append(row)
            elif waiting:
                text = waiting.pop(0)
                kept.append([text, int(table.offsets[text])])
        rows = kept
    return found


def test_lanes_with_queues_are_plain_loops() -> None:
    rng = np.random.default_rng(0)
    table = table_of(rng, 9, 5)
    queues = rng.integers(0, 9, (3, 14))
    expected = [plain_replay(table, queue.tolist(), 2, 4) for queue in queues]
    replayed = list(replay_trees(table, queues, 2, 4, over_batch=True))
    assert len(replayed) == max(map(len, expected))
    for number, (texts, gained) in enumerate(replayed):
        for lane, rounds in enumerate(expected):
            is_row = texts[lane] >= 0
            mine = zip(texts[lane][is_row].tolist(), gained[lane][is_row].tolist(), strict=True)
            assert list(mine) == (rounds[number] if number < len(rounds) else [])


def test_halves_are_joined_in_the_order_of_the_texts() -> None:
    table = table_of(np.random.default_rng(1), 7, 3)
    joined = join_halves([table.texts(half) for half in halves(7)])
    for name in ("offsets", "scores", "reached"):
        assert np.array_equal(getattr(joined, name), getattr(table, name))


def test_the_fitted_curve_is_the_one_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    q = rng.uniform(0.05, 0.95, (40_000, 2))
    curves = ((1.5, 1.2), (-0.7, 0.8))
    logits = np.log(q / (1 - q))
    right = np.zeros(q.shape, bool)
    for rank, (intercept, slope) in enumerate(curves):
        right[:, rank] = rng.random(len(q)) < 1 / (1 + np.exp(-intercept - slope * logits[:, rank]))
    reached = np.concatenate([np.zeros((len(q), 1), int), right.cumsum(1)], 1)
    table = TreeTable(np.array([0, len(q)]), np.log(q), reached)
    for found, made in zip(calibration.fit_curves(table), curves, strict=True):
        assert found == pytest.approx(made, abs=0.05)


def test_a_text_is_never_measured_by_a_curve_that_saw_it() -> None:
    """The losses at the texts of a half change with the others, and the curves not with it."""
    table = table_of(np.random.default_rng(2), 8, 1)
    table = TreeTable(table.offsets, np.minimum(table.scores, -0.1), table.reached)
    half, other = halves(8)
    before = calibration._losses(table, half)
    spans = [np.arange(table.offsets[r], table.offsets[r + 1]) for r in half]
    flipped = table.reached.copy()
    flipped[np.concatenate(spans), 1] = 1 - flipped[np.concatenate(spans), 1]
    changed = TreeTable(table.offsets, table.scores, flipped)
    curves = [calibration.fit_curves(each.texts(other)) for each in (table, changed)]
    assert curves[0] == curves[1]
    chances = np.exp(-before[:, 1, 0])  # of what happened; flipped, it is the rest
    after = np.exp(-calibration._losses(changed, half)[:, 1, 0])
    assert np.allclose(chances + after, 1)


def test_a_fitted_tree_is_the_best_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    observed = [tuple(rng.integers(0, 2, rng.integers(0, 4)).tolist()) for _ in range(60)]
    every = [path for n in (1, 2, 3) for path in itertools.product(range(2), repeat=n)]

    def accepted(paths: Any) -> int:
        """Drafts accepted at all places together."""
        return sum(sum(path[:n] in paths for n in range(1, len(path) + 1)) for path in observed)

    for nodes in (1, 2, 4):
        trees_of = [
            some
            for some in itertools.combinations(every, nodes)
            if all(len(path) == 1 or path[:-1] in some for path in some)
        ]
        fitted = static_trees.fit_paths(observed, nodes)
        assert accepted(fitted) == max(map(accepted, trees_of))
        for j, path in enumerate(fitted):
            assert len(path) == 1 or path[:-1] in fitted[:j]


def test_a_fixed_tree_is_measured_on_texts_that_it_was_not_fitted_to() -> None:
    # The likeliest token is right in texts 0 and 2, the second likeliest in texts 1 and 3.
    right = np.repeat([[1, 0], [0, 1], [1, 0], [0, 1]], 3, axis=0)
    reached = np.concatenate([np.zeros((12, 1), int), right.cumsum(1)], 1)
    ranked = TreeTable(np.arange(0, 13, 3), np.zeros((12, 2)), reached)
    assert static_trees.fit_static(ranked, 1).reached.sum() == 0


def test_chances_of_chains_are_calibrated_on_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table = table_of(rng, 6, 3)
    monkeypatch.setattr(trees, "grow_everywhere", lambda *_, **__: (table, None))
    seen: list[int] = []

    def fit(part: TreeTable) -> Any:
        seen.append(len(part.reached))
        return ((float(len(seen)), 1.0),)

    monkeypatch.setattr(trees, "fit_curves", fit)
    found = list(trees._chains(None, [[1]] * 6, 3, table, {}))[-1].table  # type: ignore[arg-type]
    sizes = [len(table.texts(half).reached) for half in halves(6)]
    assert seen == sizes[::-1], "the first half is fitted to the second, and the other way round"
    assert np.array_equal(found.reached, table.reached)
    log_q = np.diff(table.scores, prepend=0, axis=1)
    for number, half in enumerate(halves(6)):
        rows = np.concatenate([np.arange(table.offsets[r], table.offsets[r + 1]) for r in half])
        odds = np.exp(log_q[rows]) / -np.expm1(log_q[rows]) * math.exp(number + 1)
        expected = np.log(odds / (1 + odds)).cumsum(1)
        assert np.allclose(found.scores[rows], expected)


def test_a_fixed_tree_accepts_along_the_ranks_of_the_text() -> None:
    # Ranks of the next tokens of two texts: 0 1 - 0 and 1 0, where - is none of the likeliest.
    right = np.array([[1, 0], [0, 1], [0, 0], [1, 0], [0, 1], [1, 0]])
    reached = np.concatenate([np.zeros((6, 1), int), right.cumsum(1)], 1)
    ranked = TreeTable(np.array([0, 4, 6]), np.zeros((6, 2)), reached)
    assert static_trees.rank_paths(ranked, 3) == [(0, 1), (1,), (), (0,), (1, 0), (0,)]
    table = static_trees.static_table(ranked, [(0,), (0, 1), (1,)])
    assert table.reached[:, -1].tolist() == [2, 1, 0, 1, 1, 1]
    assert table.reached[0].tolist() == [0, 1, 2, 2]


def small(**changes: Any) -> pd.DataFrame:
    given: dict[str, Any] = {
        "nodes": [1, 4], "growths": [[3, 2, 2]], "batch_size": 3, "max_new_tokens": 12,
        "samples": 5, "progress": False,
    }  # fmt: skip
    return trees.compare_trees(make_pair("llama"), make_prompts(), **(given | changes))[0]


@pytest.mark.slow
def test_all_policies_are_compared_with_the_chain() -> None:
    found = small()
    assert found.groupby("nodes").size().tolist() == [8, 8]
    chain = found[(found["drafts"] == "chain") & ~found["over_batch"]]
    assert (chain["gain_percent"] == 0).all()
    assert (found["low"] <= found["tokens_per_round"]).mean() > 0.8
    assert (found["low"] < found["high"]).all()
    assert ((found["tokens_per_round"] > 1) & (found["tokens_per_round"] <= 5)).all()
    assert chain["draft_forwards"].tolist() == [1, 4]
    pd.testing.assert_frame_equal(found, small())


@pytest.mark.slow
def test_more_drafts_than_a_tree_has_are_left_out() -> None:
    found = small(nodes=[12])
    assert "tree" not in set(found["drafts"]), "a tree of 3,2,2 has ten drafts"


@pytest.mark.slow
def test_trees_move_slots_and_masking_moves_none_of_the_targets() -> None:
    found, _ = count_moves(
        make_pair("llama"), make_prompts(), num_draft_tokens=4, max_new_tokens=12, progress=False
    )
    table = found.set_index(["strategy", "drafts"])
    target = table[f"{MODELS[0]}_slots_per_token"]
    assert target["inplace", "chain"] == target["masking", "chain"] == 0
    assert target["masking", "tree"] == 0
    assert target["inplace", "tree"] > 0
    assert target["eqspec", "tree"] > target["inplace", "tree"]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({"nodes": []}, "nodes is empty"),
        ({"nodes": [65]}, "nodes[0] must be at most 64, got 65"),
        ({"growths": []}, "growths must be lists (depth, width, children), got []"),
        ({"growths": [[1, 2]]}, "growths must be of (depth, width, children), got [1, 2]"),
        ({"growths": [[0, 1, 1]]}, "depth must be an int >= 1, got 0"),
        ({"samples": 1}, "samples must be an int >= 2, got 1"),
        ({"temperature": 0}, "temperature must be a number from"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], begins: str) -> None:
    check_refusal(lambda: small(**options), begins)


def test_one_prompt_has_no_halves() -> None:
    for call in (trees.compare_trees, calibration.measure_calibration):
        check_refusal(lambda: call(make_pair("llama"), [[1, 2]]), "prompts must be two or more")  # noqa: B023


@pytest.mark.slow
def test_the_commands_write_their_tables(tmp_path: Path) -> None:
    small_run = ["--limit", "2", "--max-new-tokens", "4"]
    out = tmp_path / "trees.csv"
    given = ["--nodes", "2", "--growths", "2,2,2", "--samples", "3", "--batch-size", "2"]
    assert cli(["study", "trees", *small_run, *given, "--out", str(out)]) == 0
    assert len(pd.read_csv(out)) == 8
    assert json.loads(out.with_suffix(".json").read_text())["samples"] == 3
    assert cli(["study", "calibration", *small_run, "--out", str(tmp_path / "c.csv")]) == 0
    assert pd.read_csv(tmp_path / "c.csv")["rank"].tolist() == [1, 2, 3, 4]
    moved = tmp_path / "moves.csv"
    assert cli(["study", "trees", "--moves", *small_run, "--out", str(moved)]) == 0
    assert len(pd.read_csv(moved)) == 10
