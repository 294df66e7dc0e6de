"""Mutations of what rows are said to have done: `rows`, `requests`, and the tokens of both.

A wrong token is written wherever the record has it, as a decoder that chose it would have done: in
the output, in the drafts, and in what the models are fed later.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from mutations import (
    SYNCHRONISE,
    TARGET,
    Change,
    asked,
    edited,
    edited_at,
    place,
    queried,
    to,
    value,
    whole,
)

from specviz.checks.branches import Branches
from specviz.record.schema import PHASES
from specviz.record.trace import Trace

DRAFTED = "drafted > 0 and gained > 0"
AT_BUDGET = "is_last and not ends_with_eos"


def next_of_request(trace: Trace) -> pd.DataFrame:
    """The values of `rows` of the same request's next entry, NaN without one."""
    frame = asked(trace, "rows")
    return frame[["round", "row"]].groupby(frame["request"]).shift(-1)


def is_kept(trace: Trace) -> np.ndarray:
    """Which entries of `rows` have another one of their request, which is not read again for it."""
    feeds = trace.feeds
    first = (feeds["index"] == 0) & (feeds["model"] == TARGET)
    read = set(zip(feeds["request"][first], feeds["round"][first], strict=True))
    after = next_of_request(trace)["round"]
    again = [key in read for key in zip(trace.rows["request"], after, strict=True)]
    return after.notna().to_numpy() & ~np.array(again, bool)


def is_left_alone(trace: Trace) -> np.ndarray:
    """Which entries of `rows` have another one of their request, with nothing happening between."""
    frame, after, moves = asked(trace, "rows"), next_of_request(trace), trace.moves
    stage = moves["round"].astype(int) * len(PHASES) + moves["phase"]
    begun = frame["round"][frame["is_first"]].to_numpy()
    found = np.array(after["row"] == frame["row"])
    for i in np.flatnonzero(found):
        first, last, row = frame["round"][i], after["round"][i], frame["row"][i]
        moved = stage[moves["to_row"] == row]
        is_moved = (moved > first * len(PHASES) + SYNCHRONISE) & (moved <= last * len(PHASES))
        found[i] = not is_moved.any() and not ((begun > first) & (begun <= last)).any()
    return found


def other_requests(trace: Trace) -> np.ndarray:
    """Requests whose output has the lengths that each entry of `rows` names, (N, requests)."""
    rows, requests = trace.rows, trace.requests
    prompt = np.diff(requests["prompt_offsets"])
    text = prompt + np.diff(requests["output_offsets"])
    fits = prompt <= rows["length"][:, None]
    fits &= (rows["length"] + rows["gained"])[:, None] <= text
    fits[np.arange(len(fits)), rows["request"]] = False
    return fits


def fewer_drafts(trace: Trace, entry: int) -> Trace:
    """One draft less, of those that are verified too if all are."""
    drafted = int(trace.rows["drafted"][entry]) - 1
    verified = min(int(trace.rows["verified"][entry]), drafted)
    return edited(trace, "rows", entry, drafted=drafted, verified=verified)


def is_last_of_round(trace: Trace) -> np.ndarray:
    number = trace.rows["round"]
    return (np.append(number[1:], -1) != number) & (trace.rows["gained"] > 0)


