"""Mutations that contradict nothing else in the record: only the models can tell, `deep=True`."""

from typing import Any

import numpy as np
from mutations import Change, Mutation, Where, edited, entries, headed, of_rows
from mutations_tokens import drafted, rewritten, unlikely

from specviz.record.trace import Trace

DRAFTED = "drafted > 0 and gained > 0"


def deep(name: str, change: Change, rules: str, where: Where, needs: str) -> Mutation:
    return Mutation(name, change, tuple(rules.split()), where, needs, deep=True)


def flatter(model: str) -> Change:
    """Return the change that halves all log-probabilities of a row, as a temperature would."""

    def change(trace: Trace, entry: int) -> Trace:
        columns = {}
        for column in (f"{model}_logprob", f"{model}_top_logprobs"):
            columns[column] = trace.rows[column][entry] * 1.5 - 1
        return edited(trace, "rows", entry, **columns)

    return change


def other_candidates(trace: Trace, entry: int) -> Trace:
    """Let two candidates that were not drafted trade places."""
    ids = trace.rows["target_top_ids"][entry].copy()
    ids[0] = ids[0][[0, 1, 2, 4, 3]]
    return edited(trace, "rows", entry, target_top_ids=ids)


def has_other_candidates(trace: Trace) -> np.ndarray:
    rows = trace.rows
    found = entries("rows", "gained > 0")(trace)
    drafts, ids = rows["drafts"], rows["target_top_ids"]
    logprobs = rows["target_top_logprobs"][:, 0]
    found &= logprobs[:, 3] - logprobs[:, 4] > 0.1
    if drafts.shape[1]:
        found &= (drafts[:, :1] != ids[:, 0, 3:]).all(1)
    # Under sampling either of them may be the token that was chosen.
    return found & (rows["emitted"][:, :1] != ids[:, 0, 3:]).all(1)


def other_choice(trace: Trace, entry: int) -> Trace:
    """Emit the second candidate, and note it as the first."""
    rows = trace.rows
    a = int(rows["accepted"][entry])
    ids = rows["target_top_ids"][entry].copy()
    ids[a] = ids[a][[1, 0, 2, 3, 4]]
    emitted = rows["emitted"][entry].copy()
    emitted[a] = ids[a, 0]
    index = int(rows["length"][entry]) + a
    changed = rewritten(trace, int(rows["request"][entry]), index, int(ids[a, 0]))
    return edited(changed, "rows", entry, emitted=emitted, target_top_ids=ids)


def has_other_choice(trace: Trace) -> np.ndarray:
    rows = trace.rows
    found = entries("rows", "greedy and gained == accepted + 1 and not is_last")(trace)
    for entry in np.flatnonzero(found):
        a = int(rows["accepted"][entry])
        second = int(rows["target_top_ids"][entry, a, 1])
        logprobs = rows["target_top_logprobs"][entry, a]
        drafts = rows["drafts"][entry].tolist()
        found[entry] = second not in trace.meta["eos_token_ids"] and second not in drafts
        found[entry] &= logprobs[0] - logprobs[1] > 0.1
    return found


def other_bonus(trace: Trace, entry: int) -> Trace:
    """Emit another token after a full acceptance."""
    a = int(trace.rows["accepted"][entry])
    token = unlikely(trace, entry, a)
    emitted = trace.rows["emitted"][entry].copy()
    emitted[a] = token
    index = int(trace.rows["length"][entry]) + a
    changed = rewritten(trace, int(trace.rows["request"][entry]), index, token)
    return edited(changed, "rows", entry, emitted=emitted)


def has_full_acceptance(trace: Trace) -> np.ndarray:
    found = entries("rows", "gained == drafted + 1 and not is_last and drafted > 0")(trace)
    found &= is_by_coins(trace)
    for entry in np.flatnonzero(found):
        found[entry] = unlikely(trace, int(entry), int(trace.rows["accepted"][entry])) >= 0
    return found


def is_by_coins(trace: Trace) -> np.ndarray:
    more = of_rows(trace)
    return ~more["greedy"] & ~more["gumbel"]


def other_draw(trace: Trace, entry: int) -> Trace:
    """Draft another token in a place that is not reached."""
    j = int(trace.rows["drafted"][entry]) - 1
    ids = trace.rows["draft_top_ids"][entry, j].tolist()
    taken = trace.rows["drafts"][entry, j]
    return drafted(trace, entry, j, next(token for token in reversed(ids) if token != taken))


def has_unread_draw(trace: Trace) -> np.ndarray:
    found = entries("rows", "gained > 0 and accepted + 1 < drafted and by_model")(trace)
    return found & is_by_coins(trace)


def sampling(**values: Any) -> Change:
    def change(trace: Trace, entry: int) -> Trace:
        return headed(trace, sampling=trace.meta["sampling"] | values)

    return change


def is_sampled(trace: Trace) -> np.ndarray:
    return np.array([trace.meta["sampling"] is not None])


def has_coins(trace: Trace) -> np.ndarray:
    return np.array([bool(is_by_coins(trace).all())])


def has_draft_candidates(trace: Trace) -> np.ndarray:
    found = entries("rows", DRAFTED)(trace)
    return found & (trace.rows["draft_top_ids"][:, 0, 0] >= 0) if found.any() else found


MUTATIONS = (
    deep("a flatter target", flatter("target"), "scores", entries("rows", "gained > 0"), "a round"),
    deep("a flatter draft", flatter("draft"), "scores", has_draft_candidates, "a draft model"),
    deep(
        "two candidates exchanged", other_candidates, "scores", has_other_candidates,
        "candidates that are not drafted",
    ),
    deep("a wrong choice noted as right", other_choice, "scores bonus", has_other_choice, "greedy"),
    deep(
        "a wrong token after all drafts", other_bonus, "bonus", has_full_acceptance,
        "a full acceptance with coupling='rejection'",
    ),
    deep(
        "a draft that was not drawn", other_draw, "drafts", has_unread_draw,
        "an unread draft with coupling='rejection'",
    ),
    deep(
        "another coupling", sampling(coupling="gumbel"), "acceptance bonus drafts", has_coins,
        "coupling='rejection'",
    ),
    deep(
        "another temperature", sampling(temperature=0.3), "acceptance bonus drafts", is_sampled,
        "sampling",
    ),
)  # fmt: skip
