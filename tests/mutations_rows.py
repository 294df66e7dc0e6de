"""Mutations of the tables `rows` and `requests`: what each row of a round is said to have done."""

from dataclasses import replace

import numpy as np
from mutations import Change, Mutation, edited, entries, shifted

from specviz.record.schema import PHASES
from specviz.record.trace import Trace

SCHEDULE = PHASES.index("schedule")


def row(column: str, by: int, rules: str, query: str, needs: str) -> Mutation:
    """Return the mutation of one scalar of `rows` by a number."""
    name = f"rows.{column} {by:+d}"
    change = shifted("rows", column, by)
    return Mutation(name, change, tuple(rules.split()), entries("rows", query), needs)


def set_row(name: str, column: str, value: int, rules: str, query: str, needs: str) -> Mutation:
    """Return the mutation that sets one scalar of `rows`."""

    def change(trace: Trace, entry: int) -> Trace:
        return edited(trace, "rows", entry, **{column: value})

    return Mutation(name, change, tuple(rules.split()), entries("rows", query), needs)


def fewer_drafts(trace: Trace, entry: int) -> Trace:
    """One draft less, of those that are verified too if all are."""
    drafted = int(trace.rows["drafted"][entry]) - 1
    verified = min(int(trace.rows["verified"][entry]), drafted)
    return edited(trace, "rows", entry, drafted=drafted, verified=verified)


ANY = "an entry"
ALIVE = "gained > 0"
ONWARD = "gained > 0 and not is_last"
GOES_ON = "a row that goes on"
KEPT = "a row that goes on with the K/V that it has, behind slot 0"
UNMOVED = "a row that is not moved before its next round, without a new request beside it"

COUNTS = (
    row("length", 1, "lengths", "left > 0", GOES_ON),
    row("length", -1, "lengths", "length > 1 and not is_first", "a round that is not its first"),
    Mutation(
        "rows.drafted -1", fewer_drafts, ("drafts",),
        entries("rows", "gained > 0 and drafted > accepted"), "a rejected draft",
    ),
    row("drafted", 1, "drafts", "gained > 0 and drafted < 3 and by_model", "a round of K < 3"),
    row(
        "accepted", -1, "acceptance bonus", "accepted > 0 and gained == accepted + 1",
        "an accepted draft in a row that does not end with it",
    ),
    row(
        "accepted", 1, "acceptance bonus",
        "gained > 0 and gained == accepted + 1 and accepted < verified and not is_last",
        "a rejected draft",
    ),
    row("gained", -1, "lengths acceptance", "gained > 1 and not is_last", "a row that gains two"),
    row(
        "gained", 1, "lengths acceptance", "0 < gained <= verified and not is_last",
        "a rejected draft in a row that goes on",
    ),
    row("discarded", 1, "acceptance", "gained > 0 and drafted > 0", "a row that drafts"),
    row("discarded", -1, "acceptance", "discarded > 0", "a strategy that discards"),
    set_row("rows.gained 0", "gained", 0, "lengths acceptance", ONWARD, GOES_ON),
    set_row("rows.accepted 0", "accepted", 0, "acceptance bonus", "accepted > 1", "two accepted"),
)  # fmt: skip

PLACES = (
    row("start", -1, "rectangle", "start > 0 and gained > 0", "a row behind slot 0"),
    row("start", 1, "rectangle", ALIVE, ANY),
    row("start_after", -1, "rectangle", "start_after > 0 and is_kept", KEPT),
    row("start_after", 1, "rectangle", "is_kept", KEPT),
    row("pending", -1, "rectangle", "pending > 0 and gained > 0", "a row of two tokens"),
    row("pending", 1, "rectangle", ALIVE, ANY),
    row("pending_after", -1, "rectangle", "is_left_alone", UNMOVED),
    row("pending_after", 1, "rectangle", "is_left_alone", UNMOVED),
)  # fmt: skip


