"""The rules about where emitted tokens come from: "acceptance" and "bonus".

Contract: each rule is a function of that name, which takes the `Rows` of a record and reports to
it. What the target would have drawn in a sampled run is left to `draw_rules`. Here "acceptance"
only says that accepted drafts are emitted as they are, and "bonus" that a rejected draft is not.
"""

import numpy as np

from specviz.checks.fates import target_choices
from specviz.checks.rows import Rows


def acceptance(rows: Rows) -> None:
    """Check that an accepted draft is the target's choice, and is emitted as it was drafted."""
    drafts, choices = rows.trace.rows["drafts"], target_choices(rows.trace)  # (N, K), (N, K+1)
    k = drafts.shape[1]
    emitted = rows.trace.rows["emitted"][:, :k]
    if rows.branches.any:
        drafts = rows.branches.drafts_along(drafts)
        choices = rows.branches.along(choices)
    choices = choices[:, :k]
    kept = np.minimum(rows.column("accepted"), rows.column("gained"))
    is_kept = np.arange(k) < kept
    for entry, j in rows.each(is_kept & (drafts != choices) & (choices >= 0)):
        choice = rows.token(choices[entry.Index, j])
        expected = f"accepted draft {j + 1} should be the target's choice {choice}"
        found = f"it is {rows.token(drafts[entry.Index, j])}"
        rows.report("acceptance", "accept", entry, expected, found)
    for entry, j in rows.each(is_kept & (drafts != emitted)):
        draft = rows.token(drafts[entry.Index, j])
        expected = f"accepted draft {j + 1}, {draft}, should be emitted"
        found = f"{rows.token(emitted[entry.Index, j])} was emitted"
        rows.report("acceptance", "accept", entry, expected, found)
    table = rows.table
    for entry in rows.where(table["gained"] > table["accepted"] + 1):
        most = entry.accepted + 1
        expected = f"the row should gain at most {most} tokens from {most - 1} accepted drafts"
        found = f"it gains {entry.gained}"
        rows.report("acceptance", "accept", entry, expected, found, count=entry.gained - most)


def bonus(rows: Rows) -> None:
    """Check that the token behind the accepted drafts comes from the target."""
    table, branches = rows.table, rows.branches
    every = np.arange(rows.size)
    place = (every, table["accepted"])
    emitted = rows.trace.rows["emitted"][place]  # (N,), the bonus
    choices = target_choices(rows.trace)[every, branches.last]
    none = np.full((rows.size, 1), -1)
    rejected = np.append(rows.trace.rows["drafts"], none, axis=1)[place]  # -1 if none was
    if branches.any:
        is_child = branches.is_next & (rows.trace.rows["drafts"] == emitted[:, None])
        of_tree = np.where(is_child.any(1), emitted, -1)
        rejected = np.where(branches.is_tree, of_tree, rejected)
    has_bonus = table["gained"] > table["accepted"]
    for entry in rows.where(has_bonus & (choices >= 0) & (emitted != choices)):
        i = entry.Index
        choice = rows.token(choices[i])
        expected = (
            f"after {entry.accepted} accepted drafts the target's choice {choice} should follow"
        )
        found = f"{rows.token(emitted[i])} follows"
        if emitted[i] == rejected[i]:
            found += ", which is the draft's token"
        rows.report("bonus", "accept", entry, expected, found)
    # Without the target's choices one thing can still be checked: a rejected draft is not emitted.
    # Where the strategy, the budget or EOS cut the tokens, though, the last one may be a draft.
    is_whole = (table["discarded"] == 0) & (table["finished"] == 0)
    is_draft = (rejected >= 0) & (emitted == rejected) & (table["accepted"] < table["verified"])
    for entry in rows.where(has_bonus & (choices < 0) & is_whole & is_draft):
        number = int(branches.is_next[entry.Index].argmax()) + 1
        expected = f"draft {number} was rejected, so another token should be emitted"
        found = f"that draft, {rows.token(emitted[entry.Index])}, was emitted"
        rows.report("bonus", "accept", entry, expected, found)
