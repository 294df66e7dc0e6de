"""Read a set of outputs: from a file, a list, or a run of specviz with its record. Nothing is
executed and nothing unpickled.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.checks.audit.forms import form_of
from specviz.checks.audit.output import Output, plain_list, read_reason
from specviz.checks.check import check_invariants
from specviz.checks.scores import places_of, recorded_scores
from specviz.checks.violations import Violation
from specviz.generation.result import Result
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.files import is_file
from specviz.util.jsonvalues import json_values
from specviz.util.validate import is_list, quoted_path, short

KINDS = "a JSONL file, a list of outputs, a Result or a Trace"
_ACCEPT = PHASES.index("accept")


@dataclass(frozen=True)
class OutputSet:
    """One side of an audit.

    Attributes:
        name: what the report calls it: a file's name, a strategy, or its role.
        outputs: one per prompt.
        batch_size, num_draft_tokens, dtype: of the run; None where unknown.
        eos_token_ids: of the run's target; none where unknown.
        first_violated: the first invariant that its record violates, "" if none.
        is_processed: whether the run has chosen its tokens from processed scores.
    """

    name: str
    outputs: tuple[Output, ...]
    batch_size: int | None = None
    num_draft_tokens: int | None = None
    dtype: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    first_violated: str = ""
    is_processed: bool = False

    @property
    def is_run(self) -> bool:
        """Whether specviz wrote these outputs."""
        return self.batch_size is not None

    def shape(self, batch_size: int = 1, num_draft_tokens: int = 0) -> tuple[int, int]:
        """Return rows and new tokens of a forward; the arguments count where the run says none."""
        drafts = num_draft_tokens if self.num_draft_tokens is None else self.num_draft_tokens
        return self.batch_size or batch_size, drafts + 1


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
    if isinstance(source, Result | Trace):
        if source.meta["sampling"] is not None:
            raise ValueError(
                f"{role} was sampled, and an audit judges greedy outputs; use sv.compare for runs "
                'with coupling="gumbel"'
            )
        return read_run(role, source)
    if not isinstance(source, str | os.PathLike):
        if not is_list(source):
            raise ValueError(f"{role} must be {KINDS}, got {short(source)}; pass one of them")
        return _read(role, role, [(f"{role}[{i}]", each) for i, each in enumerate(source)])
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

    Raises ValueError if there is none, one cannot be read, or two of one key have other texts.
    """
    parts = set()
    outputs: list[Output] = []
    for where, value in values:
        value = plain_list(value)
        if isinstance(value, str | list | tuple):
            value = {"text" if isinstance(value, str) else "token_ids": value}
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


def read_run(role: str, run: Result | Trace) -> OutputSet:
    """Read the outputs of a run, with what its record says of them, if there is one."""
    trace = run if isinstance(run, Trace) else run.trace
    firsts = {} if trace is None else _first_violations(trace)
    scores = None if trace is None else recorded_scores(trace)
    status = dict(enumerate(run.meta.get("status", ())))  # older records lack it
    outputs = []
    for i, (prompt, tokens, budget) in enumerate(texts_of(run)):
        candidates, sound = None, None
        if scores is not None:
            candidates = tuple(places_of(scores[i]))
            if i in firsts:
                stages = scores[i].rounds * len(PHASES) + _ACCEPT
                sound = int((stages < _stage(firsts[i])).sum())
        output = Output(
            f"{role}[{i}]",
            prompt_ids=tuple(prompt),
            token_ids=tuple(tokens),
            text=(run.texts[i] or None) if isinstance(run, Result) else None,
            candidates=candidates,
            finish_reason=read_reason(f"{role}[{i}]", status.get(i)),
            budget=int(budget),
            is_recorded=scores is not None,
            violated=firsts[i].rule if i in firsts else "",
            sound=sound,
        )
        outputs.append(output)
    meta = run.meta
    return OutputSet(
        f"{role} ({meta['strategy']})",
        tuple(outputs),
        meta["batch_size"],
        meta["num_draft_tokens"],
        meta["dtype"],
        tuple(meta["eos_token_ids"]),
        min(firsts.values(), key=_stage).rule if firsts else "",
        bool(meta.get("logits_processor")),
    )


def texts_of(run: Result | Trace) -> list[tuple[list[int], list[int], int]]:
    """Return prompt, new tokens and budget of each request of a run."""
    if isinstance(run, Result):
        return list(zip(run.prompts, run.tokens, run.budgets, strict=False))
    budgets = run.requests["budget"].tolist()
    return [(run.prompt(i), run.output(i), budget) for i, budget in enumerate(budgets)]


def _first_violations(trace: Trace) -> dict[int, Violation]:
    """Return the first violation of each request that can change its text.

    What is wrong in the draft's cache alone cannot.
    """
    firsts: dict[int, Violation] = {}
    for violation in check_invariants(trace):
        if violation.model != "draft" and violation.rule != "caches":
            firsts.setdefault(violation.request, violation)
    return firsts


def _stage(violation: Violation) -> int:
    """Return when a violation happened, as round * 5 + phase."""
    return int(violation.round) * len(PHASES) + PHASES.index(violation.phase)
