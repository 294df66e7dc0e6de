"""One answer of the OpenAI protocol as a record of the JSONL form that an audit reads.

Contract: an answer as plain values goes in. What a server left out is left out of the record, and
what is not of the protocol is left out, too. Not known here: the client, files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz.util.validate import is_count, is_finite, is_list

# What a server may add about its drafts: vLLM the first, SGLang the second. See `log`.
STATISTICS = ("metrics", "sglext")
# How vLLM writes a token with return_tokens_as_token_ids.
_TOKEN_ID = re.compile(r"token_id:(\d+)")


@dataclass(frozen=True)
class Answer:
    """What a server returned for one prompt.

    Attributes:
        model: the name of the model that answered.
        record: text, finish_reason, usage; token_ids, prompt_token_ids, tokens, logprobs,
            top_logprobs and the statistics of drafts where the server gives them.
    """

    model: str
    record: Mapping[str, Any]


def read_answer(plain: Mapping[str, Any], protocol: str) -> Answer | None:
    """Return the answer; None if there is no text or no model in it."""
    choices = plain.get("choices")
    choice = choices[0] if is_list(choices) and choices else None
    if not isinstance(choice, Mapping):
        return None
    message = choice.get("message") if protocol == "chat" else choice
    text = message.get("content" if protocol == "chat" else "text") if message else None
    model = plain.get("model")
    if not isinstance(text, str) or not isinstance(model, str):
        return None
    reason = choice.get("finish_reason")
    record: dict[str, Any] = {
        "text": text,
        "finish_reason": reason if isinstance(reason, str) else None,
        "usage": _usage(plain.get("usage")),
    }
    prompt_ids = choice.get("prompt_token_ids") or plain.get("prompt_token_ids")
    for name, ids in (("token_ids", choice.get("token_ids")), ("prompt_token_ids", prompt_ids)):
        if is_list(ids) and ids and all(map(is_count, ids)):
            record[name] = list(ids)
    record |= _scores(choice.get("logprobs"))
    record |= {name: plain[name] for name in STATISTICS if isinstance(plain.get(name), Mapping)}
    return Answer(model, record)


def _usage(usage: object) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens")
    known = usage if isinstance(usage, Mapping) else {}
    return {name: known[name] for name in names if is_count(known.get(name))}


def _scores(logprobs: object) -> dict[str, Any]:
    """Return tokens, logprobs and top_logprobs, from either protocol; {} if there are none."""
    if not isinstance(logprobs, Mapping):
        return {}
    places = _chat_places(logprobs) if logprobs.get("content") else _text_places(logprobs)
    if not places or not all(isinstance(token, str) for token, _, _ in places):
        return {}
    tokens = [_id(token) for token, _, _ in places]
    top = []
    for _, _, candidates in places:
        top.append([[_id(token), value] for token, value in candidates if is_finite(value)])
    kind = "token_ids" if all(isinstance(token, int) for token in tokens) else "tokens"
    return {
        kind: tokens if kind == "token_ids" else [token for token, _, _ in places],
        "logprobs": [value if is_finite(value) else None for _, value, _ in places],
        "top_logprobs": top,
    }


Place = tuple[Any, Any, list[tuple[str, Any]]]  # a token, its logprob, and the candidates there


def _text_places(logprobs: Mapping[str, Any]) -> list[Place]:
    tokens = logprobs.get("tokens") or []
    values = logprobs.get("token_logprobs") or []
    top = logprobs.get("top_logprobs") or [{}] * len(tokens)
    if not len(tokens) == len(values) == len(top):
        return []
    candidates = [list((place or {}).items()) for place in top]
    return list(zip(tokens, values, candidates, strict=True))


def _chat_places(logprobs: Mapping[str, Any]) -> list[Place]:
    places: list[Place] = []
    for entry in logprobs["content"]:
        top = entry.get("top_logprobs") or []
        candidates = [(each["token"], each["logprob"]) for each in top]
        places.append((entry.get("token"), entry.get("logprob"), candidates))
    return places


def _id(token: str) -> int | str:
    found = _TOKEN_ID.fullmatch(token)
    return int(found[1]) if found else token
