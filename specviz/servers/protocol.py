"""One server that speaks the OpenAI protocol: its model, one text at a time, and its faults.

The client is that of `openai`, an extra. A key comes from the environment, is sent to the server
and appears nowhere else. Not known here: files, threads, and other servers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from specviz.checks.audit.answers import join_chunks
from specviz.servers.answer import Answer, read_answer
from specviz.util.errors import ServerError
from specviz.util.validate import (
    is_list,
    require_choice,
    require_int,
    require_mapping,
    require_positive,
    require_str,
    short,
)

PROTOCOLS = ("completions", "chat")
KEY_NAME = "OPENAI_API_KEY"
NO_KEY = "none"  # the client asks for some key, and servers without one ignore it
RETRIES = 2
MAX_LOGPROBS = 20
MAX_TIMEOUT_S = 1e6  # eleven days; a socket cannot wait for any number of seconds
# The fields that a request has anyway, or that would override them, and what to do instead.
_OWN_FIELDS = {
    "model": "pass model",
    "prompt": "pass prompts",
    "messages": "pass prompts",
    "temperature": "leave it out, since all texts are greedy",
    "max_tokens": "pass max_new_tokens",
    "max_completion_tokens": "pass max_new_tokens",
    "logprobs": "pass logprobs",
    "top_logprobs": "pass logprobs",
}


@dataclass(frozen=True)
class Server:
    """A server and how to ask it.

    Attributes:
        url: the base of its API, for instance "http://localhost:8000/v1".
        model: the model to ask for; None: the only one that the server lists.
        protocol: "completions", or "chat", where each prompt becomes a user's message and the
            server puts it into its model's chat template.
        max_new_tokens: budget of each text.
        timeout_s: seconds that an answer may take.
        logprobs: ask for the log-probabilities of so many tokens at each place; None: for none.
            Not every server gives them.
        extra: further fields of each request, for instance {"return_token_ids": True} for vLLM or
            {"return_spec_tokens_details": True} for SGLang. It is kept as JSON carries it: a tuple
            becomes a list. Fields that the other arguments set are refused.

    Raises:
        ValueError: an argument cannot be used.
        ImportError: `openai` is not installed.
    """

    url: str
    model: str | None = None
    protocol: str = "completions"
    max_new_tokens: int = 128
    timeout_s: float = 120.0
    logprobs: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_url("url", self.url)
        if self.model is not None and not require_str("model", self.model):
            raise ValueError("model='' is empty; pass the name of a model, or None")
        require_choice("protocol", self.protocol, PROTOCOLS)
        require_int("max_new_tokens", self.max_new_tokens, maximum=2**31 - 1)
        require_positive("timeout_s", self.timeout_s, maximum=MAX_TIMEOUT_S)
        if self.logprobs is not None:
            require_int("logprobs", self.logprobs, maximum=MAX_LOGPROBS)
        object.__setattr__(self, "extra", _fields("extra", self.extra))
        if find_spec("openai") is None:
            raise ImportError(
                'a server needs openai, which is not installed; run: pip install "specviz[servers]"'
            )

    def connect(self) -> Connection:
        """Find the server and its model.

        Raises:
            ServerError: it does not answer, or the model is not named and not the only one.
        """
        client = import_module("openai").OpenAI(
            base_url=self.url,
            api_key=os.environ.get(KEY_NAME) or NO_KEY,
            timeout=float(self.timeout_s),
            max_retries=RETRIES,
        )
        listed = _listed_models(client, self.url)
        model = self.model
        if model is None:
            if len(listed) != 1:
                names = ", ".join(listed[:5]) or "none"
                raise ServerError(f"{self.url}: the models listed are {names}; name one with model")
            model = listed[0]
        return Connection(self, client, model, tuple(listed))


@dataclass(frozen=True)
class Connection:
    """A server that answers, its client, the model to ask for, and the models it lists."""

    server: Server
    client: Any = field(repr=False)
    model: str
    listed: tuple[str, ...]

    def ask(self, prompt: str | Sequence[int]) -> Answer:
        """Return the greedy continuation of a prompt, with the budget and the messages sent.

        Raises:
            ServerError: no answer, one that is not of the protocol, or one of another model.
        """
        server = self.server
        count = None if server.logprobs is None else int(server.logprobs)
        ask: Any = self.client.completions.with_raw_response.create
        ids_or_text = prompt if isinstance(prompt, str) else list(map(int, prompt))
        settings: dict[str, Any] = {"prompt": ids_or_text, "logprobs": count}
        if server.protocol == "chat":
            ask = self.client.chat.completions.with_raw_response.create
            settings = {"messages": [{"role": "user", "content": prompt}]}
            settings["top_logprobs"] = count
            settings["logprobs"] = None if count is None else True
        try:
            raw = ask(
                model=self.model,
                temperature=0.0,
                max_tokens=int(server.max_new_tokens),
                extra_body=dict(server.extra),
                **{name: value for name, value in settings.items() if value is not None},
            )
        except Exception as error:
            raise explained(error, server.url, server.timeout_s) from None
        answer = _read(raw, server)
        self._check_model(answer.model)
        sent = {"max_tokens": int(server.max_new_tokens)}
        sent |= {name: value for name, value in settings.items() if name == "messages"}
        return replace(answer, record={**answer.record, **sent})

    def _check_model(self, answered: str) -> None:
        """Raise ServerError if another model answered than the one that was asked for."""
        asked = self.model
        # transformers serve appends the revision.
        if answered != asked and answered.rpartition("@")[0] != asked:
            raise ServerError(
                f"{self.server.url}: model={short(asked)} was asked for, but {short(answered)} "
                "answered; name that one if you mean it"
            )
        # A server may repeat whatever name it is sent, so a repetition proves nothing.
        if answered == asked and self.listed and asked not in self.listed:
            raise ServerError(
                f"{self.server.url}: model={short(asked)} is not among those listed, "
                f"{', '.join(self.listed[:5])}, and the server repeats the name; pass one of those"
            )


def check_url(name: str, url: object) -> str:
    """Return `url`. Raise ValueError unless it is an HTTP address without a key in it."""
    text = require_str(name, url, "pass for instance http://localhost:8000/v1")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable()
        usable = usable and text.isascii() and " " not in text and parts.port != 0
        (parts.hostname or "").encode("idna")  # as the clients do; an empty or long label fails
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"{name} must be an address of a server, got {short(url)}; "
            "pass for instance http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            f"{name} must hold no user, password or query, got one at {parts.hostname}; "
            f"put a key into the environment as {KEY_NAME}"
        )
    return text


def _fields(name: str, fields: object) -> dict[str, Any]:
    """Return further fields of a request as JSON carries them, to compare with those of a file."""
    require_mapping(name, fields, "pass further fields of the request")
    assert isinstance(fields, Mapping)
    try:
        text = json.dumps(dict(fields), allow_nan=False, ensure_ascii=False)
        found: dict[str, Any] = json.loads(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} must be what JSON can hold, got {short(fields)} ({short(str(error))}); "
            "pass texts, finite numbers, bools, None, lists and dicts"
        ) from None
    for field_name, remedy in _OWN_FIELDS.items():
        if field_name in found:
            raise ValueError(
                f"{name} must hold further fields only, got {short(field_name)}, which is set "
                f"already; {remedy}"
            )
    return found


def _listed_models(client: Any, url: str) -> list[str]:
    """Return the names of the server's models; none if it cannot list them."""
    openai = import_module("openai")
    try:
        raw = client.with_options(max_retries=0).models.with_raw_response.list()
    except (openai.NotFoundError, openai.InternalServerError):
        return []  # some servers have no such page, or fail at it
    except Exception as error:
        raise explained(error, url, client.timeout) from None
    plain = _plain(raw, url)
    entries = plain.get("data") if isinstance(plain, Mapping) else None
    if not is_list(entries):
        return []
    names = [entry.get("id") for entry in entries if isinstance(entry, Mapping)]
    return [name for name in names if isinstance(name, str)]


