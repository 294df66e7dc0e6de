"""The arguments of `TraceWriter.round`, checked.

Contract: returns an event, or raises a ValueError of one sentence. Not known here: forwards, files.

b rows, K draft tokens.
"""

from typing import Any

import numpy as np

from specviz.record.log.arrays import booleans, check_limits, count_of, filled, integers, plain
from specviz.record.log.events import Limits, RoundEnd
from specviz.record.schema import PHASES, Array
from specviz.util.validate import is_finite, require_choice, require_mapping, short

COUNTS = ("verified", "discarded", "starts", "pending", "starts_after", "pending_after")


def read_round(limits: Limits, given: dict[str, Any]) -> RoundEnd:
    """Check the arguments of `TraceWriter.round`, given by name."""
    b = count_of("rows", given["rows"])
    if count_of("requests", given["requests"]) != b:
        raise ValueError(
            f"rows and requests must have as many entries, got {short(given['rows'])} and "
            f"{short(given['requests'])}; pass one of each for each row of the batch"
        )
    rows = integers("rows", given["rows"], (b,))
    requests = integers("requests", given["requests"], (b,), most=limits.lengths.size - 1)
    _check_different("rows", rows)
    _check_different("requests", requests)
    values = _counts(limits, given, b)
    values |= _drafts(limits, given, b)
    values |= _scores(limits, given, b)
    slots = None
    if given["slots"] is not None:
        slots = int(integers("slots", given["slots"], ()))
    return RoundEnd(rows, requests, values, _times(given["ms"]), slots)


def _check_different(name: str, values: Array) -> None:
    if np.unique(values).size < values.size:
        raise ValueError(
            f"{name} must be different ones, got {short(values.tolist())}; "
            "pass each row of the batch once"
        )


def _counts(limits: Limits, given: dict[str, Any], b: int) -> dict[str, Array]:
    most = limits.vocabulary_size - 1
    drafts = _tokens("drafts", given["drafts"], b, limits.num_draft_tokens, most)
    values = {
        "drafts": drafts,
        "emitted": _tokens("emitted", given["emitted"], b, limits.num_draft_tokens + 1, most),
        "accepted": integers("accepted", given["accepted"], (b,)),
    }
    for name in COUNTS:
        if given[name] is not None:
            values[name] = integers(name, given[name], (b,))
    if given["finished"] is not None:
        values["finished"] = booleans("finished", given["finished"], (b,))
    drafted = (drafts >= 0).sum(axis=1)
    verified = values.get("verified", drafted)
    _check_at_most("verified", verified, drafted, "the row's drafts")
    _check_at_most("accepted", values["accepted"], verified, "the row's verified drafts")
    return values


def _check_at_most(name: str, values: Array, most: Array, what: str) -> None:
    over = np.flatnonzero(values > most)
    if over.size:
        i = int(over[0])
        raise ValueError(
            f"{name}[{i}] must be at most {most[i]}, {what}, got {values[i]}; "
            "count the drafts of this round alone"
        )


def _tokens(name: str, value: Any, rows: int, width: int, most: int) -> Array:
    """Return tokens of each row, -1 behind them and nowhere else."""
    tokens = filled(name, value, rows, width, -1)
    check_limits(name, tokens, -1, most)
    gaps = (tokens[:, 1:] >= 0) & (tokens[:, :-1] < 0)
    if gaps.any():
        i = int(gaps.any(axis=1).argmax())
        raise ValueError(
            f"{name}[{i}] must have -1 behind its tokens only, got {short(tokens[i].tolist())}; "
            "pass the tokens without gaps"
        )
    return tokens


def _drafts(limits: Limits, given: dict[str, Any], b: int) -> dict[str, Array]:
    """Return how the drafts of a tree hang together."""
    values = {}
    K = limits.num_draft_tokens
    for name in ("parents", "path"):
        if given[name] is not None:
            values[name] = filled(name, given[name], b, K, -1)
            check_limits(name, values[name], -1, K - 1)
    parents = values.get("parents")
    if parents is not None and (parents >= np.arange(parents.shape[1])).any():
        raise ValueError(
            "parents must name drafts before their children, got "
            f"{short(parents.tolist())}; pass -1 for the pending token"
        )
    if ("parents" in values) != ("path" in values):
        raise ValueError(
            "parents and path belong together, got one of them; pass both for trees, none for "
            "chains"
        )
    return values


