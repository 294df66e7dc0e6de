"""Grouped-query attention without copies.

Only the run's models use it, only during the run, and other models are unaffected.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import generate_one_by_one, make_pair, make_prompts

import specviz as sv
from specviz.engine.kv.attention import (
    additive_mask,
    attending,
    attending_plainly,
    grouped_attention,
    grouped_mask,
)
from specviz.engine.models.compat import OWN_ATTENTION

NEW_TOKENS = 12


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_is_attention_with_repeated_heads(groups):
    torch.manual_seed(0)
    query = torch.randn(2, 4, 3, 8, dtype=torch.float64)
    key, value = (torch.randn(2, 4 // groups, 5, 8, dtype=torch.float64) for _ in range(2))
    visible = torch.rand(2, 3, 5) < 0.6
    visible[:, :, 0] = True
    said, _ = grouped_attention(
        torch.nn.Module(),
        query,
        key,
        value,
        grouped_mask(additive_mask(visible, query.dtype), groups),
    )
    wide = [each.repeat_interleave(groups, 1) for each in (key, value)]
    scores = (query @ wide[0].mT / 8**0.5).masked_fill(~visible[:, None], -torch.inf)
    torch.testing.assert_close(said, (scores.softmax(-1) @ wide[1]).transpose(1, 2))


def test_the_models_serve_others_meanwhile():
    pair, prompts = make_pair("llama"), make_prompts()
    alone = torch.tensor([prompts[0]])
    before = pair.target(alone).logits
    run = sv.decode(pair, prompts, batch_size=3, max_new_tokens=NEW_TOKENS)
    for event in run:
        if event.phase == "draft" and event.round == 1:
            assert pair.target.config._attn_implementation == OWN_ATTENTION
            torch.testing.assert_close(pair.target(alone).logits, before)
            padded = torch.ones_like(alone)
            padded[0, 0] = 0
            assert pair.target(alone, attention_mask=padded).logits.isfinite().all()
    assert (
        pair.target.config._attn_implementation == pair.draft.config._attn_implementation == "sdpa"
    )
    torch.testing.assert_close(pair.target(alone).logits, before)


@pytest.mark.parametrize("first_ends", [True, False])
def test_two_runs_of_one_pair_side_by_side(first_ends):
    pair, prompts = make_pair("llama"), make_prompts()
    runs = [sv.decode(pair, prompts, batch_size=3, max_new_tokens=NEW_TOKENS) for _ in range(2)]
    states = [next(run).state for run in runs]
    rows = [{id(row): row for row in state.batch.live} for state in states]
    for number in (0, 1) if first_ends else (1, 0):
        for event in runs[number]:
            rows[number] |= {id(row): row for row in event.state.batch.live}
    for found in rows:
        texts = {row.request.index: row.output for row in found.values()}
        assert [texts[i] for i in sorted(texts)] == generate_one_by_one(
            "llama", torch.float32, NEW_TOKENS
        )
    assert pair.target.config._attn_implementation == "sdpa"


def test_a_run_that_is_given_up_leaves_the_models_as_they_were():
    pair = make_pair("llama")
    run = sv.decode(pair, make_prompts(), max_new_tokens=NEW_TOKENS)
    next(run)
    assert pair.target.config._attn_implementation == OWN_ATTENTION
    run.close()
    assert pair.target.config._attn_implementation == "sdpa"


def test_the_last_of_two_runs_restores_the_models():
    model = make_pair("llama").target
    first, second = attending([model]), attending([model])
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert model.config._attn_implementation == OWN_ATTENTION, "the second run is under way"
    second.__exit__(None, None, None)
    assert model.config._attn_implementation == "sdpa"


def test_others_may_attend_plainly_while_a_run_is_suspended():
    model = make_pair("llama").target
    with attending([model]):
        with attending_plainly([model]):
            assert model.config._attn_implementation == "sdpa"
        assert model.config._attn_implementation == OWN_ATTENTION
    with attending_plainly([model]):
        pass
    assert model.config._attn_implementation == "sdpa"


def test_threads_share_a_pair():
    pair, prompts = make_pair("llama"), make_prompts()
    expected = generate_one_by_one("llama", torch.float32, NEW_TOKENS)

    def decode(number):
        options = {"strategy": ("inplace", "eqspec")[number % 2], "num_threads": 1}
        # Of different lengths, so that one run ends while another is inside a forward.
        count = 2 + number % 3
        run = sv.generate(
            pair, prompts[:count], max_new_tokens=NEW_TOKENS, progress=False, **options
        )
        return run.tokens == expected[:count]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(3) as pool:
            assert all(pool.map(decode, range(9)))
    finally:
        sys.setswitchinterval(interval)
    assert pair.target.config._attn_implementation == "sdpa"


def test_a_suspended_run_leaves_the_models_usable():
    pair = make_pair("llama")
    run = sv.decode(pair, make_prompts(), max_new_tokens=NEW_TOKENS)
    next(run)
    again = sv.Pair(pair.target, pair.draft)
    text = sv.generate(again, make_prompts()[:1], max_new_tokens=4, progress=False).tokens
    assert text[0] == generate_one_by_one("llama", torch.float32, NEW_TOKENS)[0][:4]
    run.close()
