"""Pairs: which models are refused and why, which are taken, how they are loaded, and what the embedded one promises."""

import copy
import re
import socket
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from conftest import VOCABULARY, make_pair
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import specviz as sv

IDS = {"vocab_size": VOCABULARY, "eos_token_id": 5, "bos_token_id": 1, "pad_token_id": 0, "initializer_range": 0.3}
SIZES = IDS | {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
HEADS = {"head_dim": 8}
GPT = IDS | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}


def rope(name: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": name, "rope_theta": 10000.0, **parameters}}


def llama(**more: Any) -> PreTrainedModel:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES | more))


def flash() -> PreTrainedModel:
    model = llama()
    model.config._attn_implementation = "flash_attention_2"
    return model


def window_off() -> PreTrainedModel:
    """Some configurations keep the width of a window that is not in use."""
    model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES | SLIDING | {"use_sliding_window": False}))
    model.config.sliding_window = 16
    return model


LONG = rope("longrope", short_factor=[1.0] * 4, long_factor=[2.0] * 4, original_max_position_embeddings=128)
SLIDING = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}
REFUSED: dict[str, tuple[Callable[[], PreTrainedModel], str]] = {
    "sliding window everywhere": (lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=16)), "sliding_attention"),
    "sliding window in upper layers": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES | SLIDING)), "sliding_attention"),
    "sliding window by turns": (lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**SIZES | HEADS)), "sliding_attention"),
    "chunks": (lambda: hf.Llama4ForCausalLM(hf.Llama4TextConfig(**SIZES | HEADS, num_local_experts=2)), "chunked_attention"),
    "local layers under an older name": (
        lambda: hf.GPTNeoForCausalLM(
            hf.GPTNeoConfig(**IDS, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8)
        ),
        "layers of type local",
    ),
    "longrope": (lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES | LONG)), "rope_type='longrope', which scales by the largest position"),
    "dynamic rope": (lambda: llama(**rope("dynamic", factor=2.0)), "rope_type='dynamic', which scales by the largest position"),
    "no positions": (lambda: hf.BloomForCausalLM(hf.BloomConfig(**IDS, hidden_size=32, n_layer=2, n_head=4)), "takes no position_ids"),
    "no positions behind the argument": (
        lambda: hf.FalconForCausalLM(hf.FalconConfig(**IDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True)),
        "alibi=True",
    ),
    "encoder and decoder": (
        lambda: hf.T5ForConditionalGeneration(hf.T5Config(**IDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)),
        "no decoder-only causal LM",
    ),
    "both directions": (
        lambda: hf.BertLMHeadModel(hf.BertConfig(**IDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)),
        "no decoder-only causal LM",
    ),
    "no language-model head": (lambda: hf.LlamaModel(hf.LlamaConfig(**SIZES)), "no decoder-only causal LM"),
    "a classifier": (lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**SIZES)), "no decoder-only causal LM"),
    "flash attention": (flash, "attn_implementation='flash_attention_2'"),
}
YARN = rope("yarn", factor=2.0, original_max_position_embeddings=128)
LLAMA3 = rope("llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)
ACCEPTED: dict[str, Callable[[], PreTrainedModel]] = {
    "mistral without a window": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=None)),
    "qwen2 with its window off": window_off,
    "qwen3 with its window off": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES | HEADS | SLIDING | {"use_sliding_window": False})),
    "linear rope": lambda: llama(**rope("linear", factor=2.0)),
    "yarn": lambda: llama(**YARN),
    "llama3 rope": lambda: llama(**LLAMA3),
    "phi3 without longrope": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(**{name: value for name, value in SIZES.items() if name != "num_key_value_heads"})
    ),
}


