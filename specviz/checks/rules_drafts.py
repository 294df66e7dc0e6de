"""Rules about drafts: "drafts", "verification", "foresight" and "scores".

How the accepted drafts of a tree follow one another is part of "acceptance". Only the drafters
"model" and "lookup", trees of candidates, and the selectors "tetris" and "threshold" say what they
would propose or choose; of others it is known what any must keep to. A column that was not logged
holds nothing but zeros or NaN, and is left out. Not known here: models, so a log-probability that
is merely another one passes; `deep=True` finds it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from specviz.checks.draws import Chosen, Draws
from specviz.checks.rule import Wrong, rule
from specviz.checks.table import RoundTable
from specviz.record.schema import Array

_WORK = 2**30  # tokens that are compared at most: a hostile record may claim any number
_ROUNDING = 1e-3  # of a score or a log-probability in float32, with room for a coarser softmax
_SUM = 0.01  # by how much probabilities may exceed 1 in sum


def _is_drafted(t: RoundTable) -> Array:
    """Return which drafts rows have that still decode, (N, K)."""
    found: Array = t.below(t.drafted) & (t.gained > 0)[:, None]
    return found


# ---- which tokens are drafted ----


@rule("drafts", "draft", count="count")
def drafts_are_counted(t: RoundTable) -> Wrong:
    """The row should have {drafted} drafts; it has {has}."""
    # What older logs left empty is 0.
    is_off: Array = np.where(t.below(t.drafted), t.drafts < 0, t.drafts > 0)
    is_wrong = is_off & (t.gained > 0)[:, None]
    values = {"has": (t.drafts >= 0).sum(1), "count": is_wrong.sum(1)}
    return np.asarray(is_wrong.any(1)), values


@rule("drafts", "draft")
def drafts_are_choices(t: RoundTable) -> Wrong:
    """Draft {number} should be the draft's choice {choice:token}; it is {drafts:token}."""
    top = t.trace.rows["draft_top_ids"]
    meta = t.trace.meta
    if meta["drafter"] != "model" or meta["sampling"] is not None or top.shape[2] == 0:
        return None
    # Rows of zeros were not logged.
    is_logged = (top != 0).any(2) | (t.trace.rows["draft_top_logprobs"] != 0).any(2)
    choice = top[:, :, 0]
    is_judged = _is_drafted(t) & (choice >= 0) & is_logged
    return is_judged & (t.drafts != choice), {"choice": choice}


@rule("drafts", "draft")
def noise_chooses_the_drafts(t: RoundTable) -> Wrong:
    """Draft {number} should be what the noise of index {index} makes the draft choose,
    {better:token} or a token that is not recorded; it is {drafts:token}.
    """
    table = t.trace.rows
    top = table["draft_top_ids"]
    draws = Draws(t.trace)
    if t.trace.meta["drafter"] != "model" or draws.coupling != "gumbel" or top.shape[2] == 0:
        return None
    entry, j = np.nonzero(_is_drafted(t) & (top[:, :, 0] >= 0))
    index = t.length[:, None] + np.arange(t.drafts.shape[1])
    chosen = Chosen(
        tokens=t.drafts[entry, j],
        requests=t.request[entry],
        indices=index[entry, j],
        logprobs=table["draft_logprob"][entry, j],
        top_ids=top[entry, j],
        top_logprobs=table["draft_top_logprobs"][entry, j],
    )
    better = np.full(t.drafts.shape, -1)
    better[entry, j] = draws.refuted(chosen)
    return better >= 0, {"index": index, "better": better}


@rule("drafts", "draft", count="count")
def drafts_are_looked_up(t: RoundTable) -> Wrong:
    """Draft {first} should be {due:token}, as the text goes on; it is {draft:token}."""
    meta = t.trace.meta
    sizes = _ngram_sizes(meta.get("drafter_options")) if meta["drafter"] == "lookup" else None
    if sizes is None or t.length.sum() * sizes[0] > _WORK:
        return None
    texts = t.trace.index.committed
    first, due, draft, count = (np.zeros(t.size, np.int64) for _ in range(4))
    for entry in t.where((t.gained > 0) & (t.drafted > 0)):
        begin = int(texts.first[entry.request])
        text = texts.tokens[begin : begin + min(entry.length, int(texts.size[entry.request]))]
        size = min(entry.drafted, t.drafts.shape[1])
        wanted = looked_up(text, size, *sizes)
        wrong = np.flatnonzero(t.drafts[entry.Index, :size] != wanted)
        if wrong.size:
            i, j = entry.Index, int(wrong[0])
            first[i], due[i], draft[i] = j + 1, wanted[j], t.drafts[i, j]
            count[i] = wrong.size
    return count > 0, {"first": first, "due": due, "draft": draft, "count": count}


