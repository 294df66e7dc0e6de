"""Tables of a run: rounds, rows, phases, draft positions and requests, and a one-line summary.

Contract: each function takes a run and returns a tidy DataFrame. A run is anything with `meta`,
`rounds` and `rows` like a `Trace`; of `rows`, the columns of a result without a trace are enough.
NaN stands where a denominator is 0, and for what a log of another engine lacks. None, the trace of
a run that was not recorded, raises ValueError. Not known here: models, files, caches' contents.

Acceptance has three names. An entry is one active row in one round; a finished row that stays in
the batch gains nothing and does not count.
- Mean acceptance length: 1 + accepted / entries, the bonus included.
- Draft acceptance rate: accepted / verified, which is all that is drafted without a selector.
- Acceptance at a position: accepted there / entries, unconditional.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specviz.record.schema import MODELS, PHASES, Array, missing_in, unknown_columns
from specviz.record.trace import RecordedRun as RecordedRun
from specviz.record.trace import Trace
from specviz.record.trace import check_recorded as check_recorded
from specviz.record.trees import branching, by_depth, decided, expanded
from specviz.util.validate import require_kind, require_positive

_COLUMN_NAMES = {phase: "sync" if phase == "synchronise" else phase for phase in PHASES}


def rounds(run: RecordedRun) -> pd.DataFrame:
    """Return one entry a round.

    Columns: round, decision, batch_rows, cache_slots, mean_accepted_tokens, gained_tokens,
    discarded_tokens (verified and thrown away), padding_share and hole_share (of the slots up to
    the rows' last tokens), the ms of each phase (schedule_ms ...) and total_ms. If the run recorded
    moves, also the bytes of K/V copied inside the caches: realigned_bytes (in the phase synchronise
    or within a row, to align rows) and compacted_bytes (from row to row, to fill gaps or swap
    rows).
    """
    check_recorded(run)
    table = pd.DataFrame({"round": np.arange(len(run.rounds["batch"]))})
    table["decision"] = [run.meta["decisions"][code] for code in run.rounds["decision"]]
    table["batch_rows"] = run.rounds["batch"]
    table["cache_slots"] = run.rounds["slots"]
    entries = _entries(run)
    accepted = _per_round(run, entries["accepted"], entries["round"])
    count = _per_round(run, entries["entries"], entries["round"])
    discarded = run.rows["discarded"].astype(np.int64)
    table["mean_accepted_tokens"] = _ratio(accepted, count)
    table["gained_tokens"] = _per_round(run, entries["gained"], entries["round"])
    table["discarded_tokens"] = _per_round(run, discarded, run.rows["round"])
    table = table.join(_unused_shares(run)).join(_phases_ms(run))
    if (moves := getattr(run, "moves", None)) is not None:
        table = table.join(_copied_bytes(run, moves))
    unknown = table.columns.intersection(unknown_columns(run.meta))
    return table.assign(**dict.fromkeys(unknown, np.nan))


def _copied_bytes(run: RecordedRun, moves: Mapping[str, Array]) -> pd.DataFrame:
    """Return realigned_bytes and compacted_bytes of each round."""
    sizes = np.array([run.meta["kv_bytes_per_slot"][model] for model in MODELS], np.int64)
    copied = moves["length"] * sizes[moves["model"]]
    within_row = moves["from_row"] == moves["to_row"]
    # In other phases, rows only change places because some left or a pool chose others.
    realigning = within_row | (moves["phase"] == PHASES.index("synchronise"))
    columns = {"realigned_bytes": copied * realigning, "compacted_bytes": copied * ~realigning}
    return pd.DataFrame({k: _per_round(run, v, moves["round"]) for k, v in columns.items()})


def _unused_shares(run: RecordedRun) -> pd.DataFrame:
    """Return padding_share (before a row's first token) and hole_share (behind it) by round."""
    start = run.rows["start"].astype(np.int64)
    pending = run.rows["pending"].astype(np.int64)
    holes = pending - start + 1 - run.rows["length"].astype(np.int64)
    of_round = run.rows["round"]
    slots = _per_round(run, pending + 1, of_round)
    columns = {"padding_share": start, "hole_share": holes}
    return pd.DataFrame(
        {name: _ratio(_per_round(run, v, of_round), slots) for name, v in columns.items()}
    )


def rows(run: RecordedRun) -> pd.DataFrame:
    """Return one entry per round and row, idle rows included.

    Columns: the one-dimensional ones of the record; finished as bool.
    """
    check_recorded(run)
    table = pd.DataFrame({name: values for name, values in run.rows.items() if values.ndim == 1})
    return table.assign(finished=table["finished"].astype(bool))


def stages(run: RecordedRun) -> pd.DataFrame:
    """Return one entry a round.

    Columns: round, schedule_ms, draft_ms, verify_ms, accept_ms, sync_ms, total_ms, and each phase's
    share of the total (schedule_share ... sync_share).
    """
    table = _phases_ms(run)
    for phase in _COLUMN_NAMES.values():
        table[f"{phase}_share"] = _ratio(table[f"{phase}_ms"], table["total_ms"])
    table.insert(0, "round", np.arange(len(table)))
    return table


def stage_totals(run: RecordedRun) -> pd.DataFrame:
    """Return one entry a phase, over all rounds.

    Columns: phase, total_ms, share (of the time of all phases), ms_per_round.
    """
    table = _phases_ms(run)
    total_ms = np.array([table[f"{name}_ms"].sum(skipna=False) for name in _COLUMN_NAMES.values()])
    totals = pd.DataFrame({"phase": PHASES, "total_ms": total_ms})
    totals["share"] = _ratio(total_ms, total_ms.sum())
    totals["ms_per_round"] = _ratio(total_ms, len(table))
    return totals


def acceptance(run: RecordedRun) -> pd.DataFrame:
    """Return one entry per draft position 1..K.

    Columns: position, drafted_tokens, accepted_tokens, acceptance (of all entries) and
    conditional_acceptance (of the entries that verified a token there and accepted all before it).
    In a record with trees, a position is a depth. Without a record, all drafts count as chains.
    """
    check_recorded(run)
    position = np.arange(1, run.meta["num_draft_tokens"] + 1)
    entries = _entries(run)
    names = ("drafted", "verified", "accepted")
    num_drafted, num_verified, num_accepted = (entries[n].to_numpy()[:, None] for n in names)
    drafted = num_drafted >= position  # (N, K)
    reached = (num_verified >= position) & (num_accepted >= position - 1)
    if branching(run.rows).any():
        drafted, reached = (part[entries.index] for part in by_depth(run.rows))  # (N, D)
        position = position[: drafted.shape[1]]
    accepted = num_accepted >= position
    table = pd.DataFrame({"position": position, "drafted_tokens": drafted.sum(axis=0)})
    table["accepted_tokens"] = accepted.sum(axis=0)
    table["acceptance"] = _ratio(accepted.sum(axis=0), len(accepted))
    table["conditional_acceptance"] = _ratio(accepted.sum(axis=0), reached.sum(axis=0))
    return table


def requests(run: RecordedRun) -> pd.DataFrame:
    """Return one entry per request that took part.

    Columns: request, rounds, new_tokens, mean_acceptance_length, draft_acceptance_rate,
    full_acceptance_share (of its rounds with drafts, those that accepted all that was verified).
    """
    sums = _entries(run).groupby("request", as_index=False).sum()
    renamed = sums.rename(columns={"entries": "rounds", "gained": "new_tokens"})
    head = renamed[["request", "rounds", "new_tokens"]]
    return head.join(_acceptance_figures(sums))


def smallest_gap(run: RecordedRun) -> float:
    """Return the smallest gap between the best and the second best token of a recorded run.

    It is a difference of log-probabilities, over the choices that mattered: the target's at indices
    0..a of each entry, the draft's at indices 0..min(a, K-1). If the gap is far above the noise of
    a forward (`specviz.checks.equivalence`), the run has the same outputs on another machine.
    Infinite without choices, NaN without the target's probabilities. Of trees, the accepted branch.
    """
    check_recorded(run)
    if "logprobs.target" in missing_in(run.meta):
        return float("nan")
    gaps = [np.full(0, np.inf)]
    working = run.rows["gained"][:, None] > 0
    for model in MODELS:
        top = run.rows[f"{model}_top_logprobs"]  # (N, K+1, k) or (N, K, j)
        if top.shape[-1] > 1:
            chosen = decided(run.rows, model, top.shape[1]) & working
            gaps.append((top[..., 0] - top[..., 1])[chosen])
    return float(np.nanmin(np.concatenate(gaps), initial=np.inf))


def summary(run: RecordedRun, *, total_s: float | None = None) -> pd.DataFrame:
    """Return the run in one row.

    Columns: strategy, drafter, num_draft_tokens, batch_size, prompts, new_tokens, rounds,
    mean_acceptance_length, draft_acceptance_rate, full_acceptance_share, discarded_tokens,
    grouping_rate, threads, total_s, tokens_per_s. prompts is the run's `num_requests`, or the
    number of requests that took part where a run has no such attribute. grouping_rate is the share
    of rounds in which the scheduler found a full batch of equal length; NaN for a strategy without
    a pool. threads are those of the CPU. total_s is the sum of all phases, unless it is passed. A
    run with a selector has two more: selector, and verified_share (of the drafts).
    """
    if total_s is not None:
        require_positive("total_s", total_s)
    entries = _entries(run)
    sums = entries.sum().to_frame().T
    if total_s is None:
        total_s = float(_phases_ms(run)["total_ms"].sum(skipna=False)) / 1000
    options = ("strategy", "drafter", "num_draft_tokens", "batch_size")
    table = pd.DataFrame({name: [run.meta[name]] for name in options})
    table["prompts"] = getattr(run, "num_requests", entries["request"].nunique())
    table["new_tokens"] = sums["gained"]
    table["rounds"] = len(run.rounds["batch"])
    table = table.join(_acceptance_figures(sums))
    table["discarded_tokens"] = int(run.rows["discarded"].sum())
    table["grouping_rate"] = _grouping_rate(run)
    table["threads"] = run.meta.get("num_threads", float("nan"))
    table["total_s"] = total_s
    table["tokens_per_s"] = _ratio(sums["gained"], total_s)
    selector = run.meta.get("selector", "everything")
    if selector != "everything":
        table.insert(2, "selector", selector)
        table["verified_share"] = _ratio(sums["verified"], sums["drafted"])
    return table


def _grouping_rate(run: RecordedRun) -> float:
    """Return the share of rounds whose batch is full and of equal length (paper, Fig. 5c).

    A round with fewer rows than a batch counts in the denominator alone, whatever their lengths.
    """
    decisions = run.meta["decisions"]
    if "grouped" not in decisions or not len(run.rounds["decision"]):
        return float("nan")
    grouped = run.rounds["decision"] == decisions.index("grouped")
    return float((grouped & (run.rounds["batch"] == run.meta["batch_size"])).mean())


def _entries(run: RecordedRun) -> pd.DataFrame:
    """Return the counts of each active row in each round, ready to be summed."""
    check_recorded(run)
    names = ("round", "request", "gained", "drafted", "accepted")
    table = pd.DataFrame({name: run.rows[name].astype(np.int64) for name in names})
    table["verified"] = run.rows.get("verified", run.rows["drafted"]).astype(np.int64)
    table = table[table["gained"] > 0]
    full = (table["verified"] > 0) & (table["accepted"] == table["verified"])
    return table.assign(entries=1, full=full.astype(np.int64))


def _acceptance_figures(sums: pd.DataFrame) -> pd.DataFrame:
    """Return the acceptance columns that `requests` and `summary` share."""
    drafting_entries = sums["entries"].where(sums["drafted"] > 0, 0)
    length = 1 + _ratio(sums["accepted"], sums["entries"])
    table = pd.DataFrame({"mean_acceptance_length": length})
    table["draft_acceptance_rate"] = _ratio(sums["accepted"], sums["verified"])
    table["full_acceptance_share"] = _ratio(sums["full"], drafting_entries)
    return table


def _phases_ms(run: RecordedRun) -> pd.DataFrame:
    """Return the milliseconds of each phase and total_ms, one entry a round, in float64."""
    check_recorded(run)
    table = pd.DataFrame()
    for phase, name in _COLUMN_NAMES.items():
        table[f"{name}_ms"] = run.rounds[f"{phase}_ms"].astype(np.float64)
    return table.assign(total_ms=table.sum(axis=1, skipna=False))


def _per_round(run: RecordedRun, values: Array, round_of_value: Array) -> Array:
    """Return the sum of int values (n,) of each round (n,), exact in int64."""
    # Not np.bincount, whose weights are float64.
    totals = np.zeros(len(run.rounds["batch"]), np.int64)
    np.add.at(totals, round_of_value, values)
    return totals


def _ratio(part: Any, whole: Any) -> Array:
    """Return part / whole in float64, NaN where whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0)


def waste(trace: Trace) -> pd.DataFrame:
    """Return what a run computed in vain, in one row.

    Columns: rounds, verified_rows (rows of all verifications), idle_rows (those that had finished
    before), discarded_tokens (verified, right and thrown away), mean_draft_tokens (K, over active
    rows), target_read and draft_read (tokens that a model was given / tokens that it has to be
    given once; NaN where a model was given none).

    The target has to read each prompt but its last token. So does a draft that keeps its K/V, which
    then reads in each round the last two committed tokens of each active row and the drafts that
    others follow: K + 1 tokens for a chain. Filling of shorter rows counts as neither.
    """
    check_recorded(trace, "trace")
    require_kind("trace", trace, Trace, "pass result.trace of a run with record=True")
    rows, feeds = trace.rows, trace.feeds
    working = rows["gained"] > 0
    drafting = working & (rows["drafted"] > 0)
    requests = np.unique(feeds["request"])
    prompts = int((np.diff(trace.requests["prompt_offsets"])[requests] - 1).sum())
    by_target = feeds["model"] == MODELS.index("target")
    read_by_target = int((by_target & (feeds["phase"] == PHASES.index("schedule"))).sum())
    read_by_draft = int((~by_target).sum())
    table = pd.DataFrame({"rounds": [trace.num_rounds], "verified_rows": [working.size]})
    table["idle_rows"] = int((~working).sum())
    table["discarded_tokens"] = int(rows["discarded"].sum())
    table["mean_draft_tokens"] = rows["drafted"][working].mean() if working.any() else np.nan
    needed = prompts + int((expanded(rows)[drafting] + 2).sum())
    read = {"target": (read_by_target, prompts), "draft": (read_by_draft, needed)}
    for model, (given, least) in read.items():
        table[f"{model}_read"] = given / least if given and least else np.nan
    return table


def bubbles(table: pd.DataFrame) -> pd.DataFrame:
    """Return the pauses of each lane of a timeline that is not empty: lane, start_ms and stop_ms.

    A lane that has ended, while another goes on, pauses to the end of the timeline.
    """
    pauses = []
    end_ms = table["stop_ms"].max()
    first_ms = table["start_ms"].min()
    for lane, phases in table.groupby("lane"):
        ordered = phases.sort_values("start_ms")
        stops = np.append(first_ms, ordered["stop_ms"])
        starts = np.append(ordered["start_ms"], end_ms)
        waits = starts > stops
        pauses.append(
            pd.DataFrame({"lane": lane, "start_ms": stops[waits], "stop_ms": starts[waits]})
        )
    return pd.concat(pauses, ignore_index=True)


def bubble_share(table: pd.DataFrame) -> float:
    """Return the share of the lanes' time in which they pause; NaN without phases."""
    if not len(table):
        return float("nan")
    pauses = bubbles(table)
    elapsed_ms = table["stop_ms"].max() - table["start_ms"].min()
    paused_ms = (pauses["stop_ms"] - pauses["start_ms"]).sum()
    return float(paused_ms / (elapsed_ms * table["lane"].nunique()))
