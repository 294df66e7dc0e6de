"""Collect a server's texts into a file, one line a prompt, as they arrive.

Contract: what has arrived is kept, so an interrupted collection goes on where it stopped. A file
holds the texts of one server and one setting; its conditions stand beside it. Neither holds a key.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from specviz.servers.answer import Answer
from specviz.servers.protocol import Connection, Server
from specviz.util.files import as_write_error, check_writable, make_folder, write
from specviz.util.interrupt import interruptions_go_to
from specviz.util.validate import (
    is_count,
    is_list,
    quoted_path,
    require_bool,
    require_int,
    require_list,
    require_path,
    require_text,
    short,
    shown_path,
)

MAX_CONCURRENCY = 1024
# What may differ between two runs that fill the same file.
CHANGING = ("created", "versions")
Prompt = str | Sequence[int]
# The number of a prompt, and its answer or what went wrong, and the seconds that it took.
Outcome = tuple[int, Answer | BaseException, float]


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

    Each line is a JSON object: index, prompt, text, finish_reason, usage, model and seconds; token
    ids, log-probabilities and statistics of drafts where the server gives them. It is the form that
    `sv.audit` reads. A finished file is in the order of the prompts. Called again, it asks for what
    is missing.

    Args:
        url, model, protocol, max_new_tokens, timeout_s, logprobs, extra: see `Server`.
        prompts: texts; token ids only with protocol="completions".
        out: a file that ends in .jsonl. The conditions go beside it, to .json.
        concurrency: requests under way at once.
        progress: show a progress bar.

    Raises:
        ValueError: an argument cannot be used, or `out` holds texts of other settings or prompts.
        ServerError: the server fails. What had arrived is in the file.
        WriteError: `out` cannot be written.
    """
    server = Server(
        url, model, protocol, max_new_tokens, timeout_s, logprobs, {} if extra is None else extra
    )
    check_prompts(prompts, protocol)
    place = require_path("out", out)
    if place.suffix != ".jsonl":  # two files of other endings may share their conditions
        shown = quoted_path(place)
        raise ValueError(f"out must end in .jsonl, got {shown}; add it: conditions go to .json")
    require_int("concurrency", concurrency, maximum=MAX_CONCURRENCY)
    require_bool("progress", progress)
    check_writable(place)
    return _fill(place, server, prompts, concurrency, progress)


def _fill(
    place: Path, server: Server, prompts: Sequence[Prompt], concurrency: int, progress: bool
) -> Path:
    """Ask for the texts that the file lacks, and return its path."""
    kept = _read_kept(place, prompts)
    conditions = _conditions(server, concurrency, len(prompts))
    if kept:
        _check_same(place, conditions)
    else:
        _check_free(place)
    missing = {i: prompt for i, prompt in enumerate(prompts) if i not in kept}
    if not missing:
        return place
    connection = server.connect()
    conditions["model"] = connection.model
    if kept:
        _check_same(place, conditions)
    else:
        make_folder(place.parent)
        write(place.with_suffix(".json"), (json.dumps(conditions, indent=2) + "\n").encode())
    write(place, _joined(kept))
    with as_write_error(place), place.open("ab") as file:
        for number, line in _lines(connection, missing, concurrency, progress):
            kept[number] = line
            file.write(line)
            file.flush()
    return write(place, _joined(kept))


def check_prompts(prompts: object, protocol: str) -> None:
    """Raise ValueError unless these are texts, or token ids that the protocol can carry."""
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


