"""Trees that cannot be decoded, and runs that cannot take trees, are refused in one sentence."""

from typing import Any

import pytest
from conftest import check_refusal, generate, make_pair, make_prompts
from hypothesis import given, settings
from hypothesis import strategies as st

import specviz as sv
from specviz.engine.kv.cache import CachedModel

REFUSED: dict[str, dict[str, Any]] = {
    "drafter='tree' proposes trees, and strategy='repadding' with these options takes": {
        "strategy": "repadding"
    },
    "drafter='tree' proposes trees, and strategy='masking' with these options takes": {
        "strategy": sv.strategy("masking", positions="column")
    },
    "drafter='tree' proposes trees, and strategy='masking' with these": {
        "strategy": sv.strategy("masking", break_invariant="compaction")
    },
    "deterministic=True fixes the order of every sum for chains only": {"deterministic": True},
    "num_draft_tokens must be at most 14, the drafts of a tree with depth=4": {
        "num_draft_tokens": 15
    },
    "num_draft_tokens must be at most 8, the number of paths, got 9": {
        "drafter": "static_tree", "num_draft_tokens": 9
    },
    "a draft must have at most 97 children, the size of the vocabulary, got 98": {
        "drafter": sv.drafter("static_tree", paths=[[97]]), "num_draft_tokens": 1
    },
    "drafter='static_tree' is judged in a way that changes the distribution": {
        "drafter": sv.drafter("static_tree", judged_by="first"), "sampling": sv.SamplingParams(1.0)
    },
    **{
        f"break_invariant={fault!r} needs drafts that branch, and drafter='model'": {
            "drafter": "model", "strategy": sv.strategy("eqspec", break_invariant=fault)
        }
        for fault in ("tree_mask", "tree_positions", "compaction")
    },
}  # fmt: skip


@pytest.mark.parametrize("begins", REFUSED)
def test_what_cannot_serve_trees_is_refused_before_a_model_runs(
    begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachedModel, "forward", None)
    monkeypatch.setattr(CachedModel, "prefill", None)
    options = {"drafter": "tree"} | REFUSED[begins]
    check_refusal(lambda: generate(make_pair("llama"), make_prompts()[:2], **options), begins)


PATHS = {
    "paths must be lists of ranks, ints >= 0, got []": {"paths": []},
    "paths must be lists of ranks, ints >= 0, got [[]]": {"paths": [[]]},
    "paths must be lists of ranks, ints >= 0, got [[-1]]": {"paths": [[-1]]},
    "paths must differ, each behind the one that it continues, got (0, 0) at place 0": {
        "paths": [[0, 0], [0]]
    },
    "paths must differ, each behind the one that it continues, got (0,) at place 1": {
        "paths": [[0], [0]]
    },
    "paths must have (0,) before (1,), because children": {"paths": [[1]], "siblings": "drawn"},
    "judged_by='each' needs siblings that are drawn independently": {
        "siblings": "drawn",
        "judged_by": "each",
    },
    "siblings='any' is unknown": {"siblings": "any"},
    "judged_by='any' is unknown": {"judged_by": "any"},
}


@pytest.mark.parametrize("begins", PATHS)
def test_impossible_paths_are_refused(begins: str) -> None:
    check_refusal(lambda: sv.drafter("static_tree", **PATHS[begins]), begins)


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_a_tree_grows_as_many_drafts_as_it_says(depth: int, width: int, children: int) -> None:
    drafter = sv.drafter("tree", depth=depth, width=width, children=children)
    levels = [1]
    for _ in range(depth):
        levels.append(min(levels[-1], width) * children)
    assert drafter.grown() == sum(levels[1:])  # type: ignore[attr-defined]
