"""DFlash drafters: drafts are those of the definition, in every batch and for any target."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from conftest import check_refusal, generate, make_pair
from families import prompts
from from_nothing import check_drafts
from test_draft_length import Forced
from tiny_models import EOS, tiny_model

import specviz as sv
from specviz.engine.heads import build_head
from specviz.record.replay import BLOCK, MASK, TARGET, feature_reads

STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
FAMILIES = ("llama", "gemma3_text", "qwen3_5_text", "gpt2", "deepseek_v3")
K = 4
RUN: dict[str, Any] = {"num_draft_tokens": K, "max_new_tokens": 12, "batch_size": 3}


@cache
def pair_of(family: str, heads: int = K, layers: int = 1) -> sv.Pair:
    """A random target of the family with a random drafter, some of whose drafts are right."""
    target = tiny_model(family)
    target.generation_config.eos_token_id = EOS
    with torch.no_grad():
        target.get_output_embeddings().weight[6:10] *= 3
    head = build_head("dflash", target, heads=heads, num_layers=layers, seed=2)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3, generator=torch.Generator().manual_seed(weight.numel()))
    return sv.Pair(target, heads={"dflash": head.eval().requires_grad_(False)})


def alone(pair: sv.Pair) -> list[list[int]]:
    options = {"strategy": "autoregressive", "max_new_tokens": RUN["max_new_tokens"]}
    return generate(pair, prompts(), batch_size=1, **options).tokens


@pytest.mark.sweep(3)
@pytest.mark.parametrize("heads", [K, 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_are_those_from_nothing(family, heads):
    """The block has the length that the drafter was made for, whatever K is."""
    pair = pair_of(family, heads, layers=2)
    strategy = STRATEGIES[FAMILIES.index(family)]
    assert check_drafts(pair, "dflash", prompts(), strategy=strategy, **RUN) == alone(pair)


@pytest.mark.parametrize("width", [2, 5])
def test_windows_reach_as_far_ahead_as_back(width):
    pair = pair_of("llama", 6)
    head = build_head("dflash", pair.target, heads=6, num_layers=2)
    head.load_state_dict({**head.state_dict(), **pair.heads["dflash"].state_dict()})
    head.config.layer_types = ["sliding_attention", "full_attention"]
    head.config.sliding_window = width
    narrow = sv.Pair(pair.target, heads={"dflash": head.eval().requires_grad_(False)})
    for strategy in ("inplace", "masking"):
        check_drafts(narrow, "dflash", prompts(), strategy=strategy, **RUN)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_hold_and_say_what_each_entry_was_made_from(strategy):
    pair = pair_of("llama", 6)
    options = RUN | {"num_draft_tokens": Forced([K, 0, 2, 1]), "strategy": strategy}
    trace = generate(pair, prompts(), drafter="dflash", record=True, **options).trace
    assert not sv.check_invariants(trace, deep=True, pair=pair)
    reads, feeds = feature_reads(trace), trace.feeds
    drafting = (feeds["model"] == 1) & (feeds["phase"] == 1)
    pending = trace.rows["length"][trace.index.feed_rows] - 1
    expected = np.where(feeds["index"] < pending, TARGET, MASK)
    expected = np.where(feeds["index"] == pending, BLOCK, expected)
    assert np.array_equal(reads.source[drafting], expected[drafting])
    is_context = reads.source == TARGET
    assert np.array_equal(reads.token[is_context], feeds["index"][is_context])


def test_drafts_are_the_same_however_rows_are_kept_in_step():
    pair = pair_of("llama", 6)
    by_strategy = []
    for strategy in ("inplace", "eqspec", "masking"):
        result = generate(pair, prompts(), drafter="dflash", strategy=strategy, **RUN)
        rows = result.rows
        order = np.lexsort((rows["round"], rows["request"]))
        counts = rows["accepted"][order][rows["gained"][order] > 0]
        by_strategy.append(counts.tolist())
    assert by_strategy[0] == by_strategy[1] == by_strategy[2]
    assert max(by_strategy[0]) > 0


@pytest.mark.parametrize("levers", [sv.Levers(prefill_tokens=4), sv.Levers(keep_draft=False)])
def test_context_in_parts_is_the_same_context(levers):
    check_drafts(pair_of("llama"), "dflash", prompts(), levers=levers, strategy="eqspec", **RUN)


def test_what_a_block_cannot_serve_is_refused():
    pair = pair_of("llama")
    check_refusal(
        lambda: generate(pair, [[7]], drafter="dflash", num_draft_tokens=K + 1),
        f"num_draft_tokens must be at most {K}",
    )
    check_refusal(
        lambda: generate(pair, [[7]], drafter="dflash", num_draft_tokens=2, memory_budget="1GB"),
        "drafter='dflash' needs memory that no plan counts",
    )
    check_refusal(
        lambda: build_head("dflash", make_pair("llama").target, heads=0),
        "heads must be an int >= 1",
    )
