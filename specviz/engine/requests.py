"""From a caller's prompts and budgets to requests, with every check that needs no model to run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from specviz.engine.batch import Request
from specviz.engine.models.pair import Pair
from specviz.util.validate import is_int, is_list, require_int, require_text, short

Prompt = str | Sequence[int]


def make_requests(
    pair: Pair,
    prompts: Sequence[Prompt],
    max_new_tokens: int | Sequence[int],
    max_draft_tokens: int,
) -> list[Request]:
    """Return one request per prompt, in the caller's order.

    Args:
        prompts: strings, which the pair's tokenizer encodes with its own special tokens, or lists
            (tuples, one-dimensional arrays) of token ids.
        max_new_tokens: one budget for all, or one per prompt.
        max_draft_tokens: the largest K, for which the models' positions must have room, too.

    Raises:
        ValueError: a prompt or budget cannot be decoded; the message names it, its value and the
            remedy.
    """
    if not is_list(prompts):
        raise ValueError(
            f"prompts must be a list, got {short(prompts)}; pass a list, even for one prompt"
        )
    if not prompts:
        raise ValueError("prompts=[] is empty; pass at least one prompt")
    budgets = _budgets(max_new_tokens, len(prompts))
    requests = []
    for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
        requests.append(Request(i, tuple(encode(pair, f"prompts[{i}]", prompt)), budget))
    for request in requests:
        _check_room(pair, request, max_draft_tokens)
    return requests


def _budgets(max_new_tokens: int | Sequence[int], count: int) -> list[int]:
    budgets = _to_list(max_new_tokens)
    if not is_list(budgets):
        return [require_int("max_new_tokens", budgets)] * count
    if len(budgets) != count:
        raise ValueError(
            f"max_new_tokens has {len(budgets)} entries for {count} prompts; "
            "pass one number, or one for each prompt"
        )
    return [require_int(f"max_new_tokens[{i}]", budget) for i, budget in enumerate(budgets)]


def encode(pair: Pair, name: str, prompt: Prompt, *, begins: bool = True) -> list[int]:
    """Return the token ids of a prompt, which the message of an error calls `name`.

    begins: whether it is the beginning of a text, where a tokenizer may put a special token.

    Raises:
        ValueError: it cannot be decoded.
    """
    if isinstance(prompt, str):
        if pair.tokenizer is None:
            raise ValueError(
                f"{name} is text, but the pair has no tokenizer; "
                "pass token ids, or a Pair with a tokenizer"
            )
        require_text(name, prompt)
        return _check_ids(pair, name, _encode_text(pair.tokenizer, name, prompt, begins))
    ids = _to_list(prompt)
    if not is_list(ids):
        raise ValueError(
            f"{name} must be text or a list of token ids, got {short(ids)}; "
            "pass a str or a list of ints"
        )
    if len(ids) == 0:
        raise ValueError(f"{name}=[] is empty; pass at least one token id")
    return _check_ids(pair, name, ids)


def _encode_text(
    tokenizer: PreTrainedTokenizerBase, name: str, text: str, begins: bool
) -> list[int]:
    ids = list(tokenizer(text, add_special_tokens=begins)["input_ids"])
    if not ids:
        raise ValueError(
            f"{name} must have at least one token, got {short(text)}, which the pair's tokenizer "
            "encodes to none; pass another text, or token ids"
        )
    return ids


def _check_ids(pair: Pair, name: str, ids: Sequence[Any]) -> list[int]:
    last = pair.vocabulary_size - 1
    for position, token in enumerate(ids):
        if not is_int(token):
            raise ValueError(
                f"{name}[{position}] must be a token id, got {short(token)}; "
                "pass a str or a list of ints"
            )
        if not 0 <= int(token) <= last:
            raise ValueError(
                f"{name}[{position}] must be a token id from 0 to {last}, got {short(int(token))}; "
                "encode the text with the pair's own tokenizer"
            )
    return [int(token) for token in ids]


def _check_room(pair: Pair, request: Request, max_draft_tokens: int) -> None:
    # The last round drafts past the budget before it is cut, so those positions must exist, too.
    need = len(request.prompt) + request.budget + max_draft_tokens + 1
    if pair.max_positions is not None and need > pair.max_positions:
        raise ValueError(
            f"prompts[{request.index}] has {len(request.prompt)} tokens; "
            f"with max_new_tokens={short(request.budget)} and "
            f"num_draft_tokens={short(max_draft_tokens)} it needs {short(need)} positions and the "
            f"models have {pair.max_positions} (prompt + budget + K + 1 are counted); "
            "shorten the prompt, or lower max_new_tokens or num_draft_tokens"
        )


def _to_list(value: Any) -> Any:
    """Return a one-dimensional array or tensor as a list, and anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray | Tensor) and value.ndim == 1 else value
