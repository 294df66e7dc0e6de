"""Mutations of drafts, emitted tokens, candidates and log-probabilities.

A wrong token is written wherever the record has it, as a decoder that chose it would have done: in
the output, in the drafts, and in what the models are fed later.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mutations import Change, Mutation, edited, entries, of_rows

from specviz.checks.branches import Branches
from specviz.record.trace import Trace

BY_MODEL = "a draft model whose candidates are recorded"
REJECTED = "a rejected draft"


def rewritten(trace: Trace, request: int, index: int, token: int) -> Trace:
    """`trace` with another token at an index of a request's output, and in all later feeds."""
    prompt = trace.requests["prompt_offsets"]
    at = trace.requests["output_offsets"][request] + index - (prompt[request + 1] - prompt[request])
    old = trace.requests["output_tokens"][at]
    tokens = trace.requests["output_tokens"].copy()
    tokens[at] = token
    feeds = trace.feeds
    here = (feeds["request"] == request) & (feeds["index"] == index) & (feeds["token"] == old)
    changed = edited(trace, "feeds", here, token=token)
    return replace(changed, requests=trace.requests | {"output_tokens": tokens})


def drafted(trace: Trace, entry: int, j: int, token: int) -> Trace:
    """`trace` with another token as draft j + 1 of an entry, fed to both models."""
    rows, feeds = trace.rows, trace.feeds
    drafts = rows["drafts"][entry].copy()
    drafts[j] = token
    here = (trace.index.feed_rows == entry) & (feeds["index"] == rows["length"][entry] + j)
    changed = edited(trace, "feeds", here & (feeds["phase"] > 0), token=token)
    for model in ("target", "draft"):
        ids = rows[f"{model}_top_ids"][entry, j]
        logprobs = rows[f"{model}_top_logprobs"][entry, j]
        own = rows[f"{model}_logprob"][entry].copy()
        if not np.isnan(own[j]):
            own[j] = logprobs[ids == token][0] if token in ids else logprobs.min() - 1
            changed = edited(changed, "rows", entry, **{f"{model}_logprob": own})
    return edited(changed, "rows", entry, drafts=drafts)


def unlikely(trace: Trace, entry: int, j: int) -> int:
    """Return the last candidate of the target after j drafts that is neither chosen nor special."""
    rows = trace.rows
    taken = {*rows["emitted"][entry].tolist(), *rows["drafts"][entry].tolist()}
    taken |= set(trace.meta["eos_token_ids"])
    ids = rows["target_top_ids"][entry, j].tolist()
    return next((token for token in reversed(ids) if token not in taken), -1)


def wrong_bonus(trace: Trace, entry: int) -> Trace:
    rows = trace.rows
    a = int(rows["accepted"][entry])
    token = unlikely(trace, entry, a)
    emitted = rows["emitted"][entry].copy()
    emitted[a] = token
    index = int(rows["length"][entry]) + a
    changed = rewritten(trace, int(rows["request"][entry]), index, token)
    return edited(changed, "rows", entry, emitted=emitted)


def has_wrong_bonus(trace: Trace) -> np.ndarray:
    """Where another token than the target's choice can be emitted: the choice is a candidate."""
    rows = trace.rows
    more = of_rows(trace)
    found = np.zeros(rows["round"].size, bool)
    knows = more["greedy"] | more["gumbel"]
    for entry in np.flatnonzero(knows & (rows["gained"] == rows["accepted"] + 1)):
        a = int(rows["accepted"][entry])
        is_candidate = rows["emitted"][entry, a] in rows["target_top_ids"][entry, a]
        found[entry] = is_candidate and not more["is_last"][entry]
        found[entry] &= unlikely(trace, int(entry), a) >= 0
    return found


def wrong_acceptance(trace: Trace, entry: int) -> Trace:
    token = unlikely(trace, entry, 0)
    index = int(trace.rows["length"][entry])
    changed = rewritten(trace, int(trace.rows["request"][entry]), index, token)
    changed = drafted(changed, entry, 0, token)
    emitted = trace.rows["emitted"][entry].copy()
    emitted[0] = token
    return edited(changed, "rows", entry, emitted=emitted)


