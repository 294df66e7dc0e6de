"""Trees that grow from draft heads: the text, and the logits along each branch."""

from typing import Any

import pytest
import torch
from conftest import CLASSES, check_refusal, generate, in_turn, make_prompts
from test_heads import drafted, expected_logits
from tiny_heads import pair_with
from tree_drafters import GUMBEL, TOKENS, alone

import specviz as sv
from specviz.engine.drafters import Drafter
from specviz.record.schema import MODELS, PHASES

BASES = ("medusa", "clover", "eagle3")
FAN = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]


def grown(base: str, kind: str = "tree", **options: Any) -> Drafter:
    if kind == "tree":
        return sv.drafter("tree", base=base, depth=3, width=2, children=2, **options)
    return sv.drafter("static_tree", base=base, paths=FAN, **options)


STRATEGIES = ("inplace", "masking", "eqspec", "exspec", "rollback")


@pytest.mark.sweep(48)
@pytest.mark.parametrize(
    ("strategy", "base", "kind"), in_turn(STRATEGIES, BASES, ["tree", "static_tree"], every=2)
)
def test_the_text_is_the_targets_own(strategy, base, kind):
    n = BASES.index(base) + len(strategy) + len(kind)
    name = list(CLASSES)[n % len(CLASSES)]
    sampled = n % 2 == 1
    result = generate(
        pair_with(name, base),
        make_prompts(),
        strategy=strategy,
        drafter=grown(base, kind),
        num_draft_tokens=5,
        max_new_tokens=TOKENS,
        batch_size=(1, 3, 8)[n % 3],
        sampling=GUMBEL if sampled else None,
        record=True,
    )
    assert result.tokens == alone(name, torch.float32, sampled)
    assert not sv.check_invariants(result.trace)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", ["tree", "static_tree"])
@pytest.mark.parametrize("base", BASES)
def test_each_branch_is_a_chain_of_the_head(base, kind):
    """The logits that a draft was chosen from are those of the unrolled head along its branch."""
    pair = pair_with("llama", base, torch.float64)
    events = sv.decode(
        pair,
        make_prompts(),
        drafter=grown(base, kind),
        num_draft_tokens=6,
        batch_size=3,
        max_new_tokens=8,
    )
    checked = 0
    for event in drafted(events):
        if event.round % 2:
            continue
        draft = event.draft
        for row, live in enumerate(event.state.batch.rows):
            if live.finished:
                continue
            for node in range(draft.tokens.shape[1]):
                branch = [node]
                while branch[0] >= 0:
                    branch.insert(0, int(draft.parents[row, branch[0]]))
                tokens = draft.tokens[row, branch[1:]]
                with torch.inference_mode():
                    expected = expected_logits(pair, base, event.state, row, tokens)[-1]
                found = draft.logits[row, node]
                torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)
                checked += 1
    assert checked > 30


def test_accepted_drafts_of_a_tree_are_read_again_and_not_moved():
    result = generate(
        pair_with("llama", "eagle3"),
        make_prompts(),
        drafter=grown("eagle3"),
        num_draft_tokens=5,
        max_new_tokens=TOKENS,
        record=True,
    )
    compacted = result.trace.moves["phase"] == PHASES.index("accept")
    assert compacted.any()
    assert set(result.trace.moves["model"][compacted]) == {MODELS.index("target")}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("strategy", ["inplace", "masking", "eqspec"])
def test_what_a_head_keeps_of_trees_is_computed_again(strategy):
    pair = pair_with("llama", "eagle3")
    result = generate(
        pair,
        make_prompts(),
        strategy=strategy,
        drafter=grown("eagle3"),
        num_draft_tokens=6,
        max_new_tokens=TOKENS,
        batch_size=3,
        record=True,
    )
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


def test_siblings_that_are_drawn_come_from_the_heads_own_q():
    result = generate(
        pair_with("llama", "eagle3"),
        make_prompts(),
        drafter=grown("eagle3", "static_tree", siblings="drawn"),
        num_draft_tokens=4,
        max_new_tokens=8,
        sampling=sv.SamplingParams(1.0),
        record=True,
    )
    assert not sv.check_invariants(result.trace)


def test_trees_that_a_head_cannot_grow_are_refused():
    pair = pair_with("llama", "medusa")
    deep = sv.drafter("tree", base="medusa", depth=6)
    check_refusal(
        lambda: sv.decode(pair, [[1]], drafter=deep, num_draft_tokens=6),
        "num_draft_tokens must be at most 5",
        "or the depth of the tree",
    )
    check_refusal(lambda: sv.drafter("tree", base="hydra"), "base='hydra'")
    check_refusal(
        lambda: sv.decode(pair, [[1]], drafter=sv.drafter("tree", base="eagle3")),
        "drafter='eagle3' needs a head",
    )
