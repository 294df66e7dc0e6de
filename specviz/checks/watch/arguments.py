"""Check what `sv.watch` and its audit are given.

Contract: each function returns what can be used, or raises a `ValueError` that names the argument,
its value and the remedy. Not known here: what is made of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.requests import WatchedRequest, choices
from specviz.engine.kv.states import UNLIMITED, find_mixers
from specviz.engine.models.compat import (
    FULL,
    HYBRIDS,
    NOTHING,
    SLIDING,
    STATES,
    check_causal,
    layer_types,
    read_setting,
)
from specviz.util.validate import is_list, require_list, short


def check_models(target: object, draft: object, tokenizer: object) -> None:
    """Raise ValueError unless both are models whose forwards can be seen."""
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"tokenizer must be a transformers tokenizer, got {short(tokenizer)}; pass one loaded "
            "with AutoTokenizer, or None"
        )
    for name, model in (("target", target), ("draft", draft)):
        if name == "draft" and model is None:
            continue
        if hasattr(model, "_orig_mod"):
            raise ValueError(
                f"{name} is compiled, so its forwards cannot be seen; watch the model without "
                "torch.compile"
            )
        if not isinstance(model, PreTrainedModel):
            raise ValueError(
                f"{name} must be a model of transformers, got {short(model)}; pass a causal LM"
            )
        check_causal(name, model)
        known = {FULL, SLIDING, *STATES, *HYBRIDS, *NOTHING}
        others = layer_types(model.config.get_text_config()) - known
        if others:
            raise ValueError(
                f"{name} has layers of type {', '.join(sorted(others))}; watch a model whose "
                "layers attend to all tokens or a sliding window, or keep states, as only those "
                "are followed"
            )
        limits = (getattr(each, "time_step_limit", UNLIMITED) for each in find_mixers(model))
        if any(tuple(limit) != UNLIMITED for limit in limits):
            raise ValueError(
                f"{name} clamps time steps where it reads several tokens and not where it reads "
                "one, so its text depends on how it is read; set time_step_limit of its layers to "
                "(0.0, float('inf'))"
            )
    if target is draft:
        raise ValueError(
            "draft must be another model than target, got the same one; pass None if there is none"
        )


def checked_prompts(prompts: object, tokenizer: Any) -> list[list[int]]:
    """Return the prompts as token ids."""
    _require_rows("prompts", prompts)
    assert isinstance(prompts, Sequence)
    found = [_ids(f"prompts[{i}]", each, tokenizer, True) for i, each in enumerate(prompts)]
    for i, each in enumerate(found):
        if not each:
            raise ValueError(
                f"prompts[{i}] must have a token, got {short(prompts[i])}; leave it out"
            )
    return found


def checked_outputs(
    outputs: object, prompts: Sequence[Sequence[int]], tokenizer: Any
) -> list[list[int] | None]:
    """Return the outputs as token ids, one a prompt; None where they are not known."""
    if outputs is None:
        return [None] * len(prompts)
    _require_rows("outputs", outputs)
    assert isinstance(outputs, Sequence)
    if len(outputs) != len(prompts):
        raise ValueError(
            f"outputs must be one for each of the {len(prompts)} prompts, got {len(outputs)}; "
            "pass the new tokens of each prompt, in the same order"
        )
    return [_ids(f"outputs[{i}]", each, tokenizer, False) for i, each in enumerate(outputs)]


def _require_rows(name: str, values: object) -> None:
    """Raise ValueError unless `values` is a list. Of a tensor the remedy is its `tolist()`."""
    is_array = hasattr(values, "tolist")
    require_list(name, values, f"pass {name}.tolist()" if is_array else "pass a list, even of one")


def check_vocabulary(
    target: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int] | None],
) -> None:
    """Raise ValueError if an id has no row in the target's embedding."""
    size = target.get_input_embeddings().weight.shape[0]
    for name, rows in (("prompts", prompts), ("outputs", outputs)):
        for i, row in enumerate(rows):
            largest = max(row or (0,))
            if largest >= size:
                raise ValueError(
                    f"{name}[{i}] has the id {largest}, but target has a vocabulary of {size}; "
                    "pass the token ids of this run, or the texts with the target's own tokenizer"
                )