def looked_up(text: Array, count: int, max_ngram: int, min_ngram: int) -> Array:
    """Return what prompt lookup proposes after a text (n,): see `LookupDrafter`; (count,)."""
    n = text.size
    same = np.ones(n - 1, bool)  # of each place before the last: do the tokens up to it match?
    start = n - 1
    for i in range(min(max_ngram, n)):
        same[:i] = False
        same[i:] &= text[: n - 1 - i] == text[n - 1 - i]
        if not same.any():
            break
        if i + 1 >= min_ngram:
            start = int(np.flatnonzero(same)[-1]) + 1
    ahead: Array = text[start + np.arange(count) % (n - start)]
    return ahead


def _ngram_sizes(options: Any) -> Sequence[int] | None:
    if not isinstance(options, dict):
        return None
    sizes = [options.get(name) for name in ("max_ngram", "min_ngram")]
    are_sizes = all(type(size) is int and 1 <= size < 2**31 for size in sizes)
    return [int(size) for size in sizes if size] if are_sizes else None


# ---- how drafts hang together ----


@rule("drafts", "draft")
def siblings_differ(t: RoundTable) -> Wrong:
    """Drafts {first} and {number} follow the same token, so they should differ; they are the same
    token.
    """
    is_drafted = _is_drafted(t)
    wrong, first = np.zeros(t.drafts.shape, bool), np.zeros(t.drafts.shape, np.int64)
    for j in range(1, t.drafts.shape[1]):
        alike = (t.parents[:, :j] == t.parents[:, j : j + 1]) & is_drafted[:, :j]
        alike &= t.drafts[:, :j] == t.drafts[:, j : j + 1]
        wrong[:, j] = alike.any(1) & is_drafted[:, j]
        first[:, j] = alike.argmax(1) + 1
    return wrong, {"first": first}


@rule("acceptance", "accept")
def the_path_follows_parents(t: RoundTable) -> Wrong:
    """Accepted draft {number} should follow the accepted one before it; the path names draft
    {named}.
    """
    before = np.append(np.full((t.size, 1), -1), t.path[:, :-1], axis=1)[:, : t.path.shape[1]]
    parent = np.where(t.path >= 0, t.parents[t.every[:, None], np.maximum(t.path, 0)], -1)
    is_wrong = (t.path < 0) | (parent != before) | (t.path >= t.verified[:, None])
    return is_wrong & t.below(t.accepted), {"named": t.path + 1}


@rule("acceptance", "accept")
def the_path_ends(t: RoundTable) -> Wrong:
    """The path should end after {accepted} drafts; it goes on with draft {named}."""
    return ~t.below(t.accepted) & (t.path >= 0), {"named": t.path + 1}


@rule("drafts", "draft")
def drafts_of_trees_are_likely(t: RoundTable) -> Wrong:
    """Draft {number} should be one of the draft's {most} likeliest tokens; it is {drafts:token}."""
    meta, table = t.trace.meta, t.trace.rows
    options = meta.get("drafter_options")
    top, logprobs = table["draft_top_ids"], table["draft_top_logprobs"]
    k, count = top.shape[1:]
    if meta["sampling"] is not None or not isinstance(options, dict) or count == 0:
        return None
    most = np.full(k, count + 1)  # how many candidates each draft is one of
    children, paths = options.get("children"), options.get("paths")
    if meta["drafter"] == "tree" and type(children) is int:
        most[:] = children
    if meta["drafter"] == "static_tree" and _are_paths(paths, k):
        most[:] = [path[-1] + 1 for path in paths[:k]]
    is_judged = _is_drafted(t) & (most <= count) & np.any(np.nan_to_num(logprobs) != 0, axis=2)
    least = logprobs[:, np.arange(k), np.minimum(most, count) - 1]
    # Of equally likely tokens any may be the first.
    is_likely = (top == t.drafts[:, :, None]) & (logprobs >= least[:, :, None])
    return is_judged & ~is_likely.any(2), {"most": np.broadcast_to(most, t.drafts.shape)}


