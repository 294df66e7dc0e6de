"""From a caller's arguments to requests, with every check that can be made before a model runs."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from specviz.engine.batch import Request
from specviz.engine.models.pair import Pair
from specviz.util.validate import require_int, short

Prompt = str | Sequence[int]


def make_requests(
    pair: Pair,
    prompts: Sequence[Prompt],
    max_new_tokens: int | Sequence[int],
    num_draft_tokens: int,
) -> list[Request]:
    """One request per prompt, in the caller's order.

    Args:
        prompts: strings (encoded with the pair's tokenizer, which adds its own special tokens) or lists (tuples, one-dimensional
            arrays) of token ids.
        max_new_tokens: one budget for all, or one per prompt.

    Raises:
        ValueError: a prompt or budget that cannot be decoded; names the argument, the value and what to do.
    """
    if not _is_list(prompts):
        raise ValueError(
            f"prompts={short(prompts)} is no list of prompts; pass a list, even for one prompt"
        )
    if not prompts:
        raise ValueError("prompts=[] is empty; pass at least one prompt")
    budgets = _budgets(max_new_tokens, len(prompts))
    requests = [
        Request(i, _encode(pair, i, prompt), budget)
        for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]
    for request in requests:
        _check_room(pair, request, num_draft_tokens)
    return requests


def _budgets(max_new_tokens: int | Sequence[int], count: int) -> list[int]:
    budgets = _plain(max_new_tokens)
    if not _is_list(budgets):
        return [require_int("max_new_tokens", budgets)] * count
    if len(budgets) != count:
        raise ValueError(
            f"max_new_tokens has {len(budgets)} entries for {count} prompts; pass one number, or one for each prompt"
        )
    return [require_int(f"max_new_tokens[{i}]", budget) for i, budget in enumerate(budgets)]


def _encode(pair: Pair, number: int, prompt: Prompt) -> tuple[int, ...]:
    name = f"prompts[{number}]"
    if isinstance(prompt, str):
        if pair.tokenizer is None:
            raise ValueError(
                f"{name} is text, but the pair has no tokenizer; pass token ids, or a Pair with a tokenizer"
            )
        if not prompt:
            raise ValueError(f"{name}='' is empty; pass at least one character")
        return _check_ids(pair, name, _encode_text(pair.tokenizer, name, prompt))
    prompt = _plain(prompt)
    if not _is_list(prompt):
        raise ValueError(
            f"{name}={short(prompt)} is neither text nor a list of token ids; pass a str or a list of ints"
        )
    if len(prompt) == 0:
        raise ValueError(f"{name}=[] is empty; pass at least one token id")
    return _check_ids(pair, name, prompt)


def _encode_text(tokenizer: PreTrainedTokenizerBase, name: str, text: str) -> list[int]:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(
            f"{name}={short(text)} has a lone surrogate, which is no character; read the text as UTF-8 with errors='replace'"
        )
    ids = list(tokenizer(text)["input_ids"])
    if not ids:
        raise ValueError(
            f"{name}={short(text)} is no token to the pair's tokenizer; pass another text, or token ids"
        )
    return ids


def _check_ids(pair: Pair, name: str, ids: Sequence[Any]) -> tuple[int, ...]:
    size = pair.vocabulary_size
    for position, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, Integral):
            raise ValueError(
                f"{name}[{position}]={short(token)} is no token id; pass a str or a list of ints"
            )
        if not 0 <= int(token) < size:
            raise ValueError(
                f"{name}[{position}]={token} is outside the vocabulary; token ids go from 0 to {size - 1}"
            )
    return tuple(int(token) for token in ids)


def _check_room(pair: Pair, request: Request, num_draft_tokens: int) -> None:
    need = len(request.prompt) + request.budget + num_draft_tokens + 1
    if pair.max_positions is not None and need > pair.max_positions:
        raise ValueError(
            f"prompts[{request.index}] has {len(request.prompt)} tokens; with max_new_tokens={request.budget} and "
            f"num_draft_tokens={num_draft_tokens} it needs {need} positions and the models have {pair.max_positions} "
            "(prompt + budget + K + 1 are counted); shorten the prompt, or lower max_new_tokens or num_draft_tokens"
        )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _plain(value: Any) -> Any:
    """A one-dimensional array or tensor as a list; anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray | Tensor) and value.ndim == 1 else value
