"""Check that two causal LMs can be decoded together, once and before any forward.

Contract: reads configurations and signatures. Not known here: weights.
"""

import inspect
import sys
from functools import cache
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

OWN_ATTENTION = "specviz_grouped"  # see `engine.kv.attention`

# These scale by the largest position in the batch, so a row's result would depend on other rows.
_BATCH_DEPENDENT_ROPE = ("longrope", "dynamic")

# Up to so many tokens a layer attends to all of them by their positions. Beyond, it selects by
# value, or scales by the number of tokens in the cache, which slabs do not have.
_POSITION_LIMITS = ("max_position_embeddings", "keep_window_size", "floor_scale")

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
# The setting that says to how many tokens a layer of a type attends.
WIDTHS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
STATES = {"conv", "linear_attention"}  # layers that keep a state instead of K/V
HYBRIDS = {"hybrid", "hybrid_sliding"}  # layers that keep both
INDEXED = "indexed_attention"  # layers that select tokens by keys of their own
# What the code of layers has that ask the cache where tokens lie, or mask its columns themselves.
ASKS_OFFSET = ".get_query_offset("
ASKS_POSITIONS = ".indexer_position_ids"
MASKS_COLUMNS = "self.bias[:, :, key_length - query_length : key_length, :key_length]"
NOTHING = {"mlp", "moe"}


def check_model(role: str, model: PreTrainedModel) -> None:
    """Check a model. It must be a causal LM whose only state is K/V, with explicit positions.

    Raises:
        TypeError: `model` is not a transformers model.
        ValueError: the rows of a batch cannot be kept apart, or a draft cannot be taken back.
    """
    check_causal(role, model)
    name = f"{role}={type(model).__name__}"
    if read_setting(model.config.get_text_config(), "num_hidden_layers") is None:
        raise ValueError(
            f"{name} has a config without num_hidden_layers, so its K/V cannot be kept in slabs; "
            "choose a model with one stack of decoder layers"
        )
    _check_attention(name, model)


def check_causal(role: str, model: PreTrainedModel) -> None:
    """Check that a model can score texts in a batch: a causal LM that takes explicit positions.

    Raises:
        TypeError: `model` is not a transformers model.
        ValueError: it is not a causal LM, or the rows of a batch cannot be kept apart.
    """
    name = f"{role}={type(model).__name__}"
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"{name} must be a transformers model; {_unwrapped(model)}")
    if model.get_output_embeddings() is None or model.config.is_encoder_decoder:
        raise ValueError(
            f"{name} must be a decoder-only causal LM; "
            "pass one with a language-model head, such as LlamaForCausalLM"
        )
    accepted = inspect.signature(model.forward).parameters
    if "cache_params" in accepted or "state" in accepted:
        raise ValueError(
            f"{name} keeps recurrent states alone and takes no position_ids, which specviz passes "
            "to every forward; choose a model that has layers with attention, too, such as "
            "Qwen3NextForCausalLM"
        )
    if "past_key_values" not in accepted:
        raise ValueError(
            f"{name} takes no past_key_values, in which specviz keeps what each row has read; "
            "choose a model that keeps K/V, such as LlamaForCausalLM"
        )
    for argument in ("position_ids", "attention_mask"):
        if argument not in accepted:
            raise ValueError(
                f"{name} takes no {argument}, so the rows of a batch cannot be kept apart; "
                "choose a model with rotary or learned positions"
            )
    if _looks_ahead(model):
        raise ValueError(
            f"{name} must be a decoder-only causal LM, but it attends to both sides of a token; "
            "load it with is_decoder=True, or choose another model, such as LlamaForCausalLM"
        )


def _unwrapped(model: Any) -> str:
    """Return what to pass instead of something that is not a transformers model."""
    if hasattr(model, "_orig_mod"):
        return "pass the model before torch.compile, and compile=True to generate"
    if hasattr(model, "get_base_model"):
        return "pass model.get_base_model() for LoRA, which keeps the adapter"
    return "pass a causal LM loaded with AutoModelForCausalLM or made from a config"


def check_mode(role: str, model: PreTrainedModel) -> None:
    """Raise ValueError if a part of the model is in training mode."""
    if any(module.training for module in model.modules()):
        raise ValueError(
            f"{role}={type(model).__name__} is in training mode, where dropout makes its text "
            f"random; call pair.{role}.eval(), and .train() again after the run"
        )


