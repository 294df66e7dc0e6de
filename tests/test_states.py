"""Layers with convolutions or recurrences: texts in ragged batches, and what is refused."""

import copy
import dataclasses
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import gpu_states
import numpy as np
import pandas as pd
import pytest
import states
import tiny_models
import torch
from conftest import NEW_TOKENS, check_refusal, generate, generate_alone, make_pair, make_prompts
from families import perturbed
from mutated_runs import record
from mutations import VERIFY, edited
from test_interrupt import Interrupting, check_partial
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.heads import build_head
from specviz.engine.kv import cache as cache_file
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.states import StateLayer, find_mixers, without_limits
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.engine.store import KVStore
from specviz.engine.trial import check_exact
from specviz.generation.assemble import make_result
from specviz.generation.collect import collect

CHANGES: dict[str, dict[str, Any]] = {
    "inkling_text": {"log_scaling_n_floor": 4},  # scales queries by the number of their place
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
def texts_of(name: str, count: int = NEW_TOKENS) -> list[list[int]]:
    # RecurrentGemma's modules keep the states of the text before, where a prompt has one token.
    alone = [generate_alone(copy.deepcopy(target_of(name)), [each], count) for each in PROMPTS]
    return [text for (text,) in alone]


def run(pair: sv.Pair, **options: Any) -> sv.Result:
    options = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS} | options
    return generate(pair, PROMPTS, **options)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_batches_write_what_the_target_writes_alone(name: str, strategy: str) -> None:
    pair = pair_of(name)
    result = run(pair, strategy=strategy, record=True)
    assert result.tokens == texts_of(name)
    found = sv.check_invariants(result.trace, deep=True, pair=pair)
    assert not found
    assert not found.unchecked


@pytest.mark.sweep(6)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_states_of_rejected_drafts_are_found_where_they_are_first_read(
    name: str, strategy: str
) -> None:
    faulty = sv.strategy(strategy, break_invariant="state", rows=[1], from_round=2)
    result = run(pair_of(name), strategy=faulty, record=True)
    assert result.tokens != texts_of(name)
    found = sv.check_invariants(result.trace)
    assert {(each.rule, each.row) for each in found} == {("state", 1)}
    # The first round in which row 1 has a request that kept fewer tokens than it had read.
    rows = pd.DataFrame({k: v for k, v in result.trace.rows.items() if v.ndim == 1})
    rows["kept_all"] = rows["gained"] > rows["drafted"]
    rows["went_back"] = rows.groupby("request")["kept_all"].shift(fill_value=True) == 0
    due = rows[rows["went_back"] & (rows["row"] == 1) & (rows["round"] >= 2)].iloc[0]
    first = found[0]
    assert (first.round, first.request) == (due["round"], due["request"])
    assert (first.phase, first.model) == ("draft", "draft")
    again = sv.check_invariants(result.trace, deep=True, pair=pair_of(name))
    assert {each.rule for each in again} <= {"state", "kv"}


def test_states_after_the_same_index_of_another_text_are_found() -> None:
    """Of another request, and of a rejected draft, whose place a committed token has taken."""
    trace = record("states")
    states, feeds = trace.states, pd.DataFrame(trace.feeds)
    feeds["text"] = [
        [*trace.prompt(request), *trace.output(request)][index : index + 1] == [token]
        for request, index, token in feeds[["request", "index", "token"]].itertuples(index=False)
    ]
    found = set()
    for entry in np.flatnonzero((states["phase"] == VERIFY) & (states["feed"] >= 0)).tolist():
        own = feeds.loc[states["feed"][entry]]
        alike = feeds[(feeds["model"] == own["model"]) & (feeds["index"] == own["index"])]
        rejected = alike[(alike["request"] == own["request"]) & ~alike["text"]]
        others = alike[alike["request"] != own["request"]]
        for words, wrong in (("have read other tokens", rejected), ("of request", others)):
            for feed in wrong.index[:1]:
                first = sv.check_invariants(edited(trace, "states", entry, feed=feed))[0]
                assert (first.rule, first.row) == ("state", states["row"][entry])
                assert words in first.found
                found.add(words)
    assert len(found) == 2


