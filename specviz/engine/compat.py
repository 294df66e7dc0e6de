"""Whether two causal LMs can be decoded together here: checked once, before any forward, each refusal with its reason.

Knows configurations and signatures, not weights.
"""

import inspect
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The scaling of these looks at the largest position in the batch, so a row's result would depend on its neighbours.
_BATCH_DEPENDENT_ROPE = {"longrope", "dynamic"}


def check_model(role: str, model: PreTrainedModel) -> None:
    """Raise ValueError unless `model` is a causal LM with full attention whose positions can be given explicitly."""
    name = f"{role}={type(model).__name__}"
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"{name} is no transformers model; pass a causal LM loaded with AutoModelForCausalLM or made from a config")
    config, looks_ahead = model.config, any(getattr(module, "is_causal", True) is False for module in model.modules())
    if model.get_output_embeddings() is None or config.is_encoder_decoder or looks_ahead:
        raise ValueError(f"{name} is no decoder-only causal LM; pass one with a language-model head, such as LlamaForCausalLM")
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
    rope = {_rope_type(parameters) for parameters in _rope_parameters(config)} & _BATCH_DEPENDENT_ROPE
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


def check_same_device(target: PreTrainedModel, draft: PreTrainedModel) -> None:
    """Raise ValueError if the two models lie on different devices."""
    if target.device != draft.device:
        remedy = f"move one of them, for instance draft.to({str(target.device)!r})"
        raise ValueError(f"draft is on {draft.device}, target on {target.device}; {remedy}")


def check_vocabularies(target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Raise ValueError unless both models, and the tokenizer if there is one, speak the same token ids."""
    sizes = [model.config.get_text_config().vocab_size for model in (target, draft)]
    if sizes[0] != sizes[1]:
        low, high = sorted(sizes)
        raise ValueError(
            f"draft has a vocabulary of {sizes[1]} tokens and target of {sizes[0]}: ids {low}..{high - 1} exist in one of them only; "
            "choose a draft that was trained with the target's tokenizer"
        )
    if tokenizer is not None and len(tokenizer) > sizes[0]:
        raise ValueError(
            f"tokenizer has {len(tokenizer)} tokens and the models only {sizes[0]}: ids {sizes[0]}..{len(tokenizer) - 1} have no "
            "embedding; pass the tokenizer that the models were trained with"
        )


def check_tokenizers(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if the same id means different tokens to the two tokenizers; says which ids differ."""
    ours, theirs = ({i: token for token, i in tokenizer.get_vocab().items()} for tokenizer in (target, draft))
    differing = sorted(i for i in ours.keys() | theirs.keys() if ours.get(i) != theirs.get(i))
    if differing:
        examples = ", ".join(f"{i} ({ours.get(i)!r} for the target, {theirs.get(i)!r} for the draft)" for i in differing[:3])
        raise ValueError(
            f"draft's tokenizer differs from the target's in {len(differing)} ids, the first of them {examples}; choose a draft that was "
            "trained with the target's tokenizer"
        )