def check_refusal(call: Callable[[], object], *parts: str, error: type[Exception] = ValueError) -> None:
    """`call` fails with one line that contains all `parts`, the remedy behind a semicolon."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
    assert "\n" not in message
    assert message.partition("; ")[2]


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_decoded_here(name: str) -> None:
    make, reason = REFUSED[name]
    model, good = make(), make_pair("llama").target
    check_refusal(lambda: sv.Pair(model, good), f"target={type(model).__name__} ", reason)
    check_refusal(lambda: sv.Pair(good, model), f"draft={type(model).__name__} ", reason)


@pytest.mark.parametrize("name", ACCEPTED)
def test_models_that_only_look_like_those(name: str) -> None:
    """They are taken, and decode to what `generate()` says."""
    torch.manual_seed(0)
    model, prompts = ACCEPTED[name]().eval(), [[3, 1, 4, 1, 5, 9, 2, 6], [7], [11, 12, 13] * 5]
    rows = [torch.tensor([prompt]) for prompt in prompts]
    outputs = [model.generate(row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=12) for row in rows]
    result = sv.generate(sv.Pair(model, model), prompts, strategy="eqspec", num_draft_tokens=3, max_new_tokens=12, progress=False)
    assert result.tokens == [output[0, row.shape[1] :].tolist() for row, output in zip(rows, outputs, strict=True)]


def test_what_is_no_model() -> None:
    for wrong in ("gpt2", None, torch.nn.Linear(2, 2)):
        check_refusal(lambda wrong=wrong: sv.Pair(wrong, wrong), f"target={type(wrong).__name__} is no transformers model", error=TypeError)


def test_vocabularies_of_different_size_are_named_with_their_ids() -> None:
    small, large = llama(), llama(vocab_size=VOCABULARY + 3)
    for target, draft, sizes in ((small, large, "100 tokens and target of 97"), (large, small, "97 tokens and target of 100")):
        check_refusal(lambda target=target, draft=draft: sv.Pair(target, draft), f"draft has a vocabulary of {sizes}", "ids 97..99")


def make_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def test_a_tokenizer_may_be_smaller_than_the_models_but_not_larger() -> None:
    model = llama()
    assert len(sv.Pair(model, model, make_tokenizer([f"w{i}" for i in range(90)])).tokenizer) == 90
    larger = make_tokenizer([f"w{i}" for i in range(VOCABULARY + 2)])
    check_refusal(lambda: sv.Pair(model, model, larger), "tokenizer has 99 tokens and the models only 97", "ids 97..98 have no embedding")


def test_a_draft_on_another_device_is_refused() -> None:
    model = llama()
    check_refusal(lambda: sv.Pair(model, copy.deepcopy(model).to("meta")), "draft is on meta, target on cpu", "draft.to('cpu')")


WORDS = [f"w{i}" for i in range(20)]


def save(folder: Path, words: list[str] = WORDS, dtype: torch.dtype = torch.float32, **more: Any) -> Path:
    """A tiny Llama and its tokenizer in `folder`."""
    torch.manual_seed(0)
    llama(**more).to(dtype).save_pretrained(folder)
    make_tokenizer(words).save_pretrained(folder)
    return folder


def test_a_pair_from_two_folders(tmp_path: Path) -> None:
    target, draft = save(tmp_path / "target", dtype=torch.float16), save(tmp_path / "draft", num_hidden_layers=1)
    pair = sv.load_pair(target, str(draft), device="cpu", dtype="float64")
    assert [model.config.num_hidden_layers for model in (pair.target, pair.draft)] == [2, 1]
    assert {model.dtype for model in (pair.target, pair.draft)} == {torch.float64}
    assert not pair.target.training
    assert not pair.draft.training
    assert pair.device == torch.device("cpu")
    assert (pair.vocabulary_size, pair.max_positions, pair.eos_token_ids) == (VOCABULARY, 256, [5])
    prompt = "w3 w1 w4 w1"
    assert sv.generate(pair, [prompt], max_new_tokens=4, progress=False).tokens == sv.generate(
        sv.Pair(pair.target, pair.target), [pair.tokenizer(prompt)["input_ids"]], max_new_tokens=4, progress=False
    ).tokens  # fmt: skip
    assert sv.load_pair(target, draft, device="cpu").target.dtype == torch.float16  # as it was saved


def test_folders_whose_tokenizers_differ(tmp_path: Path) -> None:
    swapped = [*WORDS[:7], "w9", "w8", "w7", *WORDS[10:]]
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft", swapped)
    check_refusal(
        lambda: sv.load_pair(target, draft), "differs from the target's in 2 ids", "7 ('w7' for the target, 'w9' for the draft), 9 ("
    )
    longer = save(tmp_path / "longer", [*WORDS, "more"])
    check_refusal(lambda: sv.load_pair(target, longer), "in 1 ids", "20 (None for the target, 'more' for the draft)")


def test_a_folder_that_is_damaged_is_named(tmp_path: Path) -> None:
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    check_refusal(lambda: sv.load_pair(target, draft), f"draft='{draft}' cannot be loaded (")
    (target / "tokenizer.json").unlink()
    check_refusal(lambda: sv.load_pair(target, draft), f"target='{target}' cannot be loaded (")


@pytest.mark.parametrize(("named", "expected"), [(5, [5]), ([5, 9], [5, 9]), (None, [])])
def test_eos_ids_come_from_the_generation_config(named: int | list[int] | None, expected: list[int], tmp_path: Path) -> None:
    model = llama()
    model.generation_config.eos_token_id = named
    pair = sv.Pair(model, model)
    assert pair.eos_token_ids == expected
    result = sv.generate(pair, [[3, 1, 4]], max_new_tokens=40, progress=False)
    assert result.meta["eos_token_ids"] == expected
    assert len(result.tokens[0]) == 40 or result.tokens[0][-1] in expected
    del model.generation_config
    assert sv.Pair(model, model).eos_token_ids == [5]


def test_a_pair_is_put_into_evaluation_mode() -> None:
    model = llama(attention_dropout=0.5).train()
    pair = sv.Pair(model, copy.deepcopy(model))
    assert not pair.target.training
    assert not pair.draft.training


def test_the_embedded_pair_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
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


def test_the_embedded_weights_are_small_and_in_safetensors_alone() -> None:
    files = [path for path in Path(str(resources.files("specviz") / "zoo" / "weights")).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".jsonl", ".md"}
    weights = [path.stat().st_size for path in files if path.suffix == ".safetensors"]
    assert len(weights) == 2
    assert sum(weights) <= 32e6


def test_the_embedded_pairs_special_tokens_are_three(embedded: sv.Pair) -> None:
    tokenizer = embedded.tokenizer
    assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}) == 3
    assert embedded.eos_token_ids == [tokenizer.eos_token_id]
    assert len(tokenizer) == embedded.vocabulary_size
    assert embedded.target.dtype == embedded.draft.dtype == torch.float32


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


def test_the_bundled_prompts_are_10_to_300_tokens_long(embedded: sv.Pair) -> None:
    prompts = sv.load_prompts()
    lengths = [len(embedded.tokenizer(prompt)["input_ids"]) for prompt in prompts]
    assert len(set(prompts)) == len(prompts) == 32
    assert min(lengths) >= 10
    assert max(lengths) <= 300
    assert sv.load_prompts(limit=3) == prompts[:3]
    assert sv.load_prompts(limit=99) == prompts