@pytest.mark.parametrize("fault", ["state", "window"])
def test_a_fault_of_states_or_windows_needs_a_model_that_has_them(fault: str) -> None:
    faulty = sv.strategy("eqspec", break_invariant=fault)
    check_refusal(
        lambda: generate(make_pair("llama"), PROMPTS, strategy=faulty),
        f"break_invariant='{fault}' needs a model",
        "load_pair('hybrid')",
    )


@pytest.mark.sweep(4)
@pytest.mark.parametrize("state", ["states", "inputs"])
@pytest.mark.parametrize("name", ["qwen3_next", "bailing_hybrid", "nemotron_h", "jamba"])
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


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": sv.strategy("autoregressive", refill=False)},
        {"strategy": sv.strategy("eqspec", refill=False), "num_draft_tokens": "auto"},
        {"drafter": sv.drafter("synthetic", rates=[0.9, 0.8, 0.7])},
    ],
    ids=["static", "static, auto", "synthetic"],
)
def test_tokens_that_are_read_again_one_by_one(options: dict[str, Any]) -> None:
    """Those of finished rows, and those that a synthetic drafter lets the target read ahead."""
    budgets = [3, NEW_TOKENS, 6, 9, 1, 12]
    options |= {"max_new_tokens": budgets, "levers": sv.Levers(state="inputs")}
    found = run(pair_of("jamba"), **options).tokens
    assert found == [text[:most] for text, most in zip(texts_of("jamba"), budgets, strict=True)]


def test_outputs_that_are_not_of_tokens() -> None:
    """MiniMax's mixer returns a state, too. Rows of a prefill are read in unlike many pieces."""
    prompts = [[7, 8], [1, 2, 3], [4, 5, 6, 7]]
    found = generate(pair_of("minimax"), prompts, max_new_tokens=6).tokens
    assert found == generate_alone(target_of("minimax"), prompts, 6)


def test_inputs_are_kept_where_states_would_take_more_bytes() -> None:
    rows = torch.arange(3)
    for most, expected in (3 * 5 * 4 * 8, False), (3 * 5 * 4 * 8 - 1, True):
        layer = StateLayer(rows=3, depth=5)
        layer.at_once, layer.most_bytes = True, most
        layer.recurrent_states[0] = torch.ones(3, 2, 4)
        layer.keep(rows, rows)
        assert layer.keeps_inputs is expected
    target = target_of("qwen3_next")
    layers = CachedModel(target, 3, 8, state="auto").cache.state_layers
    weights = sum(parameter.nbytes for parameter in target.parameters())
    assert sum(layer.most_bytes for layer in layers) == pytest.approx(weights)


@pytest.mark.slow
def test_the_script_for_gpus_runs_tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_states", "--out", str(tmp_path), "--tiny"])
    gpu_states.main()
    assert pd.read_csv(tmp_path / "texts.csv")["equal"].all()
    assert set(pd.read_csv(tmp_path / "times.csv")["shape"]) == set(gpu_states.SHAPES)


@pytest.mark.slow
@torch.inference_mode()
def test_inputs_take_fewer_bytes_than_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "TURNS", 2)
    target = target_of("qwen3_next")
    ways = [line["way"] for line in states.times_of(target)]
    assert ways == states.RECURRENCE
    found = [states.bytes_of("jamba", way)["state_bytes"] for way in ways]
    assert found[0] == found[1] > 3 * found[2]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", ["exspec", "masking"])
@pytest.mark.parametrize("name", ["deepseek_v32", "minimax", "zaya"])
def test_caches_of_other_kinds(name: str, strategy: str) -> None:
    # An indexer's keys lie beside K/V; MiniMax asks for a cache class; ZAYA's mixer returns three.
    assert run(pair_of(name), strategy=strategy).tokens == texts_of(name)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("strategy", ["masking", "exspec"])