def _looks_ahead(model: PreTrainedModel) -> bool:
    # BERT's kind has a language-model head, too, but attends to both sides unless its layers were
    # made with is_decoder=True. Of a model with several parts, the decoder counts, and of that what
    # reads the text: neither images nor, by cross-attention, another part's output.
    decoder: nn.Module = model.get_decoder()
    others: set[nn.Module] = set()
    for module in decoder.modules():
        parts = set(module.modules())
        reads_text = getattr(module, "main_input_name", "input_ids") == "input_ids"
        reads_text = reads_text or model.get_input_embeddings() in parts
        if not reads_text or "CrossAttention" in type(module).__name__:
            others |= parts
    return any(
        getattr(module, name, True) is False
        for module in decoder.modules()
        for name in ("is_causal", "is_decoder")
        if module not in others
    )


def _check_attention(name: str, model: PreTrainedModel) -> None:
    config = model.config.get_text_config()
    implementation = attention_of(model)
    if implementation not in ("sdpa", "eager"):
        raise ValueError(
            f"{name} uses attn_implementation={implementation!r}, which takes no mask per row and "
            "slot; load it with attn_implementation='sdpa'"
        )
    if read_setting(config, "alibi"):
        raise ValueError(
            f"{name} has alibi=True, which counts columns where each row of a batch needs its own "
            "position_ids; choose a model with rotary or learned positions"
        )
    others = layer_types(config) - {FULL, INDEXED, *WIDTHS, *STATES, *HYBRIDS, *NOTHING}
    if masks_columns(model):  # the rule says more than the name
        others -= set(read_setting(config, "attention_layers") or [])
    if others:
        raise ValueError(
            f"{name} has layers of type {', '.join(sorted(others))}, which specviz cannot keep in "
            "step yet; choose a model whose layers attend to all tokens, to a window or to a chunk"
        )
    if any("recurrent_states" in vars(module) for module in model.modules()) and not (
        layer_types(config) & STATES
    ):
        raise ValueError(
            f"{name} keeps states in its modules, and its config has no layer_types to say in "
            "which layers; choose another model, such as Qwen3NextForCausalLM"
        )
    for rope_type in _rope_types(model):
        if any(kind in rope_type for kind in _BATCH_DEPENDENT_ROPE):
            raise ValueError(
                f"{name} has rope_type={rope_type!r}, which scales by the largest position in the "
                "batch, so a row's text would depend on the other rows; choose a model with "
                "another rope_type (default, linear, yarn, llama3)"
            )


def asks_indices(model: PreTrainedModel) -> bool:
    """Return whether layers ask the cache where tokens lie."""
    return _asks(model, ASKS_OFFSET) or _asks(model, ASKS_POSITIONS)


def masks_columns(model: PreTrainedModel) -> bool:
    """Return whether layers mask columns of the cache by a rule of their own."""
    return _asks(model, MASKS_COLUMNS)


def _asks(model: PreTrainedModel, what: str) -> bool:
    """Return whether the file of the model's class has this text."""
    # MTP layers are those of another class.
    kind = getattr(model, "kind_of_layers", type(model))
    return what in source_of(sys.modules[kind.__module__])


@cache
def source_of(code: Any) -> str:
    """Return the source of a module, class or function of a model; "" where it has no file."""
    if getattr(code, "__module__", "").startswith("torch."):
        return ""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


def selects_tokens(model: PreTrainedModel) -> bool:
    """Return whether layers select tokens by keys of their own."""
    return _asks(model, ".update_indexer(")


def attention_of(model: PreTrainedModel) -> str:
    """Return the model's attention implementation, as it is outside of runs."""
    implementation: str = model.config._attn_implementation
    # While a run is under way or suspended, its models attend in specviz's own way.
    return "sdpa" if implementation == OWN_ATTENTION else implementation


def layer_types(config: Any) -> set[str]:
    """Return the types of the layers, which configurations spell in three ways."""
    stated = read_setting(config, "layer_types")
    # Where the types are stated, the window is that of the sliding ones among them.
    used = read_setting(config, "use_sliding_window") is not False
    is_sliding = not stated and used and read_setting(config, "sliding_window")
    types = set(stated or [SLIDING if is_sliding else FULL])
    return types | set(read_setting(config, "attention_layers") or []) - {"global"}


