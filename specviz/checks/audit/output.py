"""What a decoder wrote after one prompt, in one form for all engines, and that form as JSON.

Contract: values from files and foreign objects go in, checked `Output`s come out. `where` says in
errors which one is wrong: "line 3 of a.jsonl" or "reference[2]". Not known here: files, models.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.scores import Place, Token
from specviz.util.validate import is_count, is_int, is_list, is_real, short

Candidates = tuple[tuple[Token, float], ...]  # tokens with their log-probabilities, best first

# What engines call the budget of new tokens, the name of the JSONL form first.
BUDGETS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_gen_toks", "n_predict")
# What engines call the two ends of a text. "none" is llama.cpp's word for a text under way.
_REASONS = {
    **dict.fromkeys(("eos", "eos_token", "stop_sequence", "word", "end_turn"), "stop"),
    **dict.fromkeys(("limit", "budget", "max_tokens", "max_new_tokens"), "length"),
    "none": "",
}
_FAILED = ("abort", "aborted", "error", "cancelled", "canceled", "timeout")
# A log-probability is at most 0. Some engines round their sums a little above it.
_ROUNDING = 1e-3


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
        is_chat: whether the prompt was put into a chat template, by a server for instance.
        key: what its file calls the prompt, such as "custom_id request-1 0"; "" if nothing.
        is_recorded: whether a record of specviz brought the candidates.
        violated: the first invariant that this record violates, "" if none.
        sound: how many tokens were emitted before that; None if all.
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
    is_chat: bool = False
    key: str = ""
    is_recorded: bool = False
    violated: str = ""
    sound: int | None = None

    @property
    def tokens(self) -> Sequence[Token] | None:
        """The new tokens that the log-probabilities belong to."""
        return self.pieces if self.token_ids is None else self.token_ids

    def place(self, m: int) -> Place:
        """Return the known log-probabilities at one place, with the written token's among them."""
        known = dict(self.candidates[m]) if self.candidates is not None else {}
        if self.logprobs is not None and self.tokens is not None:
            known.setdefault(self.tokens[m], self.logprobs[m])
        return {token: value for token, value in known.items() if not math.isnan(value)}

    @property
    def is_cut(self) -> bool:
        """Whether the text did not end by itself, but because its run did."""
        return self.finish_reason in ("interrupted", "elsewhere")

    def violated_at(self, at: int) -> str:
        """Return the rule that its record had violated when it emitted a token, "" if none."""
        return "" if self.sound is None or at < self.sound else self.violated

    def with_prompt(self, prompt: object, name: str) -> "Output":
        """Return the output with this prompt, text, token ids or messages, if it names none."""
        if any(each is not None for each in (self.prompt, self.prompt_ids, self.messages)):
            return self
        if is_list(prompt) and prompt and isinstance(prompt[0], Mapping):
            return replace(self, messages=_messages(name, prompt), is_chat=True)
        text, ids = _prompt({"prompt": prompt}, name)
        messages = None
        if self.is_chat and text is not None:
            messages = ({"role": "user", "content": text},)
        return replace(self, prompt=text, prompt_ids=ids, messages=messages)


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
        raise ValueError(f"{where} has null for 'token_ids', 'tokens' and 'text'; write one")
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
        read_reason(where, _text(where, "finish_reason", record.get("finish_reason"))),
        _messages(where, record.get("messages")),
        _budget(where, record),
        _flag(where, "has_reasoning", record.get("has_reasoning")),
        record.get("messages") is not None,
    )


def read_reason(where: str, reason: str | None) -> str:
    """Return "stop" or "length" for what an engine calls so, or its own word.

    Raises ValueError if the request failed.
    """
    word = (reason or "").lower()
    if word in _FAILED:
        raise failed(where, word)
    return _REASONS.get(word, word)


def failed(where: str, error: object) -> ValueError:
    """Return the error of an output whose request failed."""
    return ValueError(
        f"{where} is a request that failed, {short(error)}; ask again, or leave its prompt out of "
        "both sides"
    )


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
    if value is None:
        return None
    # JSON may hold halves of a letter, which no tokenizer takes.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
