"""The invariants of batch speculative decoding, checked on a record alone.

Contract: `check` takes a trace and returns what does not hold, the first that went wrong first; nothing is assumed about the strategy
but what its record says, so that one of your own is judged like the built-in ones. Sources: arXiv 2510.22876 for the rectangle (I1)
and the positions (I2); the other rules say what its text needs for its updates to be right. This file keeps the books of lengths,
tokens and ends; what forwards saw and caches held is judged in `forwards`. Not known here: models.

What is no violation: padding that accumulates, verified tokens that are thrown away, K/V that is wrong where no forward looks any more.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from specviz.checks.forwards import Forwards, Holding
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace

_SCHEDULE, _VERIFY, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "verify", "accept", "synchronise")
)
_TARGET, _NEVER = MODELS.index("target"), 2**31
ALIGNED_SHARE = 0.75  # of the rounds with rows of different length; a run that is aligned in so many promises it for all


def check(trace: Trace) -> tuple[Findings, list[Holding]]:
    """All findings, and what each row's caches should hold after each round.

    Rules: see `violations.RULES`. Of a sampled run, what the target would have drawn is not in the record; there "acceptance" says only
    that an accepted draft is emitted as it was, and "bonus" that a rejected draft is not emitted after all.
    """
    findings, entries = Findings(), _entries(trace)
    for judge in (_lengths, _rectangle, _acceptance, _bonus, _ends):
        judge(trace, entries, findings)
    forwards = Forwards(trace, findings)
    forwards.run()
    return findings, forwards.holdings


def _entries(trace: Trace) -> pd.DataFrame:
    """The scalar columns of the table `rows`, and what the request has: prompt, output and budget in tokens, before and after (new
    tokens before and after this round), end (new tokens up to the first EOS, itself included; huge without EOS).
    """
    table = pd.DataFrame(
        {name: values.astype(np.int64) for name, values in trace.rows.items() if values.ndim == 1}
    )
    prompt, output = (np.diff(trace.requests[f"{name}_offsets"]) for name in ("prompt", "output"))
    ends = np.full(trace.num_requests, _NEVER)
    for request in range(trace.num_requests):
        is_eos = np.isin(trace.output(request), trace.meta["eos_token_ids"])
        ends[request] = is_eos.argmax() + 1 if is_eos.any() else _NEVER
    request = table["request"]
    table = table.assign(
        prompt=prompt[request],
        output=output[request],
        budget=trace.requests["budget"][request],
        end=ends[request],
    )
    table["before"] = table["length"] - table["prompt"]
    return table.assign(after=table["before"] + table["gained"])


def _lengths(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    reached = (entries["length"] + entries["gained"]).groupby(entries["request"]).shift()
    expected = reached.fillna(entries["prompt"]).astype(np.int64)
    for entry in _where(entries, entries["length"] != expected):
        words = (
            f"a row of {expected[entry.Index]} tokens, as the round before left it",
            f"one of {entry.length}",
        )
        _add(findings, "lengths", _SCHEDULE, entry, *words)
    emitted, kept = trace.rows["emitted"], _output_tokens(trace, entries)
    gained = np.arange(emitted.shape[1]) < _column(entries["gained"])
    for entry, j in _each(entries, gained & (emitted != kept)):
        said, written = (_name(trace, tokens[entry.Index, j]) for tokens in (emitted, kept))
        _add(
            findings,
            "lengths",
            _ACCEPT,
            entry,
            f"token {written} emitted at index {entry.length + j}, as in the output",
            said,
        )
    last = ~entries["request"].duplicated(keep="last")
    for entry in _where(entries, last & (entries["after"] != entries["output"])):
        words = f"{entry.output} new tokens at the end, as in the output", f"{entry.after}"
        _add(findings, "lengths", _ACCEPT, entry, *words, count=abs(entry.output - entry.after))


def _output_tokens(trace: Trace, entries: pd.DataFrame) -> Array:
    """(N, K+1): what stands in the request's output where an entry's emitted tokens belong; -1 behind its end."""
    first, stop = (
        trace.requests["output_offsets"][entries["request"] + after][:, None] for after in (0, 1)
    )
    at = first + _column(entries["before"]) + np.arange(trace.rows["emitted"].shape[1])
    return np.append(trace.requests["output_tokens"], -1)[
        np.where((at >= first) & (at < stop), at, -1)
    ]


def _rectangle(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    for phase, gained, suffix in ((_SCHEDULE, 0, ""), (_SYNCHRONISE, entries["gained"], "_after")):
        starts, slots = entries[f"start{suffix}"], entries[f"pending{suffix}"]
        least = starts + entries["length"] + gained - 1
        for entry in _where(entries, slots < least):
            words = f"the pending token in slot {least[entry.Index]} or later, as the row starts in slot {starts[entry.Index]}"
            _add(
                findings,
                "rectangle",
                phase,
                entry,
                words,
                f"slot {slots[entry.Index]}",
                slots=[slots[entry.Index]],
            )
    _pending_is_where_it_is_fed(trace, entries, findings)
    _rows_end_in_one_column(entries, findings)


def _pending_is_where_it_is_fed(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    feeds = pd.DataFrame(
        {
            name: trace.feeds[name].astype(np.int64)
            for name in ("round", "row", "request", "index", "slot")
        }
    )
    fed = entries.merge(
        feeds[(trace.feeds["phase"] == _VERIFY) & (trace.feeds["model"] == _TARGET)],
        on=["round", "row", "request"],
    )
    for entry in _where(fed, (fed["index"] == fed["length"] - 1) & (fed["slot"] != fed["pending"])):
        words = (
            f"the pending token fed into slot {entry.pending}, which awaits it",
            f"slot {entry.slot}",
        )
        _add(findings, "rectangle", _VERIFY, entry, *words, model=_TARGET, slots=[entry.slot])


def _rows_end_in_one_column(entries: pd.DataFrame, findings: Findings) -> None:
    """p_i + c_i = L for all rows. Rows that are aligned on the left promise no such thing; whether a run does is seen from its rounds."""
    rounds = entries.groupby("round").agg(
        lengths=("length", "nunique"), columns=("pending", "nunique")
    )
    telling = rounds[rounds["lengths"] > 1]
    if telling.empty or (telling["columns"] == 1).mean() < ALIGNED_SHARE:
        return
    usual = (
        entries.groupby("round")["pending"]
        .agg(lambda slots: slots.mode().iloc[0])[entries["round"]]
        .to_numpy()
    )
    for entry in _where(entries, entries["pending"] != usual):
        words = (
            f"the row to end in slot {usual[entry.Index]}, like the others of the batch",
            f"slot {entry.pending}",
        )
        _add(findings, "rectangle", _SCHEDULE, entry, *words, slots=[entry.pending])


def _acceptance(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    drafts, emitted, wanted = trace.rows["drafts"], trace.rows["emitted"], _target_choices(trace)
    k = drafts.shape[1]
    kept = np.arange(k) < _column(entries[["accepted", "gained"]].min(axis=1))
    for entry, j in _each(entries, kept & (drafts != wanted[:, :k]) & (wanted[:, :k] >= 0)):
        words = (
            f"accepted draft {j + 1} to be the target's choice {_name(trace, wanted[entry.Index, j])}",
            _name(trace, drafts[entry.Index, j]),
        )
        _add(findings, "acceptance", _ACCEPT, entry, *words)
    for entry, j in _each(entries, kept & (drafts != emitted[:, :k])):
        words = (
            f"accepted draft {j + 1}, {_name(trace, drafts[entry.Index, j])}, to be emitted",
            _name(trace, emitted[entry.Index, j]),
        )
        _add(findings, "acceptance", _ACCEPT, entry, *words)
    for entry in _where(entries, entries["gained"] > entries["accepted"] + 1):
        words = (
            f"{entry.accepted + 1} tokens at the most from {entry.accepted} accepted drafts",
            f"{entry.gained}",
        )
        _add(
            findings, "acceptance", _ACCEPT, entry, *words, count=entry.gained - entry.accepted - 1
        )


def _target_choices(trace: Trace) -> Array:
    """(N, K+1): the target's choice after each draft, -1 where the record does not tell: sampling, or no candidates kept."""
    top = trace.rows["target_top_ids"]
    if trace.meta.get("sampling") is not None or top.shape[2] == 0:
        return np.full(top.shape[:2], -1)
    choices: Array = top[:, :, 0]
    return choices


