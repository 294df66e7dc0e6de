"""Layers with convolutions or recurrences: texts in ragged batches, and what is refused."""

import copy
import dataclasses
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import tiny_models
import torch
from conftest import NEW_TOKENS, check_refusal, generate, generate_alone, make_prompts
from families import perturbed
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine import probe
from specviz.engine.heads import build_head
from specviz.engine.kv import cache as cache_file
from specviz.engine.kv.states import StateLayer, find_mixers, without_limits

CHANGES: dict[str, dict[str, Any]] = {
    "bamba": {"time_step_limit": (0.6, 0.7)},
}
FAMILIES = ("lfm2", "qwen3_next", "jamba")
STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
# Prompts of one and two tokens enter rows that others have left.
PROMPTS = [make_prompts()[3], [5], [7, 8], make_prompts()[2], [9], make_prompts()[4]]
GUMBEL = sv.SamplingParams(0.8, coupling="gumbel")
REJECTION = sv.SamplingParams(0.8, coupling="rejection")
TREE = sv.drafter("tree", children=2, depth=3)


@cache
def target_of(name: str) -> PreTrainedModel:
    changes = CHANGES.get(name, {}) | {"tie_word_embeddings": False}
    config = tiny_models.make_config(tiny_models.families()[name], **changes)
    return tiny_models.build(name, config, "sdpa")


@cache
def pair_of(name: str) -> sv.Pair:
    return sv.Pair(target_of(name), perturbed(target_of(name)))


@cache
def texts_of(name: str) -> list[list[int]]:
    return generate_alone(target_of(name), PROMPTS, NEW_TOKENS)


def run(pair: sv.Pair, **options: Any) -> sv.Result:
    options = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS} | options
    return generate(pair, PROMPTS, **options)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_batches_write_what_the_target_writes_alone(name: str, strategy: str) -> None:
    pair = pair_of(name)
    result = run(pair, strategy=strategy, record=True)
    assert result.tokens == texts_of(name)
    found = sv.check_invariants(result.trace, deep=True, pair=pair)
    assert not found
    assert found.unchecked[0].startswith("states (target): from which states its convolutions")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("state", ["states", "inputs"])
@pytest.mark.parametrize("name", ["qwen3_next", "kimi_linear", "nemotron_h", "jamba"])
def test_rules_are_carried_out_token_by_token(
    name: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = []
    scan = StateLayer.scan

    def noted(layer: StateLayer, *args: Any) -> Any:
        layers.append(layer)
        return scan(layer, *args)

    monkeypatch.setattr(StateLayer, "scan", noted)
    for strategy in "exspec", "rollback":
        result = run(pair_of(name), strategy=strategy, levers=sv.Levers(state=state))
        assert result.tokens == texts_of(name)
    # A draft model reads two tokens in a forward, and keeps states.
    assert {layer.keeps_inputs for layer in layers} == {False, state == "inputs"}


def test_inputs_are_kept_where_states_would_take_more_bytes() -> None:
    rows = torch.arange(3)
    for most, expected in (3 * 5 * 4 * 8, False), (3 * 5 * 4 * 8 - 1, True):
        layer = StateLayer(rows=3, depth=5)
        layer.at_once, layer.most_bytes = True, most
        layer.recurrent_states[0] = torch.ones(3, 2, 4)
        layer.keep(rows, rows)
        assert layer.keeps_inputs is expected


@pytest.mark.sweep(2)
@pytest.mark.parametrize("strategy", ["exspec", "masking"])
@pytest.mark.parametrize("name", ["deepseek_v32", "minimax", "zaya"])
def test_caches_of_other_kinds(name: str, strategy: str) -> None:
    # An indexer's keys lie beside K/V; MiniMax asks for a cache class; ZAYA's mixer returns three.
    assert run(pair_of(name), strategy=strategy).tokens == texts_of(name)


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 12, "strategy": "exspec"},
        {"drafter": "lookup"},
        {"drafter": sv.drafter("model", keep_cache=False), "strategy": "exspec"},
        {"levers": sv.Levers(prefill_tokens=4, slab_block=16)},
        {"selector": "tetris"},
        {"num_draft_tokens": "auto"},
        {"strategy": "autoregressive"},
    ],
    ids=str,
)
def test_options_keep_the_text(options: dict[str, Any]) -> None:
    # A Mamba-1 layer forgets its state where it reads several tokens on from it.
    assert run(pair_of("jamba"), **options).tokens == texts_of("jamba")


@pytest.mark.parametrize("strategy", ["inplace", "exspec", "masking"])
@pytest.mark.parametrize("name", ["qwen3_next", "jamba"])
def test_a_draft_with_states_drafts_as_from_nothing(name: str, strategy: str) -> None:
    # A draft model that is the target has every draft accepted, unless its states are off.
    target = target_of(name)
    result = run(sv.Pair(target, target), strategy=strategy, record=True)
    assert result.tokens == texts_of(name)
    rows = result.trace.rows
    open_rows = (rows["gained"] > 0) & ~rows["finished"]
    assert open_rows.any()
    assert (rows["accepted"][open_rows] == 3).all()


