"""Records of runs with trees: those of chains, and what the models said on each branch."""

from functools import cache
from typing import Any

import numpy as np
import published
import pytest
import torch
from conftest import decoded, generate, in_turn, make_pair, make_prompts
from safetensors import safe_open
from tree_drafters import GUMBEL, ChainAsTree, RandomTrees, alone, confident, going_on

import specviz as sv
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

STRATEGIES = ["inplace", "eqspec", "exspec", "masking", "rollback"]


OTHERS = (
    sv.strategy("repadding", ones_mask=False, draft_bonus=False),
    published.strategy("eqspec", bonus=False, refill=False),
)


@pytest.mark.sweep(18)
@pytest.mark.parametrize(
    ("strategy", "sampling"),
    in_turn([*STRATEGIES, *OTHERS], [None, GUMBEL, sv.SamplingParams(1.0)], every=3),
    ids=str,
)
def test_a_tree_that_is_a_chain_gives_the_record_of_the_chain(
    strategy: Any, sampling: Any, tmp_path: Any
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
    # Only the header says what drafted, so that a check knows how the drafts were judged.
    assert (chain.meta["branches"], tree.meta["branches"]) == (False, True)
    given = {"created": "", "branches": True}
    assert tree.meta | given == chain.meta | given
    saved = []
    for name, trace in (("chain", chain), ("tree", tree)):
        trace.save(tmp_path / name)
        with safe_open(tmp_path / name, "numpy") as file:
            saved.append({key: file.get_slice(key).get_shape() for key in file.keys()})  # noqa: SIM118
    assert saved[0] == saved[1]


GROWN = {
    "tree": (sv.drafter("tree", depth=4, width=3, children=3), 6),
    # Of 8 drafts that are read 3 are proposed: slots beyond those of the proposals count.
    "few of many": (sv.drafter("tree", depth=3, width=4, children=3), 3),
    "read again": (sv.drafter("tree", depth=3, width=4, children=2), 6),
    "static tree": (sv.drafter("static_tree"), 6),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("strategy", "name"), in_turn(STRATEGIES, GROWN, every=2))
def test_both_models_said_of_a_draft_what_they_say_of_its_branch(strategy: str, name: str) -> None:
    """The draft model reads more drafts than are verified, in more slots; it sees its branch."""
    drafter, k = GROWN[name]
    pair = confident(torch.float32)
    prompts = make_prompts()[:6]
    trace = generate(
        pair, prompts, strategy=strategy, drafter=drafter, num_draft_tokens=k, batch_size=3,
        max_new_tokens=6, record=True, levers=sv.Levers(keep_draft=name != "read again"),
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
            for model in ("target", "draft"):
                with torch.inference_mode():
                    said = getattr(pair, model)(fed).logits[0, -1].log_softmax(-1)
                found = rows[f"{model}_logprob"][i, j]
                assert abs(found - said[branch[-1]].item()) < 1e-3, (model, i, j)
            compared += len(branch) > 2
    assert compared > 5


# ---- faults ----

TEXT = torch.float32


@cache
def broken(fault: str | None, strategy: str, **options: Any) -> sv.Result:
    """Random trees under a fault, which a run without one decodes right."""
    drafter = RandomTrees(right=going_on("llama", TEXT, False))
    made = sv.strategy(strategy, break_invariant=fault, **options)
    return generate(
        make_pair("llama"), make_prompts(), strategy=made, drafter=drafter, num_draft_tokens=8,
        batch_size=3, max_new_tokens=16, record=True,
    )  # fmt: skip


def verified(trace: Trace) -> dict[str, Any]:
    """The lines of the table `feeds` in which the target reads drafts."""
    feeds = trace.feeds
    here = (feeds["phase"] == PHASES.index("verify")) & (feeds["model"] == MODELS.index("target"))
    return {name: values[here & (feeds["node"] > 0)] for name, values in feeds.items()}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec"])
@pytest.mark.parametrize("fault", ["tree_mask", "tree_positions", "compaction", "bonus", "kv"])
def test_a_fault_of_trees_changes_the_text(fault: str, strategy: str) -> None:
    assert broken(None, strategy).tokens == alone("llama", TEXT, False)
    assert broken(fault, strategy).tokens != alone("llama", TEXT, False)
    later = broken(fault, strategy, from_round=10**6)
    assert later.tokens == alone("llama", TEXT, False)


def test_a_fault_of_trees_breaks_one_thing() -> None:
    right, numbered, causal = (
        verified(broken(fault, "inplace").trace) for fault in (None, "tree_positions", "tree_mask")
    )
    assert (right["position"] == right["index"]).all()
    assert (right["index"] < right["slot"]).any(), "some draft is not as deep as its number"
    # In place, token p of a row lies at slot p, so that a position by number is the slot.
    assert (numbered["position"] == numbered["slot"]).all()
    assert (causal["position"] == causal["index"]).all()
    assert (causal["visible_stop"] == causal["slot"] + 1).all()
    trace = broken("tree_mask", "inplace").trace
    assert trace is not None
    assert len(trace.holes["feed"]) == 0, "every draft sees all before it"
    kept = broken("compaction", "inplace").trace
    assert kept is not None
    assert (kept.moves["phase"] != PHASES.index("accept")).all()