def _rope_types(model: PreTrainedModel) -> set[str]:
    """Return the kinds of rotary positions of the model's modules, or else of its config."""
    config = model.config.get_text_config()
    found: list[Any] = [vars(module).get("rope_type") for module in model.modules()]
    for name in ("rope_parameters", "rope_scaling"):
        if any(found):
            break
        rope = read_setting(config, name) or {}
        # One dict of settings, or one for each type of layer.
        for settings in [value for value in rope.values() if isinstance(value, dict)] or [rope]:
            found.append(settings.get("rope_type", settings.get("type")))
    types: set[Any] = set()
    for each in found:
        types.update(each.values() if isinstance(each, dict) else [each])
    return types - {None}


def read_setting(config: Any, name: str) -> Any:
    """Return a setting; the first layer's where layers differ in it; None if there is none."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers refuses to read what layers differ in
        return getattr(config.per_layer_config[0], name, None)


def position_limit(model: PreTrainedModel) -> int | None:
    """Return the number of positions that the model has; None if it states no limit."""
    config = model.config.get_text_config()
    limits = [read_setting(config, name) for name in _POSITION_LIMITS]
    return min((limit for limit in limits if limit is not None), default=None)


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device of the token ids: the model's, or the embedding's if it is spread."""
    if not hasattr(model, "_hf_hook"):
        return model.device
    embedding = model.get_input_embeddings()
    # The embedding's weights may be offloaded, so its hook knows better where it runs.
    place = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    return embedding.weight.device if place is None else torch.empty(0, device=place).device


def vocabulary_sizes(target: PreTrainedModel, draft: PreTrainedModel) -> tuple[int, int]:
    """Return the rows of the two embeddings, as the configurations state them."""
    return target.config.get_text_config().vocab_size, draft.config.get_text_config().vocab_size


def check_vocabularies(
    target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Check that both models, and the tokenizer if there is one, use the same token ids.

    Sizes may differ if the tokenizer shows that the difference is padding: it has no id beyond the
    smaller size.

    Raises:
        TypeError: `tokenizer` is not a transformers tokenizer.
        ValueError: ids exist in one model only, or the tokenizer has more ids than the models.
    """
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(
            f"tokenizer must be a transformers tokenizer, got {type(tokenizer).__name__}; "
            "pass one loaded with AutoTokenizer, or None"
        )
    target_size, draft_size = vocabulary_sizes(target, draft)
    low, high = sorted((target_size, draft_size))
    tokens = None
    if tokenizer is not None:
        tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
    if low < high and (tokens is None or tokens > low):
        evidence = "there is no tokenizer to show that they are padding"
        if tokens is not None:
            evidence = f"the tokenizer has ids up to {tokens - 1}"
        raise ValueError(
            f"draft has a vocabulary of {draft_size} tokens and target of {target_size}: "
            f"ids {low}..{high - 1} exist in one of them only, and {evidence}; choose a draft that "
            "was trained with the target's tokenizer, and pass that tokenizer"
        )
    if tokens is not None and tokens > low:
        raise ValueError(
            f"tokenizer has {tokens} tokens and the models only {low}: ids {low}..{tokens - 1} "
            "have no embedding; pass the tokenizer that the models were trained with"
        )


def check_tokenizers(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if an id means different tokens to the two tokenizers; names the first ids.

    An id that only one of them has may differ if it is an added token there, such as a control
    token of a later release (GLM-4.5 against GLM-4). The draft may propose it; the target decides.
    """
    target_tokens = {number: token for token, number in target.get_vocab().items()}
    draft_tokens = {number: token for token, number in draft.get_vocab().items()}
    added = {*target.get_added_vocab().values(), *draft.get_added_vocab().values()}
    added_in_one = (target_tokens.keys() ^ draft_tokens.keys()) & added
    compared = (target_tokens.keys() | draft_tokens.keys()) - added_in_one
    differing = sorted(i for i in compared if target_tokens.get(i) != draft_tokens.get(i))
    if differing:
        examples = ", ".join(
            f"{i} ({target_tokens.get(i)!r} for the target, {draft_tokens.get(i)!r} for the draft)"
            for i in differing[:3]
        )
        raise ValueError(
            f"draft's tokenizer differs from the target's in {len(differing)} ids, the first of "
            f"them {examples}; choose a draft that was trained with the target's tokenizer"
        )
