"""Statistics of speculative decoding that a server gives with each request, in one form.

Three forms are read, a JSON object a line:

- an answer of vLLM (--per-request-spec-decode-metrics summary or detailed), with
  `metrics.speculative_decoding`; the lines of `fetch_outputs` are such;
- an answer of SGLang (return_spec_tokens_details), with `sglext.spec_tokens_details`, or what its
  own /generate returns, with `meta_info.spec_correct_drafts_histogram`;
- a record of AIPerf (profile_export.jsonl, --export-level records), with `spec_decode_acceptance`.

Numbers that contradict each other are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz.util.files import is_file
from specviz.util.validate import is_count, is_list, quoted_path, require_path, short, shown_path

MAX_DRAFT_TOKENS = 127  # as deep as an acceptance table may be
MAX_TOKENS = 2**24  # of a request, and its rounds; a replay steps through all of them
# What each names the histogram, the rounds, and accepted and drafted tokens. AIPerf names them as
# vLLM does.
_VLLM = (
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
)
_SGLANG = (
    "spec_correct_drafts_histogram",
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
)


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
    for number, line in enumerate(place.read_bytes().split(b"\n"), 1):
        if line.strip():
            found.append(_request(f"line {number} of {shown_path(place)}", line))
    requests = tuple(request for request in found if request is not None)
    if not requests:
        raise ValueError(
            f"path={quoted_path(place)} says nothing of drafts; log answers of vLLM with "
            "--per-request-spec-decode-metrics detailed, of SGLang, or records of AIPerf"
        )
    return ServerLog(requests, without=len(found) - len(requests))


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
    """Return what a line says, in whichever form; None if it says nothing."""
    usage, metrics, meta = (entry.get(name) or {} for name in ("usage", "metrics", "meta_info"))
    of_vllm = metrics.get("speculative_decoding")
    of_aiperf = entry.get("spec_decode_acceptance")
    of_sglang = (entry.get("sglext") or {}).get("spec_tokens_details")
    if is_list(of_sglang):  # one a choice
        of_sglang = of_sglang[0] if len(of_sglang) == 1 else None
    if of_vllm is not None:
        return _served(of_vllm, _VLLM, usage)
    if of_aiperf is not None:
        lengths = {}
        for name, key in (("prompt_tokens", "input"), ("completion_tokens", "output")):
            value = (metrics.get(f"{key}_sequence_length") or {}).get("value")
            lengths[name] = None if value is None else int(value)
        if of_aiperf.get("completion_tokens") is not None:
            lengths["completion_tokens"] = of_aiperf["completion_tokens"]
        return _served(of_aiperf, _VLLM, lengths)
    if of_sglang is not None:
        return _served(of_sglang, _SGLANG, usage)
    return _served(meta, _SGLANG, meta) if meta.get(_SGLANG[0]) else None


def _served(
    stats: Mapping[str, Any], names: tuple[str, str, str, str], lengths: Mapping[str, Any]
) -> ServedRequest | None:
    """Return a request, None if it had no round. Raise ValueError if its counts disagree."""
    rounds, accepted, drafted = (stats[name] for name in names[1:])
    if not all(map(is_count, (rounds, accepted, drafted))):
        raise ValueError("steps and tokens must be counts >= 0")
    prompt, new = (lengths.get(name) for name in ("prompt_tokens", "completion_tokens"))
    prompt, new = (each if is_count(each) else None for each in (prompt, new))
    if max(prompt or 0, new or 0, rounds, drafted) > MAX_TOKENS:
        raise ValueError(f"steps and tokens must be at most {MAX_TOKENS}")
    counts = _histogram(stats, names, drafted)
    sums = sum(count * number for count, number in enumerate(counts))
    if sum(counts) != rounds or sums != accepted or accepted > drafted:
        raise ValueError("the histogram does not add up to the steps and accepted tokens")
    if not rounds:
        return None
    if len(counts) == 1:
        raise ValueError("rounds without a draft")
    return ServedRequest(counts, drafted, prompt, new, *_order(stats, counts, drafted))


def _histogram(
    stats: Mapping[str, Any], names: tuple[str, str, str, str], drafted: int
) -> tuple[int, ...]:
    """Return the rounds that accepted 0..K drafts, from a list or from an object by count."""
    histogram, rounds = stats[names[0]], stats[names[1]]
    K = 0
    if isinstance(histogram, Mapping):
        histogram = {int(count): number for count, number in histogram.items()}
        K = stats.get("num_spec_tokens") or 0
    elif is_list(histogram):
        histogram = dict(enumerate(histogram))
    if names is _SGLANG and rounds and drafted % rounds == 0:
        K = drafted // rounds  # the histogram ends with the most that was accepted
    if not histogram or not isinstance(histogram, Mapping):
        raise ValueError("the histogram must be counts >= 0")
    K = max(K, *histogram)
    if min(histogram) < 0 or K > MAX_DRAFT_TOKENS:
        raise ValueError(f"fewer than 0 or more than {MAX_DRAFT_TOKENS} drafts a round")
    counts = tuple(histogram.get(count, 0) for count in range(K + 1))
    if not all(map(is_count, counts)):
        raise ValueError("the histogram must be counts >= 0")
    return counts


def _order(
    stats: Mapping[str, Any], counts: tuple[int, ...], drafted: int
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return accepted and drafted tokens of each round in order, if both are there."""
    accepted, proposed = (stats.get(name) for name in ("per_step_accepted", "per_step_drafted"))
    if accepted is None or proposed is None:
        return None, None
    if not all(is_list(each) and all(map(is_count, each)) for each in (accepted, proposed)):
        raise ValueError("per_step_accepted and per_step_drafted must be counts >= 0")
    fits = len(accepted) == len(proposed) and sum(proposed) == drafted
    fits = fits and all(a <= d < len(counts) for a, d in zip(accepted, proposed, strict=True))
    if not fits or tuple(map(accepted.count, range(len(counts)))) != counts:
        raise ValueError("the steps do not add up to the tokens")
    return tuple(accepted), tuple(proposed)
