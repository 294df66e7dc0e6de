"""What a `TraceWriter` is given, checked: lists, numpy arrays and torch tensors alike.

Each function takes an argument's name and value, and raises a ValueError that says what it must be,
what was given and the remedy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from specviz.record.builder import NO_BUDGET, NO_HOLES, Seen, ranges_of
from specviz.record.check import MAX_LOGPROB, MAX_WIDTH
from specviz.record.schema import MODELS, PHASES, Array
from specviz.util.validate import (
    is_count,
    is_finite,
    is_int,
    require_bool,
    require_choice,
    require_int,
    require_mapping,
    require_str,
    require_text,
    short,
)

MOST = 2**31 - 2
MOST_TOKENS = NO_BUDGET
_LISTS = (list, tuple)
_HIDDEN = -1e4  # an additive mask has 0 where a query sees, and far less where it does not
_PASS_MASK = "pass a bool mask (rows, tokens, slots), or (start, stop) ranges for each token"
_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "coupling": "rejection"}
# What the argument `about` may hold; None where nothing is known.
ABOUT: dict[str, Any] = {
    "target": "target",
    "draft": None,
    "device": "unknown",
    "dtype": "unknown",
    "created": None,
    "batch_size": None,
    "kv_bytes_per_slot": None,
    "right_aligned": False,
    "keep_draft": True,
    "valid": True,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundEnd:
    """What a round did to the b rows of its batch. Lists, arrays and tensors are accepted alike.

    K draft tokens at most, k and j candidates of target and draft.

    Args:
        rows: (b,), the row of the cache that each row of the batch uses.
        requests: (b,), the number of the request in each of them.
        drafts: the drafts of each row, up to K; -1 behind them, or shorter lists.
        accepted: (b,), how many of them were accepted.
        emitted: what each row gains, in the same form: accepted drafts, then the target's own
            token, without what is cut off by EOS or the budget.
        finished: bool (b,), whether the request ends here.
        choices: (b, K+1), greedy only: the target's choice after the pending token and after each
            draft.
        draft_logprobs, target_logprobs: (b, K), log-probabilities of the drafts.
        target_top, draft_top: (ids, logprobs) of the likeliest tokens in place of `choices`, each
            (b, K+1, k) and (b, K, j).
        verified: (b,), how many drafts the target read; None for all.
        discarded: (b,), how many right tokens were thrown away to keep rows together.
        parents, path: (b, K), for trees: the draft that each draft follows, -1 for the pending
            token; and the accepted drafts in order.
        starts, pending: (b,), the slots of each row's first token and of its pending one before the
            round; starts_after, pending_after: after it. None: as the forwards and moves say.
        slots: how many columns of the cache the verification saw; None: as the forwards say.
        ms: {phase: milliseconds} of the phases that were measured.
    """

    rows: Any
    requests: Any
    drafts: Any
    accepted: Any
    emitted: Any
    finished: Any = None
    choices: Any = None
    draft_logprobs: Any = None
    target_logprobs: Any = None
    target_top: Any = None
    draft_top: Any = None
    verified: Any = None
    discarded: Any = None
    parents: Any = None
    path: Any = None
    starts: Any = None
    pending: Any = None
    starts_after: Any = None
    pending_after: Any = None
    slots: Any = None
    ms: Mapping[str, float] | None = None


def wrong(name: str, wanted: str, value: object, remedy: str) -> ValueError:
    """Return the error of an argument: what it must be, its value and the remedy."""
    return ValueError(f"{name} must {wanted}, got {short(value)}; {remedy}")


def plain(value: object) -> Any:
    """Return `value` with all tensors in it as numpy arrays, on whatever device they are."""
    if hasattr(value, "detach"):  # a tensor of torch, which this room does not import
        tensor = value.detach().cpu()
        # numpy has no bfloat16.
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    if isinstance(value, _LISTS):
        if any(hasattr(each, "__len__") for each in value):
            return [plain(each) for each in value]
        return [plain(each).item() if hasattr(each, "detach") else each for each in value]
    return value


def array(name: str, value: object, what: str, kinds: str = "iu") -> Array:
    """Return `value` as an array of one of the dtype `kinds`; `what` says what it must be."""
    try:
        found = np.asarray(plain(value))
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    if found.size == 0 and found.dtype.kind == "f":
        found = found.astype(np.int64)  # numpy's dtype of an empty list
    if found.dtype.kind not in kinds:
        raise wrong(name, f"be {what}", value, "pass a list, a numpy array or a tensor")
    return found


def shaped(name: str, values: Array, shape: tuple[int, ...], *, spread: bool = True) -> Array:
    """Return `values` if they have this shape, or with `spread` can be broadcast to it."""
    sizes = zip(values.shape, shape, strict=False)
    fits = all(size == wanted or (spread and size == 1) for size, wanted in sizes)
    if fits and values.ndim == len(shape):
        return np.broadcast_to(values, shape)
    raise ValueError(
        f"{name} must have the shape {shape}, got {short(values.tolist())} of shape "
        f"{values.shape}; pass one value for each entry"
    )


def limited(name: str, values: Array, least: int, most: int = MOST) -> Array:
    """Return `values` as int64 if all of them are in these limits."""
    outside = values[(values < least) | (values > most)]
    if outside.size:
        limits = f">= {least}" if most == MOST else f"from {least} to {most}"
        raise ValueError(
            f"{name} must hold ints {limits}, got {outside.ravel()[0]}; "
            "leave out what is not known, and pass other values as they are"
        )
    return values.astype(np.int64)


def ints(
    name: str, value: object, shape: tuple[int, ...], least: int = 0, most: int = MOST
) -> Array:
    """Return `value` as int64 of exactly this shape."""
    found = array(name, value, f"ints of shape {shape}")
    return limited(name, shaped(name, found, shape, spread=False), least, most)


def _bools(name: str, value: object, shape: tuple[int, ...]) -> Array:
    flags = shaped(name, array(name, value, f"bools of shape {shape}", "biu"), shape, spread=False)
    return ints(name, flags.astype(np.int64), shape, 0, 1).astype(bool)


def _logprobs(name: str, value: object, shown: object) -> Array:
    """Return log-probabilities as float64; None stands for NaN, "-inf" for minus infinity.

    shown: the argument that a message shows.
    """
    try:
        found = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        found = np.array(np.inf)
    if (found > MAX_LOGPROB).any():
        remedy = "pass the logarithms of softmax outputs"
        raise wrong(name, "hold log-probabilities <= 0", shown, remedy)
    return found


def lists(name: str, value: object, rows: int, width: int, fill: float, most: int = MOST) -> Array:
    """Return one list of numbers a row as an array (rows, w), with `fill` behind short ones.

    w is at most `width`, and no larger than the longest list: a file may claim any width. The array
    has ints from -1 to `most`, or log-probabilities where `fill` is NaN.
    """
    given = plain(value)
    is_float = isinstance(fill, float)
    what = f"{rows} lists of up to {width} {'numbers' if is_float else 'ints'}"
    problem = wrong(name, f"be {what}", value, "pass one list for each row")
    if not isinstance(given, (*_LISTS, np.ndarray)) or len(given) != rows:
        raise problem
    found = []
    for i, each in enumerate(given):
        place = f"{name}[{i}]"
        row = _logprobs(place, each, each) if is_float else array(place, each, f"one of {what}")
        if row.ndim != 1 or (row[width:] != fill).any():
            raise problem
        found.append(row[:width])
    padded = np.full((rows, max((row.size for row in found), default=0)), fill)
    for i, row in enumerate(found):
        padded[i, : row.size] = row
    return padded if is_float else limited(name, padded, -1, most)


def _candidates(name: str, value: Any, shape: tuple[int, int], most: int) -> tuple[Array, Array]:
    """Return ids and log-probabilities of leading candidates, (b, w, k) with w up to `shape[1]`."""
    what = f"(ids, logprobs), both of the shape {(*shape, 'candidates')}"
    problem = wrong(name, f"be {what}", value, "pass as many candidates in each column")
    if not isinstance(value, _LISTS) or len(value) != 2:
        raise problem
    ids, logprobs = array(name, value[0], what), _logprobs(name, plain(value[1]), value)
    if ids.shape != logprobs.shape or len(ids) != shape[0]:
        raise problem
    if not ids.size:
        ids, logprobs = (each.reshape(shape[0], 0, 0) for each in (ids, logprobs))
    if ids.ndim != 3 or ids.shape[1] > shape[1]:
        raise problem
    return limited(name, ids, -1, most), logprobs


def rectangle(name: str, value: object) -> Array:
    """Return ints of each row as int64 (b, q), or (n,) as given; -1 behind short rows."""
    given = plain(value)
    is_lists = isinstance(given, _LISTS) and bool(given)
    if is_lists and all(isinstance(each, (*_LISTS, np.ndarray)) for each in given):
        return lists(name, given, len(given), max(map(len, given)), -1)
    found = array(name, given, "ints of shape (rows, tokens)")
    if found.ndim not in (1, 2):
        remedy = "pass one row of tokens for each row of the batch"
        raise wrong(name, "have the shape (rows, tokens) or (tokens,)", value, remedy)
    return found.astype(np.int64)


def seen(visible: object, picked: Array, slots: Array, *, packed: bool) -> Seen:
    """Return what the picked queries saw.

    Args:
        visible: see `TraceWriter.forward`.
        picked: bool (b, q), which of the queries count: m of them.
        slots: (m,), the slot that each of these writes.
        packed: whether the forward has one entry a token, so that q is 1.
    """
    given = plain(visible)
    try:
        mask = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        mask = np.asarray(None)
    kind = mask.dtype.kind
    is_flags = kind in "iu" and mask.ndim == 2 and not packed and bool((mask <= 1).all())
    if kind not in "bf" and not is_flags:
        return _seen_in_ranges(given, picked, slots, packed)
    mask = mask > _HIDDEN if kind == "f" else mask.astype(bool)
    if mask.ndim == 4 and mask.shape[1] == 1:
        mask = mask[:, 0]
    is_of_rows = mask.ndim == 2  # what a row may see at all
    mask = mask[:, None] if is_of_rows else mask
    if mask.ndim != 3 or (packed and not is_of_rows):
        raise ValueError(f"visible must not have the shape {mask.shape}; {_PASS_MASK}")
    mask = shaped("visible", mask, (*picked.shape, mask.shape[-1]))[picked]
    if is_of_rows and not packed:
        # Models make such a mask causal themselves.
        mask = mask & (np.arange(mask.shape[1]) <= slots[:, None])
    return ranges_of(mask, slots)


def _seen_in_ranges(given: Any, picked: Array, slots: Array, packed: bool) -> Seen:
    """Return the same of ranges, one (start, stop) or a list of them for each query."""
    start, stop, holes = slots.copy(), slots.copy(), [NO_HOLES]
    if not hasattr(given, "__len__") or len(given) != len(picked):
        raise wrong("visible", f"have {len(picked)} entries", given, _PASS_MASK)
    for query, (i, j) in enumerate(np.argwhere(picked).tolist()):
        try:
            ranges = given[i] if packed else given[i][j]
        except (TypeError, LookupError):
            ranges = None
        name = f"visible[{i}]" if packed else f"visible[{i}][{j}]"
        edges = limited(name, array(name, ranges, "ranges"), 0, MOST + 1).ravel()
        if edges.size % 2 or (np.diff(edges) < 0).any():
            remedy = "pass the first slot that the query saw and the one after the last"
            raise wrong(name, "hold (start, stop) ranges in ascending order", ranges, remedy)
        if edges.size:
            start[query], stop[query] = edges[0], edges[-1]
            gaps = edges[1:-1].reshape(-1, 2)
            gaps = gaps[gaps[:, 0] < gaps[:, 1]]
            holes.append(np.insert(gaps, 0, query, axis=1))
    return Seen(start, stop, np.concatenate(holes))


def read_round(
    end: RoundEnd, num_draft_tokens: int, vocabulary_size: int, requests: int
) -> dict[str, Any]:
    """Return what was given of a round, as arrays by name."""
    b = array("rows", end.rows, "a list of ints").size
    if array("requests", end.requests, "a list of ints").size != b:
        raise ValueError(
            f"rows and requests must have as many entries, got {short(end.rows)} and "
            f"{short(end.requests)}; pass one of each for each row of the batch"
        )
    K, last, nan = num_draft_tokens, vocabulary_size - 1, float("nan")
    counts = ("accepted", "verified", "discarded")
    places = ("starts", "pending", "starts_after", "pending_after")
    # How each is read, and its shape and limits.
    forms: dict[str, tuple[Any, ...]] = {
        "rows": (ints, (b,)),
        "requests": (ints, (b,), 0, requests - 1),
        "drafts": (lists, b, K, -1, last),
        "emitted": (lists, b, K + 1, -1, last),
        **dict.fromkeys((*counts, *places), (ints, (b,))),
        "finished": (_bools, (b,)),
        "choices": (lists, b, K + 1, -1, last),
        **dict.fromkeys(("parents", "path"), (lists, b, K, -1, K - 1)),
        **dict.fromkeys(("draft_logprobs", "target_logprobs"), (lists, b, K, nan)),
        "target_top": (_candidates, (b, K + 1), last),
        "draft_top": (_candidates, (b, K), last),
        "slots": (ints, ()),
        "ms": (_times,),
    }
    values: dict[str, Any] = {}
    for name, (read, *limits) in forms.items():
        value = getattr(end, name)
        if value is not None or name in ("rows", "requests", "drafts", "accepted", "emitted"):
            values[name] = read(name, value, *limits)
    _check_agreement(values)
    return values


def _check_agreement(values: Mapping[str, Array]) -> None:
    """Check what the arguments of a round say of each other."""

    def repeats(name: str) -> Array:
        return np.asarray((values[name][:, None] == values[name]).sum(axis=1) > 1)

    def gaps(name: str) -> Array:
        is_token = values[name] >= 0
        return np.asarray((is_token[:, 1:] & ~is_token[:, :-1]).any(axis=1))

    once = "occur once; pass each row of the batch once"
    whole = "have -1 behind its tokens only; pass the tokens without gaps"
    drafted = (values["drafts"] >= 0).sum(axis=1)
    verified = values.get("verified", drafted)
    parents = values.get("parents", np.zeros((0, 0), np.int64))
    is_late = (parents >= np.arange(parents.shape[1])).any(axis=1)
    fewer = "be at most the row's {}; count those of this round"
    for name, found, problem in (
        ("rows", repeats("rows"), once),
        ("requests", repeats("requests"), once),
        ("drafts", gaps("drafts"), whole),
        ("emitted", gaps("emitted"), whole),
        ("verified", verified > drafted, fewer.format("drafts")),
        ("accepted", values["accepted"] > verified, fewer.format("verified drafts")),
        ("parents", is_late, "name drafts before their children; pass -1 for the pending token"),
    ):
        if found.any():
            i = int(found.argmax())
            raise ValueError(f"{name}[{i}]={short(values[name][i].tolist())} must {problem}")
    if ("parents" in values) != ("path" in values):
        raise ValueError(
            "parents and path belong together, got one of them; pass both for trees, none for "
            "chains"
        )
    if "choices" in values and "target_top" in values:
        raise ValueError(
            "choices and target_top exclude each other, got both; pass target_top alone, whose "
            "first candidate is the choice"
        )


def _times(name: str, ms: Any) -> dict[str, float]:
    require_mapping(name, ms, "pass {phase: milliseconds}")
    for phase, value in ms.items():
        require_choice("a phase of ms", phase, PHASES)
        if not is_finite(value) or value < 0:
            remedy = "leave out what was not measured"
            raise wrong(f"ms[{phase!r}]", "be a finite number >= 0", value, remedy)
    return {phase: float(ms[phase]) for phase in PHASES if phase in ms}


def text(name: str, value: Any) -> str:
    require_text(name, require_str(name, value))
    return str(value)


def texts(name: str, value: Any) -> dict[str, str]:
    """Return {id: text}."""
    require_mapping(name, value, "pass {id: text}")
    found = {}
    for token, each in value.items():
        fits = is_int(token) or (isinstance(token, str) and token.isdecimal())
        if not fits or not 0 <= int(token) < 2**31 or not isinstance(each, str):
            raise wrong(name, "map token ids to str", {token: each}, "pass {id: text}")
        found[str(int(token))] = each
    return found


def budget(value: object) -> int | None:
    """Return how many new tokens a request may get; None where nobody has said so."""
    return None if value is None else require_int("budget", value, maximum=MOST_TOKENS)


def prompt(name: str, value: Any, vocabulary_size: int) -> Array:
    tokens = array(name, value, "a list of token ids")
    if tokens.ndim != 1 or tokens.size == 0:
        raise wrong(name, "hold one token id or more", value, "pass ids")
    return limited(name, tokens, 0, vocabulary_size - 1)


def eos(value: Any) -> list[int]:
    tokens = array("eos_token_ids", value, "a list of token ids")
    if tokens.ndim != 1 or tokens.size >= MAX_WIDTH:
        wanted = f"be a list of fewer than {MAX_WIDTH} token ids"
        raise wrong("eos_token_ids", wanted, value, "pass ids")
    found: list[int] = limited("eos_token_ids", tokens, 0, MOST_TOKENS).tolist()
    return found


def about(value: Any) -> dict[str, Any]:
    """Return the entries of `about` and what stands for those that are left out."""
    value = {} if value is None else value
    require_mapping("about", value, "pass {name: value}")
    for name in value:
        require_choice("an entry of about", name, ABOUT)
    # None stands for an unknown value, where one may be unknown.
    found = {k: v for k, v in (ABOUT | value).items() if v is not None or ABOUT[k] is not None}
    found.setdefault("created", datetime.now(UTC).isoformat(timespec="seconds"))
    for name, each in found.items():
        if name == "batch_size":
            found[name] = require_int(name, each, maximum=MOST_TOKENS)
        elif name == "kv_bytes_per_slot":
            require_mapping(name, each, "pass {'target': bytes, 'draft': bytes}")
            if any(of not in MODELS or not is_count(n) or n >= 2**32 for of, n in each.items()):
                remedy = "pass the bytes of one token's K/V in all layers"
                raise wrong(name, "map target and draft to ints >= 0", each, remedy)
            found[name] = {model: int(each.get(model, 0)) for model in MODELS}
        elif isinstance(ABOUT[name], bool):
            require_bool(name, each)
        else:
            text(name, each)
    return found


def sampling(value: Any) -> dict[str, Any]:
    require_mapping("sampling", value, "pass {'temperature': ...}, or None for greedy decoding")
    for name in value:
        require_choice("an entry of sampling", name, _SAMPLING)
    found = _SAMPLING | dict(value)
    for name in ("temperature", "top_k", "top_p"):
        number = found[name]
        if number is None and name != "temperature":
            continue
        if not is_finite(number):
            raise wrong(f"sampling[{name!r}]", "be a number", number, "pass its value")
        found[name] = int(number) if name == "top_k" else float(number)
    require_str("sampling['coupling']", found["coupling"])
    return found
