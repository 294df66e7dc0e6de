"""Records of runs with trees: those of chains, and what the models said on each branch."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import decoded, generate, make_pair, make_prompts
from safetensors import safe_open
from tree_drafters import GUMBEL, ChainAsTree

import specviz as sv

STRATEGIES = ["inplace", "eqspec", "exspec", "masking", "rollback"]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@each_strategy
@pytest.mark.parametrize(
    "sampling", [None, GUMBEL, sv.SamplingParams(1.0)], ids=["greedy", "gumbel", "rejection"]
)
def test_a_tree_that_is_a_chain_gives_the_record_of_the_chain(
    strategy: str, sampling: Any, tmp_path: Any
) -> None:
    chain, tree = (
        decoded(strategy, drafter=drafter, sampling=sampling).trace
        for drafter in (sv.drafter("model"), ChainAsTree())
    )
    for table, columns in chain.tables.items():
        assert tree.tables[table].keys() == columns.keys()
        for name, values in columns.items():
            other = tree.tables[table][name]
            assert other.dtype == values.dtype
            if not name.endswith("_ms"):
                assert other.tobytes() == values.tobytes(), f"{table}.{name}"
    assert {**tree.meta, "created": ""} == {**chain.meta, "created": ""}
    saved = []
    for name, trace in (("chain", chain), ("tree", tree)):
        trace.save(tmp_path / name)
        with safe_open(tmp_path / name, "numpy") as file:
            saved.append({key: file.get_slice(key).get_shape() for key in file.keys()})  # noqa: SIM118
    assert saved[0] == saved[1]


@each_strategy
@pytest.mark.parametrize(
    "drafter",
    [
        sv.drafter("tree", depth=4, width=3, children=3),
        sv.drafter("tree", depth=3, width=4, children=2, keep_cache=False),
        sv.drafter("static_tree"),
    ],
    ids=["tree", "read anew", "static tree"],
)
def test_both_models_said_of_a_draft_what_they_say_of_its_branch(
    strategy: str, drafter: Any
) -> None:
    """The draft model reads more drafts than are verified, in more slots; it sees its branch."""
    pair = make_pair("qwen3")
    prompts = make_prompts()[:6]
    k = 6
    trace = generate(
        pair, prompts, strategy=strategy, drafter=drafter, num_draft_tokens=k, batch_size=3,
        max_new_tokens=6, record=True,
    ).trace  # fmt: skip
    assert trace is not None
    rows = trace.rows
    compared = 0
    for i in np.flatnonzero(rows["gained"]):
        request = rows["request"][i]
        text = (trace.prompt(request) + trace.output(request))[: rows["length"][i]]
        branches: list[list[int]] = []
        for token, parent in zip(rows["drafts"][i], rows["parents"][i], strict=True):
            branches.append([*(branches[parent] if parent >= 0 else []), int(token)])
        for j, branch in enumerate(branches):
            fed = torch.tensor([[*text, *branch[:-1]]])
            for name in ("target", "draft"):
                with torch.inference_mode():
                    said = getattr(pair, name)(fed).logits[0, -1].log_softmax(-1)
                found = rows[f"{name}_logprob"][i, j]
                assert abs(found - said[branch[-1]].item()) < 1e-3, (name, i, j)
            compared += len(branch) > 1
    assert compared > 20
