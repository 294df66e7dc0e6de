"""Pairs: which models are refused or accepted, how they are loaded, and the embedded pair."""

import copy
import re
import socket
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from conftest import VOCABULARY, check_refusal, generate, generate_alone, make_pair, make_prompts
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import specviz as sv

NEW_TOKENS = 12
IDS = {
    "vocab_size": VOCABULARY,
    "eos_token_id": 5,
    "bos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
SIZES = IDS | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SMALL = IDS | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
HEADS = {"head_dim": 8}


def rope(name: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": name, "rope_theta": 10000.0, **parameters}}


def llama(**more: Any) -> PreTrainedModel:
    return made(hf.LlamaForCausalLM, SIZES | more)


def made(kind: Any, sizes: dict[str, Any], name: str = "") -> PreTrainedModel:
    model = kind(kind.config_class(**sizes))
    for entry, value in LATER.get(name, {}).items():
        setattr(model.config, entry, value)
    return model


LONG = rope(
    "longrope", short_factor=[1.0] * 4, long_factor=[2.0] * 4, original_max_position_embeddings=128
)
SLIDING = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}
# What a configuration holds that its class would not take.
LATER = {
    "flash attention": {"_attn_implementation": "flash_attention_2"},
    "qwen2 with its window off": {"sliding_window": 16},  # some keep the width of an unused window
}
T5 = IDS | {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
DECODER_ONLY = "must be a decoder-only causal LM"
LARGEST = "which scales by the largest position"
COMPRESSED = {"layer_types": ["full_attention", "compressed_sparse_attention"]}
REFUSED = {
    "layers of another type": (
        hf.Qwen3ForCausalLM,
        SIZES | COMPRESSED | {"num_hidden_layers": 2},
        "layers of type compressed_sparse_attention",
    ),
    "longrope": (hf.Phi3ForCausalLM, SIZES | LONG, f"rope_type='longrope', {LARGEST}"),
    "dynamic rope": (
        hf.LlamaForCausalLM,
        SIZES | rope("dynamic", factor=2.0),
        f"rope_type='dynamic', {LARGEST}",
    ),
    "no positions": (hf.BloomForCausalLM, SMALL, "takes no position_ids"),
    "no positions behind the argument": (
        hf.FalconForCausalLM,
        SMALL | {"alibi": True},
        "alibi=True",
    ),
    "encoder and decoder": (hf.T5ForConditionalGeneration, T5, DECODER_ONLY),
    "both directions": (hf.BertLMHeadModel, SMALL | {"intermediate_size": 64}, DECODER_ONLY),
    "no language-model head": (hf.LlamaModel, SIZES, DECODER_ONLY),
    "a classifier": (hf.LlamaForSequenceClassification, SIZES, DECODER_ONLY),
    "flash attention": (hf.LlamaForCausalLM, SIZES, "attn_implementation='flash_attention_2'"),
}
SCALED = {"factor": 2.0, "original_max_position_embeddings": 128}
UNUSED = SLIDING | {"use_sliding_window": False}
LLAMA3 = rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **SCALED)
ACCEPTED = {
    "sliding window everywhere": (hf.MistralForCausalLM, SIZES | {"sliding_window": 16}),
    "sliding window in upper layers": (hf.Qwen2ForCausalLM, SIZES | SLIDING),
    "convolutions": (
        hf.Lfm2ForCausalLM,
        SIZES | {"layer_types": ["conv", "full_attention"]},
    ),
    "mistral without a window": (hf.MistralForCausalLM, SIZES | {"sliding_window": None}),
    "qwen2 with its window off": (hf.Qwen2ForCausalLM, SIZES | UNUSED),
    "qwen3 with its window off": (hf.Qwen3ForCausalLM, SIZES | HEADS | UNUSED),
    "linear rope": (hf.LlamaForCausalLM, SIZES | rope("linear", factor=2.0)),
    "yarn": (hf.LlamaForCausalLM, SIZES | rope("yarn", **SCALED)),
    "llama3 rope": (hf.LlamaForCausalLM, SIZES | LLAMA3),
    "phi3 without longrope": (hf.Phi3ForCausalLM, SIZES),
    "gpt2": (hf.GPT2LMHeadModel, SMALL | {"n_positions": 64}),
    "gpt-neox": (hf.GPTNeoXForCausalLM, SMALL | {"intermediate_size": 64}),
}


def generate_as_pair(
    pair: sv.Pair, prompts: list[list[int]], strategy: str = "eqspec"
) -> sv.Result:
    run = {"num_draft_tokens": 3, "batch_size": 4, "max_new_tokens": NEW_TOKENS}
    return generate(pair, prompts, strategy=strategy, **run)


def check_text(pair: sv.Pair, target: PreTrainedModel, strategies: tuple[str, ...]):
    """The pair writes what transformers writes with the target."""
    for strategy in strategies:
        result = generate_as_pair(pair, make_prompts(), strategy)
        assert result.tokens == generate_alone(target, make_prompts(), NEW_TOKENS)


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_decoded_here(name):
    kind, sizes, reason = REFUSED[name]
    model, good = made(kind, sizes, name), make_pair("llama").target
    check_refusal(lambda: sv.Pair(model, good), f"target={type(model).__name__} ", reason)
    check_refusal(lambda: sv.Pair(good, model), f"draft={type(model).__name__} ", reason)


@pytest.mark.parametrize("name", ACCEPTED)
def test_models_that_only_look_like_those(name):
    """They are taken, and decode to what `generate()` says."""
    torch.manual_seed(0)
    model = made(*ACCEPTED[name], name).eval()
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6], [7], [11, 12, 13] * 5]
    result = generate_as_pair(sv.Pair(model, model), prompts)
    assert result.tokens == generate_alone(model, prompts, NEW_TOKENS)


