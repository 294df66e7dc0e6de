"""Mutations of the tables `feeds` and `holes`: what the models were fed, and what they saw."""

from dataclasses import replace

import numpy as np
from mutations import (
    DRAFTER,
    Mutation,
    doubled,
    edited,
    entries,
    shifted,
    without,
)

from specviz.record.trace import Trace

# Of the table `feeds`: what a row's pending token and its drafts are, for both models, and prompts.
PENDING = "phase == 2 and model == 0 and ahead == 0 and gained > 0"
ONE_DRAFT = "phase == 2 and model == 0 and 1 <= ahead < drafted and gained > 0"
LAST_DRAFT = "phase == 2 and model == 0 and ahead == drafted and drafted > 0 and gained > 0"
PROMPT = "phase == 0 and model == 0 and index > 0"
FED_BACK = "phase == 1 and model == 1 and ahead > 0 and gained > 0 and not is_leaf"
FED_PENDING = (
    "phase == 1 and model == 1 and ahead == 0 and gained > 0 and length > 1 and drafted > 0"
)
DRAFT_PROMPT = "phase == 0 and model == 1 and index > 0"
PLACES = {  # what a feed is: its query, and what a record must have
    "pending": (PENDING, "a row that goes on"),
    "draft": (ONE_DRAFT, "a round of K > 1"),
    "last draft": (LAST_DRAFT, "a round that drafts"),
    "prompt": (PROMPT, "a prompt of three tokens"),
    "draft fed back": (FED_BACK, "a draft model and K > 1"),
    "pending fed to the draft": (FED_PENDING, "a draft model"),
    "prompt of the draft": (DRAFT_PROMPT, "a draft model with a cache"),
}


def feed(place: str, column: str, by: int, rules: str, more: str = "") -> Mutation:
    """Return the mutation of a column of `feeds` by a number."""
    query, needs = PLACES[place]
    where = entries("feeds", f"{query} and {more}" if more else query)
    name = f"feeds.{column} {by:+d} ({place})"
    return Mutation(name, shifted("feeds", column, by), tuple(rules.split()), where, needs)


VALUES = tuple(
    feed(place, column, by, rules, more)
    for place in ("pending", "draft", "last draft", "draft fed back", "prompt")
    for column, by, rules, more in (
        ("position", 1, "positions", ""),
        ("position", -1, "positions", "index > 0"),
        ("token", 1, "kv", ""),
        ("index", 1, "kv caches positions rectangle", ""),
        ("visible_start", 1, "mask", "hidden == 0 and visible_stop - visible_start > 1"),
        ("visible_stop", -1, "mask", "hidden == 0"),
        ("visible_stop", 1, "mask", ""),
    )
)
SLOTS = (
    feed("pending", "slot", 1, "rectangle"),
    feed("draft", "slot", 1, "kv mask caches"),
    feed("last draft", "slot", 1, "kv mask"),
    feed("prompt", "slot", 1, "kv mask"),
    feed("draft fed back", "slot", 1, "kv mask caches"),
    feed("pending", "visible_start", -1, "mask", "visible_start > 0"),
    feed("prompt of the draft", "token", 1, "kv caches"),
    feed("prompt of the draft", "position", 1, "positions"),
    feed("pending fed to the draft", "token", 1, "kv"),
    feed("pending fed to the draft", "position", 2, "positions"),
)


def lost(place: str, rules: str) -> Mutation:
    """Return the mutation that leaves a feed out."""
    query, needs = PLACES[place]

    def change(trace: Trace, entry: int) -> Trace:
        return without(trace, "feeds", entry)

    return Mutation(
        f"feeds lost ({place})", change, tuple(rules.split()), entries("feeds", query), needs
    )


def twice(place: str, rules: str) -> Mutation:
    """Return the mutation that notes a feed twice."""
    query, needs = PLACES[place]

    def change(trace: Trace, entry: int) -> Trace:
        return doubled(trace, "feeds", entry)

    where = entries("feeds", f"{query} and hidden == 0")
    return Mutation(f"feeds doubled ({place})", change, tuple(rules.split()), where, needs)


COUNTED = (
    *(lost(place, "kv") for place in ("pending", "draft", "last draft")),
    lost("prompt", "kv mask"),
    lost("draft fed back", "caches"),
    lost("pending fed to the draft", "caches"),
    *(twice(place, "kv") for place in ("pending", "draft", "last draft", "prompt")),
    *(twice(place, "caches") for place in ("draft fed back", "prompt of the draft")),
)


