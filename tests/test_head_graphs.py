"""Replayed phases of draft heads propose what the loop proposes: traced, and on a GPU captured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import make_pair, make_prompts
from test_graphs import outputs, right, traced
from tiny_heads import fitted

from specviz.engine.drafters import DRAFTERS
from specviz.engine.graphs import PhaseGraphs
from specviz.engine.heads import KINDS, build_head
from specviz.engine.options import Options
from specviz.engine.run import Run, make_run


def prepared(kind: str, drafter: str, device: str = "cpu", **options: Any) -> Run:
    """A run of five short prompts, three at a time, with a fitted head."""
    pair = make_pair("llama", device=device)
    head = build_head(kind, pair.target)
    head.load_state_dict(fitted("llama", kind).state_dict())
    pair = replace(pair, heads={kind: head.eval().requires_grad_(False)})
    made = DRAFTERS[drafter](**({"base": kind} if drafter != kind else {}))
    given = {"batch_size": 3, "max_new_tokens": 10, "num_draft_tokens": 2, "drafter": made}
    return make_run(pair, make_prompts()[:5], Options(**given | options))


def accepted(run: Run) -> list[list[tuple[int, int]]]:
    """Request and accepted drafts of each row, round by round."""
    found = []
    for event in run.events():
        if event.phase == "accept":
            rows = event.state.batch.rows
            found.append([(row.request.index, row.accepted) for row in rows if row.gained])
    return found


DRAFTING = [(kind, kind) for kind in KINDS] + [("eagle3", "static_tree"), ("clover", "tree")]


@pytest.mark.sweep(18)
@pytest.mark.parametrize(("kind", "drafter"), DRAFTING)
def test_replayed_phases_accept_the_same_drafts(kind, drafter):
    # To trace a round takes seconds, and each number of rows is traced again.
    plain = accepted(prepared(kind, drafter, batch_size=2))
    assert any(count for rows in plain for _, count in rows)
    run = prepared(kind, drafter, batch_size=2)
    replayed = 0

    def counted(function: Callable[[], Any]) -> Callable[[], Any]:
        again = traced(run, function)

        def counting() -> Any:
            nonlocal replayed
            replayed += 1
            return again()

        return counting

    run.state.graphs = PhaseGraphs(counted)
    assert accepted(run) == plain
    assert run.state.graphs.active, "nothing had to run uncaptured"
    assert replayed > 3


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "drafter"), DRAFTING)
def test_cuda_graphs_accept_the_same_drafts(kind, drafter):
    plain = accepted(prepared(kind, drafter, "cuda"))
    run = prepared(kind, drafter, "cuda", graphs=True)
    assert accepted(run) == plain
    assert run.state.graphs.active, "nothing had to run uncaptured"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_heads_on_a_gpu_write_the_targets_own_text(kind):
    assert outputs(prepared(kind, kind, "cuda")) == right("llama", "cuda")
