"""The rule "scores": recorded log-probabilities can be those of the tokens beside them.

Contract: `scores` takes the `Rows` of a record and reports to it. A column that was not logged
holds nothing but zeros or NaN, and is left out. Not known here: the models, so a number that is
merely another one passes; `deep=True` finds it.
"""

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import Array

_ROUNDING = 1e-3  # of a log-probability in float32, with room for a coarser softmax
_SUM = 0.01  # by how much probabilities may exceed 1 in sum


def scores(rows: Rows) -> None:
    """Check that log-probabilities are sorted, at most 0, and those of their tokens."""
    for model in ("draft", "target"):
        phase = "draft" if model == "draft" else "accept"
        _candidates_are_sorted(rows, model, phase)
        _tokens_have_their_own(rows, model, phase)


def _candidates_are_sorted(rows: Rows, model: str, phase: str) -> None:
    table = rows.trace.rows
    ids, logprobs = table[f"{model}_top_ids"], table[f"{model}_top_logprobs"]
    values, is_judged = _judged(rows, logprobs)
    if not is_judged.any():
        return
    rising = (values[:, :, 1:] > values[:, :, :-1] + 1e-6).any(2)
    above = (values > _ROUNDING).any(2) | (np.exp(values).sum(2) > 1 + _SUM)
    unknown = (ids < 0) | (ids >= rows.trace.meta["vocabulary_size"])
    unknown = (unknown & np.isfinite(logprobs)).any(2)
    in_order = np.sort(ids, axis=2)
    twice = ((in_order[:, :, 1:] == in_order[:, :, :-1]) & (in_order[:, :, 1:] >= 0)).any(2)
    is_nan = np.isnan(logprobs)
    partly = np.any(is_nan, axis=2) & ~np.all(is_nan, axis=2)
    for entry, j in rows.each(partly):
        expected = f"the {model}'s candidates after {j} drafts should all have a log-probability"
        rows.report("scores", phase, entry, expected, "one is NaN")
    problems = (
        (rising, "be sorted", "they rise"),
        (above, "be probabilities", "they are above 1, one or all together"),
        (unknown, "be tokens of the vocabulary", "one is not"),
        (twice, "be different tokens", "one occurs twice"),
    )
    for mask, should, found in problems:
        for entry, j in rows.each(mask & is_judged):
            expected = f"the {model}'s candidates after {j} drafts should {should}"
            rows.report("scores", phase, entry, expected, found)


def _tokens_have_their_own(rows: Rows, model: str, phase: str) -> None:
    """Check that a draft has its candidate's log-probability, or one below all if it is none."""
    table = rows.trace.rows
    drafts = table["drafts"]
    k = drafts.shape[1]
    own = table[f"{model}_logprob"].astype(np.float64)
    # Of the target, the candidates after what the draft follows.
    before = np.broadcast_to(np.arange(k), drafts.shape)
    if model == "target":
        before = rows.branches.parents
    every = np.arange(rows.size)[:, None]
    ids = table[f"{model}_top_ids"][every, before]
    values, is_judged = _judged(rows, table[f"{model}_top_logprobs"][every, before])
    counted = "verified" if model == "target" else "drafted"
    is_judged &= (np.arange(k) < rows.column(counted)) & ~np.isnan(own) & (own != 0).any()
    if not is_judged.any():
        return
    is_draft = ids == drafts[:, :, None]
    of_candidate = np.where(is_draft, values, -np.inf).max(2)
    due = np.where(is_draft.any(2), of_candidate, values[:, :, -1])
    slack = _ROUNDING * (1 + np.abs(np.where(np.isfinite(due), due, 0)))
    with np.errstate(invalid="ignore"):  # -inf less -inf, for what is ruled out
        is_other = (np.abs(own - due) > slack) & (own != due) & is_draft.any(2)
        is_other |= (own > due + slack) & ~is_draft.any(2)
    is_other |= own > _ROUNDING
    for entry, j in rows.each(is_judged & is_other):
        i = entry.Index
        words = "be" if is_draft[i, j].any() else "be at most"
        expected = (
            f"the {model}'s log-probability of draft {j + 1} should {words} "
            f"{due[i, j]:.4g}, as among the candidates"
        )
        rows.report("scores", phase, entry, expected, f"it is {own[i, j]:.4g}")


def _judged(rows: Rows, logprobs: Array) -> tuple[Array, Array]:
    """Return log-probabilities (N, m, k) as float64, and which places (N, m) have them."""
    values = logprobs.astype(np.float64)
    if logprobs.shape[2] == 0:
        return values, np.zeros(logprobs.shape[:2], bool)
    # A column of zeros alone was not logged. NaN stands where nothing was chosen, or where the
    # logits themselves were NaN.
    is_logged = bool(np.nan_to_num(logprobs).any())
    is_judged: Array = ~np.any(np.isnan(values), axis=2) & is_logged
    return np.where(is_judged[:, :, None], values, -np.inf), is_judged