def other_value(place: str, column: str, value: int, rules: str) -> Mutation:
    """Return the mutation that sets a column of a feed to another value."""
    query, needs = PLACES[place]

    def change(trace: Trace, entry: int) -> Trace:
        return edited(trace, "feeds", entry, **{column: value})

    name = f"feeds.{column} {value} ({place})"
    return Mutation(name, change, tuple(rules.split()), entries("feeds", query), needs)


def other_row(trace: Trace, entry: int) -> Trace:
    rows = trace.feeds["row"]
    return edited(trace, "feeds", entry, row=rows[entry] + 1)


def other_request(trace: Trace, entry: int) -> Trace:
    """Feed the token for another request, one that is long enough."""
    size = np.diff(trace.requests["prompt_offsets"]) + np.diff(trace.requests["output_offsets"])
    fits = size > trace.feeds["index"][entry]
    fits[trace.feeds["request"][entry]] = False
    return edited(trace, "feeds", entry, request=np.flatnonzero(fits)[0])


def late(trace: Trace, entry: int) -> Trace:
    return edited(trace, "feeds", entry, round=trace.feeds["round"][entry] + 1)


PLACED = (
    other_value("pending", "phase", DRAFTER, "kv caches mask"),
    other_value("pending", "model", DRAFTER, "kv caches mask"),
    other_value("draft fed back", "model", 0, "kv caches mask"),
    Mutation("feeds.row +1 (pending)", other_row, ("kv",), entries("feeds", PENDING), "a row"),
    Mutation(
        "feeds.request another (pending)", other_request, ("kv", "mask"),
        entries("feeds", f"{PENDING} and index < 12"), "a short row",
    ),
    Mutation(
        "feeds.round +1 (pending)", late, ("kv",),
        entries("feeds", f"{PENDING} and rounds_left > 0"), "a round behind it",
    ),
    Mutation(
        "feeds.round +1 (draft fed back)", late, ("kv", "caches"),
        entries("feeds", f"{FED_BACK} and rounds_left > 0"), "a draft model and K > 1",
    ),
)  # fmt: skip


def hole(name: str, column: str, by: int) -> Mutation:
    def where(trace: Trace) -> np.ndarray:
        holes = trace.holes
        return holes["stop"] - holes["start"] > (1 if by * (column == "start") > 0 else 0)

    change = shifted("holes", column, by)
    return Mutation(name, change, ("mask",), where, "a strategy with holes")


def seen_hole(trace: Trace, entry: int) -> Trace:
    columns = trace.holes.items()
    return replace(trace, holes={name: np.delete(values, entry) for name, values in columns})


def new_hole(trace: Trace, entry: int) -> Trace:
    start = trace.feeds["visible_start"][entry]
    added = {"feed": entry, "start": start, "stop": start + 1}
    columns = trace.holes.items()
    holes = {name: np.append(values, np.int32(added[name])) for name, values in columns}
    return replace(trace, holes=holes)


def of_another(trace: Trace, entry: int) -> Trace:
    return edited(trace, "holes", entry, feed=trace.holes["feed"][entry] - 1)


def has_room_before(trace: Trace) -> np.ndarray:
    feeds, holes = trace.feeds, trace.holes
    before = holes["feed"] - 1
    same = (feeds["row"][before] == feeds["row"][holes["feed"]]) & (before >= 0)
    same &= feeds["visible_start"][before] <= holes["start"]
    return same & (holes["stop"] <= feeds["visible_stop"][before])


HOLES = (
    hole("holes.start +1", "start", 1),
    hole("holes.stop -1", "stop", -1),
    Mutation(
        "holes lost", seen_hole, ("mask",),
        lambda trace: np.ones(trace.holes["feed"].size, bool), "a strategy with holes",
    ),
    Mutation("holes.feed -1", of_another, ("mask",), has_room_before, "a strategy with holes"),
    Mutation(
        "holes added", new_hole, ("mask",),
        entries("feeds", f"{PENDING} and visible_stop - visible_start > 1"), "a row of two tokens",
    ),
)  # fmt: skip
MUTATIONS = (*VALUES, *SLOTS, *COUNTED, *PLACED, *HOLES)