def _are_paths(paths: Any, count: int) -> TypeGuard[list[list[int]]]:
    """Return whether a header's `paths` names the ranks of at least so many drafts."""
    if not isinstance(paths, list) or len(paths) < count:
        return False
    return all(
        isinstance(path, list) and path and type(path[-1]) is int and 0 <= path[-1] < 2**31
        for path in paths
    )


@rule("acceptance", "accept")
def trees_are_judged_soundly(t: RoundTable) -> Wrong:
    """Children should be judged so that the text is distributed as the target's; {siblings}
    children are judged_by={judged_by}, which favours some tokens.
    """
    options = t.trace.meta.get("drafter_options")
    sampling = t.trace.meta["sampling"] or {}
    if sampling.get("coupling") != "rejection" or not isinstance(options, dict):
        return None
    judged_by, siblings = options.get("judged_by"), options.get("siblings")
    right = {"rest": "drawn", "each": "independent"}
    if judged_by != "first" and right.get(str(judged_by), siblings) == siblings:
        return None
    words = {"siblings": str(siblings), "judged_by": repr(judged_by)}
    values = {name: np.full(t.size, word, object) for name, word in words.items()}
    return t.drafts_first & t.branches.is_tree, values


# ---- which drafts are verified ----


@rule("verification", "draft", count="surplus")
def rounds_keep_their_capacity(t: RoundTable) -> Wrong:
    """The round should verify at most {capacity} drafts; it verifies {used}."""
    capacity = t.trace.rounds["capacity"].astype(np.int64)
    used = np.bincount(t.round, weights=t.verified, minlength=capacity.size).astype(np.int64)
    # Said once, of the round's first row that verifies anything.
    verifies = t.verified > 0
    first = np.unique(np.where(verifies, t.round, -1), return_index=True)[1]
    is_first = np.isin(t.every, first) & verifies
    values = {"capacity": capacity[t.round], "used": used[t.round]}
    values["surplus"] = values["used"] - values["capacity"]
    return is_first & (values["surplus"] > 0), values


@rule("verification", "draft")
def rows_without_gain_verify_nothing(t: RoundTable) -> Wrong:
    """A row that gains nothing should verify nothing; it verifies {verified}."""
    return (t.gained == 0) & (t.verified > 0)


def _options_of(t: RoundTable, selector: str) -> Mapping[str, Any] | None:
    """Return the options of the run's selector, if it is this one and has any."""
    options = t.trace.meta.get("selector_options")
    is_it = t.trace.meta.get("selector") == selector
    return options if is_it and isinstance(options, dict) else None


@rule("verification", "draft")
def the_largest_scores_are_verified(t: RoundTable) -> Wrong:
    """Draft {first}, of score {score:.4g}, should be verified before draft {last} of row {rival},
    of score {least:.4g}; it is not verified.
    """
    options = _options_of(t, "tetris")
    k = t.drafts.shape[1]
    if options is None or k == 0:
        return None
    scores = t.scores.astype(np.float64)  # (N, K)
    last = np.where(t.verified > 0, scores[t.every, t.verified - 1], np.inf)
    following = scores[t.every, np.minimum(t.verified, k - 1)]
    first_left = np.where(t.verified < t.drafted, following, -np.inf)
    # A row that has waited long enough gets its first draft verified whatever its score.
    is_due = _is_due(t, options.get("max_wait"))
    last = np.where(is_due & (t.verified == 1) | np.isnan(last), np.inf, last)
    first_left = np.where(is_due & (t.verified == 0), np.inf, first_left)
    # A row that ended because of non-finite logits does not say what was verified.
    is_active = t.gained > 0
    rival = np.zeros(t.size, np.int64)
    for number in range(t.trace.num_rounds):
        which = np.arange(*t.trace.index.row_bounds[number : number + 2])
        active = which[is_active[which]]
        if active.size:
            rival[which] = active[last[active].argmin()]
    values = {"first": t.verified + 1, "score": first_left, "rival": t.row[rival]}
    values |= {"last": t.verified[rival], "least": last[rival]}
    return is_active & (first_left > last[rival] + 1e-6), values


