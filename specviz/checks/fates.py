"""What became of each draft of a record, and of the token behind the last draft.

Contract: reads the table `rows` alone. Not known here: why the target chose a token, and how any of
it is drawn.
"""

import numpy as np

from specviz.checks.branches import Branches
from specviz.record.schema import Array
from specviz.record.trace import Trace

# Of the K + 1 columns of a row in a round, draft 1 to K and the token behind them:
FATES = (
    "none",  # nothing was drafted here, or the row had finished before
    "accepted",
    "rejected",  # the target's own token was emitted instead
    "bonus",  # behind the last verified draft: the target's own token was emitted
    "kept",  # accepted, and kept as the row's last token because other rows stopped here
    "discarded",  # accepted by the target, but cut off because another row stopped earlier
    "wrong",  # the target chose another token than the emitted one
    "ended",  # the row ended before: EOS, or its budget was spent
    "unreached",  # an earlier draft was rejected, or cut off with the rest
    "unverified",  # the target did not read it
)
NONE, ACCEPTED, REJECTED, BONUS, KEPT, DISCARDED, WRONG, ENDED, *_UNSEEN = range(len(FATES))
UNREACHED, UNVERIFIED = _UNSEEN


def target_choices(trace: Trace) -> Array:
    """Return the target's choice after each draft, (N, K+1).

    It is -1 where the record does not say: in a sampled run, and where no candidates were kept.
    """
    top = trace.rows["target_top_ids"]  # (N, K+1, k)
    if trace.meta.get("sampling") is not None or top.shape[2] == 0:
        return np.full(top.shape[:2], -1)
    choices: Array = top[:, :, 0]
    return choices


def draft_fates(trace: Trace, *, judge: bool = True) -> Array:
    """Return the fate of each draft, and of the token behind the verified ones: uint8 (N, K+1).

    A fate is a code, the place of its name in FATES.

    Args:
        trace: the record; N entries of the table `rows`.
        judge: whether to compare with the target's choices. Without it no fate is "wrong".
    """
    rows = trace.rows
    column = np.arange(rows["emitted"].shape[1])  # (K+1,)
    drafted, verified, accepted, gained, discarded = (
        rows[name][:, None] for name in ("drafted", "verified", "accepted", "gained", "discarded")
    )  # (N, 1)
    right = accepted + discarded
    is_last = column == verified
    is_own_token = (column == accepted) & (is_last | (discarded == 0))
    fates = np.select(
        [
            (gained == 0) | ((column > verified) & (column >= drafted)),
            (gained <= accepted) & (column >= gained) & (column <= accepted),
            column < accepted,
            is_own_token & ~is_last,
            is_own_token,
            column == accepted,
            (column < right) | (is_last & (column == right)),
            (column >= verified) & (column < drafted),
        ],
        [NONE, ENDED, ACCEPTED, REJECTED, BONUS, KEPT, DISCARDED, UNVERIFIED],
        UNREACHED,
    ).astype(np.uint8)
    branches = Branches(trace)
    if branches.any:
        fates = np.where(branches.is_tree[:, None], _fates_of_trees(trace, branches), fates)
    if judge:
        _mark_wrong(trace, branches, fates)
    return fates


def _fates_of_trees(trace: Trace, branches: Branches) -> Array:
    """Return the fates (N, K+1) of drafts that branch."""
    rows = trace.rows
    n, k = branches.parents.shape
    number = np.arange(k)
    verified, accepted, gained, discarded = (
        rows[name][:, None] for name in ("verified", "accepted", "gained", "discarded")
    )  # (N, 1)
    on_path = np.zeros((n, k + 2), bool)  # by column; the last one takes what is behind the path
    np.put_along_axis(on_path, np.where(branches.path < 0, k + 1, branches.path), True, axis=1)
    is_own_token = (gained > accepted) & (discarded == 0)
    follows_path = np.take_along_axis(on_path, branches.parents, axis=1)  # (N, K)
    is_next = branches.parents == branches.last[:, None]
    fates = np.full((n, k + 1), UNREACHED, np.uint8)
    fates[:, :k] = np.select(
        [
            (gained == 0) | (number >= branches.drafted),
            number >= verified,
            on_path[:, 1:-1] & (branches.depths[:, 1:] > gained),
            on_path[:, 1:-1],
            is_next & ~is_own_token,
            follows_path,
        ],
        [NONE, UNVERIFIED, ENDED, ACCEPTED, UNREACHED, REJECTED],
        UNREACHED,
    )
    # Behind the last verified draft stands the target's own token, if no draft stood against it.
    every = np.arange(n)
    has_bonus = is_own_token[:, 0] & ~branches.is_next.any(1)
    behind = np.minimum(rows["drafted"], k)
    fates[every, k] = NONE
    fates[every[has_bonus], behind[has_bonus]] = BONUS
    return fates


def _mark_wrong(trace: Trace, branches: Branches, fates: Array) -> None:
    """Mark what is not the target's choice, where the record has that."""
    rows = trace.rows
    choices = target_choices(trace)
    drafts = np.append(rows["drafts"], np.full((len(fates), 1), -1), axis=1)  # (N, K+1)
    emitted = rows["emitted"]
    if branches.any:
        # Of each draft the choice after what it follows, and the token that was emitted there.
        before = np.append(branches.parents, np.zeros((len(fates), 1), np.int64), axis=1)
        every = np.arange(len(fates))[:, None]
        behind = np.minimum(rows["drafted"], drafts.shape[1] - 1)
        before[every[:, 0], behind] = np.where(
            branches.is_tree, branches.last, before[every[:, 0], behind]
        )
        before[:, -1] = np.where(branches.is_tree, branches.last, drafts.shape[1] - 1)
        of_tree = branches.is_tree[:, None]
        step = np.where(of_tree, branches.depths[every, before], np.arange(drafts.shape[1]))
        choices = np.where(of_tree, choices[every, before], choices)
        emitted = emitted[every, step]
    taken = np.where(fates == ACCEPTED, drafts, emitted)
    decided = (fates == ACCEPTED) | (fates == REJECTED) | (fates == BONUS)
    fates[decided & (choices >= 0) & (taken != choices)] = WRONG
