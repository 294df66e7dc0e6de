"""Tables of a run: what each round, row, phase, draft position and request did, and the one-line summary.

Contract: each function takes a run, anything with `meta`, `rounds` and `rows` as a `Trace` has them (of `rows`, the columns
those that a result without a trace has are enough), and returns a tidy DataFrame. A ratio with
nothing to divide by is NaN. None, the trace of a run that was not recorded, raises ValueError. Not known here: models, files,
and the caches' contents.

Acceptance has three names. Mean acceptance length: 1 + accepted / entries, the bonus included, an entry being one row at
work in one round (a finished row that stays in the batch gains nothing and is not counted). Draft acceptance rate:
accepted / drafted. Acceptance at a position: accepted there / entries, unconditional.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace

_COLUMN_NAMES = {phase: "sync" if phase == "synchronise" else phase for phase in PHASES}


class Run(Protocol):
    """What the tables read: a Trace, or a result that kept the same columns without the caches."""

    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> Mapping[str, Array]: ...
    @property
    def rows(self) -> Mapping[str, Array]: ...


def check_recorded(run: object, name: str = "run") -> None:
    """Raise ValueError where `run` is None, as `result.trace` is without record=True. name: of the caller's argument."""
    if run is None:
        raise ValueError(f"{name}=None: this run was not recorded; call generate(..., record=True)")


def rounds(run: Run) -> pd.DataFrame:
    """One entry a round: round, decision, batch_rows, cache_slots, mean_accepted_tokens, gained_tokens, discarded_tokens (verified
    and thrown away), padding_share and hole_share (of the slots up to the rows' last tokens), each phase's ms (schedule_ms ...),
    total_ms, and where the run recorded moves the K/V that was copied inside the caches: realigned_bytes to bring rows into step,
    in the phase synchronise or within a row, and compacted_bytes from row to row, to fill gaps or trade places.
    """
    check_recorded(run)
    table = pd.DataFrame({"round": np.arange(len(run.rounds["batch"]))})
    table["decision"] = [run.meta["decisions"][code] for code in run.rounds["decision"]]
    table["batch_rows"], table["cache_slots"] = run.rounds["batch"], run.rounds["slots"]
    entries = _entries(run)
    accepted, gained, count = (
        _per_round(run, entries[name], entries["round"])
        for name in ("accepted", "gained", "entries")
    )
    table["mean_accepted_tokens"], table["gained_tokens"] = _ratio(accepted, count), gained
    table["discarded_tokens"] = _per_round(
        run, run.rows["discarded"].astype(np.int64), run.rows["round"]
    )
    table = table.join(_unused_shares(run)).join(_phases_ms(run))
    moves = getattr(run, "moves", None)
    if moves is not None:
        bytes_per_slot = np.array(
            [run.meta["kv_bytes_per_slot"][model] for model in MODELS], np.int64
        )
        copied = moves["length"] * bytes_per_slot[moves["model"]]
        realigning = (moves["phase"] == PHASES.index("synchronise")) | (
            moves["from_row"] == moves["to_row"]
        )
        table["realigned_bytes"] = _per_round(run, copied * realigning, moves["round"])
        table["compacted_bytes"] = _per_round(run, copied * ~realigning, moves["round"])
    return table


def _unused_shares(run: Run) -> pd.DataFrame:
    """padding_share and hole_share of each round: slots before a row's first token, and behind it without a token of the row."""
    start, pending, length = (
        run.rows[name].astype(np.int64) for name in ("start", "pending", "length")
    )
    counts = {"padding_share": start, "hole_share": pending - start + 1 - length}
    slots = _per_round(run, pending + 1, run.rows["round"])
    return pd.DataFrame(
        {
            name: _ratio(_per_round(run, unused, run.rows["round"]), slots)
            for name, unused in counts.items()
        }
    )


def rows(run: Run) -> pd.DataFrame:
    """One entry per round and row, idle ones too: the record's one-dimensional columns by their own names, finished as bool."""
    check_recorded(run)
    table = pd.DataFrame({name: values for name, values in run.rows.items() if values.ndim == 1})
    return table.assign(finished=table["finished"].astype(bool))


def stages(run: Run) -> pd.DataFrame:
    """One entry a round: round, schedule_ms, draft_ms, verify_ms, accept_ms, sync_ms, total_ms, and each phase's share of it
    (schedule_share ... sync_share).
    """
    table = _phases_ms(run)
    for phase in _COLUMN_NAMES.values():
        table[f"{phase}_share"] = _ratio(table[f"{phase}_ms"], table["total_ms"])
    table.insert(0, "round", np.arange(len(table)))
    return table


