"""Heads on disk: our own files and those that others publish, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from safetensors.torch import load_file, save_file
from tiny_heads import STEPS, fitted, hiding_first, pair_with
from transformers import LlamaForCausalLM, Qwen3ForCausalLM
from tree_drafters import TOKENS

import specviz as sv
from specviz.engine.heads import KINDS, build_head
from specviz.engine.heads.files import fingerprint


def write(
    folder: Path, weights: dict[str, torch.Tensor], config: dict[str, Any], name: str = "model"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: values.contiguous() for key, values in weights.items()}
    save_file(whole, folder / f"{name}.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_own(folder: Path, kind: str, **changes: Any) -> Path:
    head = fitted("llama", kind)
    settings = asdict(head.settings) | {"target": fingerprint(make_pair("llama").target)}
    config = {"format": "specviz head", "version": 1} | settings | changes
    return write(folder, head.state_dict(), config)


def texts_and_lengths(pair: sv.Pair, kind: str) -> tuple[list[list[int]], float]:
    result = generate(
        pair, make_prompts(), drafter=kind, num_draft_tokens=STEPS, max_new_tokens=TOKENS
    )
    return result.tokens, float(result.summary["mean_acceptance_length"].iloc[0])


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_was_saved_drafts_as_before(kind, tmp_path):
    folder = write_own(tmp_path / kind, kind)
    before = torch.get_rng_state()
    pair = sv.load_heads(folder, make_pair("llama"))
    assert torch.equal(torch.get_rng_state(), before), "loading drew random numbers"
    assert list(pair.heads) == [kind]
    assert texts_and_lengths(pair, kind) == texts_and_lengths(pair_with("llama", kind), kind)


def test_a_folder_may_hold_several_heads(tmp_path):
    for kind in ("medusa", "eagle3"):
        write_own(tmp_path / kind, kind)
    pair = sv.load_heads(tmp_path, pair_with("llama", "clover"))
    assert set(pair.heads) == {"clover", "medusa", "eagle3"}


def test_heads_of_another_target_are_refused(tmp_path):
    folder = write_own(tmp_path / "eagle3", "eagle3")
    pair = make_pair("llama")
    other = sv.Pair(pair.draft, pair.target)
    check_refusal(lambda: sv.load_heads(folder, other), "the head in", "another target")
    folder = write_own(tmp_path / "sizes", "eagle3", hidden_size=64)
    check_refusal(lambda: sv.load_heads(folder, pair), "the head 'eagle3'", "hidden_size 64")
    folder = write_own(tmp_path / "ids", "eagle3", vocabulary_size=7)
    check_refusal(lambda: sv.load_heads(folder, pair), "the head 'eagle3'", "vocabulary_size 7")
    folder = write_own(tmp_path / "layers", "eagle3", layers=[0, 1, 17])
    check_refusal(lambda: sv.load_heads(folder, pair), "layers=(0, 1, 17)")


def test_damaged_files_are_refused_with_one_sentence(tmp_path):
    pair = make_pair("llama")

    def damaged(name: str, file: str, content: bytes | None) -> Path:
        folder = write_own(tmp_path / name, "eagle3")
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        return folder

    whole = (write_own(tmp_path / "whole", "eagle3") / "model.safetensors").read_bytes()
    refused = {
        "cut": ("model.safetensors", whole[: len(whole) // 2]),
        "empty": ("model.safetensors", b""),
        "no json": ("config.json", b"{"),
        "a list": ("config.json", b"[]"),
        "version": ("config.json", b'{"format": "specviz head", "version": 9}'),
        "lacking": ("config.json", b'{"format": "specviz head", "version": 1, "kind": "eagle3"}'),
        "unknown": ("config.json", b'{"format": "specviz head", "version": 1, "size": 3}'),
        "layout": ("config.json", b"{}"),
    }
    for name, (file, content) in refused.items():
        folder = damaged(name, file, content)
        if name == "layout":
            save_file({"a": torch.zeros(1)}, folder / "model.safetensors")
        check_refusal(lambda folder=folder: sv.load_heads(folder, pair), "")
    for name in ("model.safetensors", "config.json"):
        folder = damaged(f"without {name}", name, None)
        check_refusal(
            lambda folder=folder: sv.load_heads(folder, pair), "", error=FileNotFoundError
        )
    folder = write_own(tmp_path / "other", "medusa", heads=STEPS + 2)
    check_refusal(lambda: sv.load_heads(folder, pair), "the files in", "do not fit")


def test_a_head_says_how_long_it_was_trained(tmp_path):
    pair = make_pair("llama")
    for written, expected in ((12, 12.0), (0.5, 0.5), (None, None)):
        folder = write_own(tmp_path / str(written), "eagle3", training_s=written)
        assert sv.load_heads(folder, pair).heads["eagle3"].training_s == expected
    assert (
        sv.load_heads(write_own(tmp_path / "x", "eagle3"), pair).heads["eagle3"].training_s is None
    )
    for wrong in (-1, "long", float("nan"), True, [1]):
        folder = write_own(tmp_path / f"wrong {wrong}", "eagle3", training_s=wrong)
        check_refusal(
            lambda folder=folder: sv.load_heads(folder, pair), "training_s in", "a number >= 0"
        )


def test_folders_without_heads_are_refused(tmp_path):
    pair = make_pair("llama")
    missing = tmp_path / "missing"
    check_refusal(
        lambda: sv.load_heads(missing, pair), "folder=", "does not exist", error=FileNotFoundError
    )
    check_refusal(
        lambda: sv.load_heads(tmp_path, pair), "folder=", "no draft head", error=FileNotFoundError
    )


# --- layouts that others publish ---


def write_eagle3(folder: Path, ids: torch.Tensor | None = None) -> Path:
    """The fitted head with names, LM head and configuration as EAGLE-3 is published."""
    pair = make_pair("llama")
    lm_head = pair.target.get_output_embeddings().weight.detach()
    weights = dict(fitted("llama", "eagle3").state_dict())
    weights["embed_tokens.weight"] = pair.target.get_input_embeddings().weight.detach()
    weights["lm_head.weight"] = (lm_head if ids is None else lm_head[ids]).clone()
    if ids is not None:
        weights["d2t"] = ids - torch.arange(len(ids))
        weights["t2d"] = torch.zeros(len(lm_head)).bool().index_fill(0, ids, True)
    config = pair.target.config.to_dict()
    kept = (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "vocab_size",
    )
    published = {name: config[name] for name in kept}
    published["architectures"] = ["LlamaForCausalLMEagle3"]
    published["draft_vocab_size"] = len(weights["lm_head.weight"])
    return write(folder, weights, published)


@pytest.mark.parametrize("reduced", [False, True])
def test_published_eagle3_heads_draft_the_same(reduced, tmp_path):
    """As the head itself where entry 0 is hidden, since they have never seen one.

    Weights that the target lends may be missing.
    """
    ids = torch.arange(1, make_pair("llama").vocabulary_size, 2) if reduced else None
    folder = write_eagle3(tmp_path / "whole", ids)
    pair = sv.load_heads(folder, make_pair("llama"))
    assert pair.heads["eagle3"].settings.hides_first
    whole = texts_and_lengths(pair, "eagle3")
    plain = pair_with("llama", "eagle3")
    tokens, length = texts_and_lengths(hiding_first(plain, "eagle3"), "eagle3")
    assert whole[0] == tokens == texts_and_lengths(plain, "eagle3")[0]
    assert 1 < whole[1] < length if reduced else whole[1] == length
    weights = load_file(folder / "model.safetensors")
    for lent in ("lm_head.weight", "embed_tokens.weight", *(["d2t"] if reduced else [])):
        del weights[lent]
        lending = sv.load_heads(rewritten(folder, weights), make_pair("llama"))
        assert texts_and_lengths(lending, "eagle3") == whole, lent


def published_layers(folder: Path, **changes: Any) -> tuple[int, ...]:
    """The layers of the published head, with these entries in its configuration."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return sv.load_heads(folder, make_pair("llama")).heads["eagle3"].settings.layers


