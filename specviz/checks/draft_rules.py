"""The rule "drafts": what is drafted, and how much.

Contract: `drafts` takes the `Rows` of a record and reports to it. Only the drafters "model" and
"lookup" say what they would propose: the former by its recorded candidates, the latter by the text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specviz.checks.draws import Chosen, Draws
from specviz.checks.rows import Rows
from specviz.record.schema import Array

_WORK = 2**30  # tokens that are compared at most: a hostile record may claim any number


def drafts(rows: Rows) -> None:
    """Check that a row drafts as many tokens as it says, each the choice of its drafter."""
    _are_counted(rows)
    drafter = rows.trace.meta["drafter"]
    if drafter == "model":
        _are_the_models_choice(rows)
    if drafter == "lookup":
        _are_looked_up(rows)


def _are_counted(rows: Rows) -> None:
    tokens = rows.trace.rows["drafts"]
    column = np.arange(tokens.shape[1])
    is_active = rows.column("gained") > 0
    is_counted = column < rows.column("drafted")
    # What a log leaves empty is 0.
    is_wrong = np.where(is_counted, tokens < 0, tokens > 0) & is_active
    for entry in rows.where(is_wrong.any(1)):
        expected = f"the row should have {entry.drafted} drafts"
        found = f"it has {int((tokens[entry.Index] >= 0).sum())}"
        rows.report(
            "drafts", "draft", entry, expected, found, count=int(is_wrong[entry.Index].sum())
        )


def _are_the_models_choice(rows: Rows) -> None:
    """Check that a greedy draft is its first candidate, a drawn one what the noise chooses."""
    table, meta = rows.trace.rows, rows.trace.meta
    top = table["draft_top_ids"]
    if top.shape[2] == 0:
        return
    is_drafted = np.arange(table["drafts"].shape[1]) < rows.column("drafted")
    is_drafted &= (rows.column("gained") > 0) & (top[:, :, 0] >= 0)
    if meta["sampling"] is None:
        # Rows of zeros were not logged.
        is_logged = (top != 0).any(2) | (table["draft_top_logprobs"] != 0).any(2)
        is_wrong = is_drafted & is_logged & (table["drafts"] != top[:, :, 0])
        for entry, j in rows.each(is_wrong):
            i = entry.Index
            expected = f"draft {j + 1} should be the draft's choice {rows.token(top[i, j, 0])}"
            found = f"it is {rows.token(table['drafts'][i, j])}"
            rows.report("drafts", "draft", entry, expected, found)
        return
    draws = Draws(rows.trace)
    if draws.coupling != "gumbel":
        return
    entries, columns = np.nonzero(is_drafted)
    chosen = Chosen(
        tokens=table["drafts"][entries, columns],
        requests=table["request"][entries],
        indices=table["length"][entries] + columns,
        logprobs=table["draft_logprob"][entries, columns],
        top_ids=top[entries, columns],
        top_logprobs=table["draft_top_logprobs"][entries, columns],
    )
    better = draws.refuted(chosen)
    for i in np.flatnonzero(better >= 0).tolist():
        expected = (
            f"draft {columns[i] + 1} should be what the noise of index {chosen.indices[i]} "
            f"makes the draft choose, {rows.token(better[i])} or a token that is not recorded"
        )
        found = f"it is {rows.token(chosen.tokens[i])}"
        rows.report("drafts", "draft", rows.entry(int(entries[i])), expected, found)


def _are_looked_up(rows: Rows) -> None:
    """Check that a draft of prompt lookup is what followed the row's last tokens before."""
    trace = rows.trace
    sizes = _ngram_sizes(trace.meta.get("drafter_options"))
    if sizes is None or rows.table["length"].sum() * sizes[0] > _WORK:
        return
    texts = trace.index.committed
    for entry in rows.where((rows.table["gained"] > 0) & (rows.table["drafted"] > 0)):
        first = int(texts.first[entry.request])
        text = texts.tokens[first : first + min(entry.length, int(texts.size[entry.request]))]
        count = min(entry.drafted, trace.rows["drafts"].shape[1])
        wanted = looked_up(text, count, *sizes)
        tokens = trace.rows["drafts"][entry.Index, :count]
        wrong = np.flatnonzero(tokens != wanted)
        if wrong.size:
            j = int(wrong[0])
            expected = f"draft {j + 1} should be {rows.token(wanted[j])}, as the text goes on"
            found = f"it is {rows.token(tokens[j])}"
            rows.report("drafts", "draft", entry, expected, found, count=wrong.size)


def looked_up(text: Array, count: int, max_ngram: int, min_ngram: int) -> Array:
    """Return what prompt lookup proposes after a text (n,): see `LookupDrafter`; (count,)."""
    n = text.size
    same = np.ones(n - 1, bool)  # of each place before the last: do the tokens up to it match?
    start = n - 1
    for i in range(min(max_ngram, n)):
        same[:i] = False
        same[i:] &= text[: n - 1 - i] == text[n - 1 - i]
        if not same.any():
            break
        if i + 1 >= min_ngram:
            start = int(np.flatnonzero(same)[-1]) + 1
    ahead: Array = text[start + np.arange(count) % (n - start)]
    return ahead


def _ngram_sizes(options: Any) -> Sequence[int] | None:
    if not isinstance(options, dict):
        return None
    sizes = [options.get(name) for name in ("max_ngram", "min_ngram")]
    are_sizes = all(type(size) is int and 1 <= size < 2**31 for size in sizes)
    return [int(size) for size in sizes if size] if are_sizes else None
