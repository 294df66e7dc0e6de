"""Collect texts of a server that speaks the OpenAI protocol, one line a prompt, as they arrive.

The client is that of `openai`, an extra. A key comes from the environment, is sent to the server
and appears nowhere else. What has arrived is kept, whatever happens then.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
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

PROTOCOLS = ("completions", "chat")
KEY_NAME = "OPENAI_API_KEY"
NO_KEY = "none"  # the client asks for some key, and servers without one ignore it
RETRIES = 2
MAX_LOGPROBS = 20
MAX_CONCURRENCY = 1024
MAX_TIMEOUT_S = 1e6  # eleven days; a socket cannot wait arbitrarily long
# Fields that a request has anyway, or that would override them, and what to do instead.
_OWN_FIELDS = {
    "model": "pass model",
    "prompt": "pass prompts",
    "messages": "pass prompts",
    "temperature": "leave it out, since all texts are greedy",
    "stream": "leave it out, since whole answers are read",
    "max_tokens": "pass max_new_tokens",
    "max_completion_tokens": "pass max_new_tokens",
    "logprobs": "pass logprobs",
    "top_logprobs": "pass logprobs",
}
# What a server may add about its drafts: vLLM the first, SGLang the second. See `log`.
_STATISTICS = ("metrics", "sglext")

Prompt = str | Sequence[int]
# The number of a prompt, and its record or what went wrong.
Outcome = tuple[int, dict[str, Any] | BaseException]


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
    _check_prompts(prompts, protocol)
    require_int("concurrency", concurrency, maximum=MAX_CONCURRENCY)
    require_bool("progress", progress)
    server = Server(url, model, protocol, max_new_tokens, timeout_s, logprobs, extra)
    place = require_path("out", out)
    if place.suffix != ".jsonl":  # two files of other endings may share their conditions
        shown = quoted_path(place)
        raise ValueError(f"out must end in .jsonl, got {shown}; add it: conditions go to .json")
    for path in (place, place.with_suffix(".json")):
        if path.exists():
            raise ValueError(f"out: {shown_path(path)} exists; choose another file, or delete it")
    check_writable(place)
    conditions = {
        "url": url,
        "model": server.find_model(),
        "protocol": protocol,
        "max_new_tokens": int(max_new_tokens),
        "temperature": 0.0,
        "logprobs": None if logprobs is None else int(logprobs),
        "concurrency": int(concurrency),
        "prompts": len(prompts),
        "extra": server.extra,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"specviz": version("specviz"), "openai": version("openai")},
    }
    make_folder(place.parent)
    write(place.with_suffix(".json"), (json.dumps(conditions, indent=2) + "\n").encode())
    try:
        with as_write_error(place), place.open("wb") as file:
            lines = _collect(server.ask, prompts, concurrency, file, progress)
    except BaseException:
        if place.is_file() and not place.stat().st_size:  # nothing that could be lost
            place.unlink()
            place.with_suffix(".json").unlink()
        raise
    return write(place, b"".join(lines[number] for number in sorted(lines)))


def _collect(
    ask: Callable[[Prompt], dict[str, Any]],
    prompts: Sequence[Prompt],
    concurrency: int,
    file: BinaryIO,
    progress: bool,
) -> dict[int, bytes]:
    """Ask for all prompts, and write each line when it arrives. Return the lines by prompt."""
    arrived: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    stopped = threading.Event()
    _start(ask, prompts, concurrency, arrived, stopped)
    lines: dict[int, bytes] = {}

    def keep(number: int, record: dict[str, Any]) -> None:
        prompt = prompts[number]
        entry = {"index": number, "prompt": prompt if isinstance(prompt, str) else _ids(prompt)}
        lines[number] = json.dumps(entry | record).encode() + b"\n"
        file.write(lines[number])
        file.flush()

    bar = tqdm(total=len(prompts), desc="texts", unit="text", disable=not progress)
    with bar, interruptions_go_to(lambda error: arrived.put((-1, error))):
        for _ in prompts:
            number, found = arrived.get()
            if isinstance(found, BaseException):
                stopped.set()
                while not arrived.empty():
                    number, late = arrived.get()
                    if not isinstance(late, BaseException):
                        keep(number, late)
                raise found
            keep(number, found)
            bar.update()
    return lines


def _start(
    ask: Callable[[Prompt], dict[str, Any]],
    prompts: Sequence[Prompt],
    concurrency: int,
    arrived: queue.SimpleQueue[Outcome],
    stopped: threading.Event,
) -> None:
    """Start threads that ask, at most `concurrency`, and put what they get into `arrived`.

    After a request that goes wrong, no further one begins. The threads end with the process, so an
    interruption need not wait for a slow server.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(prompts)):
        waiting.put(number)

    def work() -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.perf_counter()
            found: dict[str, Any] | Exception
            try:
                found = ask(prompts[number])
                found["seconds"] = round(time.perf_counter() - began, 4)
            except Exception as error:
                stopped.set()
                found = error
            arrived.put((number, found))

    for _ in range(min(concurrency, len(prompts))):
        threading.Thread(target=work, daemon=True).start()


