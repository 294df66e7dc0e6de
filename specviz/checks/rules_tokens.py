"""Rules about where emitted tokens come from: "acceptance" and "bonus".

What could have been kept was either gained or is counted as discarded: right tokens do not vanish
without a sign. What the target would have drawn in a sampled run follows from the header's seed, as
far as the recorded candidates leave no doubt; see `draws`.
"""

import numpy as np

from specviz.checks.draws import Chosen, Draws
from specviz.checks.rule import Wrong, rule
from specviz.checks.table import RoundTable
from specviz.record.schema import MODELS, Array


def _kept(t: RoundTable) -> tuple[Array, Array]:
    """Return the accepted drafts in order, (N, K), and which of them the row kept."""
    drafts = t.branches.drafts_along(t.drafts) if t.branches.any else t.drafts
    return drafts, t.below(np.minimum(t.accepted, t.gained))


@rule("acceptance", "accept")
def accepted_drafts_are_choices(t: RoundTable) -> Wrong:
    """Accepted draft {number} should be the target's choice {choice:token}; it is {draft:token}."""
    drafts, is_kept = _kept(t)
    choices = t.branches.along(t.choices) if t.branches.any else t.choices
    choices = choices[:, : drafts.shape[1]]
    is_wrong = is_kept & (drafts != choices) & (choices >= 0)
    return is_wrong, {"choice": choices, "draft": drafts}


@rule("acceptance", "accept")
def accepted_drafts_are_emitted(t: RoundTable) -> Wrong:
    """Accepted draft {number}, {draft:token}, should be emitted; {emitted:token} was emitted."""
    drafts, is_kept = _kept(t)
    return is_kept & (drafts != t.emitted[:, : drafts.shape[1]]), {"draft": drafts}


@rule("acceptance", "accept", count="count")
def gains_one_token_more(t: RoundTable) -> Wrong:
    """The row should gain at most {most} tokens from {accepted} accepted drafts; it gains
    {gained}.
    """
    most = t.accepted + 1
    return t.gained > most, {"most": most, "count": t.gained - most}


@rule("acceptance", "accept", count="count")
def right_tokens_are_kept(t: RoundTable) -> Wrong:
    """{least} tokens could be kept, so they should be gained or discarded; the row gains {gained}
    and discards {discarded}{although}.
    """
    least, most = t.possible
    count = least - t.gained - t.discarded
    although = np.where(least > t.accepted + 1, ", although the target agrees with more drafts", "")
    values = {"least": least, "count": count, "although": although}
    return _is_counted(t, most) & (count > 0), values


@rule("acceptance", "accept", count="count")
def no_more_is_discarded(t: RoundTable) -> Wrong:
    """No more than {most} tokens could be kept; the row gains {gained} and discards {discarded}."""
    _, most = t.possible
    count = t.gained + t.discarded - most
    is_wrong = _is_counted(t, most) & (t.discarded > 0) & (count > 0)
    return is_wrong, {"most": most, "count": count}


@rule("acceptance", "accept")
def rows_without_gain_accept_nothing(t: RoundTable) -> Wrong:
    """A row that gains nothing should accept and discard nothing; it accepts {accepted} and
    discards {discarded}.
    """
    return (t.gained == 0) & ((t.discarded > 0) | (t.accepted > 0))


@rule("acceptance", "accept")
def nothing_stands_behind(t: RoundTable) -> Wrong:
    """Nothing should be emitted behind the {gained} tokens gained; {emitted:token} is noted
    there.
    """
    width = t.emitted.shape[1]
    return ~t.below(t.gained, width) & (t.emitted > 0)  # 0 is what older logs left empty


def _is_counted(t: RoundTable, most: Array) -> Array:
    # More than is possible is named by the rules about the choices, EOS and the budget.
    found: Array = (t.gained > 0) & (t.gained <= most) & ~t.ended_not_finite
    return found


# ---- the token behind the accepted drafts ----


@rule("bonus", "accept")
def the_bonus_is_the_choice(t: RoundTable) -> Wrong:
    """After {accepted} accepted drafts the target's choice {choice:token} should follow;
    {bonus:token} follows{whose}.
    """
    bonus = t.emitted[t.every, t.accepted]
    choice = t.choices[t.every, t.branches.last]
    whose = np.where(bonus == t.rejected, ", which is the draft's token", "")
    is_wrong = (t.gained > t.accepted) & (choice >= 0) & (bonus != choice)
    return is_wrong, {"bonus": bonus, "choice": choice, "whose": whose}


@rule("bonus", "accept")
def a_rejected_draft_is_no_bonus(t: RoundTable) -> Wrong:
    """Draft {place} was rejected, so another token should be emitted; that draft, {bonus:token},
    was emitted.
    """
    bonus, rejected = t.emitted[t.every, t.accepted], t.rejected
    choice = t.choices[t.every, t.branches.last]
    # Where the strategy, the budget or EOS cut the tokens, the last one may be a draft.
    is_whole = (t.discarded == 0) & (t.finished == 0) & (t.gained > t.accepted)
    is_draft = (rejected >= 0) & (bonus == rejected) & (t.accepted < t.verified)
    place = t.branches.is_next.argmax(1) + 1 if t.drafts.shape[1] else t.accepted
    return is_whole & is_draft & (choice < 0), {"bonus": bonus, "place": place}


