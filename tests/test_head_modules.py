"""The modules of draft heads by themselves, and what they refuse."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from tiny_heads import STEPS, hiding_first, pair_with
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from tree_drafters import GUMBEL

import specviz as sv
from specviz.engine.heads import KINDS, build_head
from specviz.engine.heads.modules import Gate, HeadLayer, shifted
from specviz.zoo.heads import unroll


@pytest.mark.parametrize("more", [{}, {"norm_before_residual": True, "qk_norm": True}])
def test_unrolled_chains_are_forwards_over_everything(more):
    """Against the plain form: one forward over all entries, the chain's with own features."""
    pair = pair_with("llama", "eagle3", torch.float64)
    head = pair.heads["eagle3"]
    if more:
        head = build_head("eagle3", pair.target, **more).double()
        for name, values in head.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(values.data, 0.5, 2.0)
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        states = pair.target.base_model(tokens, output_hidden_states=True).hidden_states
        features = head.select(states)
        outputs = unroll(head, tokens, features, torch.tensor([[5, 12]]), STEPS)
        entries = shifted(head.fuse(features))[:, :13]
        for step in range(STEPS):
            size = entries.shape[1]
            mask = torch.ones(1, 1, size, size).tril().bool()
            output = head(tokens[:, :size], entries, torch.arange(size)[None], attention_mask=mask)
            torch.testing.assert_close(output.logits[0, -1], outputs[step].logits[0, 1])
            entries = torch.cat([entries, output.hidden], 1)


def test_chains_with_a_hidden_first_entry_are_those_without_one():
    """As EAGLE's own code reads a text: from the second token on, with the first one's feature."""
    pair = hiding_first(pair_with("llama", "eagle3", torch.float64), "eagle3")
    head = pair.heads["eagle3"]
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        states = pair.target.base_model(tokens, output_hidden_states=True).hidden_states
        features = head.select(states)
        outputs = unroll(head, tokens, features, torch.tensor([[0, 5, 12]]), STEPS)
        entries = head.fuse(features)[:, :12]
        for step in range(STEPS):
            size = entries.shape[1]
            # Positions from 0, too: only their differences count.
            output = head(tokens[:, 1 : size + 1], entries, torch.arange(size)[None])
            found = outputs[step].logits[0, 2]
            # Rotations are computed in float32.
            torch.testing.assert_close(output.logits[0, -1], found, atol=1e-5, rtol=1e-5)
            entries = torch.cat([entries, output.hidden], 1)
        # A text of one token has entry 0 alone, which then attends to itself.
        alone = head(tokens[:, :1], torch.zeros_like(entries[:, :1]), torch.zeros(1, 1).long())
        torch.testing.assert_close(alone.logits[0, 0], outputs[0].logits[0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}])
def test_positions_are_turned_as_by_the_rotary_module_of_transformers(dtype, scaling):
    settings = build_head("eagle3", make_pair("llama").target).settings
    config = replace(settings, rope_scaling=scaling).layer_config()
    layer = HeadLayer(config, with_tokens=True).to(dtype)
    attended = torch.zeros(2, 3, 2 * settings.hidden_size, dtype=dtype)
    positions = torch.tensor([[0, 1, 2], [7, 500, 501]])
    found = layer.position_embeddings(attended, positions)
    expected = LlamaRotaryEmbedding(config).to(dtype)(attended, positions)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["cosine", "silu"])
def test_a_token_weighs_the_same_however_long_its_row_of_the_lm_head_is(kind):
    """Rows of frequent tokens are longer where embedding and LM head are one."""
    torch.manual_seed(0)
    settings = build_head("clover", make_pair("llama").target, gate=kind).settings
    gate = Gate(settings).double()
    torch.nn.init.normal_(gate.value.weight)
    states, rows = torch.randn(2, 5, settings.hidden_size, dtype=torch.float64)
    found = gate(states, rows)
    torch.testing.assert_close(gate(states, 10 * rows), found, rtol=1e-4, atol=1e-4)
    assert (gate(states, rows.roll(1, 0)) - found).abs().max() > 0.1, "the token does count"