@rule("verification", "draft", count="missing")
def the_capacity_is_used(t: RoundTable) -> Wrong:
    """The round should verify {due} drafts; it verifies {used}."""
    if _options_of(t, "tetris") is None or t.trace.meta["drafter"] != "model":
        return None
    if t.drafts.shape[1] == 0:
        return None
    wrong = np.zeros(t.size, bool)
    due, used = np.zeros(t.size, np.int64), np.zeros(t.size, np.int64)
    for number in range(t.trace.num_rounds):
        which = np.arange(*t.trace.index.row_bounds[number : number + 2])
        if not which.size or (t.gained[which] == 0).any():
            continue
        capacity = int(t.trace.rounds["capacity"][number])
        due[which] = min(capacity, int(t.drafted[which].sum()))
        used[which] = t.verified[which].sum()
        is_short = t.verified[which] < t.drafted[which]
        if used[which[0]] < due[which[0]]:
            wrong[which[is_short][0]] = True
    return wrong, {"due": due, "used": used, "missing": due - used}


def _is_due(t: RoundTable, max_wait: Any) -> Array:
    """Return which entries have verified nothing for `max_wait` of their request's rounds, (N,)."""
    found = np.zeros(t.size, bool)
    # Where memory ran out, rows began to wait again.
    if type(max_wait) is not int or t.trace.meta.get("halvings"):
        return found
    waited = np.zeros(t.trace.num_requests, np.int64)
    for n, request in enumerate(t.request.tolist()):
        found[n] = waited[request] >= max_wait
        waited[request] = 0 if t.verified[n] > 0 else waited[request] + 1
    return found


@rule("verification", "draft")
def confident_drafts_are_verified(t: RoundTable) -> Wrong:
    """The row should verify its first {surely} drafts, whose q is at least {at_least:.3g}; it
    verifies {verified}.
    """
    options = _options_of(t, "threshold")
    at_least = options.get("at_least") if options is not None else None
    if not isinstance(at_least, float):
        return None
    q = np.exp(t.scores.astype(np.float64))
    is_drafted = t.below(t.drafted)
    # Rounding decides what lies at the threshold itself.
    surely = ((q > at_least + 1e-6) & is_drafted).cumprod(axis=1).sum(axis=1)
    perhaps = ((q >= at_least - 1e-6) & is_drafted).cumprod(axis=1).sum(axis=1)
    is_wrong = ((t.verified < surely) | (t.verified > perhaps)) & (t.gained > 0)
    return is_wrong, {"surely": surely, "at_least": np.full(t.size, at_least)}


@rule("verification", "draft")
def scores_are_chances(t: RoundTable) -> Wrong:
    """The score of draft {number} should be {due:.4g}; it is {scores:.4g}."""
    tetris = _options_of(t, "tetris")
    options = _options_of(t, "threshold") if tetris is None else tetris
    logprob = t.draft_logprob.astype(np.float64)
    is_logged = bool(np.nan_to_num(logprob).any())
    if options is None or t.trace.meta["sampling"] is not None or not is_logged:
        return None
    if options.get("score") != "chosen":
        return None
    branches = t.branches
    of_chain = logprob if tetris is None else logprob.cumsum(axis=1)
    due = of_chain
    if branches.may_branch.any():
        on_branch = branches.ancestors[:, 1:, 1:]  # (N, K, K)
        of_branch = np.where(on_branch, logprob[:, None], 0).sum(2)
        # A draft is verified only with all before it, so it is worth no more than they are.
        of_tree = np.minimum.accumulate(of_branch, axis=1)
        due = np.where(branches.may_branch[:, None], of_tree, due)
    scores = t.scores.astype(np.float64)
    is_wrong = _is_drafted(t) & ~np.isnan(due) & ~_are_close(scores, due)
    # A drafter that makes trees may propose a chain, too.
    is_wrong &= branches.is_tree[:, None] | ~_are_close(scores, of_chain)
    return is_wrong, {"due": due, "scores": scores}


def _are_close(scores: Array, due: Array) -> Array:
    """Return which scores (N, K) are those that are due, up to rounding."""
    close: Array = np.abs(scores - due) <= _ROUNDING * (1 + np.abs(due))
    return close


@rule("foresight", "draft")
def drafts_do_not_decide_themselves(t: RoundTable) -> Wrong:
    """Whether a draft is judged should not depend on which token it is; selector {selector} scores
    each draft by its own q, so the text is not distributed as the target's.
    """
    sampling = t.trace.meta["sampling"] or {}
    if sampling.get("coupling") != "rejection" or t.trace.meta.get("foresees") is not True:
        return None
    selector = np.full(t.size, repr(t.trace.meta.get("selector")), object)
    return t.drafts_first, {"selector": selector}


