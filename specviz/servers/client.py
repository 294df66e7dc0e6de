"""Collect texts of a server that speaks the OpenAI protocol, one line a prompt, as they arrive.

The client is that of `openai`, an extra. A key comes from the environment, is sent to the server
and appears nowhere else.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tqdm.auto import tqdm

from specviz.checks.audit.forms import read_choice
from specviz.util.errors import ServerError
from specviz.util.files import as_write_error, check_writable, make_folder, write
from specviz.util.interrupt import interruptions_go_to
from specviz.util.validate import (
    is_count,
    is_list,
    quoted_path,
    require_bool,
    require_choice,
    require_int,
    require_list,
    require_mapping,
    require_path,
    require_positive,
    require_str,
    require_text,
    short,
    shown_path,
)

PATHS = {"completions": "/completions", "chat": "/chat/completions"}  # by protocol
KEY_NAME = "OPENAI_API_KEY"
NO_KEY = "none"  # the client asks for some key, and servers without one ignore it
RETRIES = 2
MAX_LOGPROBS = 20
MAX_CONCURRENCY = 1024
MAX_TIMEOUT_S = 1e6  # eleven days; a socket cannot wait arbitrarily long
# Fields that a request has anyway, or that would override them; whole answers alone are read.
_OWN_FIELDS = (
    "model", "prompt", "messages", "temperature", "stream", "max_tokens", "max_completion_tokens",
    "logprobs", "top_logprobs",
)  # fmt: skip
# What a server may add about its drafts: vLLM the first, SGLang the second. See `log`.
_STATISTICS = ("metrics", "sglext")
_ADDRESS = "check that the address is that of an OpenAI API, with its /v1"

Prompt = str | Sequence[int]
Record = dict[str, Any]


def fetch_outputs(
    url: str,
    prompts: Sequence[Prompt],
    out: str | os.PathLike[str],
    *,
    model: str | None = None,
    protocol: str = "completions",
    max_new_tokens: int = 128,
    concurrency: int = 4,
    timeout_s: float = 120.0,
    logprobs: int | None = None,
    extra: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Path:
    """Let a server continue `prompts` greedily, and write its texts to `out`.

    Each line is a JSON object: index, prompt, text, finish_reason, usage, model, max_tokens and
    seconds; in a chat, messages; token ids, log-probabilities and statistics of drafts where the
    server gives them. It is the form that `sv.audit` reads. A finished file is in the order of the
    prompts. If the server fails, or the user interrupts, the file has what had arrived.

    Args:
        url: the base of the server's API, for instance "http://localhost:8000/v1".
        prompts: texts; token ids only with protocol="completions".
        out: a new file that ends in .jsonl. The conditions go beside it, to .json.
        model: the model to ask for; None: the only one that the server lists.
        protocol: "completions", or "chat", where each prompt becomes a user's message and the
            server puts it into its model's chat template.
        max_new_tokens: budget of each text.
        concurrency: requests under way at once.
        timeout_s: seconds that an answer may take. A request that fails is tried twice more.
        logprobs: ask for the log-probabilities of so many tokens at each place; None: for none.
            Not every server gives them.
        extra: further fields of each request, for instance {"return_token_ids": True} for vLLM or
            {"return_spec_tokens_details": True} for SGLang.
        progress: show a progress bar.

    Raises:
        ValueError: an argument cannot be used, or `out` exists.
        ImportError: `openai` is not installed.
        ServerError: the server fails.
        WriteError: `out` cannot be written.
    """
    check_url("url", url)
    require_choice("protocol", protocol, PATHS)
    asked = _checked_prompts(prompts, protocol)
    if model is not None and not require_str("model", model):
        raise ValueError("model='' is empty; pass the name of a model, or None")
    budget = require_int("max_new_tokens", max_new_tokens, maximum=2**31 - 1)
    concurrency = require_int("concurrency", concurrency, maximum=MAX_CONCURRENCY)
    require_positive("timeout_s", timeout_s, maximum=MAX_TIMEOUT_S)
    fields: Record = {"temperature": 0.0, "max_tokens": budget}
    if logprobs is not None:
        logprobs = require_int("logprobs", logprobs, maximum=MAX_LOGPROBS)
        of_chat = {"logprobs": True, "top_logprobs": logprobs}
        fields |= of_chat if protocol == "chat" else {"logprobs": logprobs}
    further = _further_fields({} if extra is None else extra)
    require_bool("progress", progress)
    place = _new_file(out)
    server = Server(url, protocol, float(timeout_s), fields | further)
    conditions = {
        "url": url,
        "model": server.find_model(model),
        "protocol": protocol,
        "max_new_tokens": budget,
        "temperature": 0.0,
        "logprobs": logprobs,
        "concurrency": concurrency,
        "prompts": len(asked),
        "extra": further,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"specviz": version("specviz"), "openai": version("openai")},
    }
    make_folder(place.parent)
    write(place.with_suffix(".json"), (json.dumps(conditions, indent=2) + "\n").encode())
    lines: dict[int, bytes] = {}
    bar = tqdm(total=len(asked), desc="texts", unit="text", disable=not progress)
    try:
        with as_write_error(place), place.open("wb") as file, bar:

            def keep(number: int, record: Record) -> None:
                entry = {"index": number, "prompt": asked[number]} | record
                lines[number] = json.dumps(entry).encode() + b"\n"
                file.write(lines[number])
                file.flush()
                bar.update()

            _ask_all(server.ask, asked, concurrency, keep)
    except BaseException:
        if place.is_file() and not place.stat().st_size:  # nothing that could be lost
            place.unlink()
            place.with_suffix(".json").unlink()
        raise
    return write(place, b"".join(lines[number] for number in sorted(lines)))


def _ask_all(
    ask: Callable[[Prompt], Record],
    prompts: Sequence[Prompt],
    concurrency: int,
    keep: Callable[[int, Record], None],
) -> None:
    """Ask for all prompts, at most `concurrency` at once, and keep each record as it arrives.

    After a request that goes wrong, no further one begins, and what has arrived by then is kept.
    """
    waiting = deque(range(len(prompts)))
    arrived: queue.SimpleQueue[tuple[int, Record | BaseException]] = queue.SimpleQueue()
    stopped = threading.Event()

    def work() -> None:
        with suppress(IndexError):  # none waits any more
            while not stopped.is_set():
                number = waiting.popleft()
                try:
                    arrived.put((number, ask(prompts[number])))
                except Exception as error:
                    stopped.set()
                    arrived.put((number, error))

    for _ in range(min(concurrency, len(prompts))):
        # They end with the process, so an interruption need not wait for a slow server.
        threading.Thread(target=work, daemon=True).start()
    failure: BaseException | None = None
    left = len(prompts)
    with interruptions_go_to(lambda error: arrived.put((-1, error))):
        while left if failure is None else not arrived.empty():
            number, found = arrived.get()
            left -= 1
            if isinstance(found, BaseException):
                stopped.set()
                failure = failure or found
            else:
                keep(number, found)
    if failure is not None:
        raise failure


class Server:
    """A server, and how to ask it; `fields` go with each request."""

    def __init__(self, url: str, protocol: str, timeout_s: float, fields: Record) -> None:
        if find_spec("openai") is None:
            raise ImportError(
                'a server needs openai, which is not installed; run: pip install "specviz[servers]"'
            )
        self._openai = import_module("openai")
        key = os.environ.get(KEY_NAME) or NO_KEY
        self._client = self._openai.OpenAI(
            base_url=url, api_key=key, timeout=timeout_s, max_retries=RETRIES
        )
        self._url = url
        self._protocol = protocol
        self._timeout_s = timeout_s
        self._fields = fields
        self._listed: list[str] = []

    def find_model(self, model: str | None) -> str:
        """Find the server, and return the model to ask for.

        Raises:
            ServerError: it does not answer, or the model is not named and not the only one.
        """
        plain = self._answer("/models", None)
        with suppress(KeyError, TypeError):  # it may list none, or in a form of its own
            self._listed = [str(each["id"]) for each in plain["data"]]
        if model is None:
            if len(self._listed) != 1:
                shown = ", ".join(self._listed[:5]) or "none"
                raise ServerError(
                    f"{self._url}: the models listed are {shown}; name one with model"
                )
            model = self._listed[0]
        self._fields["model"] = model
        return model

    def ask(self, prompt: Prompt) -> Record:
        """Return the greedy continuation of a prompt as a record, with the budget and the messages.

        Raises:
            ServerError: no answer, one that is not of the protocol, or one of another model.
        """
        is_chat = self._protocol == "chat"
        messages = {"messages": [{"role": "user", "content": prompt}]}
        sent = messages if is_chat else {"prompt": prompt}
        began = time.perf_counter()
        plain = self._answer(PATHS[self._protocol], self._fields | sent)
        seconds = round(time.perf_counter() - began, 4)
        record = None
        with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            record = self._read(plain)
        if record is None:
            raise ServerError(
                f"{self._url}: the answer has no text or no model, got {short(plain)}; {_ADDRESS}"
            )
        self._check_model(record["model"])
        record |= {"max_tokens": self._fields["max_tokens"], "seconds": seconds}
        return record | (messages if is_chat else {})

    def _read(self, plain: Mapping[str, Any]) -> Record | None:
        """Return the record of an answer; None if there is no text or no model in it."""
        choice = plain["choices"][0]
        if self._protocol == "chat" and "message" not in choice:
            return None
        record = read_choice(plain, choice)
        if record is None or not isinstance(plain["model"], str):
            return None
        usage = plain.get("usage") or {}
        names = ("prompt_tokens", "completion_tokens")
        record["usage"] = {name: usage[name] for name in names if is_count(usage.get(name))}
        record["model"] = plain["model"]
        known = {name: plain.get(name) for name in _STATISTICS}
        return record | {name: each for name, each in known.items() if isinstance(each, Mapping)}

    def _check_model(self, answered: str) -> None:
        """Raise ServerError if another model answered than the one that was asked for."""
        asked = self._fields["model"]
        # transformers serve appends the revision.
        if answered != asked and answered.rpartition("@")[0] != asked:
            raise ServerError(
                f"{self._url}: model={short(asked)} was asked for, but {short(answered)} "
                "answered; name that one if you mean it"
            )
        # A server may repeat whatever name it is sent, so a repetition proves nothing.
        if answered == asked and self._listed and asked not in self._listed:
            raise ServerError(
                f"{self._url}: model={short(asked)} is not among those listed, "
                f"{', '.join(self._listed[:5])}, and the server repeats the name; pass one of those"
            )

    def _answer(self, path: str, body: Record | None) -> Any:
        """Return the plain values of an answer, without what the client makes of them.

        Raises:
            ServerError: there is none, or it is not JSON.
        """
        response = import_module("httpx").Response  # the client is built on it
        try:
            if body is None:
                raw = self._client.with_options(max_retries=0).get(path, cast_to=response)
            else:
                raw = self._client.post(path, body=body, cast_to=response)
        except Exception as error:
            status = getattr(error, "status_code", 0)
            if body is None and (status == 404 or status >= 500):
                return {}  # some servers have no list of models, or fail at it
            raise self._explained(error) from None
        try:
            return json.loads(raw.text)
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise ServerError(
                f"{self._url}: the answer is not JSON, got {_shown(raw.text.strip())}; {_ADDRESS}"
            ) from None

    def _explained(self, error: Exception) -> ServerError:
        """Return an error of the client as one sentence."""
        openai = self._openai
        words = f"the answer cannot be read ({_shown(str(error))}); check the address"
        if isinstance(error, openai.APITimeoutError):
            words = f"no answer within {self._timeout_s:g} s; "
            words += "raise the timeout, or lower the concurrency"
        elif isinstance(error, openai.APIConnectionError):
            cause = _shown(str(error.__cause__ or error))
            words = f"cannot be reached ({cause}); start the server, or correct the address"
        elif isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            words = f"refuses the key; set {KEY_NAME} in the environment"
        elif isinstance(error, openai.APIStatusError):
            words = f"answers with status {error.status_code}, {_shown(error.response.text)}; "
            words += "see the server's own log"
        return ServerError(f"{self._url}: {words}")


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


def _new_file(out: str | os.PathLike[str]) -> Path:
    """Return a path at which texts and their conditions can be written, and nothing is yet."""
    place = require_path("out", out)
    if place.suffix != ".jsonl":  # two files of other endings may share their conditions
        shown = quoted_path(place)
        raise ValueError(f"out must end in .jsonl, got {shown}; add it: conditions go to .json")
    for path in (place, place.with_suffix(".json")):
        if path.exists():
            raise ValueError(f"out: {shown_path(path)} exists; choose another file, or delete it")
    check_writable(place)
    return place


def _checked_prompts(prompts: Any, protocol: str) -> list[Prompt]:
    """Return texts, or token ids if the protocol can carry them."""
    require_list("prompts", prompts, "pass a list of texts")
    found: list[Prompt] = []
    for number, prompt in enumerate(prompts):
        name = f"prompts[{number}]"
        if isinstance(prompt, str):
            require_text(name, prompt)
            found.append(prompt)
        elif protocol == "chat" or not is_list(prompt) or not prompt:
            raise ValueError(f"{name} must be a text, got {short(prompt)}; pass a str")
        elif not all(map(is_count, prompt)):
            raise ValueError(f"{name} must be token ids, got {short(prompt)}; pass ints >= 0")
        else:
            found.append([int(token) for token in prompt])  # numbers of numpy, too
    return found


def _further_fields(extra: Any) -> Record:
    """Return further fields of a request as JSON carries them."""
    require_mapping("extra", extra, "pass further fields of the request")
    try:
        text = json.dumps(dict(extra), allow_nan=False, ensure_ascii=False)
        found: Record = json.loads(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"extra must be what JSON can hold, got {short(extra)} ({short(str(error))}); "
            "pass texts, finite numbers, bools, None, lists and dicts"
        ) from None
    for name in _OWN_FIELDS:
        if name in found:
            raise ValueError(
                f"extra must hold further fields only, got {short(name)}, which is set already; "
                "leave it out"
            )
    return found


def _shown(text: str) -> str:
    """Return a server's words, short and without the key, which some servers repeat."""
    key = os.environ.get(KEY_NAME)
    return short(text.replace(key, "***") if key else text)
