"""Mutations of what the models were fed and saw, and of what moved: `feeds`, `holes`, `moves`."""

from dataclasses import replace

import numpy as np
from mutations import (
    ACCEPT,
    DRAFT,
    DRAFTER,
    SCHEDULE,
    SYNCHRONISE,
    TARGET,
    VERIFY,
    Mutation,
    edited,
    lost,
    to,
    value,
    whole,
    without,
)

from specviz.record.trace import Trace

# What a feed is.
OF_TARGET = f"phase == {VERIFY} and model == {TARGET} and gained > 0"
OF_DRAFT = f"phase == {DRAFT} and model == {DRAFTER} and gained > 0"
FEEDS = {
    "pending": f"{OF_TARGET} and ahead == 0",
    "draft": f"{OF_TARGET} and 1 <= ahead < drafted",
    "last draft": f"{OF_TARGET} and ahead == drafted and drafted > 0",
    "prompt": f"phase == {SCHEDULE} and model == {TARGET} and index > 0",
    "draft fed back": f"{OF_DRAFT} and ahead > 0 and not is_leaf",
    "pending fed to the draft": f"{OF_DRAFT} and ahead == 0 and length > 1 and drafted > 0",
    "prompt of the draft": f"phase == {SCHEDULE} and model == {DRAFTER} and index > 0",
}


def feed(
    what: str, column: str, new: object, rules: str, more: str = "", note: str = ""
) -> Mutation:
    """Return the mutation of a column of such feeds, of those that fit one more query."""
    query = FEEDS[what] + (more and f" and {more}")
    note += (note and " ") + f"({what})"
    return value(f"feeds.{column}", new, rules, query, note)


def other_request(trace: Trace, entry: int) -> int:
    """Another request that is long enough for the index."""
    size = np.diff(trace.requests["prompt_offsets"]) + np.diff(trace.requests["output_offsets"])
    fits = size > trace.feeds["index"][entry]
    fits[trace.feeds["request"][entry]] = False
    return int(np.flatnonzero(fits)[0])


def twice(what: str, rules: str) -> Mutation:
    """Return the mutation that notes a feed a second time, behind all others."""

    def change(trace: Trace, entry: int) -> Trace:
        columns = trace.feeds.items()
        return replace(trace, feeds={k: np.append(v, v[entry]) for k, v in columns})

    return whole(
        f"feeds doubled ({what})", change, rules, "feeds", f"{FEEDS[what]} and hidden == 0"
    )


READ = (
    *(
        feed(what, column, by, rules, more)
        for what in ("pending", "draft", "last draft", "draft fed back", "prompt")
        for column, by, rules, more in (
            ("position", 1, "positions", ""),
            ("position", -1, "positions", "index > 0"),
            ("token", 1, "kv", ""),
            ("index", 1, "kv caches positions rectangle", ""),
            ("visible_start", 1, "mask", "hidden == 0 and visible_stop - visible_start > 1"),
            ("visible_stop", -1, "mask", "hidden == 0"),
            ("visible_stop", 1, "mask", ""),
        )
    ),
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
    feed("pending", "phase", to(DRAFT), "kv caches mask", note="1"),
    feed("pending", "model", to(DRAFTER), "kv caches mask", note="1"),
    feed("draft fed back", "model", to(TARGET), "kv caches mask", note="0"),
    feed("pending", "row", 1, "kv"),
    feed("pending", "request", other_request, "kv mask", "index < 12", "another"),
    feed("pending", "round", 1, "kv", "rounds_left > 0"),
    feed("draft fed back", "round", 1, "kv caches", "rounds_left > 0"),
    value("feeds.node", -1, "drafts kv mask", f"phase == {VERIFY} and node > 0 and gained > 0"),
    *(
        lost("feeds", rules, FEEDS[what], f"({what})")
        for what, rules in (
            ("pending", "kv"),
            ("draft", "kv"),
            ("last draft", "kv"),
            ("prompt", "kv mask"),
            ("draft fed back", "caches"),
            ("pending fed to the draft", "caches"),
        )
    ),
    *(twice(what, "kv") for what in ("pending", "draft", "last draft", "prompt")),
    *(twice(what, "caches") for what in ("draft fed back", "prompt of the draft")),
)


def new_hole(trace: Trace, entry: int) -> Trace:
    start = trace.feeds["visible_start"][entry]
    added = {"feed": entry, "start": start, "stop": start + 1}
    columns = trace.holes.items()
    holes = {name: np.append(values, np.int32(added[name])) for name, values in columns}
    return replace(trace, holes=holes)


def fits_the_feed_before(trace: Trace) -> np.ndarray:
    feeds, holes = trace.feeds, trace.holes
    before = holes["feed"] - 1
    same = (feeds["row"][before] == feeds["row"][holes["feed"]]) & (before >= 0)
    same &= feeds["visible_start"][before] <= holes["start"]
    return same & (holes["stop"] <= feeds["visible_stop"][before])