def test_what_is_no_model():
    for wrong in ("gpt2", None, torch.nn.Linear(2, 2)):
        check_refusal(
            lambda wrong=wrong: sv.Pair(wrong, wrong),
            f"target={type(wrong).__name__} must be a transformers model",
            error=TypeError,
        )


WORDS = [f"w{i}" for i in range(20)]


def make_tokenizer(words: list[str], added: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def test_a_tokenizer_may_be_smaller_than_the_models_but_not_larger():
    model = llama()
    assert len(sv.Pair(model, model, make_tokenizer([f"w{i}" for i in range(90)])).tokenizer) == 90
    larger = make_tokenizer([f"w{i}" for i in range(VOCABULARY + 2)])
    check_refusal(
        lambda: sv.Pair(model, model, larger),
        "tokenizer has 99 tokens and the models only 97",
        "ids 97..98 have no embedding",
    )


def test_a_draft_on_another_device_is_refused():
    model = llama()
    check_refusal(
        lambda: sv.Pair(model, copy.deepcopy(model).to("meta")),
        "draft is on meta, target on cpu",
        "draft.to('cpu')",
    )


def pad(model: PreTrainedModel, more: int) -> PreTrainedModel:
    """A copy with `more` rows of padding in its embeddings."""
    padded = copy.deepcopy(model)
    padded.resize_token_embeddings(VOCABULARY + more, mean_resizing=False)
    with torch.no_grad():
        padded.get_input_embeddings().weight[VOCABULARY:] = 0
        padded.get_output_embeddings().weight[VOCABULARY:] = 0
    return padded


@pytest.mark.sweep(2)
@pytest.mark.parametrize("strategy", ["eqspec", "inplace"])
def test_a_drafts_padding_is_never_proposed(strategy, prompts):
    """Use a draft that equals the target, except that it prefers its padding to any other token.

    All tokens that it may propose are accepted.
    """
    target = make_pair("llama").target
    draft = pad(target, 7)
    with torch.no_grad():
        draft.lm_head.weight[VOCABULARY:] = 3 * draft.lm_head.weight[:7]
    alone = generate_alone(draft, prompts, NEW_TOKENS)
    assert any(token >= VOCABULARY for row in alone for token in row)
    pair = sv.Pair(target, draft, make_tokenizer(WORDS))
    assert pair.vocabulary_size == VOCABULARY
    assert pair.notes == (
        "The embeddings are padded to different sizes, target 97 and draft 104: "
        f"ids from {VOCABULARY} are cut.",
    )
    result = generate_as_pair(pair, prompts, strategy)
    assert result.tokens == generate_alone(target, prompts, NEW_TOKENS)
    assert result.summary["draft_acceptance_rate"].item() == 1
    assert result.meta["vocabulary_size"] == VOCABULARY


def test_a_targets_padding_changes_nothing(prompts):
    plain = make_pair("llama")
    target = pad(plain.target, 5)
    expected = generate_alone(target, prompts, NEW_TOKENS)
    assert max(token for row in expected for token in row) < VOCABULARY
    pair = sv.Pair(target, plain.draft, make_tokenizer(WORDS))
    assert pair.vocabulary_size == VOCABULARY
    assert generate_as_pair(pair, prompts).tokens == expected
    events = sv.decode(pair, prompts, max_new_tokens=NEW_TOKENS)
    assert {event.logits.shape[-1] for event in events if event.phase == "verify"} == {VOCABULARY}


@pytest.mark.parametrize(
    ("tokens", "evidence"), [(0, "there is no tokenizer"), (99, "the tokenizer has ids up to 98")]
)
def test_ids_that_only_one_model_has_are_named(tokens, evidence):
    small, large = llama(), llama(vocab_size=104)
    tokenizer = make_tokenizer([f"w{i}" for i in range(tokens)]) if tokens else None
    for target, draft, sizes in ((small, large, (104, 97)), (large, small, (97, 104))):
        check_refusal(
            lambda target=target, draft=draft: sv.Pair(target, draft, tokenizer),
            f"draft has a vocabulary of {sizes[0]} tokens and target of {sizes[1]}",
            "ids 97..103 exist in one",
            evidence,
        )


def save(
    folder: Path,
    words: list[str] = WORDS,
    dtype: torch.dtype = torch.float32,
    added: Sequence[str] = (),
    **more: Any,
) -> Path:
    """A tiny Llama and its tokenizer in `folder`."""
    torch.manual_seed(0)
    llama(**more).to(dtype).save_pretrained(folder)
    make_tokenizer(words, added).save_pretrained(folder)
    return folder


def test_a_pair_from_two_folders(tmp_path):
    target = save(tmp_path / "target", dtype=torch.float16)
    draft = save(tmp_path / "draft", num_hidden_layers=1)
    pair = sv.load_pair(target, str(draft), device="cpu", dtype="float64")
    assert [model.config.num_hidden_layers for model in (pair.target, pair.draft)] == [2, 1]
    assert {model.dtype for model in (pair.target, pair.draft)} == {torch.float64}
    assert not pair.target.training
    assert not pair.draft.training
    assert pair.device == torch.device("cpu")
    assert (pair.vocabulary_size, pair.max_positions, pair.eos_token_ids) == (VOCABULARY, 256, [5])
    prompt = "w3 w1 w4 w1"
    result = generate(pair, [prompt], max_new_tokens=4)
    plain = sv.Pair(pair.target, pair.target)
    expected = generate(plain, [pair.tokenizer(prompt)["input_ids"]], max_new_tokens=4)
    assert result.tokens == expected.tokens
    as_saved = sv.load_pair(target, draft, device="cpu")
    assert as_saved.target.dtype == torch.float16


def test_folders_whose_tokenizers_differ(tmp_path):
    swapped = [*WORDS[:7], "w9", "w8", "w7", *WORDS[10:]]
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft", swapped)
    check_refusal(
        lambda: sv.load_pair(target, draft),
        "draft's tokenizer differs from the target's in 2 ids",
        "7 ('w7' for the target, 'w9' for the draft), 9 (",
    )
    longer = save(tmp_path / "longer", [*WORDS, "more"])
    check_refusal(
        lambda: sv.load_pair(target, longer),
        "draft's tokenizer differs from the target's in 1 ids",
        "20 (None for the target, 'more' for the draft)",
    )


def test_control_tokens_of_one_tokenizer_alone_are_no_difference(tmp_path):
    """GLM-4.5's tokenizer is GLM-4's and some more; what both name must still agree."""
    old = save(tmp_path / "old", added=["<user>"])
    new = save(tmp_path / "new", added=["<user>", "<think>"])
    for target, draft in ((old, new), (new, old)):
        assert sv.load_pair(target, draft, device="cpu").notes == ()
    other = save(tmp_path / "other", added=["<think>"])
    check_refusal(
        lambda: sv.load_pair(new, other),
        "draft's tokenizer differs from the target's in 1 ids",
        "20 ('<user>' for the target, '<think>' for the draft)",
    )


def test_folders_whose_embeddings_are_padded_differently(tmp_path):
    target, draft = save(tmp_path / "target", vocab_size=104), save(tmp_path / "draft")
    pair = sv.load_pair(target, draft, device="cpu")
    assert (pair.vocabulary_size, len(pair.notes)) == (VOCABULARY, 1)
    longer = save(tmp_path / "longer", added=[f"<{i}>" for i in range(80)], vocab_size=104)
    for one, two in ((target, longer), (longer, target)):
        assert sv.load_pair(one, two, device="cpu").vocabulary_size == 104
    for one, two in ((draft, longer), (longer, draft)):
        check_refusal(
            lambda one=one, two=two: sv.load_pair(one, two, device="cpu"),
            "draft has a vocabulary of ",
            "ids 97..103 exist in one",
            "has ids up to 99",
        )


# The classes of target and draft.
FAMILIES = {
    "Qwen3-8B with Qwen3-0.6B": (hf.Qwen3ForCausalLM, hf.Qwen3ForCausalLM),
    "vicuna-7b-v1.3 with vicuna-68m": (hf.LlamaForCausalLM, hf.LlamaForCausalLM),
    "GLM-4-9B-0414 with GLM-4.5-DRAFT-0.6B": (hf.Glm4ForCausalLM, hf.Qwen2ForCausalLM),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_classes_of_known_pairs_from_folders(name, tmp_path):
    """Use tiny models of the same classes.

    The GLM draft is a Qwen2 that was given the vocabulary of a later GLM.
    """
    torch.manual_seed(0)
    target = made(FAMILIES[name][0], SIZES | HEADS).eval()
    draft = made(FAMILIES[name][1], SIZES | {"num_hidden_layers": 1, "tie_word_embeddings": True})
    for model, role, added in ((target, "target", []), (draft, "draft", ["<think>"])):
        model.save_pretrained(tmp_path / role)
        make_tokenizer(WORDS, added).save_pretrained(tmp_path / role)
    pair = sv.load_pair(tmp_path / "target", tmp_path / "draft", device="cpu")
    assert (type(pair.target), type(pair.draft)) == FAMILIES[name]
    check_text(pair, target, ("inplace",))


def test_repr_is_one_short_line(tmp_path):
    model = llama()
    assert repr(sv.Pair(model, copy.deepcopy(model).half())) == (
        "Pair(target=LlamaForCausalLM 24.8K, draft=LlamaForCausalLM 24.8K, "
        "vocabulary_size=97, device=cpu, dtype=float32/float16)"
    )
    folder = save(tmp_path / "tiny")
    assert repr(sv.load_pair(folder, folder, device="cpu")).startswith(
        "Pair(target=tiny (LlamaForCausalLM, 24.8K), draft=tiny ("
    )


@pytest.mark.slow
def test_device_map_places_the_target_and_the_draft_beside_it(tmp_path):
    pytest.importorskip("accelerate", reason="device_map needs accelerate")
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft", num_hidden_layers=1)
    for device_map in ({"": "cpu"}, "auto"):
        pair = sv.load_pair(target, draft, device_map=device_map, dtype="float32")
        assert pair.device == pair.draft.device == pair.target.get_input_embeddings().weight.device
        check_text(pair, pair.target, ("eqspec",))


def test_device_map_for_the_embedded_pair():
    pytest.importorskip("accelerate", reason="device_map needs accelerate")
    assert sv.load_pair(device_map={"": "cpu"}).device == torch.device("cpu")


def test_a_target_whose_weights_wait_elsewhere():
    """Accelerate keeps the weights elsewhere than it runs the layers.

    So the model itself cannot say on which device its inputs belong.
    """
    accelerate = pytest.importorskip("accelerate", reason="device_map needs accelerate")
    plain = make_pair("llama")
    target = accelerate.cpu_offload(
        copy.deepcopy(plain.target), execution_device=torch.device("cpu")
    )
    assert target.device == torch.device("meta")
    pair = sv.Pair(target, plain.draft)
    assert pair.device == torch.device("cpu")
    check_text(pair, plain.target, ("eqspec",))


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_target_whose_last_layer_lies_on_the_cpu(device):
    """The model is laid out as accelerate does it over several GPUs.

    Each layer moves its inputs to its own device.
    """
    hooks = pytest.importorskip("accelerate.hooks", reason="device_map needs accelerate")
    plain = make_pair("llama", torch.float64)
    target = copy.deepcopy(plain.target).to(device)
    for module in (target.model.layers[-1], target.model.norm, target.lm_head):
        hooks.add_hook_to_module(
            module.to("cpu"), hooks.AlignDevicesHook("cpu", skip_keys="past_key_values")
        )
    hooks.add_hook_to_module(
        target, hooks.AlignDevicesHook(io_same_device=True, skip_keys="past_key_values")
    )
    pair = sv.Pair(target, copy.deepcopy(plain.draft).to(device))
    assert pair.device == torch.device(device)
    check_text(pair, plain.target, ("eqspec", "inplace"))


DEVICE_MAPS = [
    (
        {"device_map": "auto", "device": "cpu"},
        "device='cpu' and device_map='auto' exclude each other",
    ),
    ({"device_map": "cuda:0"}, "device_map='cuda:0' is unknown"),
    ({"device_map": {}}, "device_map must be a str or a dict, got {}"),
    ({"device_map": 0}, "device_map must be a str or a dict, got 0"),
    ({"device_map": {"": 99}}, "device_map='cuda:99' is not there"),
    ({"device_map": {"": "tpu"}}, "device_map='tpu' is unknown"),
]


@pytest.mark.parametrize(
    ("arguments", "begins"), DEVICE_MAPS, ids=[begins for _, begins in DEVICE_MAPS]
)
def test_device_maps_that_cannot_be(arguments, begins):
    check_refusal(lambda: sv.load_pair(**arguments), begins)


def test_device_map_without_accelerate(monkeypatch):
    monkeypatch.setattr("specviz.engine.models.pair.is_accelerate_available", lambda: False)
    check_refusal(
        lambda: sv.load_pair(device_map="auto"),
        "device_map='auto' needs accelerate",
        'pip install "specviz[accelerate]"',
        error=ImportError,
    )


def test_a_device_has_an_index_that_exists():
    for name in ("cpu:7", "mps:3", "cuda:99"):
        check_refusal(
            lambda name=name: sv.load_pair(device=name),
            f"device={name!r} is not there; pass one that this machine has: cpu",
        )
    assert sv.load_pair(device="cpu:0").device == torch.device("cpu")


def test_a_folder_that_is_damaged_is_named(tmp_path):
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    check_refusal(lambda: sv.load_pair(target, draft), f"draft='{draft}' cannot be loaded (")
    (target / "tokenizer.json").unlink()
    check_refusal(lambda: sv.load_pair(target, draft), f"target='{target}' cannot be loaded (")


@pytest.mark.parametrize(("named", "expected"), [(5, [5]), ([5, 9], [5, 9]), (None, [])])
def test_eos_ids_come_from_the_generation_config(named, expected, tmp_path):
    model = llama()
    model.generation_config.eos_token_id = named
    pair = sv.Pair(model, model)
    assert pair.eos_token_ids == expected
    result = generate(pair, [[3, 1, 4]], max_new_tokens=40)
    assert result.meta["eos_token_ids"] == expected
    assert len(result.tokens[0]) == 40 or result.tokens[0][-1] in expected
    del model.generation_config
    assert sv.Pair(model, model).eos_token_ids == [5]


def test_a_pair_is_put_into_evaluation_mode():
    model = llama(attention_dropout=0.5).train()
    pair = sv.Pair(model, copy.deepcopy(model))
    assert not pair.target.training
    assert not pair.draft.training


def test_the_embedded_pair_needs_no_network(monkeypatch):
    attempts = []

    def refuse(*arguments: object, **_: object):
        attempts.append(arguments)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert sv.load_pair(device="cpu").tokenizer is not None
    assert len(sv.load_prompts()) == 32
    assert attempts == []
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("localhost", 9))
    assert len(attempts) == 1


def test_the_hybrid_pair_has_states_and_windows_and_writes_the_same_in_a_batch():
    pair = sv.load_pair("hybrid", device="cpu")
    assert set(pair.target.config.layer_types) == {"linear_attention", "full_attention"}
    assert set(pair.draft.config.layer_types) == {"sliding_attention", "full_attention"}
    options = {"max_new_tokens": 24, "progress": False}
    alone = sv.generate(
        pair, sv.load_prompts(limit=6), strategy="autoregressive", batch_size=1, **options
    )
    ragged = sv.generate(pair, sv.load_prompts(limit=6), strategy="exspec", batch_size=4, **options)
    assert ragged.tokens == alone.tokens
    assert ragged.summary["mean_acceptance_length"].item() > 2.5
    check_refusal(lambda: sv.load_pair("hybird"), "target='hybird'", "target='hybrid'")


def test_the_embedded_weights_are_small_and_in_safetensors_alone():
    files = [
        path
        for path in Path(str(resources.files("specviz") / "zoo" / "weights")).rglob("*")
        if path.is_file()
    ]
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".jsonl", ".md"}
    hybrid = [path for path in files if "hybrid" in path.parts]
    assert sum(path.stat().st_size for path in hybrid) <= 8e6
    weights = [
        path.stat().st_size
        for path in files
        if path.suffix == ".safetensors" and path not in hybrid
    ]
    assert len(weights) == 2 + 5  # the pair and its heads
    assert sum(weights) <= 28e6


