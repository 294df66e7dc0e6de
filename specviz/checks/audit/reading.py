"""Read a set of outputs: from a file, a list, or a run of specviz.

Contract: nothing is executed and nothing unpickled. Not known here: models, and the other side.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.checks.audit.forms import form_of
from specviz.checks.audit.output import Output, from_record, plain_list
from specviz.checks.scores import RecordedScores, recorded_scores
from specviz.generation.result import Result
from specviz.record.trace import Trace
from specviz.util.files import is_file
from specviz.util.jsonvalues import json_values
from specviz.util.validate import is_list, quoted_path, short

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
        source: the path of a file of JSON; a list of outputs, each one a list of token ids, a text,
            or a dict of any layout that a file may have; a `Result` or a `Trace`.

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
    found = [(f"{role}[{i}]", each) for i, each in enumerate(source)]
    return _read(role, role, found)


def _read_file(role: str, source: str | os.PathLike[str]) -> OutputSet:
    path = Path(source)
    if not is_file(path):
        raise FileNotFoundError(
            f"{role}={quoted_path(source)} is not a file; pass the path of a JSONL file"
        )
    if path.suffix == ".safetensors":
        raise ValueError(
            f"{role}={quoted_path(path)} is a record; pass sv.Trace.load of it instead of the path"
        )
    return _read(f"{role}={quoted_path(path)}", path.name, list(json_values(path)))


def _read(role: str, name: str, values: Sequence[tuple[str, Any]]) -> OutputSet:
    """Return the outputs of these values, sorted by what their file calls the prompts, if it does.

    Raises:
        ValueError: there is none, one cannot be read, or two of one key have other texts.
    """
    parts = set()
    outputs = []
    for where, value in values:
        value = plain_list(value)
        if isinstance(value, str | list | tuple):
            key = "text" if isinstance(value, str) else "token_ids"
            outputs.append(from_record(where, {key: value}))
            continue
        if not isinstance(value, Mapping):
            raise ValueError(
                f"{where} must be an output, an object with 'token_ids' or 'text', got "
                f"{short(value)}; see docs/debug.md for the forms"
            )
        form = form_of(value)
        parts.add(form.part)
        try:
            outputs += form.read(where, value)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if str(error).startswith(where):
                raise
            raise ValueError(
                f"{where} is not as {form.name} writes it ({short(error)}); pass the file as it is"
            ) from None
    if not outputs:
        raise ValueError(f"{role} is empty; pass at least one output")
    if all(output.key for output in outputs):
        keyed: dict[str, Output] = {}
        for output in outputs:
            first = keyed.setdefault(output.key, output)
            if (output.text, output.token_ids) != (first.text, first.token_ids):
                raise ValueError(
                    f"{output.where} and {first.where} have other texts for one prompt, "
                    f"{short(output.key)}; keep one of them"
                )
        outputs = [keyed[key] for key in sorted(keyed, key=_by_number)]
    part = ", ".join(sorted(filter(None, parts)))
    return OutputSet(f"{name} ({part})" if part else name, tuple(outputs))


def _by_number(key: str) -> list[tuple[int, str]]:
    """Return a key for sorting by which "request-9" comes before "request-10"."""
    parts = enumerate(re.split(r"(\d+)", key))
    return [(len(part) if i % 2 else 0, part) for i, part in parts]


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
