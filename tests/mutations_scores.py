"""Mutations of the recorded candidates and log-probabilities of both models."""

from collections.abc import Callable

import numpy as np
from mutations import Mutation, edited, entries

from specviz.record.trace import Trace

Values = np.ndarray
OF_MODEL = "a draft model that says how it chose"
DRAFTED = "drafted > 0 and gained > 0"
JUDGED = {"draft": DRAFTED, "target": "verified > 0 and gained > 0"}


def candidates(
    name: str, model: str, column: str, change: Callable[[Trace, Values], Values],
    rules: str = "scores", query: str = DRAFTED,
) -> Mutation:  # fmt: skip
    """Return the mutation of the candidates at a row's first draft: values (k,) to others."""
    column = f"{model}_top_{column}"

    def apply(trace: Trace, entry: int) -> Trace:
        values = trace.rows[column][entry].copy()
        values[0] = change(trace, values[0].copy())
        return edited(trace, "rows", entry, **{column: values})

    where = has_candidates(model, query)
    needs = "a draft" if model == "target" else OF_MODEL
    return Mutation(f"rows.{column} {name}", apply, tuple(rules.split()), where, needs)


def has_candidates(model: str, query: str) -> Callable[[Trace], np.ndarray]:
    asked = entries("rows", query)

    def where(trace: Trace) -> np.ndarray:
        found = asked(trace)
        # With K = 0 there is no first draft at all.
        return found & (trace.rows[f"{model}_top_ids"][:, 0, 0] >= 0) if found.any() else found

    return where


def own(model: str, by: float) -> Mutation:
    """Return the mutation of the log-probability of a row's first draft, which is a candidate."""
    column = f"{model}_logprob"

    def apply(trace: Trace, entry: int) -> Trace:
        values = trace.rows[column][entry].copy()
        values[0] = by if by > 0 and by < 0.01 else values[0] + by
        return edited(trace, "rows", entry, **{column: values})

    def where(trace: Trace) -> np.ndarray:
        rows = trace.rows
        found = has_candidates(model, JUDGED[model])(trace)
        if found.any():
            found &= (rows[f"{model}_top_ids"][:, 0] == rows["drafts"][:, :1]).any(1)
        return found

    needs = "a draft among the candidates"
    return Mutation(f"rows.{column} {by:+}", apply, ("scores",), where, needs)


def own_of_none(trace: Trace, entry: int) -> Trace:
    """Make a draft outside the candidates as likely as the best one."""
    values = trace.rows["target_logprob"][entry].copy()
    values[0] = trace.rows["target_top_logprobs"][entry, 0, 0]
    return edited(trace, "rows", entry, target_logprob=values)


def is_no_candidate(trace: Trace) -> np.ndarray:
    rows = trace.rows
    found = has_candidates("target", JUDGED["target"])(trace)
    if not found.any():
        return found
    is_candidate = (rows["target_top_ids"][:, 0] == rows["drafts"][:, :1]).any(1)
    apart = rows["target_top_logprobs"][:, 0, 0] > rows["target_top_logprobs"][:, 0, -1] + 0.1
    return found & ~is_candidate & apart


def swapped_values(trace: Trace, values: Values) -> Values:
    return values[[4, 1, 2, 3, 0]]


def risen(trace: Trace, values: Values) -> Values:
    values[-1] = values[0] + 0.001
    return values


def above_zero(trace: Trace, values: Values) -> Values:
    values[0] = 0.009
    return values


def all_more(trace: Trace, values: Values) -> Values:
    return np.full_like(values, -0.5)


def not_a_number(trace: Trace, values: Values) -> Values:
    values[1] = np.nan
    return values


def swapped_first(trace: Trace, ids: Values) -> Values:
    return ids[[1, 0, 2, 3, 4]]


def first_twice(trace: Trace, ids: Values) -> Values:
    ids[-1] = ids[0]
    return ids


def none_first(trace: Trace, ids: Values) -> Values:
    ids[1] = -1
    return ids


def beyond(trace: Trace, ids: Values) -> Values:
    ids[-1] = trace.meta["vocabulary_size"]
    return ids


GREEDY = f"{DRAFTED} and greedy"
CERTAIN = f"{DRAFTED} and greedy and by_model"
MUTATIONS = (
    *(
        candidates(name, model, column, change)
        for model in ("target", "draft")
        for name, column, change in (
            ("not sorted", "logprobs", swapped_values),
            ("the last above the first", "logprobs", risen),
            ("above 0", "logprobs", above_zero),
            ("above 1 in sum", "logprobs", all_more),
            ("NaN", "logprobs", not_a_number),
            ("twice the same", "ids", first_twice),
            ("no token", "ids", none_first),
            ("beyond the vocabulary", "ids", beyond),
        )
    ),
    candidates(
        "another first", "target", "ids", swapped_first, "acceptance bonus", GREEDY
    ),
    candidates("another first", "draft", "ids", swapped_first, "drafts", CERTAIN),
    own("target", -0.5),
    own("target", 0.005),
    own("draft", -0.5),
    own("draft", 0.005),
    Mutation(
        "rows.target_logprob of no candidate", own_of_none, ("scores",), is_no_candidate,
        "a draft outside the candidates",
    ),
)  # fmt: skip
