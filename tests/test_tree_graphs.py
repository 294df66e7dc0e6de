"""Replayed phases write with trees what the loop writes: traced on the CPU, captured on a GPU."""

from collections import Counter
from typing import Any

import pytest
from test_graphs import count_replays, outputs, prepared, right

import specviz as sv
from specviz.engine.kv import cache
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.packing import Packing, find_packing

TREES = [sv.drafter("tree", depth=3), sv.drafter("static_tree")]
each_tree = pytest.mark.parametrize("drafter", TREES, ids=["tree", "static tree"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafter",
    [pytest.param(TREES[0], marks=pytest.mark.slow), TREES[1]],
    ids=["tree", "static tree"],
)
def test_replayed_trees_write_the_same_text(drafter: Any) -> None:
    """The stand-in for a capture fails where a phase reads a value on the host."""
    run = prepared(batch_size=2, drafter=drafter, num_draft_tokens=4)
    captured, replayed = count_replays(run)
    assert captured > 0
    assert captured % 3 == 0, "drafting, verifying and accepting are captured together"
    assert replayed > captured


def test_a_fixed_tree_stays_in_place() -> None:
    """A capture cannot copy from the host, so that what `propose` reads is made once."""
    run = prepared(drafter=TREES[1], num_draft_tokens=4)
    found = []
    for event in run.events():
        if event.phase == "draft":
            found.append(event.state.prepared[4].parents.data_ptr())
    assert len(found) > 2
    assert len(set(found)) == 1


@pytest.mark.slow
def test_packed_trees_over_the_batch_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever drafts TETRIS takes of the trees, it takes as many, so that a replay fits."""
    sizes = []

    def noted(feed: Feed) -> Packing:
        packing = find_packing(feed)
        sizes.append((packing.rows, len(packing.places)))
        return packing

    monkeypatch.setattr(cache, "find_packing", noted)
    selector = sv.selector("tetris", extra=2)
    # Of equal budgets, in one batch: to trace a round takes seconds for each number of rows.
    two = slice(3, 5)
    run = prepared(prompts=two, batch_size=2, drafter=TREES[1], selector=selector)
    run.try_models()
    run.state.caches["target"].packs = "always"
    sizes.clear()
    captured, replayed = count_replays(run, prompts=two)
    assert captured > 0
    assert captured % 4 == 0, "drafting, selecting, verifying and accepting are captured together"
    assert replayed > captured
    packed = Counter(sizes)
    assert set(packed) <= {(rows, rows * (1 + 2)) for rows in (1, 2)}, "K + 1 tokens a row"
    # The first forward of a size runs, the second is traced, and all others are replayed.
    assert packed[2, 6] == max(packed.values()) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec", "rollback"])
@each_tree
def test_cuda_graphs_write_the_same_text_with_trees(drafter: Any, strategy: str) -> None:
    run = prepared(
        "llama", "cuda", strategy=strategy, drafter=drafter, num_draft_tokens=4, graphs=True
    )
    assert outputs(run) == right("llama", "cuda")
    assert run.state.graphs.active, "nothing had to run uncaptured"


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec", "masking", "rollback"])
@each_tree
def test_trees_write_the_same_text_on_cuda(drafter: Any, strategy: str) -> None:
    run = prepared("llama", "cuda", strategy=strategy, drafter=drafter, num_draft_tokens=4)
    assert outputs(run) == right("llama", "cuda")