@pytest.mark.parametrize("name", ["inkling_text", "qwen4_exp_text", "recurrent_gemma"])
def test_layers_that_ask_for_places_or_keep_states_themselves(name: str, strategy: str) -> None:
    # Inkling has four convolutions a layer and asks where its queries lie, Qwen4's indexer asks for
    # the positions of all keys, and RecurrentGemma's modules keep their states themselves.
    assert run(pair_of(name), strategy=strategy).tokens == texts_of(name)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 12, "strategy": "exspec"},
        {"drafter": "lookup"},
        {"levers": sv.Levers(prefill_tokens=4)},
        {"levers": sv.Levers(keep_draft=False), "strategy": "exspec"},
        {"selector": "tetris"},
        {"num_draft_tokens": "auto"},
        {"strategy": "autoregressive"},
        {"memory_budget": "7MB"},
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
    monkeypatch.setattr(cache_file, "stepping", lambda mixers, cache: nullcontext())
    check_refusal(lambda: check_exact("target", target), "target=Qwen3NextForCausalLM cannot")


def test_a_state_that_is_gone_is_not_read() -> None:
    layer = StateLayer(rows=2, depth=4)
    layer.asked.add(("recurrent_states", 0))
    rows = torch.tensor([0, 1])
    for index in range(6):
        layer.recurrent_states[0] = torch.tensor([[1.0 * index], [-1.0 * index]])
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
        ({"graphs": True}, "graphs=True, but "),
    ],
    ids=str,
)
def test_what_states_do_not_allow_is_refused(options: dict[str, Any], reason: str) -> None:
    check_refusal(lambda: run(pair_of("lfm2"), **options), "", reason)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["deepseek_v32", "gemma3_text"])
def test_two_lanes_write_the_text_of_one(name: str) -> None:
    budgets = [1, 30, 1, 30]
    options = {"lanes": 2, "batch_size": 4, "num_draft_tokens": 3, "max_new_tokens": budgets}
    result = generate(pair_of(name), PROMPTS[:4], **options)
    alone = [text[:most] for text, most in zip(texts_of(name, 30), budgets, strict=False)]
    assert result.tokens == alone


SAID = [{"ann": PROMPTS[3], "ben": [5]}, {"ben": [7]}, {"ann": [8], "ben": [4, 9, 11], "eve": [6]}]
SAID += [{"ann": PROMPTS[0], "ben": [6], "eve": [3]}]


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    "options",
    [{}, {"strategy": "exspec"}, {"drafter": "lookup"}, {"levers": sv.Levers(state="inputs")}],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["qwen3_next", "lfm2", "jamba", "deepseek_v32", "minimax", "inkling_text"]
)
def test_a_chat_goes_on_from_what_it_keeps(name: str, options: dict[str, Any]) -> None:
    """Its turns are those of nothing kept, and of `generate` over the whole conversations."""
    pair = pair_of(name)
    options = {"batch_size": 2, "num_draft_tokens": 3, "max_new_tokens": 6} | options
    talks = [sv.chat(pair, keep=keep, **options) for keep in ("all", "none")]
    texts: dict[str, list[int]] = {}
    for said in SAID:
        prompts = [texts.get(who, []) + said[who] for who in said]
        for talk in talks:
            talk.say(said)
            assert talk.result.tokens == generate_alone(pair.target, prompts, 6)
        texts |= {who: talks[0].tokens(who) for who in said}
    turns = talks[0].turns
    assert (turns["restored_tokens"][1:] > 0).all()
    # One message, and the reply's last token that had not been read.
    assert turns["read_tokens"][1] <= 2


@pytest.mark.parametrize("name", ["qwen3_next", "jamba"])
def test_a_draft_goes_on_from_its_own_states(name: str) -> None:
    """A draft model that is the target has every draft accepted, unless its states are off."""
    target = target_of(name)
    talk = sv.chat(sv.Pair(target, target), num_draft_tokens=3, max_new_tokens=8)
    for said in PROMPTS[3], [3], [4, 9, 11]:
        talk.say({"ann": said})
        rows = talk.result.rows
        open_rows = (rows["gained"] > 0) & ~rows["finished"]
        assert (rows["accepted"][open_rows] == 3).all()