class Server:
    """A server, and how to ask it; see `fetch_outputs` for the arguments."""

    def __init__(
        self,
        url: str,
        model: str | None,
        protocol: str,
        max_new_tokens: int,
        timeout_s: float,
        logprobs: int | None,
        extra: Mapping[str, Any] | None,
    ) -> None:
        if model is not None and not require_str("model", model):
            raise ValueError("model='' is empty; pass the name of a model, or None")
        require_int("max_new_tokens", max_new_tokens, maximum=2**31 - 1)
        require_positive("timeout_s", timeout_s, maximum=MAX_TIMEOUT_S)
        if logprobs is not None:
            require_int("logprobs", logprobs, maximum=MAX_LOGPROBS)
        self.extra = _as_json("extra", {} if extra is None else extra)
        for name, remedy in _OWN_FIELDS.items():
            if name in self.extra:
                raise ValueError(
                    f"extra must hold further fields only, got {short(name)}, which is set "
                    f"already; {remedy}"
                )
        if find_spec("openai") is None:
            raise ImportError(
                'a server needs openai, which is not installed; run: pip install "specviz[servers]"'
            )
        self._url = url
        self._model = model
        self._is_chat = protocol == "chat"
        self._sent: dict[str, Any] = {"max_tokens": int(max_new_tokens)}
        self._logprobs: dict[str, Any] = {}
        if logprobs is not None:
            count = int(logprobs)
            chat = {"logprobs": True, "top_logprobs": count}
            self._logprobs = chat if self._is_chat else {"logprobs": count}
        self._timeout_s = float(timeout_s)
        self._listed: list[str] = []

    def find_model(self) -> str:
        """Find the server and its model.

        Raises:
            ServerError: it does not answer, or the model is not named and not the only one.
        """
        openai = import_module("openai")
        key = os.environ.get(KEY_NAME) or NO_KEY
        self._client = openai.OpenAI(
            base_url=self._url, api_key=key, timeout=self._timeout_s, max_retries=RETRIES
        )
        try:
            raw = self._client.with_options(max_retries=0).models.with_raw_response.list()
            plain = self._plain(raw)
            entries = plain.get("data") if isinstance(plain, Mapping) else None
            found = [each.get("id") for each in entries or () if isinstance(each, Mapping)]
            self._listed = [name for name in found if isinstance(name, str)]
        except (openai.NotFoundError, openai.InternalServerError):
            pass  # some servers have no such page, or fail at it
        except openai.OpenAIError as error:
            raise self._explained(error) from None
        if self._model is None:
            if len(self._listed) != 1:
                names = ", ".join(self._listed[:5]) or "none"
                raise ServerError(
                    f"{self._url}: the models listed are {names}; name one with model"
                )
            self._model = self._listed[0]
        return self._model

    def ask(self, prompt: Prompt) -> dict[str, Any]:
        """Return the greedy continuation of a prompt as a record, with the budget and the messages.

        Raises:
            ServerError: no answer, one that is not of the protocol, or one of another model.
        """
        sent = dict(self._sent)
        settings: dict[str, Any] = {}
        ask: Any = self._client.completions.with_raw_response.create
        if self._is_chat:
            ask = self._client.chat.completions.with_raw_response.create
            sent["messages"] = [{"role": "user", "content": prompt}]
        else:
            settings["prompt"] = prompt if isinstance(prompt, str) else _ids(prompt)
        settings |= {**sent, **self._logprobs}
        try:
            raw = ask(model=self._model, temperature=0.0, extra_body=self.extra, **settings)
        except Exception as error:
            raise self._explained(error) from None
        plain = self._plain(raw)
        try:
            record = self._read(plain)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            record = None
        if record is None:
            raise ServerError(
                f"{self._url}: the answer has no text or no model, got {short(plain)}; "
                "check that the address is that of an OpenAI API, with its /v1"
            )
        self._check_model(record["model"])
        return record | sent

    def _read(self, plain: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of an answer; None if there is no text or no model in it."""
        choice = plain["choices"][0]
        if self._is_chat and "message" not in choice:
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
        asked = self._model
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

    def _plain(self, raw: Any) -> Any:
        """Return the plain values of an answer, without what the client makes of them."""
        text = raw.http_response.text
        try:
            return json.loads(text)
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise ServerError(
                f"{self._url}: the answer is not JSON, got {_shown(text.strip())}; "
                "check that the address is that of an OpenAI API, with its /v1"
            ) from None

    def _explained(self, error: Exception) -> ServerError:
        """Return an error of the client as one sentence."""
        openai = import_module("openai")
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


def _check_prompts(prompts: object, protocol: str) -> None:
    """Raise ValueError unless these are texts, or token ids that the protocol can carry."""
    require_choice("protocol", protocol, PROTOCOLS)
    require_list("prompts", prompts, "pass a list of texts")
    assert is_list(prompts)
    for number, prompt in enumerate(prompts):
        name = f"prompts[{number}]"
        if isinstance(prompt, str):
            require_text(name, prompt)
        elif protocol == "chat" or not is_list(prompt) or not prompt:
            raise ValueError(f"{name} must be a text, got {short(prompt)}; pass a str")
        elif not all(map(is_count, prompt)):
            raise ValueError(f"{name} must be token ids, got {short(prompt)}; pass ints >= 0")


def _as_json(name: str, fields: object) -> dict[str, Any]:
    """Return further fields of a request as JSON carries them."""
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
    return found


def _ids(prompt: Sequence[int]) -> list[int]:
    return list(map(int, prompt))  # numbers of numpy, too


def _shown(text: str) -> str:
    """Return a server's words, short and without the key, which some servers repeat."""
    key = os.environ.get(KEY_NAME)
    return short(text.replace(key, "***") if key else text)