def test_the_embedded_pairs_special_tokens_are_three(embedded):
    tokenizer = embedded.tokenizer
    assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}) == 3
    assert embedded.eos_token_ids == [tokenizer.eos_token_id]
    assert len(tokenizer) == embedded.vocabulary_size
    assert embedded.target.dtype == embedded.draft.dtype == torch.float32


def test_the_bundled_prompts_are_10_to_300_tokens_long(embedded):
    prompts = sv.load_prompts()
    lengths = [len(embedded.tokenizer(prompt)["input_ids"]) for prompt in prompts]
    assert len(set(prompts)) == len(prompts) == 32
    assert min(lengths) >= 10
    assert max(lengths) <= 300
    assert sv.load_prompts(limit=3) == prompts[:3]
    assert sv.load_prompts(limit=99) == prompts


@settings(deadline=None)
@given(st.text())
@example("<eos>")
@example(" \t\r\n\x00\u2028")
@example("def f(x):\n    return '👩‍👩‍👧' .\n")
def test_any_text_survives_the_embedded_tokenizer(embedded: sv.Pair, text: str) -> None:
    ids = embedded.tokenizer(text)["input_ids"]
    assert ids[0] == embedded.tokenizer.bos_token_id
    assert embedded.tokenizer.decode(ids[1:]) == text
    if not re.search("<(pad|bos|eos)>", text):
        assert embedded.tokenizer.decode(ids, skip_special_tokens=True) == text
