"""From a caller's arguments to requests, with every check that can be made before a model runs."""

from collections.abc import Sequence
from numbers import Integral

from specviz.engine.batch import Request
from specviz.engine.pair import Pair

Prompt = str | Sequence[int]


def whole(name: str, value: object, least: int = 1) -> int:
    """`value` as an int of at least `least`; raises ValueError that names the argument otherwise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}={value!r} is no whole number; pass an int of at least {least}")
    if value < least:
        raise ValueError(f"{name}={value} is too small; pass at least {least}")
    return int(value)


def make_requests(pair: Pair, prompts: Sequence[Prompt], max_new_tokens: int | Sequence[int], num_draft_tokens: int) -> list[Request]:
    """One request per prompt, in the caller's order.

    Args:
        prompts: strings (encoded with the pair's tokenizer, which adds its own special tokens) or lists of token ids.
        max_new_tokens: one budget for all, or one per prompt.

    Raises:
        ValueError: a prompt or budget that cannot be decoded; names the argument, the value and what to do.
    """
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):
        raise ValueError(f"prompts={_short(prompts)} is no list of prompts; pass a list, even for one prompt")
    if not prompts:
        raise ValueError("prompts=[] is empty; pass at least one prompt")
    budgets = _budgets(max_new_tokens, len(prompts))
    requests = [Request(i, _encode(pair, i, prompt), budget) for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))]
    for request in requests:
        _check_room(pair, request, num_draft_tokens)
    return requests


def _budgets(max_new_tokens: int | Sequence[int], count: int) -> list[int]:
    if not isinstance(max_new_tokens, list | tuple):
        return [whole("max_new_tokens", max_new_tokens)] * count
    if len(max_new_tokens) != count:
        raise ValueError(f"max_new_tokens has {len(max_new_tokens)} entries for {count} prompts; pass one number, or one for each prompt")
    return [whole(f"max_new_tokens[{i}]", budget) for i, budget in enumerate(max_new_tokens)]


def _encode(pair: Pair, number: int, prompt: Prompt) -> tuple[int, ...]:
    name = f"prompts[{number}]"
    if isinstance(prompt, str):
        if pair.tokenizer is None:
            raise ValueError(f"{name} is text, but the pair has no tokenizer; pass token ids, or a Pair with a tokenizer")
        ids = list(pair.tokenizer(prompt)["input_ids"])
        if not prompt or not ids:
            raise ValueError(f"{name}={prompt!r} is empty; pass at least one token")
        return _check_ids(pair, name, ids)
    if isinstance(prompt, str | bytes) or not isinstance(prompt, Sequence):
        raise ValueError(f"{name}={_short(prompt)} is neither text nor a list of token ids; pass a str or a list of ints")
    if len(prompt) == 0:
        raise ValueError(f"{name}=[] is empty; pass at least one token id")
    return _check_ids(pair, name, prompt)


def _check_ids(pair: Pair, name: str, ids: Sequence[object]) -> tuple[int, ...]:
    for position, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, Integral):
            raise ValueError(f"{name}[{position}]={_short(token)} is no token id; pass a str or a list of ints")
        if not 0 <= token < pair.vocabulary_size:
            raise ValueError(f"{name}[{position}]={token} is outside the vocabulary; token ids go from 0 to {pair.vocabulary_size - 1}")
    return tuple(int(token) for token in ids)


def _check_room(pair: Pair, request: Request, num_draft_tokens: int) -> None:
    need = len(request.prompt) + request.budget + num_draft_tokens + 1
    if pair.max_positions is not None and need > pair.max_positions:
        raise ValueError(
            f"prompts[{request.index}] has {len(request.prompt)} tokens; with max_new_tokens={request.budget} and "
            f"num_draft_tokens={num_draft_tokens} it needs {need} positions and the models have {pair.max_positions}; "
            "shorten the prompt or lower max_new_tokens"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
