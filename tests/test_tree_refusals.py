"""Trees that cannot be decoded, and runs that cannot take trees, are refused in one sentence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from tree_drafters import Given

import specviz as sv
from specviz.engine.drafters import Draft
from specviz.engine.kv.cache import CachedModel
from specviz.engine.state import State


def proposing(change: Callable[[Draft], Draft]) -> Given:
    """A drafter of two siblings and a child, changed."""

    def propose(state: State, k: int) -> Draft:
        b = len(state.batch)
        tokens = torch.tensor([3, 4, 5]).repeat(b, 1)
        return change(Draft(tokens, parents=torch.tensor([-1, -1, 0]).repeat(b, 1)))

    return Given(propose)


def with_(**columns: Any) -> Callable[[Draft], Draft]:
    return lambda draft: replace(draft, **columns)


def in_each_row(*parents: int) -> Tensor:
    return torch.tensor([parents, parents])


SIBLINGS = torch.tensor([[3, 3, 5]] * 2)
BAD_DRAFTS = {
    "Draft.parents must name -1 or an earlier draft, got": with_(parents=in_each_row(-1, 1, 0)),
    "Draft.parents must name -1 or an earlier draft, got [[-2": with_(
        parents=in_each_row(-2, -1, 0)
    ),
    "Draft.parents must be int64 of shape (2, 3), as Draft.tokens, got int32": with_(
        parents=in_each_row(-1, -1, 0).int()
    ),
    "Draft.parents must be int64 of shape (2, 3), as Draft.tokens, got int64 of": with_(
        parents=in_each_row(-1, -1)
    ),
    "Draft.parents must be": with_(parents=[[-1, -1, 0]] * 2),
    "drafts of one parent must be different tokens, got": with_(tokens=SIBLINGS),
    "Draft.height must be at least 2, the most drafts on one branch, got 1": with_(height=1),
    "Draft.height must be an int >= 1, got 'a'": with_(height="a"),
    "Draft.judged_by='all' is unknown": with_(judged_by="all"),
    "drafter='given' returned Draft.judged_by='first', but says biased = False": with_(
        judged_by="first"
    ),
    "drafter='given' returned Draft.judged_by='each' and Draft.drawn is None; pass": with_(
        judged_by="each"
    ),
    "drafter='given' returned Draft.judged_by='target' and Draft.drawn is not None; pass": with_(
        drawn=in_each_row(1, 1, 2)
    ),
    "Draft.columns must be int64 of shape (2, 3), as Draft.tokens, got float32": with_(
        columns=torch.zeros(2, 3)
    ),
    "Draft.columns must be a": with_(columns=[[1, 2, 3]] * 2),
}


@pytest.mark.parametrize("begins", BAD_DRAFTS)
def test_bad_trees_are_refused_before_the_target_reads_them(
    begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    forward = CachedModel.forward

    def counted(self: CachedModel, *arguments: Any, **options: Any) -> Tensor:
        read.append(self)
        return forward(self, *arguments, **options)

    pair = make_pair("llama")
    generate(pair, [[1], [2]], max_new_tokens=1)  # models are tried before their first run
    monkeypatch.setattr(CachedModel, "forward", counted)
    run: dict[str, Any] = {"num_draft_tokens": 3, "max_new_tokens": 4}
    check_refusal(
        lambda: generate(pair, [[1], [2]], drafter=proposing(BAD_DRAFTS[begins]), **run), begins
    )
    assert read == []
    assert generate(pair, [[1], [2]], drafter=proposing(with_()), **run).tokens
    assert read


class SaysChains(Given):
    branches: ClassVar[bool] = False


def test_parents_need_a_drafter_that_says_so() -> None:
    drafter = SaysChains(proposing(with_()).made)
    check_refusal(
        lambda: generate(make_pair("llama"), [[1]], drafter=drafter, num_draft_tokens=3),
        "drafter='given' returned Draft.parents, but says branches = False; set",
    )


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