def test_published_eagle3_heads_may_name_their_layers(tmp_path):
    """By outputs within `eagle_config`, as SpecForge and SGLang do, and by inputs as vLLM does."""
    right = fitted("llama", "eagle3").settings.layers
    outputs = {"eagle_aux_hidden_state_layer_ids": list(right)}
    inputs = {"eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in right]}
    none = {"eagle_aux_hidden_state_layer_ids": []}
    for number, entries in enumerate(
        ({"eagle_config": outputs}, inputs, {"eagle_config": none} | inputs, {"eagle_config": none})
    ):
        assert published_layers(write_eagle3(tmp_path / str(number)), **entries) == right, entries


@pytest.mark.parametrize("nested", [True, False])
def test_a_published_head_that_reads_the_embedding_is_refused(nested, tmp_path):
    """The embedding is the input of layer 0. The number below it would be the final norm's."""
    entry = {"eagle_aux_hidden_state_layer_ids": [-1 if nested else 0, 1]}
    check_refusal(
        lambda: published_layers(
            write_eagle3(tmp_path), **({"eagle_config": entry} if nested else entry)
        ),
        "eagle_aux_hidden_state_layer_ids must name outputs of layers",
        "pass a head that does not read the embedding",
    )


def rewritten(folder: Path, weights: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
    """The published head in `folder`, with these weights and entries of its configuration."""
    config = json.loads((folder / "config.json").read_text()) | changes
    return write(
        folder, load_file(folder / "model.safetensors") if weights is None else weights, config
    )


def reference_logits(folder: Path, prompt: list[int]) -> torch.Tensor:
    """Logits of a published head on true features, by the layer of transformers that it names.

    Written from the layout alone: embedding and feature are normed and laid side by side, the layer
    has wide projections, and its residual stream begins with the feature.
    """
    target = make_pair("llama").target
    config = json.loads((folder / "config.json").read_text())
    weights = {}
    for name, values in load_file(folder / "model.safetensors").items():
        weights[name.removeprefix("model.").replace("layers.0.", "midlayer.")] = values
    values = config.get("transformer_layer_config", config)
    kind = values.get("model_type", "llama")
    model_type = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}[kind]
    settings = model_type.config_class(**{**values, "num_hidden_layers": 1})
    settings._attn_implementation = "eager"
    layer = model_type(settings).model.layers[0]
    for name in ("q_proj", "k_proj", "v_proj"):
        old = getattr(layer.self_attn, name)
        setattr(
            layer.self_attn,
            name,
            torch.nn.Linear(2 * old.in_features, old.out_features, bias=False),
        )
    own = {name.removeprefix("midlayer."): each for name, each in weights.items()}
    layer.load_state_dict({name: own[name] for name in layer.state_dict()})
    rotary = model_type(settings).model.rotary_emb

    def norm(states: torch.Tensor, name: str) -> torch.Tensor:
        mean = states.square().mean(-1, keepdim=True) + settings.rms_norm_eps
        return states * mean.rsqrt() * weights[name]

    with torch.no_grad():
        states = target(torch.tensor([prompt]), output_hidden_states=True).hidden_states
        layers = fitted("llama", "eagle3").settings.layers
        features = torch.cat([states[number + 1] for number in layers], -1)[:, :-1]
        features = features @ weights["fc.weight"].T
        embedded = target.get_input_embeddings()(torch.tensor([prompt[1:]]))
        normed = norm(features, "midlayer.hidden_norm.weight")
        read = torch.cat([norm(embedded, "midlayer.input_layernorm.weight"), normed], -1)
        positions = torch.arange(1, len(prompt))[None]
        mask = torch.full((len(prompt) - 1,) * 2, -torch.inf).triu(1)[None, None]
        out, _ = layer.self_attn(read, rotary(read, positions), attention_mask=mask)
        states = (normed if config.get("norm_before_residual") else features) + out
        states = states + layer.mlp(layer.post_attention_layernorm(states))
        return norm(states, "norm.weight") @ weights["lm_head.weight"].T


def loaded_logits(folder: Path, prompt: list[int]) -> torch.Tensor:
    """What the head that is read from the folder says of the same."""
    pair = sv.load_heads(folder, make_pair("llama"))
    head = pair.heads["eagle3"]
    with torch.no_grad():
        states = pair.target(torch.tensor([prompt]), output_hidden_states=True).hidden_states
        fused = head.fuse(head.select(states))[:, :-1]
        tokens = torch.tensor([prompt[1:]])
        positions = torch.arange(1, len(prompt))[None]
        mask = torch.full((len(prompt) - 1,) * 2, -torch.inf).triu(1)[None, None]
        count = len(prompt) - 1
        output = head(tokens, fused, positions, attention_mask=mask, logits_to_keep=count)
    return output.logits


def as_speculators(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """The published head in `folder` as the library speculators lays it out."""
    config = json.loads((folder / "config.json").read_text())
    values = {name: value for name, value in config.items() if name != "draft_vocab_size"}
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    if kind == "qwen3":
        for name in ("q_norm", "k_norm"):
            weights[f"midlayer.self_attn.{name}.weight"] = 1 + torch.rand(8, generator=generator)
    weights = {name.replace("midlayer.", "layers.0."): each for name, each in weights.items()}
    layer = {**values, "model_type": kind, "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 1}
    published = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "x"}},
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": True,
        "norm_before_fc": False,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": None,
        "transformer_layer_config": layer,
        **changes,
    }
    return write(folder, weights, published)