def other_request(trace: Trace, entry: int) -> Trace:
    """Give the entry of `rows` to a request of another length."""
    rows = trace.rows
    prompt = np.diff(trace.requests["prompt_offsets"])
    output = np.diff(trace.requests["output_offsets"])
    reached = rows["length"][entry] + rows["gained"][entry]
    fits = (prompt <= rows["length"][entry]) & (reached <= prompt + output)
    fits[rows["request"][entry]] = False
    return edited(trace, "rows", entry, request=np.flatnonzero(fits)[0])


def has_other_request(trace: Trace) -> np.ndarray:
    rows = trace.rows
    prompt = np.diff(trace.requests["prompt_offsets"])
    output = np.diff(trace.requests["output_offsets"])
    reached = (rows["length"] + rows["gained"])[:, None]
    fits = (prompt <= rows["length"][:, None]) & (reached <= prompt + output)
    return fits.sum(axis=1) > 1


def other_row(trace: Trace, entry: int) -> Trace:
    """Note the last row of a round under a number that no row has."""
    return edited(trace, "rows", entry, row=trace.rows["row"].max() + 1)


def is_last_of_round(trace: Trace) -> np.ndarray:
    number = trace.rows["round"]
    return (np.append(number[1:], -1) != number) & (trace.rows["gained"] > 0)


ENDS = (
    Mutation("rows.request another", other_request, ("lengths",), has_other_request, "a room"),
    Mutation(
        "rows.row another", other_row, ("kv", "rectangle", "schedule"), is_last_of_round, ANY
    ),
    set_row("rows.finished early", "finished", 1, "budget", ONWARD, GOES_ON),
    set_row(
        "rows.finished missing at the budget", "finished", 0, "budget",
        "is_last and not ends_with_eos", "a request that reaches its budget",
    ),
    set_row(
        "rows.finished missing at EOS", "finished", 0, "eos",
        "is_last and ends_with_eos", "a request that reaches EOS",
    ),
)  # fmt: skip


def request(name: str, change: Change, rules: str, query: str, needs: str) -> Mutation:
    """Return a mutation of `requests` at the request of an entry of `rows`."""
    return Mutation(name, change, tuple(rules.split()), entries("rows", query), needs)


def budget(by: int) -> Change:
    """Return the change that adds to the budget of an entry's request."""

    def change(trace: Trace, entry: int) -> Trace:
        number = trace.rows["request"][entry]
        value = trace.requests["budget"][number] + by
        return edited(trace, "requests", number, budget=value)

    return change


def other_prompt_token(trace: Trace, entry: int) -> Trace:
    """Change the first token of a prompt."""
    at = trace.requests["prompt_offsets"][trace.rows["request"][entry]]
    token = trace.requests["prompt_tokens"][at] + 1
    return edited_token(trace, "prompt_tokens", at, token % trace.meta["vocabulary_size"])


def other_output_token(trace: Trace, entry: int) -> Trace:
    """Change the first token of an output."""
    at = trace.requests["output_offsets"][trace.rows["request"][entry]]
    return edited_token(trace, "output_tokens", at, trace.requests["output_tokens"][at] + 1)


def edited_token(trace: Trace, column: str, at: int, token: int) -> Trace:
    """Change a token of the flat columns of `requests`."""
    tokens = trace.requests[column].copy()
    tokens[at] = token
    return replace(trace, requests=trace.requests | {column: tokens})


REQUESTS = (
    request(
        "requests.budget +1", budget(1), "budget", "is_last and not ends_with_eos",
        "a request that reaches its budget",
    ),
    request(
        "requests.budget -1", budget(-1), "budget", "is_last and not ends_with_eos",
        "a request that reaches its budget",
    ),
    request("requests.prompt_tokens another", other_prompt_token, "kv", "gained > 0", ANY),
    request("requests.output_tokens another", other_output_token, "lengths", "gained > 0", ANY),
)  # fmt: skip

MUTATIONS = (*COUNTS, *PLACES, *ENDS, *REQUESTS)
