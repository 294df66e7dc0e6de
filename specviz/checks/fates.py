"""What became of each draft of a record, and of the token behind the last draft.

Contract: reads the table `rows` alone. Not known here: why the target chose a token, and how any of
it is drawn.
"""

import numpy as np

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
    """Return the fate of each draft of chains, and of the token behind them: uint8 (N, K+1).

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
    if judge:
        choices = target_choices(trace)
        drafts = np.append(rows["drafts"], np.full((len(fates), 1), -1), axis=1)  # (N, K+1)
        taken = np.where(fates == ACCEPTED, drafts, rows["emitted"])
        decided = (fates == ACCEPTED) | (fates == REJECTED) | (fates == BONUS)
        fates[decided & (choices >= 0) & (taken != choices)] = WRONG
    return fates
