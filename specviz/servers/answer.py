"""One answer of a server, with the model that gave it.

Contract: an answer as plain values goes in. What is not of the protocol is left out of the record.
Not known here: the client, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz.checks.audit.answers import read_choice
from specviz.util.validate import is_count, is_list

# What a server may add about its drafts: vLLM the first, SGLang the second. See `log`.
STATISTICS = ("metrics", "sglext")


@dataclass(frozen=True)
class Answer:
    """What a server returned for one prompt.

    Attributes:
        model: the name of the model that answered.
        record: text, finish_reason, usage; has_reasoning, token_ids, prompt_token_ids, tokens,
            logprobs, top_logprobs and the statistics of drafts where the server gives them.
    """

    model: str
    record: Mapping[str, Any]


def read_answer(plain: Mapping[str, Any], protocol: str) -> Answer | None:
    """Return the answer; None if there is no text or no model in it."""
    choices = plain.get("choices")
    choice = choices[0] if is_list(choices) and choices else None
    if not isinstance(choice, Mapping) or (protocol == "chat" and "message" not in choice):
        return None
    record = read_choice(plain, choice)
    model = plain.get("model")
    if record is None or not isinstance(model, str):
        return None
    record["usage"] = _usage(plain.get("usage"))
    record |= {name: plain[name] for name in STATISTICS if isinstance(plain.get(name), Mapping)}
    return Answer(model, record)


def _usage(usage: object) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens")
    known = usage if isinstance(usage, Mapping) else {}
    return {name: known[name] for name in names if is_count(known.get(name))}