def _scores(limits: Limits, given: dict[str, Any], b: int) -> dict[str, Array]:
    """Return what the models said of the drafts."""
    K, most = limits.num_draft_tokens, limits.vocabulary_size - 1
    values = {}
    if given["choices"] is not None:
        if given["target_top"] is not None:
            raise ValueError(
                "choices and target_top exclude each other, got both; pass target_top alone, "
                "whose first candidate is the choice"
            )
        values["choices"] = filled("choices", given["choices"], b, K + 1, -1)
        check_limits("choices", values["choices"], -1, most)
    for name in ("draft_logprobs", "target_logprobs"):
        if given[name] is not None:
            values[name] = filled(name, given[name], b, K, float("nan"))
            _check_logprobs(name, values[name])
    for name, width in (("target_top", K + 1), ("draft_top", K)):
        if given[name] is not None:
            ids, logprobs = _candidates(name, given[name], (b, width), most)
            values[f"{name}_ids"] = ids
            values[f"{name}_logprobs"] = logprobs
    return values


def _check_logprobs(name: str, values: Array) -> None:
    over = values[values > 0.01]
    if over.size:
        raise ValueError(
            f"{name} must hold log-probabilities <= 0, got {over.ravel()[0]:.4g}; "
            "pass the logarithms of softmax outputs"
        )


def _candidates(name: str, value: Any, shape: tuple[int, int], most: int) -> tuple[Array, Array]:
    """Return ids (b, width, k) and log-probabilities of the leading candidates."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(
            f"{name} must be (ids, logprobs), got {short(value)}; "
            f"pass two arrays of shape (rows, {shape[1]}, candidates)"
        )
    ids_of, size = _flattened(f"{name}[0]", value[0], shape)
    logprobs_of, other = _flattened(f"{name}[1]", value[1], shape)
    if size != other:
        raise ValueError(
            f"{name} must have a log-probability for each id, got {size} (columns, candidates) of "
            f"ids and {other} of log-probabilities; pass both of each candidate"
        )
    ids = filled(f"{name}[0]", ids_of, shape[0], size[0] * size[1], -1)
    logprobs = filled(f"{name}[1]", logprobs_of, shape[0], size[0] * size[1], float("nan"))
    check_limits(f"{name}[0]", ids, -1, most)
    _check_logprobs(f"{name}[1]", logprobs)
    return ids.reshape(shape[0], *size), logprobs.reshape(shape[0], *size)


def _flattened(name: str, value: Any, shape: tuple[int, int]) -> tuple[list[Any], tuple[int, int]]:
    """Return the candidates of each row one after another; and (columns, candidates in each)."""
    try:
        lists = [[list(column) for column in row] for row in plain(value)]
    except TypeError:
        raise ValueError(
            f"{name} must have the shape {(*shape, 'candidates')}, got {short(value)}; "
            "pass a list, a numpy array or a tensor"
        ) from None
    counts = {len(column) for row in lists for column in row} or {0}
    if len(counts) > 1:
        raise ValueError(
            f"{name} must have equally many candidates in each column, got {sorted(counts)}; "
            "pass the same number"
        )
    columns = max((len(row) for row in lists), default=0)
    if columns > shape[1]:
        raise ValueError(
            f"{name} must have at most {shape[1]} columns, got {columns}; pass one for each token"
        )
    flat = [[each for column in row for each in column] for row in lists]
    return flat, (columns, counts.pop())


def _times(ms: Any) -> list[float] | None:
    """Return the time of each phase in ms, NaN where it is not known."""
    if ms is None:
        return None
    require_mapping("ms", ms, "pass {phase: milliseconds}")
    for phase, value in ms.items():
        require_choice("a phase of ms", phase, PHASES)
        if not is_finite(value) or value < 0:
            raise ValueError(
                f"ms[{phase!r}] must be a finite number >= 0, got {short(value)}; "
                "leave out what was not measured"
            )
    return [float(ms.get(phase, "nan")) for phase in PHASES]