COUNTS = (
    value("rows.length", 1, "lengths", "left > 0"),
    value("rows.length", -1, "lengths", "length > 1 and not is_first"),
    whole("rows.drafted -1", fewer_drafts, "drafts", "rows", "gained > 0 and drafted > accepted"),
    value("rows.drafted", 1, "drafts", "gained > 0 and drafted < 3 and by_model"),
    value("rows.verified", 1, "verification kv", "0 < gained and verified < drafted"),
    value("rows.verified", -1, "verification kv acceptance", "gained > 0 and verified > accepted"),
    value("rows.accepted", -1, "acceptance bonus", "accepted > 0 and gained == accepted + 1"),
    value(
        "rows.accepted", 1, "acceptance bonus",
        "gained > 0 and gained == accepted + 1 and accepted < verified and not is_last",
    ),
    value("rows.accepted", to(0), "acceptance bonus", "accepted > 1", "0"),
    value("rows.gained", -1, "lengths acceptance", "gained > 1 and not is_last"),
    value("rows.gained", 1, "lengths acceptance", "0 < gained <= verified and not is_last"),
    value("rows.gained", to(0), "lengths acceptance", "gained > 0 and not is_last", "0"),
    value("rows.discarded", 1, "acceptance", DRAFTED),
    value("rows.discarded", -1, "acceptance", "discarded > 0"),
    value("rows.start", -1, "rectangle", "start > 0 and gained > 0"),
    value("rows.start", 1, "rectangle", "gained > 0"),
    value("rows.start_after", -1, "rectangle", lambda t: is_kept(t) & (t.rows["start_after"] > 0)),
    value("rows.start_after", 1, "rectangle", is_kept),
    value("rows.pending", -1, "rectangle", "pending > 0 and gained > 0"),
    value("rows.pending", 1, "rectangle", "gained > 0"),
    value("rows.pending_after", -1, "rectangle", is_left_alone),
    value("rows.pending_after", 1, "rectangle", is_left_alone),
    value(
        "rows.request", lambda trace, entry: int(other_requests(trace)[entry].argmax()), "lengths",
        lambda trace: other_requests(trace).any(1), "another",
    ),
    value(
        "rows.row", lambda trace, entry: trace.rows["row"].max() + 1, "kv rectangle schedule",
        is_last_of_round, "another",
    ),
    value("rows.finished", to(1), "budget", "gained > 0 and not is_last", "early"),
    value("rows.finished", to(0), "budget", AT_BUDGET, "missing at the budget"),
    value("rows.finished", to(0), "eos", "is_last and ends_with_eos", "missing at EOS"),
)  # fmt: skip


def budget(by: int) -> Change:
    """Return the change that adds to the budget of an entry's request."""

    def change(trace: Trace, entry: int) -> Trace:
        number = trace.rows["request"][entry]
        more = trace.requests["budget"][number] + by
        return edited(trace, "requests", number, budget=more)

    return change


def first_token(kind: str) -> Change:
    """Return the change of the first token of the prompt or output of an entry's request."""

    def change(trace: Trace, entry: int) -> Trace:
        at = trace.requests[f"{kind}_offsets"][trace.rows["request"][entry]]
        tokens = trace.requests[f"{kind}_tokens"].copy()
        tokens[at] = (tokens[at] + 1) % trace.meta["vocabulary_size"]
        return replace(trace, requests=trace.requests | {f"{kind}_tokens": tokens})

    return change


def longer_output(trace: Trace, entry: int) -> Trace:
    """Add a token to the last output that no round has emitted."""
    requests = {name: values.copy() for name, values in trace.requests.items()}
    requests["output_tokens"] = np.append(requests["output_tokens"], np.int32(1))
    requests["output_offsets"][-1] += 1
    requests["budget"] += 1
    return replace(trace, requests=requests)


REQUESTS = (
    whole("an output that was not emitted", longer_output, "lengths", "rows", "gained > 0"),
    whole("requests.budget +1", budget(1), "budget", "rows", AT_BUDGET),
    whole("requests.budget -1", budget(-1), "budget", "rows", AT_BUDGET),
    whole("requests.prompt_tokens another", first_token("prompt"), "kv", "rows", "gained > 0"),
    whole("requests.output_tokens another", first_token("output"), "lengths", "rows", "gained > 0"),
)


