"""Statistics of speculative decoding that a server gives with each request, in one form.

Three forms are read, a JSON object a line:

- an answer of vLLM (--per-request-spec-decode-metrics summary or detailed), with
  `metrics.speculative_decoding`; the lines of `fetch_outputs` are such;
- an answer of SGLang (return_spec_tokens_details), with `sglext.spec_tokens_details`, or what its
  own /generate returns, with `meta_info.spec_correct_drafts_histogram`;
- a record of AIPerf (profile_export.jsonl, --export-level records), with `spec_decode_acceptance`.

Not known here: what to make of them. Numbers that contradict each other are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.util.files import is_file
from specviz.util.validate import is_count, is_list, quoted_path, require_path, short, shown_path

MAX_DRAFT_TOKENS = 127  # as deep as an acceptance table may be
MAX_TOKENS = 2**24  # of a request, and its rounds; a replay steps through all of them


@dataclass(frozen=True)
class ServedRequest:
    """What a server says about the drafts of one request.

    Attributes:
        histogram: (K+1,) rounds that accepted 0..K drafts.
        drafted_tokens: in all rounds.
        prompt_tokens, new_tokens: lengths; None where unknown.
        accepted, drafted: (rounds,) accepted and drafted tokens of each round in order; None where
            the server gives no order.
    """

    histogram: tuple[int, ...]
    drafted_tokens: int
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None

    @property
    def rounds(self) -> int:
        """Verification steps."""
        return sum(self.histogram)

    @property
    def num_draft_tokens(self) -> int:
        """K, the most drafts of a round."""
        return len(self.histogram) - 1


@dataclass(frozen=True)
class ServerLog:
    """The requests of a log, and how many lines said nothing of drafts."""

    requests: tuple[ServedRequest, ...]
    without: int

    @property
    def num_draft_tokens(self) -> int:
        """The largest K of the requests."""
        return max(request.num_draft_tokens for request in self.requests)


def read_log(path: str | os.PathLike[str]) -> ServerLog:
    """Read the statistics of a log, one request a line.

    Raises:
        ValueError: a line is not JSON or contradicts itself, or no line has statistics.
        FileNotFoundError: there is no such file.
    """
    place = require_path("path", path)
    if not is_file(place):
        raise FileNotFoundError(f"path={quoted_path(place)} is not a file; pass a JSONL file")
    found = []
    without = 0
    for number, line in enumerate(place.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"line {number} of {shown_path(place)}"
        request = _request(where, line)
        if request is None:
            without += 1
        else:
            found.append(request)
    if not found:
        raise ValueError(
            f"path={quoted_path(place)} says nothing of drafts; log answers of vLLM with "
            "--per-request-spec-decode-metrics detailed, of SGLang, or records of AIPerf"
        )
    return ServerLog(tuple(found), without)


def _request(where: str, line: bytes) -> ServedRequest | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is not JSON; write one object a line") from None
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must be an object, got {short(entry)}; write one a line")
    try:
        return _read(entry)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where}: the statistics cannot be used ({short(str(error))}); log them again, or "
            "delete the line"
        ) from None


def _read(entry: Mapping[str, Any]) -> ServedRequest | None:
    usage = entry.get("usage") or {}
    lengths = _known(usage.get("prompt_tokens")), _known(usage.get("completion_tokens"))
    of_vllm = (entry.get("metrics") or {}).get("speculative_decoding")
    if of_vllm is not None:
        return _counted(of_vllm, *lengths)
    record = entry.get("spec_decode_acceptance")
    if record is not None:
        metrics = entry.get("metrics") or {}
        new_tokens = record.get("completion_tokens")
        if new_tokens is None:
            new_tokens = _metric(metrics, "output_sequence_length")
        prompt_tokens = _metric(metrics, "input_sequence_length")
        return _counted(record, _known(prompt_tokens), _known(new_tokens))
    of_sglang = (entry.get("sglext") or {}).get("spec_tokens_details")
    if is_list(of_sglang):  # one a choice
        of_sglang = of_sglang[0] if len(of_sglang) == 1 else None
    if of_sglang is not None:
        return _of_sglang(of_sglang, *lengths)
    meta = entry.get("meta_info") or {}
    if meta.get("spec_correct_drafts_histogram"):
        own = _known(meta.get("prompt_tokens")), _known(meta.get("completion_tokens"))
        return _of_sglang(meta, *own)
    return None


def _known(value: object) -> int | None:
    return value if is_count(value) else None


def _metric(metrics: Mapping[str, Any], name: str) -> int | None:
    value = (metrics.get(name) or {}).get("value")
    return int(value) if value is not None else None


def _counted(stats: Mapping[str, Any], prompt: int | None, new: int | None) -> ServedRequest | None:
    """Return a request from vLLM's statistics, or from AIPerf's, which have the same names."""
    histogram = _dense(stats["acceptance_histogram"], stats.get("num_spec_tokens"))
    accepted = _steps("per_step_accepted", stats.get("per_step_accepted"))
    drafted = _steps("per_step_drafted", stats.get("per_step_drafted"))
    if accepted is None or drafted is None:
        accepted = drafted = None
    steps = stats["num_spec_steps"], stats["num_accepted_draft_tokens"], stats["num_draft_tokens"]
    request = ServedRequest(histogram, steps[2], prompt, new, accepted, drafted)
    return _checked(request, *steps)


def _of_sglang(
    stats: Mapping[str, Any], prompt: int | None, new: int | None
) -> ServedRequest | None:
    histogram = _dense(stats["spec_correct_drafts_histogram"], None)
    rounds, drafted = stats["spec_verify_ct"], stats["spec_num_proposed_drafts"]
    # Its histogram ends with the most that was accepted, which may be less than K.
    if rounds and drafted % rounds == 0:
        if drafted // rounds > MAX_DRAFT_TOKENS:
            raise ValueError(f"more than {MAX_DRAFT_TOKENS} drafts a round")
        histogram += (0,) * (drafted // rounds + 1 - len(histogram))
    request = ServedRequest(histogram, drafted, prompt, new)
    return _checked(request, rounds, stats["spec_num_correct_drafts"], drafted)


def _dense(histogram: Any, most: Any) -> tuple[int, ...]:
    """Return a histogram as counts of 0..K, from a list or from an object by count."""
    if isinstance(histogram, Mapping):
        by_count = {int(count): rounds for count, rounds in histogram.items()}
        highest = max([0, *by_count, most or 0])
        if min([0, *by_count]) < 0 or highest > MAX_DRAFT_TOKENS:
            raise ValueError(f"accepted drafts beyond 0..{MAX_DRAFT_TOKENS}")
        histogram = [by_count.get(count, 0) for count in range(highest + 1)]
    if not is_list(histogram) or not histogram or not all(map(is_count, histogram)):
        raise ValueError("the histogram must be counts >= 0")
    if len(histogram) > MAX_DRAFT_TOKENS + 1:
        raise ValueError(f"more than {MAX_DRAFT_TOKENS} drafts a round")
    return tuple(histogram)


def _steps(name: str, steps: Any) -> tuple[int, ...] | None:
    if steps is None:
        return None
    if not is_list(steps) or not all(map(is_count, steps)):
        raise ValueError(f"{name} must be counts >= 0")
    return tuple(steps)


def _checked(
    request: ServedRequest, rounds: Any, accepted: Any, drafted: Any
) -> ServedRequest | None:
    """Return the request, None if it had no round. Raise ValueError if its counts disagree."""
    sums = sum(count * number for count, number in enumerate(request.histogram))
    if not all(map(is_count, (rounds, accepted, drafted))):
        raise ValueError("steps and tokens must be counts >= 0")
    if max(request.prompt_tokens or 0, request.new_tokens or 0, rounds, drafted) > MAX_TOKENS:
        raise ValueError(f"steps and tokens must be at most {MAX_TOKENS}")
    if request.rounds != rounds or sums != accepted or accepted > drafted:
        raise ValueError("the histogram does not add up to the steps and accepted tokens")
    if request.accepted is not None and request.drafted is not None:
        _check_order(request.accepted, request.drafted, request)
    if request.rounds and not request.num_draft_tokens:
        raise ValueError("rounds without a draft")
    return request if request.rounds else None


def _check_order(accepted: Sequence[int], drafted: Sequence[int], request: ServedRequest) -> None:
    counts = [0] * len(request.histogram)
    for number in accepted:
        if number >= len(counts):
            raise ValueError("a step accepted more than the histogram knows")
        counts[number] += 1
    if tuple(counts) != request.histogram or len(drafted) != len(accepted):
        raise ValueError("the steps do not add up to the histogram")
    kept = all(a <= d <= request.num_draft_tokens for a, d in zip(accepted, drafted, strict=True))
    if not kept or sum(drafted) != request.drafted_tokens:
        raise ValueError("the steps do not add up to the drafted tokens")