def stage_totals(run: Run) -> pd.DataFrame:
    """One entry a phase, over all rounds: phase, total_ms, share of the time of all phases, ms_per_round."""
    table = _phases_ms(run)
    total_ms = np.array([table[f"{name}_ms"].sum() for name in _COLUMN_NAMES.values()])
    share, ms_per_round = _ratio(total_ms, total_ms.sum()), _ratio(total_ms, len(table))
    return pd.DataFrame(
        {"phase": PHASES, "total_ms": total_ms, "share": share, "ms_per_round": ms_per_round}
    )


def acceptance(run: Run) -> pd.DataFrame:
    """One entry per draft position 1..K: position, drafted_tokens, accepted_tokens, acceptance (of all entries) and
    conditional_acceptance (of the entries that proposed a token there and accepted all before it).
    """
    check_recorded(run)
    position = np.arange(1, run.meta["num_draft_tokens"] + 1)
    entries = _entries(run)
    num_drafted, num_accepted = (
        entries[name].to_numpy()[:, None] for name in ("drafted", "accepted")
    )
    drafted, accepted = num_drafted >= position, num_accepted >= position  # (N, K)
    reached = drafted & (num_accepted >= position - 1)
    return pd.DataFrame(
        {
            "position": position,
            "drafted_tokens": drafted.sum(axis=0),
            "accepted_tokens": accepted.sum(axis=0),
            "acceptance": _ratio(accepted.sum(axis=0), len(accepted)),
            "conditional_acceptance": _ratio(accepted.sum(axis=0), reached.sum(axis=0)),
        }
    )


def requests(run: Run) -> pd.DataFrame:
    """One entry per request that took part: request, rounds, new_tokens, mean_acceptance_length, draft_acceptance_rate,
    full_acceptance_share (of its rounds, those in which all of one or more drafts were accepted).
    """
    sums = _entries(run).groupby("request", as_index=False).sum()
    head = sums.rename(columns={"entries": "rounds", "gained": "new_tokens"})[
        ["request", "rounds", "new_tokens"]
    ]
    return head.join(_acceptance_figures(sums))


def smallest_gap(run: Run) -> float:
    """The closest call of a recorded run: smallest lead of the best token over the second best, as a difference of log-probabilities.

    Over the choices that decided something: the target's at indices 0..a of each entry at work, the draft's at indices 0..min(a, K-1).
    Far above the noise of a forward (`specviz.checks.equivalence`), the run comes out the same on another machine. Infinite if there
    were no choices.
    """
    check_recorded(run)
    reached, gaps = run.rows["accepted"][:, None], [np.full(0, np.inf)]
    for model in MODELS:
        top = run.rows[f"{model}_top_logprobs"]  # (N, K+1, k) or (N, K, j)
        if top.shape[-1] > 1:
            decided = (np.arange(top.shape[1]) <= reached) & (run.rows["gained"][:, None] > 0)
            gaps.append((top[..., 0] - top[..., 1])[decided])
    return float(np.nanmin(np.concatenate(gaps), initial=np.inf))


def summary(run: Run, *, total_s: float | None = None) -> pd.DataFrame:
    """The run in one row: strategy, drafter, num_draft_tokens, batch_size, prompts, new_tokens, rounds,
    mean_acceptance_length, draft_acceptance_rate, full_acceptance_share, discarded_tokens, grouping_rate (of all rounds, the last
    ones with fewer rows included, those in which the scheduler found a full batch of equal length; NaN for a strategy without a pool),
    total_s, tokens_per_s.

    total_s: wall-clock seconds; None takes the sum of all phases. prompts counts the run's `num_requests`, or the
    requests that took part where a run has none.
    """
    entries = _entries(run)
    sums = entries.sum().to_frame().T
    total_s = float(_phases_ms(run)["total_ms"].sum()) / 1000 if total_s is None else total_s
    table = pd.DataFrame(
        {key: [run.meta[key]] for key in ("strategy", "drafter", "num_draft_tokens", "batch_size")}
    )
    table["prompts"] = getattr(run, "num_requests", entries["request"].nunique())
    table["new_tokens"], table["rounds"] = sums["gained"], len(run.rounds["batch"])
    table = table.join(_acceptance_figures(sums)).assign(
        discarded_tokens=int(run.rows["discarded"].sum()), grouping_rate=_grouping_rate(run)
    )
    return table.assign(total_s=total_s, tokens_per_s=_ratio(sums["gained"], total_s))


