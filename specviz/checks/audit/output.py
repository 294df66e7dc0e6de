"""What a decoder wrote after one prompt, in one form for all engines, and that form as JSON.

Contract: values from files and foreign objects go in, checked `Output`s come out. `where` says in
errors which one is wrong: "line 3 of a.jsonl" or "reference[2]". Not known here: files, models.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.util.validate import is_count, is_int, is_list, is_real, short

Token = int | str  # an id, or the text of a token where no id is known
Candidates = tuple[tuple[Token, float], ...]  # tokens with their log-probabilities, best first

KEYS = (
    "prompt", "prompt_token_ids", "messages", "token_ids", "tokens", "text", "has_reasoning",
    "logprobs", "top_logprobs", "finish_reason", "max_tokens",
)  # fmt: skip
# What engines call the budget of new tokens, the name of the JSONL form first.
BUDGETS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict")
# What engines call the two ends of a text. "none" is llama.cpp's word for a text under way.
_REASONS = {
    **dict.fromkeys(("eos", "eos_token", "stop_sequence", "word", "end_turn"), "stop"),
    **dict.fromkeys(("limit", "budget", "max_tokens", "max_new_tokens"), "length"),
    "none": "",
}
# A log-probability is at most 0. Some engines round their sums a little above it.
_ROUNDING = 1e-3
# Stands for minus infinity, which JSON cannot write; vLLM's server writes the same.
_LOWEST = -9999.0


@dataclass(frozen=True)
class Output:
    """What a decoder wrote after one prompt.

    Attributes:
        where: its place, as errors name it.
        prompt, prompt_ids: the prompt as text and as token ids; None where unknown.
        token_ids: of the M new tokens; None where unknown.
        pieces: the M new tokens as texts, for a server that gives no ids; None where unknown.
        text: the new text; None where unknown.
        logprobs: M log-probabilities of the new tokens, natural logarithms, NaN where unknown.
        candidates: the likeliest tokens at each of the M places, empty where unknown.
        finish_reason: why it ended, "stop" or "length", or what else the engine said; "" where
            unknown.
        messages: of a prompt that is a chat, as they were sent, dicts with role and content; None
            for other prompts. `prompt` is then their text at most, without the chat template.
        budget: the most new tokens that the request allowed; None where unknown.
        has_reasoning: whether the text came in two parts, reasoning and content, and was joined.
            The marks between them are missing then.
    """

    where: str
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    pieces: tuple[str, ...] | None = None
    text: str | None = None
    logprobs: tuple[float, ...] | None = None
    candidates: tuple[Candidates, ...] | None = None
    finish_reason: str = ""
    messages: tuple[Mapping[str, Any], ...] | None = None
    budget: int | None = None
    has_reasoning: bool = False

    @property
    def tokens(self) -> Sequence[Token] | None:
        """The new tokens that the log-probabilities belong to."""
        return self.pieces if self.token_ids is None else self.token_ids

    def with_prompt(self, prompt: object, name: str) -> "Output":
        """Return the output with this prompt, text or token ids, if it names none itself."""
        if any(each is not None for each in (self.prompt, self.prompt_ids, self.messages)):
            return self
        text, ids = _prompt({"prompt": prompt}, name)
        return replace(self, prompt=text, prompt_ids=ids)


def to_record(output: Output) -> dict[str, Any]:
    """Return an output as an object of the JSONL form, which `from_record` reads."""
    record: dict[str, Any] = {
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_ids,
        "messages": output.messages,
        "token_ids": output.token_ids,
        "tokens": output.pieces,
        "text": output.text,
        "has_reasoning": output.has_reasoning or None,
        "finish_reason": output.finish_reason or None,
        "max_tokens": output.budget,
    }
    if output.logprobs is not None:
        record["logprobs"] = [_jsonable(each) for each in output.logprobs]
    if output.candidates is not None:
        places = []
        for place in output.candidates:
            places.append([[token, _jsonable(each)] for token, each in place])
        record["top_logprobs"] = places
    return {name: record[name] for name in KEYS if record.get(name) is not None}


def _jsonable(logprob: float) -> float | None:
    return None if math.isnan(logprob) else max(logprob, _LOWEST)


def from_record(where: str, record: Mapping[str, Any]) -> Output:
    """Return the output that an object of the JSONL form describes.

    Raises:
        ValueError: a field holds something else than its kind, or there is no output.
    """
    prompt, prompt_ids = _prompt(record, where)
    token_ids = _ids(where, "token_ids", record.get("token_ids"))
    pieces = _pieces(where, record.get("tokens"))
    text = _text(where, "text", record.get("text"))
    if token_ids is None and pieces is None and text is None:
        shown = ", ".join(repr(str(key)[:20]) for key in list(record)[:5]) or "no keys"
        raise ValueError(
            f"{where} has no output under 'token_ids', 'tokens' or 'text', but {shown}; see "
            "docs/audit.md for the form"
        )
    tokens: Sequence[Token] | None = pieces if token_ids is None else token_ids
    if token_ids is not None and pieces is not None and len(token_ids) != len(pieces):
        raise ValueError(
            f"{where} has {len(token_ids)} token_ids and {len(pieces)} tokens; write one of them, "
            "or as many of both"
        )
    count = None if tokens is None else len(tokens)
    return Output(
        where,
        prompt,
        prompt_ids,
        token_ids,
        pieces,
        text if text is not None or pieces is None else "".join(pieces),
        _logprobs(where, record.get("logprobs"), count),
        _all_candidates(where, record.get("top_logprobs"), count),
        read_reason(_text(where, "finish_reason", record.get("finish_reason"))),
        _messages(where, record.get("messages")),
        _budget(where, record),
        _flag(where, "has_reasoning", record.get("has_reasoning")),
    )


def read_reason(reason: str | None) -> str:
    """Return "stop" or "length" for what an engine calls so, or its own word."""
    word = (reason or "").lower()
    return _REASONS.get(word, word)


def _messages(where: str, value: object) -> tuple[Mapping[str, Any], ...] | None:
    if value is None:
        return None
    if not is_list(value) or not value or not all(_is_message(each) for each in value):
        raise ValueError(
            f"{where}: messages must be a list of objects with 'role' and 'content', got "
            f"{short(value)}; write them as they were sent"
        )
    return tuple(value)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and "content" in value


def _budget(where: str, record: Mapping[str, Any]) -> int | None:
    for key in BUDGETS:
        value = record.get(key)
        if value is not None and not is_int(value):
            raise ValueError(f"{where}: {key} must be an int, got {short(value)}; write a count")
        if value is not None and value >= 0:  # llama.cpp writes -1 for no limit
            return int(value)
    return None


def _flag(where: str, key: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {short(value)}; write one")
    return bool(value)


def _prompt(record: Mapping[str, Any], where: str) -> tuple[str | None, tuple[int, ...] | None]:
    prompt = record.get("prompt")
    ids = _ids(where, "prompt_token_ids", record.get("prompt_token_ids"))
    if prompt is None or isinstance(prompt, str):
        return prompt, ids
    if ids is None:
        ids = _ids(where, "prompt", prompt)
    return None, ids


def _ids(where: str, key: str, value: object) -> tuple[int, ...] | None:
    values = plain_list(value)
    if values is None:
        return None
    if not is_list(values):
        raise ValueError(
            f"{where}: {key} must be a list of token ids, got {short(value)}; write ints"
        )
    for i, each in enumerate(values):
        if not is_count(each):
            raise ValueError(
                f"{where}: {key}[{i}] must be a token id, an int >= 0, got {short(each)}; write "
                "the ids that the decoder gave"
            )
    return tuple(int(each) for each in values)


def _pieces(where: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not is_list(value) or not all(isinstance(each, str) for each in value):
        raise ValueError(
            f"{where}: tokens must be a list of texts, got {short(value)}; write token ids under "
            "'token_ids'"
        )
    return tuple(value)


def _text(where: str, key: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}: {key} must be a str, got {short(value)}; write a text")
    return value


def _logprobs(where: str, value: object, count: int | None) -> tuple[float, ...] | None:
    values = plain_list(value)
    if values is None:
        return None
    _check_length(where, "logprobs", values, count)
    return tuple(_logprob(f"{where}: logprobs[{i}]", each) for i, each in enumerate(values))


def _all_candidates(where: str, value: object, count: int | None) -> tuple[Candidates, ...] | None:
    values = plain_list(value)
    if values is None:
        return None
    _check_length(where, "top_logprobs", values, count)
    found = []
    for i, each in enumerate(values):
        found.append(_candidates(f"{where}: top_logprobs[{i}]", each))
    return tuple(found)


def _check_length(where: str, key: str, values: Any, count: int | None) -> None:
    if not is_list(values):
        raise ValueError(f"{where}: {key} must be a list, got {short(values)}; write one a token")
    if count is None:
        raise ValueError(
            f"{where}: {key} are given, but not the tokens that they belong to; write 'token_ids' "
            "or 'tokens' too"
        )
    if len(values) != count:
        raise ValueError(
            f"{where}: {key} has {len(values)} entries for {count} tokens; write one a token, null "
            "where it is not known"
        )


def _candidates(name: str, value: object) -> Candidates:
    """Return the candidates of one place, from pairs (token, log-probability) or an object."""
    if value is None:
        return ()
    entries = list(value.items()) if isinstance(value, Mapping) else value
    if not is_list(entries):
        raise ValueError(
            f"{name} must be a list of pairs [token, log-probability], got {short(value)}; write "
            "one pair a token"
        )
    found: list[tuple[Token, float]] = []
    for entry in entries:
        if not is_list(entry) or len(entry) != 2 or not (is_count(entry[0]) or _is_str(entry[0])):
            raise ValueError(
                f"{name} must hold pairs [token, log-probability], got {short(entry)}; write "
                "for instance [42, -0.25]"
            )
        found.append((entry[0], _logprob(name, entry[1])))
    found.sort(key=lambda pair: -pair[1] if not math.isnan(pair[1]) else math.inf)
    return tuple(found)


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _logprob(name: str, value: object) -> float:
    if value is None:
        return math.nan
    if not is_real(value) or value > _ROUNDING:
        raise ValueError(
            f"{name} must be a log-probability, a number <= 0, got {short(value)}; write natural "
            "logarithms, or null"
        )
    return min(float(value), 0.0)


def plain_list(value: Any) -> Any:
    """Return an array as a list, and what is none as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
