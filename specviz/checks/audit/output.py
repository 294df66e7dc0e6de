"""What a decoder wrote after one prompt, in one form for all engines, and that form as JSON.
`where` says in errors which output is wrong: "line 3 of a.jsonl" or "reference[2]".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.scores import Place, Token
from specviz.util.validate import is_count, is_int, is_list, is_real, short

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
# What the entries of a list must be.
_ID = "a token id, an int >= 0"
_LOGPROB = "a log-probability, a natural logarithm <= 0, or null"
_PAIRS = "a list of pairs [token, log-probability], such as [[42, -0.25]]"


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
    candidates: tuple[Place, ...] | None = None
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

    @property
    def is_cut(self) -> bool:
        """Whether the text did not end by itself, but because its run did."""
        return self.finish_reason in ("interrupted", "elsewhere")

    @property
    def has_prompt(self) -> bool:
        return self.prompt is not None or self.prompt_ids is not None

    def place(self, m: int) -> Place:
        """Return the known log-probabilities at one place, with the written token's among them."""
        known = dict(self.candidates[m]) if self.candidates is not None else {}
        own = math.nan if self.logprobs is None else self.logprobs[m]
        if self.tokens is not None and not math.isnan(own):
            known.setdefault(self.tokens[m], own)
        return known

    def violated_at(self, at: int) -> str:
        """Return the rule that its record had violated when it emitted a token, "" if none."""
        return "" if self.sound is None or at < self.sound else self.violated

    def with_prompt(self, prompt: object, name: str) -> "Output":
        """Return the output with this prompt, text, token ids or messages, if it names none."""
        if self.has_prompt or self.messages is not None:
            return self
        if is_list(prompt) and prompt and isinstance(prompt[0], Mapping):
            return replace(self, **_asked(name, {"messages": prompt}), is_chat=True)
        asked = _asked(name, {"prompt": prompt})
        if self.is_chat and asked["prompt"] is not None:
            asked["messages"] = ({"role": "user", "content": prompt},)
        return replace(self, **asked)


def from_record(
    where: str, record: Mapping[str, Any], *, is_chat: bool = False, key: str = ""
) -> Output:
    """Return the output that an object of the JSONL form describes.

    Raises ValueError if a field holds something else than its kind, or there is no output.
    """
    token_ids = _list(where, record, "token_ids", is_count, _ID)
    pieces = _list(where, record, "tokens", _is_text, "a text")
    text = _field(where, record, "text", _is_text, "a str")
    if token_ids is None and pieces is None and text is None:
        raise ValueError(f"{where} has null for 'token_ids', 'tokens' and 'text'; write one")
    tokens = pieces if token_ids is None else token_ids
    logprobs = _list(where, record, "logprobs", _is_logprob, _LOGPROB)
    top = _list(where, record, "top_logprobs", _are_pairs, _PAIRS)
    for name, found in (("tokens", pieces), ("logprobs", logprobs), ("top_logprobs", top)):
        if found is not None and (tokens is None or len(found) != len(tokens)):
            count = "no" if tokens is None else len(tokens)
            raise ValueError(
                f"{where}: {name} has {len(found)} entries for {count} tokens; write one for each "
                "of 'token_ids' or 'tokens', null where it is not known"
            )
    if text is not None:
        # JSON may hold halves of a letter, which no tokenizer takes.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    elif pieces is not None:
        text = "".join(pieces)
    reason = _field(where, record, "finish_reason", _is_text, "a str")
    has_reasoning = _field(where, record, "has_reasoning", _is_bool, "true or false")
    budgets = [_field(where, record, name, is_int, "an int") for name in BUDGETS]
    return Output(
        where,
        token_ids=None if token_ids is None else tuple(map(int, token_ids)),
        pieces=pieces,
        text=text,
        logprobs=None if logprobs is None else tuple(map(_as_logprob, logprobs)),
        candidates=None if top is None else tuple(map(_place, top)),
        finish_reason=read_reason(where, reason),
        # llama.cpp writes -1 for no limit.
        budget=next((int(each) for each in budgets if each is not None and each >= 0), None),
        has_reasoning=bool(has_reasoning),
        is_chat=is_chat or record.get("messages") is not None,
        key=key,
        **_asked(where, record),
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


def plain_list(value: Any) -> Any:
    """Return an array as a list, and what is none as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _asked(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an output that say after what it was written."""
    prompt = record.get("prompt")
    ids = _list(where, record, "prompt_token_ids", is_count, _ID)
    if prompt is not None and not isinstance(prompt, str):
        kind = f"{_ID}, of a prompt that is no text"
        ids = _list(where, record, "prompt", is_count, kind) if ids is None else ids
        prompt = None
    kind = "an object with 'role' and 'content'"
    messages = _list(where, record, "messages", _is_message, kind) or None
    return {"prompt": prompt, "prompt_ids": ids, "messages": messages}


def _field(
    where: str, record: Mapping[str, Any], key: str, is_right: Callable[[Any], bool], kind: str
) -> Any:
    """Return a value, None if there is none. Raise ValueError if it is of another kind."""
    value = record.get(key)
    if value is not None and not is_right(value):
        raise ValueError(
            f"{where}: {key} must be {kind}, got {short(value)}; docs/debug.md has the form"
        )
    return value


def _list(
    where: str, record: Mapping[str, Any], key: str, is_right: Callable[[Any], bool], kind: str
) -> tuple[Any, ...] | None:
    """Return a list's entries, None if there is none. Raise ValueError for other kinds."""
    values = plain_list(record.get(key))
    if values is None:
        return None
    if not is_list(values):
        raise ValueError(
            f"{where}: {key} must be a list, got {short(values)}; each entry is {kind}"
        )
    for i, each in enumerate(values):
        if not is_right(each):
            raise ValueError(
                f"{where}: {key}[{i}] must be {kind}, got {short(each)}; docs/debug.md has the form"
            )
    return tuple(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and "content" in value


def _is_logprob(value: object) -> bool:
    return value is None or (is_real(value) and not value > _ROUNDING)


def _are_pairs(value: Any) -> bool:
    entries = list(value.items()) if isinstance(value, Mapping) else value or ()
    return is_list(entries) and all(
        is_list(each)
        and len(each) == 2
        and (is_count(each[0]) or _is_text(each[0]))
        and _is_logprob(each[1])
        for each in entries
    )


def _place(value: Any) -> Place:
    entries = value.items() if isinstance(value, Mapping) else value or ()
    found = {token: _as_logprob(each) for token, each in entries}
    return {token: each for token, each in found.items() if not math.isnan(each)}


def _as_logprob(value: float | None) -> float:
    return math.nan if value is None else min(float(value), 0.0)
