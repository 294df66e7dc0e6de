"""Mutations that contradict nothing else in the record: only the models can tell, `deep=True`."""

import numpy as np
from mutations import (
    Change,
    Mutation,
    edited,
    edited_at,
    header,
    place,
    queried,
    sampling,
    uses,
    whole,
)
from mutations_rows import DRAFTED, drafted, has_candidates, has_unlikely, rewritten, wrong_bonus

from specviz.record.trace import Trace


def flatter(model: str) -> Change:
    """Return the change that flattens all log-probabilities of a row, as a temperature would."""

    def change(trace: Trace, entry: int) -> Trace:
        names = (f"{model}_logprob", f"{model}_top_logprobs")
        columns = {name: trace.rows[name][entry] * 1.5 - 1 for name in names}
        return edited(trace, "rows", entry, **columns)

    return change


def has_other_candidates(trace: Trace) -> np.ndarray:
    """Where the last two candidates differ, and neither was drafted or, by sampling, chosen."""
    rows = trace.rows
    logprobs, ids = rows["target_top_logprobs"][:, 0], rows["target_top_ids"][:, 0, 3:]
    found = queried("rows", "gained > 0", trace) & (logprobs[:, 3] - logprobs[:, 4] > 0.1)
    for column in ("drafts", "emitted"):
        if rows[column].size:
            found &= (rows[column][:, :1] != ids).all(1)
    return found


def other_choice(trace: Trace, entry: int) -> Trace:
    """Emit the second candidate, and note it as the first."""
    a = int(trace.rows["accepted"][entry])
    ids = trace.rows["target_top_ids"][entry, a][[1, 0, 2, 3, 4]]
    changed = rewritten(trace, entry, a, int(ids[0]))
    return edited_at(changed, "target_top_ids", entry, a, ids)


def has_other_choice(trace: Trace) -> np.ndarray:
    rows = trace.rows
    found = queried("rows", "greedy and gained == accepted + 1 and not is_last", trace)
    for entry in np.flatnonzero(found):
        a = int(rows["accepted"][entry])
        taken = [*trace.meta["eos_token_ids"], *rows["drafts"][entry]]
        logprobs = rows["target_top_logprobs"][entry, a]
        found[entry] = logprobs[0] - logprobs[1] > 0.1
        found[entry] &= rows["target_top_ids"][entry, a, 1] not in taken
    return found


def other_draw(trace: Trace, entry: int) -> Trace:
    """Draft another token in a place that is not reached."""
    j = int(trace.rows["drafted"][entry]) - 1
    ids = trace.rows["draft_top_ids"][entry, j].tolist()
    taken = trace.rows["drafts"][entry, j]
    return drafted(trace, entry, j, next(token for token in reversed(ids) if token != taken))


MUTATIONS: tuple[Mutation, ...] = (
    whole("a flatter target", flatter("target"), "scores", "rows", "gained > 0"),
    whole("a flatter draft", flatter("draft"), "scores", "rows", has_candidates("draft", DRAFTED)),
    place(
        "target_top_ids", 0, lambda row, old: old[[0, 1, 2, 4, 3]], "scores",
        has_other_candidates, "exchanged",
    ),
    whole("a wrong choice noted as right", other_choice, "scores bonus", "rows", has_other_choice),
    whole(
        "a wrong token after all drafts", wrong_bonus, "bonus", "rows",
        has_unlikely(
            f"gained == drafted + 1 and not is_last and {DRAFTED} and by_coins", "accepted",
            among=False,
        ),
    ),
    whole(
        "a draft that was not drawn", other_draw, "drafts", "rows",
        "gained > 0 and accepted + 1 < drafted and by_model and by_coins",
    ),
    header(
        "another coupling", "acceptance bonus drafts", uses("rejection"),
        sampling=sampling(coupling="gumbel"),
    ),
    header(
        "another temperature", "acceptance bonus drafts", lambda trace: trace.meta["sampling"],
        sampling=sampling(temperature=0.3),
    ),
)  # fmt: skip