def test_features_are_the_outputs_of_the_layers_that_are_named():
    """Read by hooks on the layers themselves, not by their places among the hidden states."""
    pair = make_pair("llama")
    head = build_head("eagle3", pair.target, layers=(0, -1))
    seen = []
    layer = pair.target.model.layers[0]
    hooks = [
        layer.register_forward_hook(lambda *args: seen.append(args[-1])),
        pair.target.model.norm.register_forward_hook(lambda *args: seen.append(args[-1])),
    ]
    with torch.inference_mode():
        states = pair.target(torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    outputs = [each[0] if isinstance(each, tuple) else each for each in seen]
    assert torch.equal(head.select(states), torch.cat(outputs, -1))


@pytest.mark.parametrize("count", [1, 2, 3, 14])
def test_heads_fit_targets_of_any_depth(count):
    config = copy.deepcopy(make_pair("llama").target.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = ["full_attention"] * count
    target = LlamaForCausalLM(config)
    head = build_head("eagle3", target)
    expected = {1: (-1,), 2: (0,), 3: (0, 1), 14: (1, 6, 10)}
    assert head.settings.layers == expected[count]
    with torch.inference_mode():
        states = target(torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states
        assert head.fuse(head.select(states)).shape == (1, 3, config.hidden_size)


@pytest.mark.parametrize("kind", KINDS)
def test_building_a_head_leaves_the_random_state(kind):
    target = make_pair("llama").target
    before = torch.get_rng_state()
    first = build_head(kind, target, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = build_head(kind, target, seed=1).state_dict()
    other = build_head(kind, target, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    # Medusa's heads begin at zero, whatever the seed.
    assert all(torch.equal(first[name], other[name]) for name in first) == (kind == "medusa")


def test_a_head_owns_neither_embedding_nor_lm_head():
    head = build_head("eagle3", make_pair("llama").target)
    assert not [name for name in head.state_dict() if "embed" in name or "lm_head" in name]


@pytest.mark.parametrize("sampling", [None, GUMBEL, sv.SamplingParams(1.0)], ids=str)
def test_a_reduced_vocabulary_bounds_what_is_drafted(sampling):
    pair = make_pair("llama")
    head = build_head("eagle3", pair.target, draft_vocabulary_size=10).eval()
    ids = torch.arange(5, 45, 4)
    head.d2t.copy_(ids - torch.arange(10))
    pair = replace(pair, heads={"eagle3": head.requires_grad_(False)})
    result = generate(
        pair,
        make_prompts(),
        drafter="eagle3",
        num_draft_tokens=3,
        max_new_tokens=8,
        sampling=sampling,
        record=True,
    )
    rows = result.trace.rows
    proposed = rows["drafts"][rows["gained"] > 0]
    assert set(proposed[proposed >= 0].tolist()) <= set(ids.tolist())
    assert np.isfinite(rows["draft_logprob"][rows["gained"] > 0]).any()
    assert not sv.check_invariants(result.trace)
    if sampling is None or sampling is GUMBEL:
        assert (
            result.tokens
            == generate(
                pair, make_prompts(), strategy="autoregressive", max_new_tokens=8, sampling=sampling
            ).tokens
        )


def test_runs_that_a_head_cannot_serve_are_refused():
    pair = pair_with("llama", "medusa")
    check_refusal(lambda: sv.decode(pair, [[1]], drafter="eagle3"), "drafter='eagle3' needs a head")
    check_refusal(
        lambda: sv.decode(pair, [[1]], drafter="medusa", num_draft_tokens=6),
        "num_draft_tokens must be at most 5",
    )
    eagle = pair_with("llama", "eagle3")
    check_refusal(
        lambda: sv.decode(
            eagle,
            [[1]],
            drafter="eagle3",
            deterministic=True,
            sampling=sv.SamplingParams(1.0),
        ),
        "deterministic=True fixes the shape of the models' forwards",
        "the rounding of the head would decide which drafts are accepted; pass coupling='gumbel'",
        "or drafter='model'",
    )


def test_heads_that_do_not_fit_the_target_are_refused():
    pair = make_pair("llama")
    head = build_head("eagle3", pair.target)
    other = build_head("eagle3", pair.target, hidden_size=8, num_attention_heads=2)
    check_refusal(
        lambda: replace(pair, heads={"medusa": head}), "heads['medusa'] is a head of kind"
    )
    check_refusal(
        lambda: replace(pair, heads={"eagle3": other}),
        "the head 'eagle3' was made",
        "hidden_size 8",
    )
    check_refusal(lambda: build_head("eagle3", pair.target, layers=(0, 9)), "layers=(0, 9)")
    # transformers returns the last layer's output only after the final norm, which is LAST.
    last = pair.target.config.num_hidden_layers - 1
    expected = f"layers=(0, {last}) names [{last}], but the target has"
    check_refusal(lambda: build_head("eagle3", pair.target, layers=(0, last)), expected)
    check_refusal(lambda: build_head("eagle3", pair.target, layers=()), "layers must be")
    check_refusal(lambda: build_head("medusa", pair.target, heads=0), "heads must be an int >= 1")
    check_refusal(lambda: build_head("hydra", pair.target), "kind='hydra'")
    check_refusal(lambda: build_head("clover", pair.target, gate="relu"), "gate='relu'")
    check_refusal(lambda: replace(pair, heads={"eagle3": pair.draft}), "heads['eagle3'] must be")