def test_heads_read_a_target_with_states() -> None:
    head = build_head("eagle3", target_of("jamba"), seed=1).float().eval().requires_grad_(False)
    pair = dataclasses.replace(pair_of("jamba"), heads={"eagle3": head})
    result = run(pair, drafter="eagle3", strategy="exspec", record=True)
    assert result.tokens == texts_of("jamba")
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


def test_pairs_of_mixed_kinds() -> None:
    full = tiny_models.build(
        "llama", tiny_models.make_config(tiny_models.families()["llama"]), "sdpa"
    )
    states = target_of("qwen3_next")
    assert run(sv.Pair(states, full)).tokens == texts_of("qwen3_next")
    pair = sv.Pair(full, states)
    assert run(pair, strategy="exspec").tokens == generate_alone(full, PROMPTS, NEW_TOKENS)
    talk = sv.chat(pair, max_new_tokens=4)
    for tokens in PROMPTS[3], PROMPTS[1]:
        talk.say({"ann": tokens})
    history = talk.tokens("ann")
    (expected,) = generate_alone(full, [history[:-4]], 4)
    assert history[-4:] == expected


def test_sampled_texts_are_those_of_the_target() -> None:
    pair = pair_of("qwen3_next")
    alone = run(pair, strategy="autoregressive", batch_size=1, sampling=GUMBEL)
    assert run(pair, strategy="exspec", sampling=GUMBEL).tokens == alone.tokens
    result = run(pair, sampling=REJECTION, record=True)
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


def test_prompts_are_read_by_the_rule_of_single_tokens() -> None:
    # transformers clamps time steps in prompts only, so its texts depend on where a prompt ends.
    target = target_of("bamba")
    found = run(pair_of("bamba")).tokens
    assert found != texts_of("bamba")
    assert target.model.layers[0].mamba.time_step_limit == (0.6, 0.7)
    with without_limits(find_mixers(target)):
        assert found == generate_alone(target, PROMPTS, NEW_TOKENS)


def test_the_trial_sees_a_state_that_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    target = copy.deepcopy(target_of("qwen3_next"))
    monkeypatch.setattr(probe, "_passed", [])
    monkeypatch.setattr(cache_file, "stepping", lambda mixers, cache: nullcontext())
    check_refusal(lambda: probe.check_exact("target", target), "target=Qwen3NextForCausalLM cannot")


def test_a_state_that_is_gone_is_not_read() -> None:
    layer = StateLayer(rows=2, depth=4)
    layer.asked.add(("recurrent_states", 0))
    rows = torch.tensor([0, 1])
    for index in range(6):
        layer.recurrent_states[0] = torch.tensor([[index], [-index]])
        layer.keep(rows, torch.full((2,), index))
    layer.select(rows, torch.tensor([3, -1]))
    assert layer.recurrent_states[0].tolist() == [[3], [0]]
    layer.move(rows, rows.flip(0))
    layer.select(rows, torch.tensor([5, 2]))
    assert layer.recurrent_states[0].tolist() == [[-5], [2]]
    with pytest.raises(RuntimeError, match=r"no state after tokens \[1, 2\]"):
        layer.select(rows, torch.tensor([1, 2]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drafter": TREE}, "drafter='tree' proposes trees"),
        ({"deterministic": True}, "deterministic=True fills rows up"),
        ({"compile": True}, "compile=True compiles forwards"),
        ({"lanes": 2, "batch_size": 4}, "lanes=2 runs a model in two threads"),
        ({"levers": sv.Levers(draft_window=64)}, "draft_window lets the draft read"),
        ({"memory_budget": "1GB"}, "model_type"),
        ({"graphs": True}, "graphs=True, but "),
    ],
    ids=str,
)
def test_what_states_do_not_allow_is_refused(options: dict[str, Any], reason: str) -> None:
    check_refusal(lambda: run(pair_of("lfm2"), **options), "", reason)


def test_an_indexer_stays_in_its_lane() -> None:
    pair = pair_of("deepseek_v32")
    check_refusal(lambda: run(pair, lanes=2, batch_size=4), "lanes=2 hands K/V from lane to lane")


def test_a_chat_keeps_no_states() -> None:
    for name in "lfm2", "deepseek_v32":
        with pytest.raises(ValueError, match="pass keep='none'"):
            sv.chat(pair_of(name)).say({"ann": [3, 4]})
    talk = sv.chat(pair_of("lfm2"), keep="none", max_new_tokens=4)
    for tokens in PROMPTS[3], [3]:
        talk.say({"ann": tokens})
    history = talk.tokens("ann")
    (expected,) = generate_alone(target_of("lfm2"), [history[:-4]], 4)
    assert history[-4:] == expected


def test_forwards_that_others_have_put_onto_mixers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As accelerate does for models that are spread over devices."""
    pair = pair_of("lfm2")
    calls = []
    for mixer in find_mixers(pair.target):
        own = mixer.forward
        monkeypatch.setattr(
            mixer, "forward", lambda *args, own=own, **named: calls.append(1) or own(*args, **named)
        )
        assert "forward" in vars(mixer)
    result = generate(pair, make_prompts()[:3], max_new_tokens=4)
    assert calls
    assert all("forward" in vars(mixer) for mixer in find_mixers(pair.target))
    assert result.tokens == generate_alone(pair.target, make_prompts()[:3], 4)