def _read(raw: Any, server: Server) -> Answer:
    plain = _plain(raw, server.url)
    try:
        answer = read_answer(plain, server.protocol)
    except (AttributeError, KeyError, TypeError, ValueError):
        answer = None
    if answer is None:
        raise ServerError(
            f"{server.url}: the answer has no text or no model, got {short(plain)}; "
            "check that the address is that of an OpenAI API, with its /v1"
        )
    return answer


def _plain(raw: Any, url: str) -> Any:
    """Return the plain values of an answer, without what the client makes of them."""
    text = raw.http_response.text
    try:
        if raw.http_response.headers.get("content-type", "").startswith("text/event-stream"):
            parts = [line[5:] for line in text.split("\n") if line.startswith("data:")]
            return join_chunks(json.loads(part) for part in parts if part.strip() != "[DONE]")
        return json.loads(text)
    except (AttributeError, TypeError, ValueError, RecursionError):
        raise ServerError(
            f"{url}: the answer is not JSON, got {short(without_key(text.strip()))}; "
            "check that the address is that of an OpenAI API, with its /v1"
        ) from None


def without_key(text: str) -> str:
    """Return a server's words without the key, which some servers repeat."""
    key = os.environ.get(KEY_NAME)
    return text.replace(key, "***") if key else text


def explained(error: Exception, url: str, timeout_s: float) -> ServerError:
    """Return an error of the client as one sentence."""
    openai = import_module("openai")
    if isinstance(error, openai.APITimeoutError):
        return ServerError(
            f"{url}: no answer within {timeout_s:g} s, tried {1 + RETRIES} times; "
            "raise the timeout, or lower the concurrency"
        )
    if isinstance(error, openai.APIConnectionError):
        cause = short(without_key(str(error.__cause__ or error)))
        return ServerError(f"{url}: cannot be reached ({cause}); start the server, or correct it")
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return ServerError(f"{url}: refuses the key; set {KEY_NAME} in the environment")
    if isinstance(error, openai.APIStatusError):
        words = short(without_key(error.response.text))
        return ServerError(
            f"{url}: answers with status {error.status_code}, {words}; see the server's own log"
        )
    words = short(without_key(str(error)))
    return ServerError(f"{url}: the answer cannot be read ({words}); check the address")
