"""The heads that come with the embedded pair."""

from functools import cache
from pathlib import Path

import pytest

import specviz as sv
from specviz.engine.heads.files import fingerprint

WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"
HEADS = sorted(path.parent.name for path in WEIGHTS.glob("heads/*/config.json"))
# At least so many tokens a row and round on eight of the bundled prompts, K = 4; figures of all 32
# are in the model card.
LENGTHS = {"eagle3": 3.3, "clover": 2.0, "medusa": 1.4, "mtp": 3.4, "dflash": 2.2}


def test_the_pair_brings_its_heads(embedded):
    assert set(embedded.heads) == set(HEADS) <= set(LENGTHS)
    assert {"eagle3", "clover", "medusa"} <= set(HEADS)


def test_all_weights_together_stay_small():
    files = WEIGHTS.rglob("*.safetensors")
    size = sum(path.stat().st_size for path in files if "hybrid" not in path.parts)
    assert size <= 28e6


RUN = {"max_new_tokens": 48, "progress": False}


@cache
def alone(pair: sv.Pair) -> list[list[int]]:
    prompts = sv.load_prompts(limit=8)
    return sv.generate(pair, prompts, strategy="autoregressive", **RUN).tokens


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", HEADS)
def test_a_shipped_head_drafts_for_the_shipped_target(kind, embedded):
    assert embedded.heads[kind].settings.target == fingerprint(embedded.target)
    prompts = sv.load_prompts(limit=8)
    result = sv.generate(embedded, prompts, drafter=kind, num_draft_tokens=4, **RUN)
    assert result.tokens == alone(embedded)
    assert result.summary["mean_acceptance_length"].item() > LENGTHS[kind]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", HEADS)
def test_a_shipped_head_serves_the_default_k(kind, embedded):
    result = sv.generate(embedded, sv.load_prompts(limit=1), drafter=kind, max_new_tokens=16)
    assert result.meta["num_draft_tokens"] == 5


@pytest.mark.slow
def test_a_tree_of_medusa_accepts_more_than_a_chain(embedded):
    """At equal nodes."""
    prompts = sv.load_prompts(limit=16)
    run = {"max_new_tokens": 64, "num_draft_tokens": 4, "progress": False}
    tree = sv.drafter("tree", base="medusa", depth=3, width=2, children=2)
    lengths = []
    for drafter in ("medusa", tree):
        summary = sv.generate(embedded, prompts, drafter=drafter, **run).summary
        lengths.append(summary["mean_acceptance_length"].item())
    assert lengths[0] < lengths[1]