ROPE = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "published": lambda folder: folder,
    "theta": lambda folder: rewritten(folder, rope_theta=3e3),
    "parameters": lambda folder: rewritten(folder, rope_parameters={"rope_theta": 3e3}),
    "scaled": lambda folder: rewritten(folder, rope_parameters=ROPE),
    "linear": lambda folder: rewritten(folder, rope_scaling={"type": "linear", "factor": 2.0}),
    "epsilon": lambda folder: rewritten(folder, rms_norm_eps=0.1),
    "residual": lambda folder: rewritten(folder, norm_before_residual=True),
    "prefix": lambda folder: rewritten(folder, {
        f"model.{name}": each for name, each in load_file(folder / "model.safetensors").items()
    }),
    "speculators": as_speculators,
    "speculators without the norm": lambda folder: as_speculators(
        folder, norm_before_residual=False
    ),
    "speculators of qwen3": lambda folder: as_speculators(folder, "qwen3"),
}  # fmt: skip


# Those that only say in another way what the published one says.
ALIKE = ("published", "prefix", "speculators without the norm")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_computes_what_it_says(layout, tmp_path):
    folder = LAYOUTS[layout](write_eagle3(tmp_path / "layout"))
    prompt = make_prompts()[3]
    found = loaded_logits(folder, prompt)
    torch.testing.assert_close(found, reference_logits(folder, prompt), rtol=1e-4, atol=1e-4)
    published = loaded_logits(write_eagle3(tmp_path / "published"), prompt)
    assert torch.equal(found, published) == (layout in ALIKE), "what it says is seen"