def has_wrong_acceptance(trace: Trace) -> np.ndarray:
    rows = trace.rows
    more = of_rows(trace)
    found = (rows["accepted"] > 0) & (rows["gained"] > 1) & (more["greedy"] | more["gumbel"])
    for entry in np.flatnonzero(found):
        is_candidate = rows["emitted"][entry, 0] in rows["target_top_ids"][entry, 0]
        found[entry] = is_candidate and unlikely(trace, int(entry), 0) >= 0
    return found


def right_draft_rejected(trace: Trace, entry: int) -> Trace:
    """Let the first rejected draft be the token that the target emits instead of it."""
    a = int(trace.rows["accepted"][entry])
    j = int(Branches(trace).is_next[entry].argmax())
    return drafted(trace, entry, j, int(trace.rows["emitted"][entry, a]))


def has_rejected(trace: Trace) -> np.ndarray:
    """Entries of `rows` whose row goes on behind a draft that was rejected."""
    query = "gained == accepted + 1 and accepted < verified and discarded == 0 and finished == 0"
    return np.array(entries("rows", query)(trace) & Branches(trace).is_next.any(1))


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
    more = of_rows(trace)
    fits = (rows["gained"] > 0) & (rows["accepted"] + 1 < rows["drafted"])
    by_model = more["by_model"] & (more["greedy"] | more["gumbel"])
    for entry in np.flatnonzero(by_model & fits):
        j = int(rows["drafted"][entry]) - 1
        fits[entry] = rows["drafts"][entry, j] in rows["draft_top_ids"][entry, j]
    return fits & (by_model | more["by_lookup"])


def changed_draft(trace: Trace, entry: int) -> Trace:
    """Note another draft than the one that was fed."""
    drafts = trace.rows["drafts"][entry].copy()
    drafts[0] = (drafts[0] + 1) % trace.meta["vocabulary_size"]
    return edited(trace, "rows", entry, drafts=drafts)


def changed_emitted(at: Callable[[Trace, int], int]) -> Change:
    """Return a change of one emitted token alone."""

    def change(trace: Trace, entry: int) -> Trace:
        emitted = trace.rows["emitted"][entry].copy()
        j = at(trace, entry)
        emitted[j] = (emitted[j] + 1) % trace.meta["vocabulary_size"] or 1
        return edited(trace, "rows", entry, emitted=emitted)

    return change


def first(trace: Trace, entry: int) -> int:
    return 0


def last(trace: Trace, entry: int) -> int:
    return int(trace.rows["gained"][entry]) - 1


def behind(trace: Trace, entry: int) -> int:
    return int(trace.rows["gained"][entry])


TOKENS = (
    Mutation(
        "a bonus that is not the target's choice", wrong_bonus, ("bonus",), has_wrong_bonus,
        "choices that follow from the record, among its candidates",
    ),
    Mutation(
        "an accepted draft that is not the target's choice", wrong_acceptance, ("acceptance",),
        has_wrong_acceptance, "an accepted draft, and choices that follow from the record",
    ),
    Mutation(
        "a right draft rejected", right_draft_rejected, ("acceptance", "bonus"),
        has_rejected, REJECTED,
    ),
    Mutation(
        "a draft that is not the drafter's choice", other_unread_draft, ("drafts",),
        has_unread_draft, "a draft that is not reached, by a drafter that can be followed",
    ),
    Mutation(
        "rows.drafts another (accepted)", changed_draft, ("kv", "acceptance"),
        entries("rows", "accepted > 0 and gained > 0"), "an accepted draft",
    ),
    Mutation(
        "rows.drafts another (rejected)", changed_draft, ("kv", "drafts"),
        entries("rows", "accepted == 0 and gained > 0 and drafted > 0"), REJECTED,
    ),
    Mutation(
        "rows.emitted another (first)", changed_emitted(first), ("lengths",),
        entries("rows", "gained > 0"), "a round",
    ),
    Mutation(
        "rows.emitted another (last)", changed_emitted(last), ("lengths",),
        entries("rows", "gained > 1"), "a row that gains two",
    ),
    Mutation(
        "rows.emitted behind what is gained", changed_emitted(behind), ("acceptance",),
        entries("rows", "gained > 0 and gained < drafted + 1"), REJECTED,
    ),
)  # fmt: skip
MUTATIONS = TOKENS
