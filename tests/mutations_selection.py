"""Mutations of what a record says of selected drafts, and of the tree that drafts form."""

import numpy as np
from mutations import Mutation, edited, entries, shifted
from mutations_moves import header, sampled
from mutations_rows import row

from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

DRAFT, VERIFY = PHASES.index("draft"), PHASES.index("verify")
TARGET = MODELS.index("target")
UNVERIFIED = "a draft that is not verified"


def is_left(trace: Trace) -> np.ndarray:
    """Entries of `rows` with a score for a draft that was not verified."""
    rows = trace.rows
    k = rows["scores"].shape[1]
    left = (rows["verified"] < rows["drafted"]) & (rows["gained"] > 0)
    following = np.minimum(rows["verified"], max(k - 1, 0))
    if k == 0:
        return np.zeros(left.size, bool)
    return np.array(left & ~np.isnan(rows["scores"][np.arange(left.size), following]))


def has_scores(trace: Trace) -> np.ndarray:
    """Entries of `rows` of greedy runs whose verified drafts have scores that can be known."""
    rows = trace.rows
    known = trace.meta["selector_options"].get("score") == "chosen"
    found = (rows["verified"] > 0) & (rows["gained"] > 0) & known
    return np.array(found & (trace.meta["sampling"] is None))


def higher_score(trace: Trace, entry: int) -> Trace:
    scores = trace.rows["scores"][entry].copy()
    scores[trace.rows["verified"][entry]] = 0.0  # a chance of 1
    return edited(trace, "rows", entry, scores=scores)


def other_score(trace: Trace, entry: int) -> Trace:
    scores = trace.rows["scores"][entry].copy()
    scores[0] -= 0.5
    return edited(trace, "rows", entry, scores=scores)


def is_spent(trace: Trace) -> np.ndarray:
    """Rounds that verify all that they may, and drafts are left."""
    rows, rounds = trace.rows, trace.rounds
    size = rounds["capacity"].size
    used = np.bincount(rows["round"], weights=rows["verified"], minlength=size)
    drafted = np.bincount(rows["round"], weights=rows["drafted"], minlength=size)
    idle = np.bincount(rows["round"], weights=rows["gained"] == 0, minlength=size)
    is_tetris = trace.meta["selector"] == "tetris"
    return np.array((used == rounds["capacity"]) & (drafted > used) & (idle == 0) & is_tetris)


def is_full(trace: Trace) -> np.ndarray:
    """Rounds that verify something, and no less than they may."""
    rows, rounds = trace.rows, trace.rounds
    used = np.bincount(rows["round"], weights=rows["verified"], minlength=len(rounds["capacity"]))
    return np.array((used == rounds["capacity"]) & (used > 0))


def other_parent(trace: Trace, entry: int) -> Trace:
    parents = trace.rows["parents"][entry].copy()
    parents[1] = -1
    return edited(trace, "rows", entry, parents=parents)


def follows_the_first(trace: Trace) -> np.ndarray:
    """Entries of `rows` whose second draft follows the first one."""
    rows = trace.rows
    if rows["parents"].shape[1] < 2:
        return np.zeros(rows["round"].size, bool)
    return np.array((rows["parents"][:, 1] == 0) & (rows["verified"] > 1) & (rows["gained"] > 0))


def longer_path(trace: Trace, entry: int) -> Trace:
    path = trace.rows["path"][entry].copy()
    path[trace.rows["accepted"][entry]] = trace.rows["accepted"][entry]
    return edited(trace, "rows", entry, path=path)


def shorter_path(trace: Trace, entry: int) -> Trace:
    path = trace.rows["path"][entry].copy()
    path[trace.rows["accepted"][entry] - 1] = -1
    return edited(trace, "rows", entry, path=path)


def is_verified_draft(trace: Trace) -> np.ndarray:
    feeds = trace.feeds
    entry = trace.index.feed_rows
    gained = np.append(trace.rows["gained"], 0)[entry]
    return np.array((feeds["phase"] == VERIFY) & (feeds["node"] > 0) & (gained > 0))


MUTATIONS = (
    row(
        "verified", 1, "verification kv", "0 < gained and verified < drafted", UNVERIFIED,
    ),
    row(
        "verified", -1, "verification kv acceptance", "gained > 0 and verified > accepted",
        "a draft that is rejected",
    ),
    Mutation("rows.scores higher", higher_score, ("verification",), is_left, UNVERIFIED),
    Mutation("rows.scores lower", other_score, ("verification",), has_scores, "greedy scores"),
    Mutation(
        "rounds.capacity +1", shifted("rounds", "capacity", 1), ("verification",), is_spent,
        "a round of TETRIS with drafts left",
    ),
    Mutation(
        "rounds.capacity -1", shifted("rounds", "capacity", -1), ("verification",), is_full,
        "a round that verifies all that it may",
    ),
    header("meta.foresees", "foresight", sampled("rejection"), "coins", foresees=True),
    Mutation(
        "rows.parents", other_parent, ("drafts", "acceptance"),
        follows_the_first, "a verified draft that follows the first one",
    ),
    Mutation(
        "rows.path longer", longer_path, ("acceptance",),
        entries("rows", "gained > 0 and accepted < drafted"), "a draft that is not accepted",
    ),
    Mutation(
        "rows.path shorter", shorter_path, ("acceptance",),
        entries("rows", "gained > 0 and accepted > 0"), "an accepted draft",
    ),
    Mutation(
        "feeds.node -1", shifted("feeds", "node", -1), ("drafts", "kv", "mask"), is_verified_draft,
        "a draft that is verified",
    ),
)  # fmt: skip