def without_filling(output: list[int] | None, eos: Sequence[int]) -> list[int] | None:
    """Return new tokens up to EOS, if one and the same token fills what lies behind it."""
    if output is None:
        return None
    end = next((i + 1 for i, token in enumerate(output) if token in eos), len(output))
    return output[:end] if len(set(output[end:])) <= 1 else output


def _ids(name: str, given: object, tokenizer: Any, special: bool) -> list[int]:
    """Return token ids."""
    if isinstance(given, str):
        if tokenizer is None:
            raise ValueError(
                f"{name} is a text, and there is no tokenizer; pass token ids, or watch(..., "
                "tokenizer=...)"
            )
        return [int(token) for token in tokenizer(given, add_special_tokens=special).input_ids]
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not is_list(given) or not all(type(token) is int and token >= 0 for token in given):
        raise ValueError(f"{name} must be token ids or a text, got {short(given)}; pass a list")
    return list(given)


def check_windows(
    models: Mapping[str, PreTrainedModel], forwards: Sequence[CapturedForward]
) -> None:
    """Raise ValueError if a model without a layer that sees all tokens forgot some."""
    windows = {
        name: None if FULL in layer_types(model.config.get_text_config()) else window_of(model)
        for name, model in models.items()
    }
    for forward in forwards:
        window = windows.get(forward.model)  # none of a drafter, which is judged by its entries
        if window is not None and forward.width > window:
            raise ValueError(
                f"{forward.model} has a sliding window of {window} tokens, and its forward "
                f"{forward.number} reads {forward.width} slots: what is forgotten cannot be "
                "followed; pass shorter prompts, or a smaller max_new_tokens to the decoder"
            )


def window_of(model: PreTrainedModel) -> int | None:
    """Return how many tokens a model's layers attend to; None for all."""
    config = model.config.get_text_config()
    if SLIDING not in layer_types(config):
        return None
    return read_setting(config, "sliding_window") or None


def check_followed(
    forwards: Sequence[CapturedForward], requests: Sequence[WatchedRequest] = ()
) -> None:
    """Raise ValueError if there is nothing to judge, or it is not of these prompts."""
    if not any(forward.model == "target" for forward in forwards):
        raise ValueError(
            "target was not called inside the block; call the decoder there, with the very model "
            "that was passed to watch"
        )
    for number, request in enumerate(requests):
        if not request.rounds:
            raise ValueError(
                f"prompts[{number}] was not read by the target; pass the prompts of this run, as "
                "the decoder feeds them, with all special tokens"
            )


def unlike(requests: Sequence[WatchedRequest]) -> str:
    """Say which output is not what was fed; "" if all are."""
    for number, request in enumerate(requests):
        if request.is_known:
            count = len(request.rounds)
            wrong = sum(not _fits(request, each.part.tokens, each) for each in request.rounds)
            if wrong > count / 2 or _begins_otherwise(request):
                return f"outputs[{number}] is not what was fed in {wrong} of {count} rounds"
    return ""


def _begins_otherwise(request: WatchedRequest) -> bool:
    """Return whether the target's first choice was fed, and the output begins with another."""
    if len(request.rounds) < 2 or not request.output:
        return False
    first = choices(request.rounds[0])[:1]
    return request.rounds[1].part.tokens[:1] == first != request.output[:1]


def _fits(request: WatchedRequest, tokens: Sequence[int], verified: Any) -> bool:
    """Return whether the pending token that was fed is the one of the output."""
    place = verified.pending - verified.part.index
    if not 0 <= place < len(tokens) or verified.pending >= len(request.tokens):
        return False
    return tokens[place] == request.tokens[verified.pending]
