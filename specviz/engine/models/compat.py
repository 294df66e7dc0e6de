"""Whether two causal LMs can be decoded together here: checked once, before any forward, each refusal with its reason.

Knows configurations and signatures, not weights.
"""

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The scaling of these looks at the largest position in the batch, so a row's result would depend on its neighbours.
_BATCH_DEPENDENT_ROPE = {"longrope", "dynamic"}


def check_model(role: str, model: PreTrainedModel) -> None:
    """Raise ValueError unless `model` is a causal LM with full attention whose positions can be given explicitly."""
    name = f"{role}={type(model).__name__}"
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"{name} is no transformers model; pass a causal LM loaded with AutoModelForCausalLM or made from a config"
        )
    config, looks_ahead = (
        model.config,
        any(getattr(module, "is_causal", True) is False for module in model.modules()),
    )
    if model.get_output_embeddings() is None or config.is_encoder_decoder or looks_ahead:
        raise ValueError(
            f"{name} is no decoder-only causal LM; pass one with a language-model head, such as LlamaForCausalLM"
        )
    accepted = inspect.signature(model.forward).parameters
    for argument in ("position_ids", "attention_mask", "past_key_values"):
        if argument not in accepted:
            raise ValueError(
                f"{name} takes no {argument}, so the rows of a batch cannot be kept apart; choose a model with rotary or learned positions"
            )
    _check_attention(name, config.get_text_config(), config._attn_implementation)


def _check_attention(name: str, config: Any, implementation: str) -> None:
    if implementation not in ("sdpa", "eager"):
        raise ValueError(
            f"{name} uses attn_implementation={implementation!r}, which takes no mask per row and slot; "
            "load it with attn_implementation='sdpa'"
        )
    if getattr(config, "alibi", False):
        raise ValueError(
            f"{name} has alibi=True, which counts columns where the rows of a batch need position_ids of their own; "
            "choose a model with rotary or learned positions"
        )
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    layer_types |= set(getattr(config, "attention_layers", None) or []) - {"global"}
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        layer_types.add("sliding_attention")
    others = sorted(layer_types - {"full_attention"})
    if others:
        raise ValueError(
            f"{name} has layers of type {', '.join(others)}: they forget or merge earlier tokens, so a rejected draft cannot be "
            "taken back; choose a model whose layers all use full attention"
        )
    rope = {
        _rope_type(parameters) for parameters in _rope_parameters(config)
    } & _BATCH_DEPENDENT_ROPE
    if rope:
        raise ValueError(
            f"{name} has rope_type={rope.pop()!r}, which scales by the largest position in the batch, so a row's text would depend on its "
            "neighbours; choose a model with another rope_type (default, linear, yarn, llama3)"
        )


def _rope_parameters(config: Any) -> list[dict[str, Any]]:
    """RoPE settings of a configuration: one dict, or one for each layer type."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in found.values() if isinstance(value, dict)]
    return nested or [found]


def _rope_type(parameters: dict[str, Any]) -> str:
    return str(parameters.get("rope_type", parameters.get("type", "default")))


def input_device(model: PreTrainedModel) -> torch.device:
    """Where token ids go: the model's device; if accelerate spread the model over several, where its embedding runs."""
    if not hasattr(model, "_hf_hook"):
        return model.device
    embedding = model.get_input_embeddings()
    place = getattr(
        getattr(embedding, "_hf_hook", None), "execution_device", None
    )  # its weights may wait elsewhere
    return embedding.weight.device if place is None else torch.empty(0, device=place).device


def check_same_device(target: PreTrainedModel, draft: PreTrainedModel) -> None:
    """Raise ValueError if the two models take their inputs on different devices."""
    theirs, ours = input_device(draft), input_device(target)
    if ours != theirs:
        raise ValueError(
            f"draft is on {theirs}, target on {ours}; move one of them, for instance draft.to({str(ours)!r})"
        )


def vocabulary_sizes(target: PreTrainedModel, draft: PreTrainedModel) -> tuple[int, int]:
    """Rows of the two embeddings, as the configurations say."""
    return target.config.get_text_config().vocab_size, draft.config.get_text_config().vocab_size


def check_vocabularies(
    target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Raise ValueError unless both models, and the tokenizer if there is one, speak the same token ids.

    Sizes may differ where the tokenizer shows that only padding does: it names no id beyond the smaller one.
    """
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(
            f"tokenizer={type(tokenizer).__name__} is no tokenizer; pass one loaded with AutoTokenizer, or None"
        )
    ours, theirs = vocabulary_sizes(target, draft)
    low, high = sorted((ours, theirs))
    named = max(tokenizer.get_vocab().values(), default=-1) + 1 if tokenizer is not None else None
    if low < high and (named is None or named > low):
        evidence = (
            "no tokenizer is given that shows them to be padding"
            if named is None
            else f"the tokenizer names ids up to {named - 1}"
        )
        raise ValueError(
            f"draft has a vocabulary of {theirs} tokens and target of {ours}: ids {low}..{high - 1} exist in one of them only, and "
            f"{evidence}; choose a draft that was trained with the target's tokenizer, and pass that tokenizer"
        )
    if named is not None and named > low:
        raise ValueError(
            f"tokenizer has {named} tokens and the models only {low}: ids {low}..{named - 1} have no "
            "embedding; pass the tokenizer that the models were trained with"
        )


def check_tokenizers(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if the same id means different tokens to the two tokenizers; says which ids differ.

    An id that one of them knows alone is no difference if it is an added token there, such as a control token of a later release
    (GLM-4.5 against GLM-4): the draft may propose it, and the target, whose word is final, decides.
    """
    ours, theirs = (
        {i: token for token, i in tokenizer.get_vocab().items()} for tokenizer in (target, draft)
    )
    added = {i for tokenizer in (target, draft) for i in tokenizer.get_added_vocab().values()}
    alone = (ours.keys() ^ theirs.keys()) & added
    differing = sorted(
        i for i in (ours.keys() | theirs.keys()) - alone if ours.get(i) != theirs.get(i)
    )
    if differing:
        examples = ", ".join(
            f"{i} ({ours.get(i)!r} for the target, {theirs.get(i)!r} for the draft)"
            for i in differing[:3]
        )
        raise ValueError(
            f"draft's tokenizer differs from the target's in {len(differing)} ids, the first of them {examples}; choose a draft that was "
            "trained with the target's tokenizer"
        )
