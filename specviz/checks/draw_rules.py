"""What a sampled run must have drawn: a part of the rules "acceptance" and "bonus".

Contract: `draws_are_the_seeds` takes the `Rows` of a record and reports to it. It needs a header
with the seed and the settings of the sampling. Without the models not every draw can be computed
again: a token counts as wrong only if the recorded candidates leave no doubt. `draws` has the rest.
"""

import numpy as np

from specviz.checks.draws import Chosen, Draws
from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array


def draws_are_the_seeds(rows: Rows) -> None:
    """Check that tokens are those that the seed's noise or coins choose."""
    _keeps_the_distribution(rows)
    draws = Draws(rows.trace)
    if draws.coupling == "gumbel":
        _noise_chooses(rows, draws)
    if draws.shows_coins:
        p, q = (_probabilities(rows.trace.rows[f"{model}_logprob"]) for model in MODELS)
        # A drafter without probabilities lays all of q on its draft.
        has_q = bool((rows.trace.rows["draft_top_ids"] >= 0).any())
        coins_accept(rows, draws, p, q if has_q else np.ones_like(p))


def _keeps_the_distribution(rows: Rows) -> None:
    """Check that drafts are not accepted for being likely enough."""
    sampling = rows.trace.meta["sampling"] or {}
    if sampling.get("coupling") != "typical":
        return
    # It holds for every round; the first one says it.
    for entry in rows.where((rows.table["round"] == 0) & (rows.table["drafted"] > 0)):
        expected = "drafts should be accepted so that the text is distributed as the target's"
        found = "typical acceptance writes what is drafted more often than the target would"
        rows.report("acceptance", "accept", entry, expected, found)


def _noise_chooses(rows: Rows, draws: Draws) -> None:
    """Check that what is emitted is the target's choice under the noise of its index."""
    table = rows.trace.rows
    judged = np.minimum(rows.column("accepted") + 1, rows.column("gained"))
    width = table["emitted"].shape[1]
    entry, j = np.nonzero(np.arange(width) < judged)
    tokens = table["emitted"][entry, j]
    branches = rows.branches
    column = np.maximum(branches.path[entry, j], 0)
    drafts, logprobs = table["drafts"], table["target_logprob"]
    if branches.any:
        drafts = branches.drafts_along(drafts)
        logprobs = branches.drafts_along(logprobs, np.nan)
    drafts = np.append(drafts, np.full((rows.size, 1), -1), axis=1)
    nan = np.full((rows.size, 1), np.nan, np.float32)
    logprobs = np.append(logprobs, nan, axis=1)
    known = np.where(drafts[entry, j] == tokens, logprobs[entry, j], np.nan)
    chosen = Chosen(
        tokens=tokens,
        requests=table["request"][entry],
        indices=table["length"][entry] + j,
        logprobs=known,
        top_ids=table["target_top_ids"][entry, column],
        top_logprobs=table["target_top_logprobs"][entry, column],
    )
    better = draws.refuted(chosen)
    for i in np.flatnonzero(better >= 0).tolist():
        of_entry = rows.entry(int(entry[i]))
        is_accepted = j[i] < of_entry.accepted
        name = f"accepted draft {j[i] + 1}" if is_accepted else "the token behind the drafts"
        index = f"index {chosen.indices[i]}"
        expected = (
            f"{name} should be what the noise of {index} makes the target choose, "
            f"{rows.token(better[i])} or a token that is not recorded"
        )
        found = f"it is {rows.token(tokens[i])}"
        rule = "acceptance" if is_accepted else "bonus"
        rows.report(rule, "accept", of_entry, expected, found)


def coins_accept(rows: Rows, draws: Draws, p: Array, q: Array, slack: float = 1e-3) -> None:
    """Check that a draft d is accepted if u q(d) < p(d), where u is the seed's number for it.

    Args:
        p, q: (N, K), what target and draft give each draft; NaN where that is not known.
        slack: the relative error that may be rounding.
    """
    table = rows.trace.rows
    accepted, gained = rows.column("accepted"), rows.column("gained")
    column = np.arange(table["drafts"].shape[1])
    is_kept = column < np.minimum(accepted, gained)
    # Where a row ends, or its strategy cuts it, the last token may be a draft that was accepted.
    is_whole = (gained == accepted + 1) & (rows.column("discarded") == 0)
    is_whole &= (rows.column("finished") == 0) & (accepted < rows.column("verified"))
    # How a tree is judged depends on its drafter, so no coin of it is looked at.
    is_chain = ~rows.branches.may_branch[:, None]
    entry, j = np.nonzero(is_chain & (is_kept | (is_whole & (column == accepted))))
    coins = draws.coins(table["request"][entry], table["length"][entry] + j)
    p, q = p[entry, j], q[entry, j]
    share = coins * q
    for i in np.flatnonzero(np.abs(share - p) > slack * np.maximum(share, p)).tolist():
        accepts = bool(share[i] < p[i])
        if accepts == is_kept[entry[i], j[i]]:
            continue
        of_entry = rows.entry(int(entry[i]))
        words = ("rejected", "accepted") if accepts else ("accepted", "rejected")
        expected = (
            f"draft {j[i] + 1}, of p = {p[i]:.3g} and q = {q[i]:.3g}, should be {words[1]} "
            f"at the seed's u = {coins[i]:.3g}"
        )
        if not rows.has_finding("acceptance", PHASES.index("accept"), of_entry):
            rows.report("acceptance", "accept", of_entry, expected, f"it was {words[0]}")


def _probabilities(logprobs: Array) -> Array:
    """Return probabilities, NaN where none was recorded: a probability of 1 is none, too."""
    # What a log leaves out is 0, which would be a probability of 1.
    found: Array = np.exp(np.where(logprobs == 0, np.nan, logprobs.astype(np.float64)))
    return found
