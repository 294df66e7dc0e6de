"""`RoundEnd`: what a round did, as a `TraceWriter` is given it, and how that is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record import given
from specviz.record.schema import PHASES, Array
from specviz.util.validate import is_finite, require_choice, require_mapping, short

_COUNTS = (
    *("accepted", "verified", "discarded"),
    *("starts", "pending", "starts_after", "pending_after"),
)
_NEEDED = ("rows", "requests", "drafts", "accepted", "emitted")


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


def read_round(
    end: RoundEnd, num_draft_tokens: int, vocabulary_size: int, requests: int
) -> dict[str, Any]:
    """Return what was given of a round, as arrays by name."""
    b = given.array("rows", end.rows, "a list of ints").size
    K, last, nan = num_draft_tokens, vocabulary_size - 1, float("nan")
    # How each is read, and its shape and limits.
    forms: dict[str, tuple[Any, ...]] = {
        "rows": (given.ints, (b,)),
        "requests": (given.ints, (b,), 0, requests - 1),
        "drafts": (given.lists, b, K, -1, last),
        "emitted": (given.lists, b, K + 1, -1, last),
        **dict.fromkeys(_COUNTS, (given.ints, (b,))),
        "finished": (given.bools, (b,)),
        "choices": (given.lists, b, K + 1, -1, last),
        **dict.fromkeys(("parents", "path"), (given.lists, b, K, -1, K - 1)),
        **dict.fromkeys(("draft_logprobs", "target_logprobs"), (given.lists, b, K, nan)),
        "target_top": (given.candidates, (b, K + 1), last),
        "draft_top": (given.candidates, (b, K), last),
        "slots": (given.ints, ()),
        "ms": (_times,),
    }
    values: dict[str, Any] = {}
    for name, (read, *limits) in forms.items():
        value = getattr(end, name)
        if value is not None or name in _NEEDED:
            values[name] = read(name, value, *limits)
    for name in ("rows", "requests"):
        if np.unique(values[name]).size < b:
            raise ValueError(
                f"{name} must be different ones, got {short(values[name].tolist())}; "
                "pass each row of the batch once"
            )
    _check_agreement(values)
    return values


def _check_agreement(values: Mapping[str, Array]) -> None:
    """Check what the arguments of a round say of each other."""
    for name in ("drafts", "emitted"):
        gaps = ((values[name][:, 1:] >= 0) & (values[name][:, :-1] < 0)).any(axis=1)
        if gaps.any():
            i = int(gaps.argmax())
            raise ValueError(
                f"{name}[{i}] must have -1 behind its tokens only, got "
                f"{short(values[name][i].tolist())}; pass the tokens without gaps"
            )
    drafted = (values["drafts"] >= 0).sum(axis=1)
    verified = values.get("verified", drafted)
    limits = {"verified": (verified, drafted), "accepted": (values["accepted"], verified)}
    for name, (array, most) in limits.items():
        if (array > most).any():
            i = int((array > most).argmax())
            what = "the row's drafts" if name == "verified" else "the row's verified drafts"
            raise ValueError(
                f"{name}[{i}] must be at most {most[i]}, {what}, got {array[i]}; "
                "count the drafts of this round alone"
            )
    parents = values.get("parents")
    if parents is not None and (parents >= np.arange(parents.shape[1])).any():
        raise ValueError(
            f"parents must name drafts before their children, got {short(parents.tolist())}; "
            "pass -1 for the pending token"
        )
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
            raise ValueError(
                f"ms[{phase!r}] must be a finite number >= 0, got {short(value)}; "
                "leave out what was not measured"
            )
    return {phase: float(ms[phase]) for phase in PHASES if phase in ms}