def test_shards_are_read(tmp_path):
    folder = write_eagle3(tmp_path)
    before = loaded_logits(folder, make_prompts()[3])
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {}
    for number, name in enumerate(weights):
        shards[name] = f"model-{number % 2}.safetensors"
    for shard in set(shards.values()):
        save_file(
            {name: weights[name] for name in weights if shards[name] == shard}, folder / shard
        )
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert torch.equal(loaded_logits(folder, make_prompts()[3]), before)
    pair = make_pair("llama")
    refused = {
        "elsewhere": {"weight_map": shards | {"fc.weight": "../elsewhere.safetensors"}},
        "model-9": {"weight_map": shards | {"fc.weight": "model-9.safetensors"}},
    }
    for named, content in refused.items():
        index.write_text(json.dumps(content))
        check_refusal(lambda: sv.load_heads(folder, pair), "", named, error=FileNotFoundError)
    for damaged in ("{", "[]", "{}"):
        index.write_text(damaged)
        check_refusal(lambda: sv.load_heads(folder, pair), "the files in", "are damaged")


REFUSED = {
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "attention_bias": True,
    "mlp_bias": True,
    "logit_scale": 0.5,
    "norm_output": True,
    "norm_before_fc": True,
    "fc_norm": True,
    "hidden_size": 64,
    "target_hidden_size": 64,
    "partial_rotary_factor": 0.5,
    "layer_types": ["sliding_attention"],
    "use_sliding_window": True,
    "parallel_drafting": True,
    "quantization_config": {"bits": 4},
    "model_type": "qwen2",
    "num_attention_heads": "four",
    "eagle_config": {"use_aux_hidden_state": False},
}


@pytest.mark.parametrize("entry", REFUSED)
def test_what_changes_the_computation_is_refused_by_its_name(entry, tmp_path):
    folder = rewritten(write_eagle3(tmp_path), **{entry: REFUSED[entry]})
    name = "use_aux_hidden_state" if entry == "eagle_config" else entry
    pair = make_pair("llama")
    check_refusal(lambda: sv.load_heads(folder, pair), "", name, "config.json")