def without_hole(trace: Trace, entry: int) -> Trace:
    """Show the last thing that was hidden from a query."""
    return without(trace, "holes", int(np.flatnonzero(trace.holes["feed"] == entry)[-1]))


def without_ancestor(trace: Trace, entry: int) -> Trace:
    """Let a query of a draft see nothing of its own branch but itself: not its parent."""
    slot = trace.feeds["slot"][entry]
    return edited(trace, "feeds", entry, visible_start=slot, visible_stop=slot + 1)


SEEN = (
    value("holes.start", 1, "mask", "stop - start > 1"),
    value("holes.stop", -1, "mask", "stop - start > 0"),
    value("holes.feed", -1, "mask", fits_the_feed_before),
    lost("holes", "mask", "stop > start"),
    whole(
        "holes added", new_hole, "mask", "feeds",
        f"{FEEDS['pending']} and visible_stop - visible_start > 1",
    ),
    whole(
        "a sibling seen", without_hole, "mask", "feeds",
        f"{OF_TARGET} and is_tree and hidden > 0 and node > 1",
    ),
    whole(
        "the branch unseen", without_ancestor, "mask", "feeds",
        f"{OF_TARGET} and is_tree and hidden == 0 and node > 0",
    ),
)  # fmt: skip

MOVED = "length > 2 and goes_on and model =="
OF = {"target": f"{MOVED} {TARGET}", "draft": f"{MOVED} {DRAFTER}"}
# Of accepted drafts of rows that go on, whose K/V the target's next round reads.
COMPACTING = f"phase == {ACCEPT} and model == {TARGET} and is_finished == 0"
MOVES = (
    *(
        value(f"moves.{column}", by, rules, OF[model] + more, f"({model})")
        for column, by, rules, model, more in (
            ("length", 1, "rectangle", "target", ""),
            ("length", -1, "kv rectangle", "target", " and ends_with_kv"),
            ("length", 1, "rectangle", "draft", ""),
            ("length", -1, "caches kv", "draft", " and ends_with_kv"),
            ("to_slot", 1, "kv rectangle", "target", ""),
            ("to_slot", -1, "kv rectangle", "target", " and to_slot > 0"),
            ("from_slot", 1, "kv rectangle", "target", ""),
            ("from_slot", -1, "kv rectangle", "target", " and from_slot > 0"),
            ("to_slot", 1, "kv caches", "draft", ""),
            ("from_slot", 1, "kv caches", "draft", ""),
            ("to_row", 1, "kv rectangle", "target", ""),
            ("from_row", 1, "kv rectangle", "target", ""),
            ("round", 1, "kv rectangle", "target", " and rounds_left > 0"),
        )
    ),
    lost("moves", "kv", OF["target"], "(target)"),
    lost("moves", "caches kv", OF["draft"], "(draft)"),
    value("moves.model", to(DRAFTER), "kv rectangle", OF["target"], "the other"),
    value(
        "moves.phase", to(SCHEDULE), "kv rectangle",
        f"{OF['target']} and phase == {SYNCHRONISE}", "early",
    ),
    lost("moves", "kv", COMPACTING, "(compacting)"),
    value("moves.to_slot", 1, "kv rectangle", COMPACTING, "(compacting)"),
)  # fmt: skip
STATES = (
    *(
        value("feeds.window_offset", by, "window", f"{FEEDS[what]} and window_offset > 0", what)
        for what in ("pending", "draft", "prompt")
        for by in (1, -1)
    ),
    value("feeds.window_offset", 1, "window", "hidden > 0 and window_offset > 0", "(holes)"),
    *(
        value(f"states.{column}", by, "state", query, note)
        for column, by, query, note in (
            ("feed", 1, f"phase == {VERIFY} and feed >= 0", "(target)"),
            ("feed", -1, f"phase == {VERIFY} and feed >= 0", "(target)"),
            ("feed", 1, f"phase == {DRAFT} and feed >= 0", "(draft)"),
            ("feed", to(-1), f"phase == {DRAFT} and feed >= 0", "none"),
            ("feed", to(0), f"phase == {SCHEDULE} and round > 0", "of the row's last request"),
            ("row", 1, f"phase == {VERIFY}", ""),
            ("round", 1, "rounds_left > 0", ""),
            ("step", 1, f"phase == {DRAFT}", ""),
            ("phase", 1, f"phase == {DRAFT}", ""),
            ("model", to(DRAFTER), f"model == {TARGET}", "the other"),
        )
    ),
    lost("states", "state", f"phase == {VERIFY}"),
)
MUTATIONS = (*READ, *SEEN, *MOVES, *STATES)