def rewritten(trace: Trace, entry: int, j: int, token: int) -> Trace:
    """`trace` with another token as the j-th that an entry emits, in the output and later feeds."""
    rows, feeds, prompt = trace.rows, trace.feeds, trace.requests["prompt_offsets"]
    request, index = int(rows["request"][entry]), int(rows["length"][entry]) + j
    at = trace.requests["output_offsets"][request] + index - (prompt[request + 1] - prompt[request])
    tokens = trace.requests["output_tokens"].copy()
    here = (feeds["request"] == request) & (feeds["index"] == index)
    here &= feeds["token"] == tokens[at]
    tokens[at] = token
    changed = edited(trace, "feeds", here, token=token)
    changed = replace(changed, requests=trace.requests | {"output_tokens": tokens})
    return edited_at(changed, "emitted", entry, j, token)


def drafted(trace: Trace, entry: int, j: int, token: int) -> Trace:
    """`trace` with another token as draft j + 1 of an entry, fed to both models."""
    rows, feeds = trace.rows, trace.feeds
    here = (trace.index.feed_rows == entry) & (feeds["index"] == rows["length"][entry] + j)
    changed = edited(trace, "feeds", here & (feeds["phase"] > 0), token=token)
    for model in ("target", "draft"):
        ids = rows[f"{model}_top_ids"][entry, j]
        logprobs = rows[f"{model}_top_logprobs"][entry, j]
        own = logprobs[ids == token][0] if token in ids else logprobs.min() - 1
        if not np.isnan(rows[f"{model}_logprob"][entry, j]):
            changed = edited_at(changed, f"{model}_logprob", entry, j, own)
    return edited_at(changed, "drafts", entry, j, token)


def unlikely(trace: Trace, entry: int, j: int) -> int:
    """Return the last candidate of the target after j drafts that is neither chosen nor special."""
    rows = trace.rows
    taken = {*rows["emitted"][entry].tolist(), *rows["drafts"][entry].tolist()}
    taken |= set(trace.meta["eos_token_ids"])
    ids = rows["target_top_ids"][entry, j].tolist()
    return next((token for token in reversed(ids) if token not in taken), -1)


def has_unlikely(query: str, j: str | int, *, among: bool) -> Callable[[Trace], np.ndarray]:
    """Return the mask of a query, where there is such a token, and the j-th is a candidate too."""

    def where(trace: Trace) -> np.ndarray:
        rows, found = trace.rows, queried("rows", query, trace)
        for entry in np.flatnonzero(found).tolist():
            at = int(rows[j][entry]) if isinstance(j, str) else j
            is_known = rows["emitted"][entry, at] in rows["target_top_ids"][entry, at]
            found[entry] = (is_known or not among) and unlikely(trace, entry, at) >= 0
        return found

    return where


def wrong_bonus(trace: Trace, entry: int) -> Trace:
    a = int(trace.rows["accepted"][entry])
    return rewritten(trace, entry, a, unlikely(trace, entry, a))


def wrong_acceptance(trace: Trace, entry: int) -> Trace:
    token = unlikely(trace, entry, 0)
    return drafted(rewritten(trace, entry, 0, token), entry, 0, token)


def right_draft_rejected(trace: Trace, entry: int) -> Trace:
    """Let the first rejected draft be the token that the target emits instead of it."""
    a = int(trace.rows["accepted"][entry])
    j = int(Branches(trace).is_next[entry].argmax())
    return drafted(trace, entry, j, int(trace.rows["emitted"][entry, a]))


def has_rejected(trace: Trace) -> np.ndarray:
    """Entries of `rows` whose row goes on behind a draft that was rejected."""
    query = "gained == accepted + 1 and accepted < verified and discarded == 0 and finished == 0"
    return queried("rows", query, trace) & Branches(trace).is_next.any(1)


def other_unread_draft(trace: Trace, entry: int) -> Trace:
    """Replace the last draft, which was not accepted, by another token."""
    rows = trace.rows
    j = int(rows["drafted"][entry]) - 1
    old = rows["drafts"][entry, j]
    ids = rows["draft_top_ids"][entry, j]
    choices = [token for token in ids[1:].tolist() if token not in (-1, old)]
    token = choices[-1] if choices else (old + 1) % trace.meta["vocabulary_size"]
    return drafted(trace, entry, j, int(token))


