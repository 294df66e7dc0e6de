"""Answers of the OpenAI protocol as records of the form of `output`.

Contract: answers as plain values go in. What a server left out, and what is not of the protocol,
is left out of the record. Not known here: clients, files.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from specviz.util.validate import is_count, is_finite, is_list

# How vLLM writes a token with return_tokens_as_token_ids.
_TOKEN_ID = re.compile(r"token_id:(\d+)")
# Where servers put what a thinking model writes before its answer.
_REASONING = ("reasoning_content", "reasoning")
_IN_PARTS = (*_REASONING, "content", "text")  # what a stream brings part by part


def read_choice(answer: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of one choice of an answer; None if it has no text, or more than one.

    A thinking model's text is its reasoning and its answer, joined.
    """
    message = choice.get("message")
    if isinstance(message, Mapping):
        text = message.get("content")
        thoughts = [message[key] for key in _REASONING if message.get(key)]
    else:
        message, text, thoughts = {}, choice.get("text"), []
    if thoughts and text is None:
        text = ""
    if not isinstance(text, str) or not all(isinstance(each, str) for each in thoughts):
        return None
    if message.get("tool_calls"):  # their tokens are not in the text
        return None
    reason = choice.get("finish_reason")
    record: dict[str, Any] = {
        "text": (thoughts[0] if thoughts else "") + text,
        "finish_reason": reason if isinstance(reason, str) else None,
    }
    if thoughts:
        record["has_reasoning"] = True
    prompt_ids = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
    for name, ids in (("token_ids", choice.get("token_ids")), ("prompt_token_ids", prompt_ids)):
        if is_list(ids) and ids and all(map(is_count, ids)):
            record[name] = list(ids)
    scores = _scores(choice.get("logprobs"))
    tokens = scores.get("token_ids") or scores.get("tokens") or ()
    if "token_ids" in record and len(tokens) != len(record["token_ids"]):
        return record
    return record | {name: value for name, value in scores.items() if name not in record}


def join_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answer of one choice that a server sent in parts."""
    answer: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for chunk in chunks:
        for part in chunk.get("choices") or ():
            if not part.get("index"):
                choice = _joined("", choice, part)
        rest = {name: value for name, value in chunk.items() if name != "choices"}
        answer |= {name: value for name, value in rest.items() if value is not None}
    if "delta" in choice:
        choice["message"] = choice.pop("delta")
    return answer | {"choices": [choice]} if choice else answer


def _joined(name: str, before: Any, part: Any) -> Any:
    """Return a value of a stream with its next part."""
    if part is None or before is None:
        return before if part is None else part
    if isinstance(before, Mapping) and isinstance(part, Mapping):
        names = dict.fromkeys((*before, *part))
        return {each: _joined(each, before.get(each), part.get(each)) for each in names}
    if isinstance(before, list) and isinstance(part, list):
        return before + part
    return before + part if name in _IN_PARTS else part


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