@pytest.mark.parametrize("state", ["states", "inputs"])
def test_a_draft_goes_on_behind_an_end_and_one_token(state: str) -> None:
    """Then it reads the last token but one again, and needs the state before that.

    The target reads nothing before it verifies drafts.
    """
    target = copy.deepcopy(target_of("qwen3_next"))
    (text,) = texts_of("qwen3_next")[:1]
    target.generation_config.eos_token_id = next(t for t in text[3:] if t not in text[:3])
    options = {"num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    talk = sv.chat(sv.Pair(target, target), levers=sv.Levers(state=state), **options)
    talk.say({"ann": PROMPTS[0]})
    assert talk.result.status == ["eos"]
    history = talk.tokens("ann")
    talk.say({"ann": [3]})
    assert talk.turns["read_tokens"][1] == 0
    assert [talk.result.tokens[0]] == generate_alone(target, [[*history, 3]], NEW_TOKENS)


def test_a_snapshot_serves_no_shorter_text() -> None:
    """No state can be cut, so a text that goes on otherwise is read from its beginning."""
    pair = pair_of("qwen3_next")
    store = KVStore()
    for prompt in PROMPTS[3], [*PROMPTS[3], 11, 12]:
        run = make_run(pair, [prompt], Options(num_draft_tokens=3, max_new_tokens=6))
        store.begin(["ann"])
        run.state.store = store
        collected = collect(run, record=False, partial=False, progress=False)
        result = make_result(run, collected)
        assert result.tokens == generate_alone(pair.target, [prompt], 6)
    assert store.restored_tokens == 0
    assert len(store) == 1


def test_a_prompt_alone_leaves_no_state() -> None:
    talk = sv.chat(pair_of("lfm2"), keep="prompt")
    with pytest.raises(ValueError, match="keep='prompt' would need the state at the prompt's end"):
        talk.say({"ann": [3, 4]})


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


@pytest.mark.sweep(4)
@pytest.mark.parametrize("owner", [StateLayer, CachedModel], ids=["in a mixer", "before a forward"])
@pytest.mark.parametrize("name", ["qwen3_next", "bamba"])
def test_an_interrupted_run_keeps_what_it_has(
    name: str, owner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves the modules as they were, so that the next run is right."""
    pair = pair_of(name)
    options = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    whole = generate(pair, PROMPTS, **options)
    called = "keep" if owner is StateLayer else "forward"
    left = []
    for number in (2, 40 if owner is StateLayer else 9):
        with monkeypatch.context() as patch:
            Interrupting(number).before(patch, owner, called)
            result = generate(pair, PROMPTS, on_interrupt="partial", **options)
        check_partial(result, whole)
        left.append(result.status.count("interrupted"))
        for model in (pair.target, pair.draft):
            for mixer in find_mixers(model):
                assert "forward" not in vars(mixer)
                assert getattr(mixer, "time_step_limit", (0.6, 0.7)) == (0.6, 0.7)
        assert generate(pair, PROMPTS, **options).tokens == whole.tokens
    assert left[0] == len(PROMPTS) >= left[1] > 0


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec"])
@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "jamba"])
def test_a_state_that_is_not_finite_stays_with_its_text(name: str, strategy: str) -> None:
    """Neither the rows beside it nor those that take its place read it."""
    taken = {token for text in [*PROMPTS, *texts_of(name)] for token in text}
    poison = next(token for token in range(30, 97) if token not in taken)
    pair = copy.deepcopy(pair_of(name))
    with torch.no_grad():
        pair.target.get_input_embeddings().weight[poison, 3] = torch.nan
    # So long that every state of the row is spoiled when a prompt of one token enters it.
    prompts = [[poison], [3, poison, *range(6, 12)], *PROMPTS]
    options = {"batch_size": 2, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    result = generate(pair, prompts, strategy=strategy, **options)
    assert result.status[:2] == ["not_finite"] * 2
    going_on = 0
    for ours, status, text in zip(
        result.tokens[2:], result.status[2:], texts_of(name), strict=True
    ):
        # A draft that proposes the token may end its own row.
        assert ours == text[: len(ours)]
        assert status == "not_finite" or len(ours) == len(text)
        going_on += status != "not_finite"
    assert going_on >= 4