def has_unread_draft(trace: Trace) -> np.ndarray:
    """Where a draft is not reached, and its drafter's choice is known."""
    rows = trace.rows
    fits = queried("rows", "gained > 0 and accepted + 1 < drafted", trace)
    fits &= queried("rows", "by_lookup or by_model and not by_coins", trace)
    for entry in np.flatnonzero(fits) if trace.meta["drafter"] == "model" else ():
        j = int(rows["drafted"][entry]) - 1
        fits[entry] = rows["drafts"][entry, j] in rows["draft_top_ids"][entry, j]
    return fits


def plus_one(row: dict, token: int) -> int:
    return (token + 1) % row["vocabulary"] or 1


TOKENS = (
    whole(
        "a bonus that is not the target's choice", wrong_bonus, "bonus", "rows",
        has_unlikely(
            "gained == accepted + 1 and not by_coins and not is_last", "accepted", among=True
        ),
    ),
    whole(
        "an accepted draft that is not the target's choice", wrong_acceptance, "acceptance", "rows",
        has_unlikely("accepted > 0 and gained > 1 and not by_coins", 0, among=True),
    ),
    whole(
        "a right draft rejected", right_draft_rejected, "acceptance bonus", "rows", has_rejected
    ),
    whole(
        "a draft that is not the drafter's choice", other_unread_draft, "drafts", "rows",
        has_unread_draft,
    ),
    place(
        "drafts", 0, lambda row, old: (old + 1) % row["vocabulary"], "kv acceptance",
        "accepted > 0 and gained > 0", "another (accepted)",
    ),
    place(
        "drafts", 0, lambda row, old: (old + 1) % row["vocabulary"], "kv drafts",
        f"accepted == 0 and {DRAFTED}", "another (rejected)",
    ),
    place("emitted", 0, plus_one, "lengths", "gained > 0", "another (first)"),
    place(
        "emitted", lambda row: row["gained"] - 1, plus_one, "lengths", "gained > 1",
        "another (last)",
    ),
    place(
        "emitted", "gained", plus_one, "acceptance", "gained > 0 and gained < drafted + 1",
        "behind what is gained",
    ),
)  # fmt: skip


def follows_the_first(trace: Trace) -> np.ndarray:
    """Entries of `rows` whose second draft follows the first one."""
    found = queried("rows", "verified > 1 and gained > 0", trace)
    return found & (trace.rows["parents"][:, 1] == 0) if found.any() else found


def other_child(trace: Trace, entry: int) -> int:
    """A verified draft of a tree beside the first accepted one, -1 for none."""
    rows, branches = trace.rows, Branches(trace)
    number = np.arange(rows["parents"].shape[1])
    beside = (branches.parents[entry] == 0) & (number < rows["verified"][entry])
    found = np.flatnonzero(beside & (number != rows["path"][entry, 0]))
    return int(found[0]) if found.size and branches.is_tree[entry] else -1


def has_other_child(trace: Trace) -> np.ndarray:
    found = queried("rows", "accepted > 0 and gained > 0", trace)
    for entry in np.flatnonzero(found):
        found[entry] = other_child(trace, entry) >= 0
    return found


def other_path(trace: Trace, entry: int) -> Trace:
    """Say that the sibling was accepted, with nothing behind it."""
    return edited_at(trace, "path", entry, 0, other_child(trace, entry))


def has_score_left(trace: Trace) -> np.ndarray:
    """Entries of `rows` with a score for a draft that was not verified."""
    rows = trace.rows
    found = queried("rows", "verified < drafted and gained > 0", trace)
    for entry in np.flatnonzero(found):
        found[entry] = not np.isnan(rows["scores"][entry, rows["verified"][entry]])
    return found


def has_known_score(trace: Trace) -> np.ndarray:
    known = trace.meta["selector_options"].get("score") == "chosen"
    return queried("rows", "verified > 0 and gained > 0 and greedy", trace) & known