def _lines(
    connection: Connection, prompts: Mapping[int, Prompt], concurrency: int, progress: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield the line of each prompt as its answer arrives.

    When a request goes wrong, or the user interrupts, what had arrived by then comes first.
    """
    arrived: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    stopped = threading.Event()
    _start(connection, prompts, concurrency, arrived, stopped)
    bar = tqdm(total=len(prompts), desc="texts", unit="text", disable=not progress)
    went_wrong: BaseException | None = None
    try:
        with interruptions_go_to(lambda error: arrived.put((-1, error, 0.0))):
            for _ in prompts:
                number, answer, seconds = arrived.get()
                if isinstance(answer, BaseException):
                    went_wrong = answer
                    break
                yield number, _line(number, prompts[number], answer, seconds)
                bar.update()
    except KeyboardInterrupt as error:
        went_wrong = error
    finally:
        stopped.set()
        bar.close()
    if went_wrong is None:
        return
    while not arrived.empty():
        number, answer, seconds = arrived.get()
        if isinstance(answer, Answer):
            yield number, _line(number, prompts[number], answer, seconds)
    raise went_wrong


def _start(
    connection: Connection,
    prompts: Mapping[int, Prompt],
    concurrency: int,
    arrived: queue.SimpleQueue[Outcome],
    stopped: threading.Event,
) -> None:
    """Start threads that ask, at most `concurrency`, and put answers into `arrived`.

    After one that went wrong, no further request begins. The threads end with the process, so an
    interruption need not wait for a slow server.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in prompts:
        waiting.put(number)

    def work() -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.perf_counter()
            answer: Answer | Exception
            try:
                answer = connection.ask(prompts[number])
            except Exception as error:
                answer = error
                stopped.set()
            arrived.put((number, answer, time.perf_counter() - began))

    for _ in range(min(concurrency, len(prompts))):
        threading.Thread(target=work, daemon=True).start()


def _line(number: int, prompt: Prompt, answer: Answer, seconds: float) -> bytes:
    entry = {
        "index": number,
        "prompt": prompt if isinstance(prompt, str) else list(map(int, prompt)),
        **answer.record,
        "model": answer.model,
        "seconds": round(seconds, 4),
    }
    return json.dumps(entry).encode() + b"\n"


def _joined(lines: Mapping[int, bytes]) -> bytes:
    return b"".join(lines[number] for number in sorted(lines))


def _read_kept(place: Path, prompts: Sequence[Prompt]) -> dict[int, bytes]:
    """Return the lines that are there, by prompt. A last line that was cut off is left out.

    Raises ValueError if the file is not one of these prompts.
    """
    if not place.exists():
        return {}
    kept: dict[int, bytes] = {}
    lines = place.read_bytes().splitlines(keepends=True)
    for place_in_file, line in enumerate(lines, 1):
        if place_in_file == len(lines) and not line.endswith(b"\n"):
            break
        number = _number(line, prompts)
        if number is None:
            raise ValueError(
                f"{shown_path(place)}: line {place_in_file} is not of these prompts, "
                f"{len(prompts)} of them; choose another file, or delete it"
            )
        kept[number] = line
    return kept


def _number(line: bytes, prompts: Sequence[Prompt]) -> int | None:
    try:
        entry = json.loads(line)
        number, prompt = entry["index"], entry["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = is_count(number) and number < len(prompts)
    if not fits:
        return None
    wanted = prompts[number]
    return number if prompt == (wanted if isinstance(wanted, str) else list(wanted)) else None


def _conditions(server: Server, concurrency: int, prompts: int) -> dict[str, Any]:
    return {
        "url": server.url,
        "model": server.model,
        "protocol": server.protocol,
        "max_new_tokens": int(server.max_new_tokens),
        "temperature": 0.0,
        "logprobs": None if server.logprobs is None else int(server.logprobs),
        "concurrency": int(concurrency),
        "prompts": prompts,
        "extra": dict(server.extra),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"specviz": version("specviz"), "openai": version("openai")},
    }


def _check_same(place: Path, conditions: Mapping[str, object]) -> None:
    """Raise ValueError if the file was begun under other conditions, as far as they are known."""
    before = _conditions_beside(place)
    for name, value in conditions.items():
        unknown = name == "model" and value is None
        if name not in CHANGING and not unknown and before.get(name) != value:
            raise ValueError(
                f"{name}={short(value)}, but {shown_path(place)} was begun with "
                f"{short(before.get(name))}; choose another file, or delete it"
            )


def _check_free(place: Path) -> None:
    """Raise ValueError if there is something else where the conditions go."""
    beside = place.with_suffix(".json")
    if beside.exists() and "protocol" not in _conditions_beside(place):
        raise ValueError(
            f"out={quoted_path(place)} would replace {shown_path(beside)}; choose another file"
        )


def _conditions_beside(place: Path) -> dict[str, object]:
    """Return the conditions that stand beside a file; {} if they cannot be read."""
    try:
        found = json.loads(place.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
