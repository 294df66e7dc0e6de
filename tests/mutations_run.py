"""Mutations of what is said of the whole run: `pool`, `rounds` and the header."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mutations import TARGET, VERIFY, Mutation, header, lost, sampling, uses, value

from specviz.record.trace import Trace


def pooled(column: str, by: int, query: str) -> Mutation:
    return value(f"pool.{column}", by, "schedule", query, f"({query})")


def others(trace: Trace, entry: int) -> np.ndarray:
    """The other requests in the same pool."""
    pool = trace.pool
    same = pool["round"] == pool["round"][entry]
    same[entry] = False
    return pool["request"][same]


def has_others(trace: Trace) -> np.ndarray:
    entries = range(trace.pool["round"].size)
    return np.array([others(trace, entry).size > 0 for entry in entries], bool)


POOL = (
    pooled("length", 1, "chosen == 0"),
    pooled("length", 1, "chosen == 1"),
    pooled("length", -1, "chosen == 0 and length > 1"),
    pooled("waited", 1, "chosen == 0"),
    pooled("waited", 1, "chosen == 1"),
    pooled("waited", -1, "waited > 0"),
    pooled("chosen", 1, "chosen == 0"),
    pooled("chosen", -1, "chosen == 1"),
    pooled("row", 1, "chosen == 0"),
    pooled("row", 1, "chosen == 1"),
    value("pool.request", lambda t, i: others(t, i)[0], "schedule", has_others, "another"),
    lost("pool", "schedule", "chosen == 1", "(chosen)"),
    lost("pool", "schedule", "chosen == 0", "(waiting)"),
)


def decided(*names: str, equal: bool = True) -> Callable[[Trace], np.ndarray]:
    """Return the mask of rounds of a pool that were decided so, of rows of unequal length alone."""

    def where(trace: Trace) -> np.ndarray:
        decisions = np.array(trace.meta["decisions"])[trace.rounds["decision"]]
        options = trace.meta["strategy_options"]
        if not trace.pool["round"].size or options.get("group_by") == "padded":
            return np.zeros(decisions.size, bool)
        number, length = trace.rows["round"], trace.rows["length"]
        fits = [
            equal or len(set(length[number == n].tolist())) > 1 for n in range(trace.num_rounds)
        ]
        return np.isin(decisions, names) & np.array(fits)

    return where


def decision(name: str, where: Callable[[Trace], np.ndarray]) -> Mutation:
    def new(trace: Trace, entry: int) -> int:
        return list(trace.meta["decisions"]).index(name)

    return value("rounds.decision", new, "schedule", where, name)


def may_be_overdue(trace: Trace) -> np.ndarray:
    return decided("grouped", "partial")(trace) & ("max_wait" in trace.meta["strategy_options"])


def is_seen_to_the_end(trace: Trace) -> np.ndarray:
    """Rounds in which a query of the target sees the last slot."""
    feeds, slots = trace.feeds, trace.rounds["slots"]
    seen = np.zeros(slots.size, np.int64)
    which = (feeds["phase"] == VERIFY) & (feeds["model"] == TARGET)
    np.maximum.at(seen, feeds["round"][which], feeds["visible_stop"][which])
    return (slots > 1) & (seen == slots)


def summed(trace: Trace, values: np.ndarray) -> np.ndarray:
    """The sums of values of `rows` by round."""
    return np.bincount(trace.rows["round"], weights=values, minlength=trace.num_rounds)


def is_full(trace: Trace) -> np.ndarray:
    """Rounds that verify something, and no less than they may."""
    used = summed(trace, trace.rows["verified"])
    return (used == trace.rounds["capacity"]) & (used > 0)


def is_spent(trace: Trace) -> np.ndarray:
    """Rounds of TETRIS that verify all that they may, and drafts are left."""
    rows = trace.rows
    used, drafted = (summed(trace, rows[name]) for name in ("verified", "drafted"))
    found = (used == trace.rounds["capacity"]) & (drafted > used)
    found &= summed(trace, rows["gained"] == 0) == 0
    return found & (trace.meta["selector"] == "tetris")


ROUNDS = (
    decision("grouped", decided("realigned", "overdue", "partial", equal=False)),
    decision("realigned", decided("grouped")),
    decision("partial", decided("grouped")),
    decision("overdue", may_be_overdue),
    value("rounds.slots", -1, "rectangle", is_seen_to_the_end),
    value("rounds.capacity", 1, "verification", is_spent),
    value("rounds.capacity", -1, "verification", is_full),
)


def status(old: str, new: str, rules: str) -> Mutation:
    """Return the mutation that names the first status `old` another one."""

    def change(trace: Trace) -> list[str]:
        found = list(trace.meta["status"])
        found[found.index(old)] = new
        return found

    return header(
        f"meta.status {old} is {new}", rules, lambda t: old in t.meta["status"], status=change
    )


def always(trace: Trace) -> bool:
    return True


def is_ragged(trace: Trace) -> bool:
    ends = set(zip(trace.rows["round"], trace.rows["pending"], strict=True))
    return len(ends) > trace.num_rounds


def inner_token(trace: Trace) -> list[int]:
    """Return the EOS ids and a token from within an output."""
    output = max((trace.output(request) for request in range(trace.num_requests)), key=len)
    return [*trace.meta["eos_token_ids"], output[2]]


def of(what: str, name: str) -> Callable[[Trace], Any]:
    return lambda trace: trace.meta[what] == name


GUMBEL, COINS = uses("gumbel"), uses("rejection")
HEADER = (
    status("eos", "budget", "budget"),
    status("eos", "interrupted", "budget"),
    status("eos", "not_finite", "budget"),
    status("budget", "eos", "eos"),
    status("budget", "interrupted", "budget"),
    status("budget", "not_finite", "budget"),
    header("meta.status one short", "budget", always, status=lambda t: t.meta["status"][:-1]),
    header(
        "meta.eos_token_ids none", "budget", lambda t: "eos" in t.meta["status"], eos_token_ids=[]
    ),
    header("meta.eos_token_ids one more", "eos", always, eos_token_ids=inner_token),
    header("meta.seed another", "acceptance bonus", GUMBEL, seed=1),
    header("meta.seed another (coins)", "acceptance", COINS, seed=1),
    *(
        header(f"meta.sampling {name}", "acceptance bonus", GUMBEL, sampling=sampling(**options))
        for name, options in (
            ("hotter", {"temperature": 9.0}),
            ("colder", {"temperature": 0.05}),
            ("top_k 1", {"top_k": 1}),
        )
    ),
    header("meta.sampling none", "acceptance bonus", GUMBEL, sampling=None),
    header("meta.sampling none (coins)", "acceptance bonus", COINS, sampling=None),
    header("meta.foresees", "foresight", COINS, foresees=True),
    header("meta.right_aligned true", "rectangle", is_ragged, right_aligned=True),
    header("meta.batch_size 1", "schedule", always, batch_size=1),
    header("meta.vocabulary_size 9", "scores", always, vocabulary_size=9),
    header(
        "meta.decisions reversed", "schedule",
        lambda trace: decided("grouped", "realigned", "partial")(trace).any(),
        decisions=lambda trace: list(reversed(trace.meta["decisions"])),
    ),
    header(
        "meta.drafter_options another", "drafts", of("drafter", "lookup"),
        drafter_options={"max_ngram": 3, "min_ngram": 3},
    ),
)  # fmt: skip
MUTATIONS = (*POOL, *ROUNDS, *HEADER)
