"""Read a set of outputs: from a file, a list, or a run of specviz.

Contract: nothing is executed and nothing unpickled. Not known here: models, and the other side.
"""

import codecs
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.checks.audit.engines import as_mapping, from_sglang, from_vllm, is_sglang, is_vllm
from specviz.checks.audit.output import Output, from_record, plain_list, to_record
from specviz.checks.audit.printed import read_printed
from specviz.checks.scores import RecordedScores, recorded_scores
from specviz.generation.result import Result
from specviz.record.trace import Trace
from specviz.util.files import is_file, write
from specviz.util.validate import is_int, is_list, quoted_path, short, shown_path

KINDS = "a JSONL file, a list of outputs, a Result or a Trace"


@dataclass(frozen=True)
class OutputSet:
    """One side of an audit.

    Attributes:
        name: what the report calls it: a file's name, a strategy, or its role.
        outputs: one per prompt.
        batch_size, num_draft_tokens, dtype: of the run; None where unknown.
        eos_token_ids: of the run's target; none where unknown.
    """

    name: str
    outputs: tuple[Output, ...]
    batch_size: int | None = None
    num_draft_tokens: int | None = None
    dtype: str | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def is_run(self) -> bool:
        """Whether specviz wrote these outputs."""
        return self.batch_size is not None


def read_outputs(role: str, source: Any) -> OutputSet:
    """Read a set of outputs.

    Args:
        role: the argument's name, "reference".
        source: the path of a JSONL file; a list of outputs, each one a dict of the same form, a
            list of token ids, a text, or what vLLM or SGLang returned; a `Result` or a `Trace`.

    Raises:
        ValueError: an output cannot be read; the message names line or place.
        FileNotFoundError: there is no file at that path.
    """
    if isinstance(source, str | os.PathLike):
        return _read_file(role, source)
    if isinstance(source, Result | Trace):
        return _read_run(role, source)
    if not is_list(source):
        raise ValueError(f"{role} must be {KINDS}, got {short(source)}; pass one of them")
    outputs = []
    for i, each in enumerate(source):
        outputs.append(_read_one(f"{role}[{i}]", each))
    if not outputs:
        raise ValueError(f"{role} is empty; pass at least one output")
    return OutputSet(role, tuple(outputs))


def save_outputs(outputs: Sequence[Output], path: str | os.PathLike[str]) -> Path:
    """Write outputs to a JSONL file, which `read_outputs` reads. Raises WriteError."""
    lines = [json.dumps(to_record(output)) + "\n" for output in outputs]
    return write(path, "".join(lines).encode())


def _read_file(role: str, source: str | os.PathLike[str]) -> OutputSet:
    path = Path(source)
    if not is_file(path):
        raise FileNotFoundError(
            f"{role}={quoted_path(source)} is not a file; pass the path of a JSONL file"
        )
    outputs = []
    for where, value in _values(path):
        # A list on one line is what print() shows of all outputs.
        several = is_list(value) and value and not is_int(value[0])
        for each in value if several else [value]:
            outputs.append(_read_one(where, each))
    if not outputs:
        raise ValueError(f"{role}={quoted_path(path)} holds no output; write one object a line")
    return OutputSet(path.name, tuple(outputs))


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield where each line stands, and its value."""
    # Bytes, because str.splitlines also splits at characters inside a text, such as U+2028.
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"line {number} of {shown_path(path)}"
            yield where, _value(where, line)


def _value(where: str, line: bytes) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8; save the file in that encoding") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return read_printed(text)
    except ValueError:
        raise ValueError(
            f"{where} is damaged: it is neither JSON nor an output as vLLM or SGLang print it; "
            "write one JSON object a line"
        ) from None


def _read_one(where: str, value: Any) -> Output:
    value = as_mapping(plain_list(value))
    if isinstance(value, str):
        return from_record(where, {"text": value})
    if is_list(value):
        return from_record(where, {"token_ids": value})
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{where} must be an output, an object with 'token_ids' or 'text', got "
            f"{short(value)}; see docs/audit.md for the form"
        )
    if is_vllm(value):
        return from_record(where, from_vllm(where, value))
    if is_sglang(value):
        return from_record(where, from_sglang(where, value))
    return from_record(where, value)


def _read_run(role: str, run: Result | Trace) -> OutputSet:
    if run.meta["sampling"] is not None:
        raise ValueError(
            f"{role} was sampled, and an audit judges greedy outputs; use sv.compare for runs with "
            'coupling="gumbel"'
        )
    trace = run if isinstance(run, Trace) else run.trace
    scores = None if trace is None else recorded_scores(trace)
    budgets = run.budgets if isinstance(run, Result) else run.requests["budget"]
    status = dict(enumerate(run.meta.get("status", ())))  # older records lack it
    outputs = []
    for i, record in enumerate(_records(run)):
        record |= {"finish_reason": status.get(i), "max_tokens": int(budgets[i])}
        if scores is not None:
            record |= _recorded(scores[i], record["token_ids"])
        outputs.append(from_record(f"{role}[{i}]", record))
    meta = run.meta
    name = f"{role} ({meta['strategy']})"
    K = meta["num_draft_tokens"]
    ends = tuple(meta["eos_token_ids"])
    return OutputSet(name, tuple(outputs), meta["batch_size"], K, meta["dtype"], ends)


def _records(run: Result | Trace) -> list[dict[str, Any]]:
    """Return prompts and outputs of a run as records."""
    if isinstance(run, Trace):
        requests = range(run.num_requests)
        pairs = [(run.prompt(request), run.output(request)) for request in requests]
        return [{"prompt_token_ids": prompt, "token_ids": tokens} for prompt, tokens in pairs]
    records = []
    for prompt, tokens, text in zip(run.prompts, run.tokens, run.texts, strict=True):
        record: dict[str, Any] = {"prompt_token_ids": list(prompt), "token_ids": list(tokens)}
        if text:
            record["text"] = text
        records.append(record)
    return records


def _recorded(scores: RecordedScores, tokens: Sequence[int]) -> dict[str, Any]:
    """Return the log-probabilities that a run recorded, unless a token is without."""
    if (scores.rounds < 0).any():
        return {}
    places = []
    for ids, logprobs in zip(scores.ids, scores.logprobs, strict=True):
        places.append(list(zip(ids.tolist(), logprobs.tolist(), strict=True)))
    chosen = [dict(place).get(token) for token, place in zip(tokens, places, strict=True)]
    return {"logprobs": chosen, "top_logprobs": places}
