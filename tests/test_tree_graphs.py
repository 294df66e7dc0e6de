"""Replayed phases write with trees what the loop writes: traced on the CPU, captured on a GPU."""

from typing import Any

import pytest
from test_graphs import count_replays, outputs, prepared, right

import specviz as sv

TREES = [sv.drafter("tree", depth=3), sv.drafter("static_tree")]
each_tree = pytest.mark.parametrize("drafter", TREES, ids=["tree", "static tree"])


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
