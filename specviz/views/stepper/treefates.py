"""What became of each draft of rows whose drafts branch.

Contract: reads the table `rows`; codes of FATES come out. Of a chain, `draft_fates` knows it all.
Not known here: how any of it is drawn.

The target goes from the pending token down the tree as long as it agrees with a draft. So there is
one branch that is accepted; the drafts beside it are rejected, and nothing behind those is reached.
"""

import numpy as np

from specviz.checks.fates import (
    ACCEPTED,
    BONUS,
    DISCARDED,
    ENDED,
    KEPT,
    NONE,
    REJECTED,
    UNREACHED,
    UNVERIFIED,
    WRONG,
    target_choices,
)
from specviz.record.schema import Array
from specviz.record.trace import Trace
from specviz.record.trees import accepted_drafts, branching, follows_accepted, last_accepted


def tree_fates(trace: Trace, *, judge: bool) -> tuple[Array, Array, Array]:
    """Return the entries whose drafts branch (n,), and the fates of their drafts and own tokens.

    Args:
        judge: whether to compare with the target's choices. Without it no fate is "wrong".

    Returns:
        entries: (n,) numbers in the table `rows`.
        drafts: (n, K) uint8.
        own: (n,) uint8, the fate of the target's own token behind the accepted drafts.
    """
    entries = np.flatnonzero(branching(trace.rows))
    rows = {name: values[entries] for name, values in trace.rows.items()}
    choices = target_choices(trace)[entries]  # (n, K+1)
    number = np.arange(rows["drafts"].shape[1])
    gained, accepted, discarded = (rows[name] for name in ("gained", "accepted", "discarded"))
    last = last_accepted(rows["path"])
    is_accepted = accepted_drafts(rows["path"])
    # Of what was accepted, EOS or the budget keeps only the first tokens.
    place = is_accepted.cumsum(axis=1) - 1
    is_kept = is_accepted & (place < gained[:, None])
    reached = follows_accepted(rows) & ~is_accepted
    is_next = reached & (rows["parents"] == last[:, None])  # what the own token stands in for
    ended = gained <= accepted
    cut = _cut_off(rows, choices, last)
    drafts = np.select(
        [
            (gained == 0)[:, None] | (number >= rows["drafted"][:, None]),
            number >= rows["verified"][:, None],
            is_kept,
            is_accepted | (is_next & ended[:, None]),
            cut & is_next,
            cut,
            is_next & (discarded > 0)[:, None],
            reached,
        ],
        [NONE, UNVERIFIED, ACCEPTED, ENDED, KEPT, DISCARDED, UNREACHED, REJECTED],
        UNREACHED,
    ).astype(np.uint8)
    own = np.select([gained == 0, ended, discarded > 0], [NONE, ENDED, UNREACHED], BONUS).astype(
        np.uint8
    )
    if judge:
        before = np.take_along_axis(choices, rows["parents"] + 1, axis=1)
        drafts[(drafts == ACCEPTED) & (before >= 0) & (rows["drafts"] != before)] = WRONG
        choice = np.take_along_axis(choices, last[:, None] + 1, axis=1)[:, 0]
        emitted = np.take_along_axis(rows["emitted"], accepted[:, None], axis=1)[:, 0]
        own[(own == BONUS) & (choice >= 0) & (emitted != choice)] = WRONG
    return entries, drafts, own


def _cut_off(rows: dict[str, Array], choices: Array, last: Array) -> Array:
    """Return which drafts (n, K) were right but cut off, because another row stopped earlier.

    The first of them is kept as the row's last token. Those behind it are known where the record
    has the target's choices.
    """
    gained = np.maximum(rows["gained"] - 1, 0)
    token = np.take_along_axis(rows["emitted"], gained[:, None], axis=1)[:, 0]
    entries = np.arange(len(last))
    count = rows["drafts"].shape[1]
    found = np.zeros((len(last), count), bool)
    for draft in range(count):
        parent = rows["parents"][:, draft]
        is_first = (parent == last) & (rows["drafts"][:, draft] == token)
        follows = (parent >= 0) & found[entries, parent]
        is_right = choices[entries, parent + 1] == rows["drafts"][:, draft]
        found[:, draft] = (rows["discarded"] > 0) & (is_first | (follows & is_right))
    return found & (np.arange(count) < rows["verified"][:, None])