def _bonus(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    every = np.arange(len(entries))
    emitted, wanted = (
        tokens[every, entries["accepted"]]
        for tokens in (trace.rows["emitted"], _target_choices(trace))
    )
    rejected = np.append(trace.rows["drafts"], np.full((len(entries), 1), -1), axis=1)[
        every, entries["accepted"]
    ]  # -1 if none was
    bonus = entries["gained"] > entries["accepted"]
    for entry in _where(entries, bonus & (wanted >= 0) & (emitted != wanted)):
        i, own = (
            entry.Index,
            ", the draft's token" if emitted[entry.Index] == rejected[entry.Index] else "",
        )
        words = (
            f"the target's choice {_name(trace, wanted[i])} after {entry.accepted} accepted drafts",
            f"{_name(trace, emitted[i])}{own}",
        )
        _add(findings, "bonus", _ACCEPT, entry, *words)
    whole = (entries["discarded"] == 0) & (
        entries["finished"] == 0
    )  # neither cut by the strategy nor by budget or EOS
    for entry in _where(
        entries, bonus & (wanted < 0) & (rejected >= 0) & whole & (emitted == rejected)
    ):
        words = (
            f"another token than draft {entry.accepted + 1}, which was rejected",
            f"that token, {_name(trace, emitted[entry.Index])}",
        )
        _add(findings, "bonus", _ACCEPT, entry, *words)


def _ends(trace: Trace, entries: pd.DataFrame, findings: Findings) -> None:
    """Rules "budget" and "eos"."""
    gained, limit = entries["gained"] > 0, entries[["budget", "end"]].min(axis=1)
    for entry in _where(entries, gained & (entries["after"] > entries["budget"])):
        words = f"{entry.budget} new tokens at the most", f"{entry.after}"
        _add(
            findings,
            "budget",
            _ACCEPT,
            entry,
            *words,
            count=entry.after - max(entry.before, entry.budget),
        )
    for entry in _where(entries, gained & (entries["after"] > entries["end"])):
        words = (
            f"nothing behind the EOS, which is new token {entry.end}",
            f"{entry.after} new tokens",
        )
        _add(
            findings,
            "eos",
            _ACCEPT,
            entry,
            *words,
            count=entry.after - max(entry.before, entry.end),
        )
    broken = [
        request
        for request, status in enumerate(trace.meta.get("status", ()))
        if status == "not_finite"
    ]
    for entry in _where(
        entries,
        (entries["finished"] == 1) & (entries["after"] < limit) & ~entries["request"].isin(broken),
    ):
        words = (
            f"the row to go on, up to {entry.budget} new tokens or EOS",
            f"it finished with {entry.after}",
        )
        _add(findings, "budget", _ACCEPT, entry, *words)
    for entry in _where(entries, (entries["finished"] == 0) & (entries["after"] == limit)):
        rule, end = (
            ("eos", "its EOS")
            if entry.end <= entry.budget
            else ("budget", f"its budget of {entry.budget} tokens")
        )
        _add(findings, rule, _ACCEPT, entry, f"the row to be finished by {end}", "it not finished")


def _add(
    findings: Findings, rule: str, phase: int, entry: Any, expected: str, found: str, **more: Any
) -> None:
    findings.add(
        rule, entry.round * len(PHASES) + phase, entry.row, entry.request, expected, found, **more
    )


def _where(entries: pd.DataFrame, mask: Any) -> Iterator[Any]:
    """The entries that a mask (N,) names, as named tuples."""
    return entries[mask].itertuples() if mask.any() else iter(())


def _each(entries: pd.DataFrame, mask: Array) -> Iterator[tuple[Any, int]]:
    """The entries and places that a mask (N, m) names."""
    for entry in _where(entries, mask.any(1)):
        for j in np.flatnonzero(mask[entry.Index]).tolist():
            yield entry, j


def _column(values: pd.Series) -> Array:
    column: Array = values.to_numpy()[:, None]
    return column


def _name(trace: Trace, token: int) -> str:
    return (
        f"{token} ({trace.text(token)!r})"
        if str(token) in trace.meta["token_texts"]
        else f"{token}"
    )