# ---- what the seed draws ----


@rule("acceptance", "accept")
def acceptance_keeps_the_distribution(t: RoundTable) -> Wrong:
    """Drafts should be accepted so that the text is distributed as the target's; typical acceptance
    writes what is drafted more often than the target would.
    """
    sampling = t.trace.meta["sampling"] or {}
    return t.drafts_first if sampling.get("coupling") == "typical" else None


@rule("acceptance", "accept")
def noise_chooses_the_accepted(t: RoundTable) -> Wrong:
    """{what} should be what the noise of index {index} makes the target choose, {better:token} or a
    token that is not recorded; it is {emitted:token}.
    """
    return _against_noise(t, is_bonus=False)


@rule("bonus", "accept")
def noise_chooses_the_bonus(t: RoundTable) -> Wrong:
    """{what} should be what the noise of index {index} makes the target choose, {better:token} or a
    token that is not recorded; it is {emitted:token}.
    """
    return _against_noise(t, is_bonus=True)


def _against_noise(t: RoundTable, is_bonus: bool) -> Wrong:
    draws = Draws(t.trace)
    if draws.coupling != "gumbel":
        return None
    table, branches = t.trace.rows, t.branches
    width = t.emitted.shape[1]
    number = np.arange(width)
    is_behind = number >= t.accepted[:, None]
    is_judged = t.below(np.minimum(t.accepted + 1, t.gained), width) & (is_behind == is_bonus)
    entry, j = np.nonzero(is_judged)
    tokens = t.emitted[entry, j]
    column = np.maximum(branches.path[entry, j], 0)
    drafts, logprobs = t.drafts, table["target_logprob"]
    if branches.any:
        drafts = branches.drafts_along(drafts)
        logprobs = branches.drafts_along(logprobs, np.nan)
    drafts = np.append(drafts, np.full((t.size, 1), -1), axis=1)
    logprobs = np.append(logprobs, np.full((t.size, 1), np.nan, np.float32), axis=1)
    chosen = Chosen(
        tokens=tokens,
        requests=t.request[entry],
        indices=t.length[entry] + j,
        logprobs=np.where(drafts[entry, j] == tokens, logprobs[entry, j], np.nan),
        top_ids=table["target_top_ids"][entry, column],
        top_logprobs=table["target_top_logprobs"][entry, column],
    )
    better = np.full(t.emitted.shape, -1)
    better[entry, j] = draws.refuted(chosen)
    names = np.array([f"accepted draft {i + 1}" for i in number], object)
    what = np.where(is_behind, "the token behind the drafts", names)
    index = t.length[:, None] + number
    return better >= 0, {"what": what, "index": index, "better": better}


@rule("acceptance", "accept", unless=(("acceptance", "accept"),))
def coins_accept_the_drafts(t: RoundTable) -> Wrong:
    """Draft {number}, of p = {p:.3g} and q = {q:.3g}, should be {due} at the seed's u = {u:.3g}; it
    was {was}.
    """
    draws = Draws(t.trace)
    if not draws.shows_coins:
        return None
    p, q = (_probabilities(t.trace.rows[f"{model}_logprob"]) for model in MODELS)
    # A drafter without probabilities lays all of q on its draft.
    has_q = bool((t.trace.rows["draft_top_ids"] >= 0).any())
    return against_coins(t, draws, p, q if has_q else np.ones_like(p))


def against_coins(
    t: RoundTable, draws: Draws, p: Array, q: Array, slack: float = 1e-3
) -> tuple[Array, dict[str, Array]]:
    """Return which drafts the seed's coins judge otherwise, (N, K), and what to say of them.

    Args:
        p, q: (N, K), what target and draft give each draft; NaN where that is not known.
        slack: the relative error that may be rounding.
    """
    is_kept = t.below(np.minimum(t.accepted, t.gained))
    # Where a row ends, or its strategy cuts it, the last token may be a draft that was accepted.
    is_whole = (t.gained == t.accepted + 1) & (t.discarded == 0)
    is_whole &= (t.finished == 0) & (t.accepted < t.verified)
    is_next = np.arange(t.drafts.shape[1]) == t.accepted[:, None]
    # How a tree is judged depends on its drafter, so no coin of it is looked at.
    is_judged = ~t.branches.may_branch[:, None] & (is_kept | (is_whole[:, None] & is_next))
    entry, j = np.nonzero(is_judged)
    u = np.full(t.drafts.shape, np.nan)
    u[entry, j] = draws.coins(t.request[entry], t.length[entry] + j)
    share = u * q
    accepts = share < p
    with np.errstate(invalid="ignore"):
        is_clear = np.abs(share - p) > slack * np.maximum(share, p)
    words = np.array(["rejected", "accepted"], object)
    values = {"p": p, "q": q, "u": u, "due": words[accepts * 1], "was": words[is_kept * 1]}
    return is_judged & is_clear & (accepts != is_kept), values


def _probabilities(logprobs: Array) -> Array:
    """Return probabilities, NaN where none was recorded: a probability of 1 is none, too."""
    # What a log leaves out is 0, which would be a probability of 1.
    found: Array = np.exp(np.where(logprobs == 0, np.nan, logprobs.astype(np.float64)))
    return found