SELECTED = (
    place("scores", "verified", 0.0, "verification", has_score_left, "higher"),
    place("scores", 0, lambda row, old: old - 0.5, "verification", has_known_score, "lower"),
    place("parents", 1, -1, "drafts acceptance", follows_the_first, "another"),
    place(
        "path", "accepted", lambda row, old: row["accepted"], "acceptance",
        "gained > 0 and accepted < drafted", "longer",
    ),
    place(
        "path", lambda row: row["accepted"] - 1, -1, "acceptance", "gained > 0 and accepted > 0",
        "shorter",
    ),
    whole("another branch accepted", other_path, "acceptance", "rows", has_other_child),
)  # fmt: skip


# Candidates and log-probabilities at a row's first draft.


def has_candidates(model: str, query: str, drafted: bool | None = None) -> Callable:
    """Return the mask of a query where candidates are known, and have the draft or not."""

    def where(trace: Trace) -> np.ndarray:
        found = queried("rows", query, trace)
        if not found.any():  # with K = 0 there is no first draft at all
            return found
        ids = trace.rows[f"{model}_top_ids"][:, 0]
        has_draft = (ids == trace.rows["drafts"][:, :1]).any(1)
        return found & (ids[:, 0] >= 0) & (drafted is None or has_draft == drafted)

    return where


def is_no_candidate(trace: Trace) -> np.ndarray:
    found = has_candidates("target", "verified > 0 and gained > 0", drafted=False)(trace)
    logprobs = trace.rows["target_top_logprobs"]
    return found & (logprobs[:, 0, 0] > logprobs[:, 0, -1] + 0.1) if found.any() else found


def one(j: int, new: Callable) -> Callable:
    """Return the change of one candidate: `new` makes it of the row and of all candidates."""

    def change(row: dict, old: np.ndarray) -> np.ndarray:
        old[j] = new(row, old)
        return old

    return change


CANDIDATES = (
    ("not sorted", "logprobs", lambda row, old: old[[4, 1, 2, 3, 0]]),
    ("the last above the first", "logprobs", one(-1, lambda row, old: old[0] + 0.001)),
    ("above 0", "logprobs", one(0, lambda row, old: 0.009)),
    ("above 1 in sum", "logprobs", lambda row, old: np.full_like(old, -0.5)),
    ("NaN", "logprobs", one(1, lambda row, old: np.nan)),
    ("twice the same", "ids", one(-1, lambda row, old: old[0])),
    ("no token", "ids", one(1, lambda row, old: -1)),
    ("beyond the vocabulary", "ids", one(-1, lambda row, old: row["vocabulary"])),
)
SCORES = (
    *(
        place(f"{model}_top_{column}", 0, new, "scores", has_candidates(model, DRAFTED), note)
        for model in ("target", "draft")
        for note, column, new in CANDIDATES
    ),
    *(
        place(
            f"{model}_top_ids", 0, lambda row, old: old[[1, 0, 2, 3, 4]], rules,
            has_candidates(model, f"{DRAFTED} and greedy{more}"), "another first",
        )
        for model, rules, more in (
            ("target", "acceptance bonus", ""),
            ("draft", "drafts", " and by_model"),
        )
    ),
    *(
        place(
            f"{model}_logprob", 0, new, "scores",
            has_candidates(model, f"{count} > 0 and gained > 0", drafted=True), note,
        )
        for model, count in (("target", "verified"), ("draft", "drafted"))
        for note, new in (("-0.5", lambda row, old: old - 0.5), ("+0.005", 0.005))
    ),
    # A draft outside the candidates is as likely as the best one.
    place(
        "target_logprob", 0, lambda row, old: row["target_top_logprobs"][0, 0], "scores",
        is_no_candidate, "of no candidate",
    ),
)  # fmt: skip
MUTATIONS = (*COUNTS, *REQUESTS, *TOKENS, *SELECTED, *SCORES)