def _grouping_rate(run: Run) -> float:
    """Rounds with `batch_size` rows of equal length, as the scheduler found them, / all rounds of the run (paper, Fig. 5c).

    Towards the end of a run the pool holds fewer rows than a batch; equally long or not, such a round counts in the denominator alone.
    """
    decisions = run.meta["decisions"]
    if "grouped" not in decisions or not len(run.rounds["decision"]):
        return float("nan")
    grouped = run.rounds["decision"] == decisions.index("grouped")
    return float((grouped & (run.rounds["batch"] == run.meta["batch_size"])).mean())


def _entries(run: Run) -> pd.DataFrame:
    """Counts per row at work in a round, ready to be summed."""
    check_recorded(run)
    names = ("round", "request", "gained", "drafted", "accepted")
    table = pd.DataFrame({name: run.rows[name].astype(np.int64) for name in names})
    table = table[table["gained"] > 0]
    full = (table["drafted"] > 0) & (table["accepted"] == table["drafted"])
    return table.assign(entries=1, full=full.astype(np.int64))


def _acceptance_figures(sums: pd.DataFrame) -> pd.DataFrame:
    """The acceptance columns that `requests` and `summary` share; the full share is NaN where nothing was drafted."""
    drafting_entries = sums["entries"].where(sums["drafted"] > 0, 0)
    return pd.DataFrame(
        {
            "mean_acceptance_length": 1 + _ratio(sums["accepted"], sums["entries"]),
            "draft_acceptance_rate": _ratio(sums["accepted"], sums["drafted"]),
            "full_acceptance_share": _ratio(sums["full"], drafting_entries),
        }
    )


def _phases_ms(run: Run) -> pd.DataFrame:
    """Each phase's milliseconds and their total_ms, one entry a round, in float64."""
    check_recorded(run)
    table = pd.DataFrame(
        {
            f"{name}_ms": run.rounds[f"{phase}_ms"].astype(np.float64)
            for phase, name in _COLUMN_NAMES.items()
        }
    )
    return table.assign(total_ms=table.sum(axis=1))


def _per_round(run: Run, values: Array, round_of_value: Array) -> Array:
    """Sum of integer values (n,) over the round (n,) that each belongs to, int64, exact."""
    totals = np.zeros(len(run.rounds["batch"]), np.int64)
    np.add.at(totals, round_of_value, values)
    return totals


def _ratio(part: Any, whole: Any) -> Array:
    """part / whole in float64, NaN where whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0)


def waste(trace: Trace) -> pd.DataFrame:
    """The run in one row: rounds, verified_rows (rows of all verifications), idle_rows (those of them that had finished before),
    discarded_tokens (verified, right and thrown away), mean_draft_tokens (K, over rows at work), target_read and draft_read (tokens that a
    model was given / those that it has to be given once; NaN where a model was given none).

    The target has to read each prompt but its last token; a draft that keeps its K/V, too, and then in each round the last two committed
    tokens of each row at work and its drafts but the last, K + 1. Filling of shorter rows counts as neither.
    """
    rows, feeds = trace.rows, trace.feeds
    working = rows["gained"] > 0
    prompts = int((np.diff(trace.requests["prompt_offsets"]) - 1).sum())
    drafting = working & (rows["drafted"] > 0)
    read = {
        "target": feeds["phase"] == PHASES.index("schedule"),
        "draft": np.ones(feeds["phase"].size, bool),
    }
    needed = {"target": prompts, "draft": prompts + int((rows["drafted"][drafting] + 1).sum())}
    given = {
        name: int((read[name] & (feeds["model"] == MODELS.index(name))).sum()) for name in MODELS
    }
    return pd.DataFrame(
        {
            "rounds": [trace.num_rounds],
            "verified_rows": [rows["row"].size],
            "idle_rows": [int((~working).sum())],
            "discarded_tokens": [int(rows["discarded"].sum())],
            "mean_draft_tokens": [rows["drafted"][working].mean() if working.any() else np.nan],
            **{
                f"{name}_read": [
                    given[name] / needed[name] if given[name] and needed[name] else np.nan
                ]
                for name in MODELS
            },
        }
    )