def test_weights_that_do_not_fit_are_refused_by_their_name(tmp_path):
    ids = torch.arange(1, make_pair("llama").vocabulary_size, 2)
    weights = load_file(write_eagle3(tmp_path / "whole", ids) / "model.safetensors")
    moved = weights["d2t"].clone()
    moved[-1] += 9
    twice = weights["d2t"].clone()
    twice[1] -= 2
    bias = {"midlayer.self_attn.q_proj.bias": torch.zeros(32)}
    wrong = {
        "d2t,": {"d2t": None, "t2d": None},
        "d2t, ": {"d2t": None, "t2d": None, "lm_head.weight": None},
        "d2t in": {"d2t": moved},
        "d2t": {"d2t": twice},
        "d2t:": {"d2t": weights["d2t"][:-1]},
        "q_proj.bias": bias,
        "norm.weight": {"norm.weight": None},
        "fc.weight": {"fc.weight": weights["fc.weight"][:, :-1]},
        "embed_tokens.weight": {"embed_tokens.weight": weights["embed_tokens.weight"] * 2},
    }
    pair = make_pair("llama")
    for i, (named, changes) in enumerate(wrong.items()):
        changed = {name: each for name, each in (weights | changes).items() if each is not None}
        folder = rewritten(write_eagle3(tmp_path / str(i), ids), changed)
        check_refusal(lambda folder=folder: sv.load_heads(folder, pair), "", named)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "README.md"])
def test_only_pickled_weights_are_to_be_converted(file, tmp_path):
    folder = write_eagle3(tmp_path)
    (folder / "model.safetensors").rename(folder / file)
    pair = make_pair("llama")
    with pytest.raises(FileNotFoundError) as caught:
        sv.load_heads(folder, pair)
    assert ("may run code" in str(caught.value)) == file.endswith(".bin")


def write_medusa(folder: Path) -> Path:
    """The fitted heads with names and configuration as Medusa is published."""
    head = fitted("llama", "medusa")
    weights = head.state_dict()
    depth = head.settings.depth
    lm_head = make_pair("llama").target.get_output_embeddings().weight.detach()
    published = {}
    for i in range(STEPS):
        for j in range(depth):
            name = f"heads.{i}" if j == 0 else f"deeper.{i}.{j - 1}"
            published[f"{i}.{j}.linear.weight"] = weights[f"{name}.weight"]
            published[f"{i}.{j}.linear.bias"] = weights[f"{name}.bias"]
        published[f"{i}.{depth}.weight"] = lm_head.clone()
    # Some hold the target's own settings too, on which the heads do not depend.
    config = {"num_hidden_layers": 32, "attention_bias": True, "hidden_act": "gelu"}
    config |= {"medusa_num_heads": STEPS, "medusa_num_layers": depth}
    return write(folder, published, config, "medusa_lm_head")


@pytest.mark.parametrize("lent", [False, True])
def test_published_medusa_heads_draft_the_same(lent, tmp_path):
    folder = write_medusa(tmp_path)
    if lent:
        path = folder / "medusa_lm_head.safetensors"
        weights = load_file(path)
        save_file({name: each for name, each in weights.items() if "linear" in name}, path)
    pair = sv.load_heads(folder, make_pair("llama"))
    assert pair.heads["medusa"].settings.own_lm_heads is not lent
    assert texts_and_lengths(pair, "medusa") == texts_and_lengths(
        pair_with("llama", "medusa"), "medusa"
    )


def test_each_layer_of_a_deep_head_counts():
    head = build_head("medusa", make_pair("llama").target, depth=3)
    states = torch.randn(2, head.settings.hidden_size)
    tokens = torch.tensor([1, 2])
    with torch.no_grad():
        before = head.step(states, tokens, 1).logits
        for layer in (head.heads[1], *head.deeper[1]):
            layer.bias += 1.0
            after = head.step(states, tokens, 1).logits
            assert not torch.equal(after, before)
            before = after


def test_heads_follow_the_pair_to_its_dtype(tmp_path):
    pair = make_pair("llama", torch.float64)
    head = sv.load_heads(write_own(tmp_path, "eagle3"), pair).heads["eagle3"]
    assert head.dtype == torch.float64
    assert not any(parameter.requires_grad for parameter in head.parameters())