# ---- log-probabilities ----


def _judged(logprobs: Array) -> tuple[Array, Array]:
    """Return log-probabilities (N, m, k) as float64, and which places (N, m) have them."""
    values = logprobs.astype(np.float64)
    if logprobs.shape[2] == 0:
        return values, np.zeros(logprobs.shape[:2], bool)
    # A column of zeros alone was not logged. NaN stands where nothing was chosen, or where the
    # logits themselves were NaN.
    is_logged = bool(np.nan_to_num(logprobs).any())
    is_judged: Array = ~np.any(np.isnan(values), axis=2) & is_logged
    return np.where(is_judged[:, :, None], values, -np.inf), is_judged


def check_scores(t: RoundTable) -> None:
    """Check that log-probabilities are sorted, at most 0, and those of the tokens beside them."""
    for model in ("draft", "target"):
        phase = "draft" if model == "draft" else "accept"
        _candidates_are_sorted(t, model, phase)
        _tokens_have_their_own(t, model, phase)


def _candidates_are_sorted(t: RoundTable, model: str, phase: str) -> None:
    table = t.trace.rows
    ids, logprobs = table[f"{model}_top_ids"], table[f"{model}_top_logprobs"]
    values, is_judged = _judged(logprobs)
    if not is_judged.any():
        return
    unknown = (ids < 0) | (ids >= t.trace.meta["vocabulary_size"])
    in_order = np.sort(ids, axis=2)
    twice = (in_order[:, :, 1:] == in_order[:, :, :-1]) & (in_order[:, :, 1:] >= 0)
    above = (values > _ROUNDING).any(2) | (np.exp(values).sum(2) > 1 + _SUM)
    is_nan = np.isnan(logprobs)
    rising = (values[:, :, 1:] > values[:, :, :-1] + 1e-6).any(2)
    problems = (
        (np.asarray(is_nan.any(2) & ~is_nan.all(2)), "all have a log-probability", "one is NaN"),
        (rising & is_judged, "be sorted", "they rise"),
        (above & is_judged, "be probabilities", "they are above 1, one or all together"),
        ((unknown & np.isfinite(logprobs)).any(2) & is_judged, "be tokens of the vocabulary",
         "one is not"),
        (twice.any(2) & is_judged, "be different tokens", "one occurs twice"),
    )  # fmt: skip
    for mask, should, found in problems:
        for entry, j in t.each(mask):
            expected = f"the {model}'s candidates after {j} drafts should {should}"
            t.report("scores", phase, entry, expected, found)


def _tokens_have_their_own(t: RoundTable, model: str, phase: str) -> None:
    """Check that a draft has its candidate's log-probability, or one below all if it is none."""
    table = t.trace.rows
    k = t.drafts.shape[1]
    own = table[f"{model}_logprob"].astype(np.float64)
    # Of the target, the candidates after what the draft follows.
    before = np.broadcast_to(np.arange(k), t.drafts.shape)
    if model == "target":
        before = t.branches.parents
    every = t.every[:, None]
    ids = table[f"{model}_top_ids"][every, before]
    values, is_judged = _judged(table[f"{model}_top_logprobs"][every, before])
    is_judged &= t.below(t.verified if model == "target" else t.drafted)
    is_judged &= ~np.isnan(own) & (own != 0).any()
    if not is_judged.any():
        return
    is_draft = ids == t.drafts[:, :, None]
    is_known = is_draft.any(2)
    of_candidate = np.where(is_draft, values, -np.inf).max(2)
    due = np.where(is_known, of_candidate, values[:, :, -1])
    slack = _ROUNDING * (1 + np.abs(np.where(np.isfinite(due), due, 0)))
    with np.errstate(invalid="ignore"):  # -inf less -inf, for what is ruled out
        is_other = (np.abs(own - due) > slack) & (own != due) & is_known
        is_other |= (own > due + slack) & ~is_known
    is_other |= own > _ROUNDING
    for entry, j in t.each(np.asarray(is_judged & is_other)):
        i = entry.Index
        expected = (
            f"the {model}'s log-probability of draft {j + 1} should "
            f"{'be' if is_known[i, j] else 'be at most'} {due[i, j]:.4g}, as among the candidates"
        )
        t.report("scores", phase, entry, expected, f"it is {own[i, j]:.4g}")
