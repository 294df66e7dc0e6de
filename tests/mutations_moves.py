"""Mutations of the tables `moves`, `pool` and `rounds`, and of the header."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mutations import SYNCHRONISE, Mutation, edited, entries, headed, shifted, without

from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

TARGETS = "model == 0 and length > 2 and goes_on"
DRAFTS = "model == 1 and length > 2 and goes_on"
MOVING = "a strategy that moves K/V"
BOTH = "a strategy that moves K/V, and a draft model that keeps it"


def is_seen_to_the_end(trace: Trace) -> np.ndarray:
    """Rounds in which a query of the target sees the last slot."""
    feeds, slots = trace.feeds, trace.rounds["slots"]
    seen = np.zeros(slots.size, np.int64)
    which = (feeds["phase"] == PHASES.index("verify")) & (feeds["model"] == MODELS.index("target"))
    np.maximum.at(seen, feeds["round"][which], feeds["visible_stop"][which])
    return np.array((slots > 1) & (seen == slots))


def move(column: str, by: int, rules: str, query: str = TARGETS, needs: str = MOVING) -> Mutation:
    """Return the mutation of a column of `moves` by a number."""
    model = "draft" if query.startswith(DRAFTS) else "target"
    change = shifted("moves", column, by)
    name = f"moves.{column} {by:+d} ({model})"
    return Mutation(name, change, tuple(rules.split()), entries("moves", query), needs)


def lost_move(trace: Trace, entry: int) -> Trace:
    return without(trace, "moves", entry)


def of_the_other_model(trace: Trace, entry: int) -> Trace:
    return edited(trace, "moves", entry, model=1 - trace.moves["model"][entry])


def early(trace: Trace, entry: int) -> Trace:
    """Move at the beginning of the round what is moved at its end."""
    return edited(trace, "moves", entry, phase=0)


MOVES = (
    move("length", 1, "rectangle"),
    move("length", -1, "kv rectangle", f"{TARGETS} and ends_with_kv"),
    move("length", 1, "rectangle", DRAFTS, BOTH),
    move("length", -1, "caches kv", f"{DRAFTS} and ends_with_kv", BOTH),
    move("to_slot", 1, "kv rectangle"),
    move("to_slot", -1, "kv rectangle", f"{TARGETS} and to_slot > 0"),
    move("from_slot", 1, "kv rectangle"),
    move("from_slot", -1, "kv rectangle", f"{TARGETS} and from_slot > 0"),
    move("to_slot", 1, "kv caches", DRAFTS, BOTH),
    move("from_slot", 1, "kv caches", DRAFTS, BOTH),
    move("to_row", 1, "kv rectangle"),
    move("from_row", 1, "kv rectangle"),
    move("round", 1, "kv rectangle", f"{TARGETS} and rounds_left > 0"),
    Mutation("moves lost (target)", lost_move, ("kv",), entries("moves", TARGETS), MOVING),
    Mutation("moves lost (draft)", lost_move, ("caches", "kv"), entries("moves", DRAFTS), BOTH),
    Mutation(
        "moves.model the other", of_the_other_model, ("kv", "rectangle"),
        entries("moves", TARGETS), MOVING,
    ),
    Mutation(
        "moves.phase early", early, ("kv", "rectangle"),
        entries("moves", f"{TARGETS} and phase == {SYNCHRONISE}"), "a strategy that realigns",
    ),
)  # fmt: skip
POOLED = "a strategy with a pool"


def pooled(column: str, by: int, query: str, needs: str = POOLED) -> Mutation:
    """Return the mutation of a column of `pool` by a number."""
    change = shifted("pool", column, by)
    name = f"pool.{column} {by:+d} ({query})"
    return Mutation(name, change, ("schedule",), entries("pool", query), needs)


def other_member(trace: Trace, entry: int) -> Trace:
    """Put a request into the pool that is in it already."""
    pool = trace.pool
    same = np.flatnonzero(pool["round"] == pool["round"][entry])
    other = next(at for at in same if at != entry)
    return edited(trace, "pool", entry, request=pool["request"][other])


def has_other_member(trace: Trace) -> np.ndarray:
    number = trace.pool["round"]
    return np.bincount(number)[number] > 1 if number.size else np.zeros(0, bool)


def absent(trace: Trace, entry: int) -> Trace:
    return without(trace, "pool", entry)


POOL = (
    pooled("length", 1, "chosen == 0"),
    pooled("length", 1, "chosen == 1"),
    pooled("length", -1, "chosen == 0 and length > 1"),
    pooled("waited", 1, "chosen == 0"),
    pooled("waited", 1, "chosen == 1"),
    pooled("waited", -1, "waited > 0", "a pool in which rows wait"),
    pooled("chosen", 1, "chosen == 0"),
    pooled("chosen", -1, "chosen == 1"),
    pooled("row", 1, "chosen == 0"),
    pooled("row", 1, "chosen == 1"),
    Mutation("pool.request another", other_member, ("schedule",), has_other_member, POOLED),
    Mutation(
        "pool lost (chosen)", absent, ("schedule",), entries("pool", "chosen == 1"), POOLED
    ),
    Mutation(
        "pool lost (waiting)", absent, ("schedule",), entries("pool", "chosen == 0"), POOLED
    ),
)  # fmt: skip


def other_decision(name: str) -> Callable[[Trace, int], Trace]:
    def change(trace: Trace, entry: int) -> Trace:
        return edited(trace, "rounds", entry, decision=trace.meta["decisions"].index(name))

    return change


def decided(*names: str, equal: bool | None = None) -> Callable[[Trace], np.ndarray]:
    """Return the mask of the rounds that were decided so, by rows of equal length or not."""

    def where(trace: Trace) -> np.ndarray:
        options = trace.meta["strategy_options"]
        decisions = np.array(trace.meta["decisions"])[trace.rounds["decision"]]
        if not trace.pool["round"].size or options.get("group_by") == "padded":
            return np.zeros(decisions.size, bool)
        rows = trace.rows
        same = []
        for number in range(trace.num_rounds):
            same.append(len(set(rows["length"][rows["round"] == number].tolist())) == 1)
        fits = np.array(same) == equal if equal is not None else np.ones(len(same), bool)
        return np.isin(decisions, names) & fits

    return where


NAMED = "a pool of rows that are grouped by their lengths"
ROUNDS = (
    Mutation(
        "rounds.decision grouped", other_decision("grouped"), ("schedule",),
        decided("realigned", "overdue", "partial", equal=False), NAMED,
    ),
    Mutation(
        "rounds.decision realigned", other_decision("realigned"), ("schedule",),
        decided("grouped"), NAMED,
    ),
    Mutation(
        "rounds.decision partial", other_decision("partial"), ("schedule",),
        decided("grouped"), NAMED,
    ),
    Mutation(
        "rounds.decision overdue", other_decision("overdue"), ("schedule",),
        lambda trace: decided("grouped", "partial")(trace)
        & ("max_wait" in trace.meta["strategy_options"]), NAMED,
    ),
    Mutation(
        "rounds.slots -1", shifted("rounds", "slots", -1), ("rectangle",),
        is_seen_to_the_end, "a round whose last slot a query sees",
    ),
)  # fmt: skip


def header(name: str, rules: str, applies: Any, needs: str, **values: Any) -> Mutation:
    """Return the mutation of the header that sets these values, or what they make of it."""

    def change(trace: Trace, entry: int) -> Trace:
        made = {key: v(trace) if callable(v) else v for key, v in values.items()}
        return headed(trace, **made)

    def where(trace: Trace) -> np.ndarray:
        return np.array([bool(applies(trace))])

    return Mutation(name, change, tuple(rules.split()), where, needs)


def sampled(coupling: str) -> Callable[[Trace], bool]:
    def applies(trace: Trace) -> bool:
        return bool(trace.meta["sampling"]) and trace.meta["sampling"]["coupling"] == coupling

    return applies


def sampling(**values: Any) -> Callable[[Trace], dict[str, Any]]:
    def change(trace: Trace) -> dict[str, Any]:
        return trace.meta["sampling"] | values

    return change


def statuses(old: str, new: str) -> Callable[[Trace], list[str]]:
    """Return what names the first request of the status `old` another one."""

    def change(trace: Trace) -> list[str]:
        found = list(trace.meta["status"])
        found[found.index(old)] = new
        return found

    return change


def status(old: str, new: str, rules: str) -> Mutation:
    def applies(trace: Trace) -> bool:
        return old in trace.meta["status"]

    name = f"meta.status {old} is {new}"
    change = statuses(old, new)
    return header(name, rules, applies, f"a request that ends with {old}", status=change)


def always(trace: Trace) -> bool:
    return True


def is_ragged(trace: Trace) -> bool:
    rows = trace.rows
    ends = zip(rows["round"].tolist(), rows["pending"].tolist(), strict=True)
    return len(set(ends)) > trace.num_rounds


def uses_eos(trace: Trace) -> bool:
    return "eos" in trace.meta["status"]


def inner_token(trace: Trace) -> list[int]:
    """Return the EOS ids and a token from within an output."""
    output = max((trace.output(request) for request in range(trace.num_requests)), key=len)
    return [*trace.meta["eos_token_ids"], output[2]]


def swapped_decisions(trace: Trace) -> list[str]:
    return list(reversed(trace.meta["decisions"]))


HEADER = (
    status("eos", "budget", "budget"),
    status("eos", "interrupted", "budget"),
    status("eos", "not_finite", "budget"),
    status("budget", "eos", "eos"),
    status("budget", "interrupted", "budget"),
    status("budget", "not_finite", "budget"),
    header(
        "meta.status one short", "budget", always, "a run",
        status=lambda trace: trace.meta["status"][:-1],
    ),
    header("meta.eos_token_ids none", "budget", uses_eos, "a request at EOS", eos_token_ids=[]),
    header("meta.eos_token_ids one more", "eos", always, "a run", eos_token_ids=inner_token),
    header("meta.seed another", "acceptance bonus", sampled("gumbel"), "gumbel", seed=1),
    header("meta.seed another (coins)", "acceptance", sampled("rejection"), "rejection", seed=1),
    header(
        "meta.sampling hotter", "acceptance bonus", sampled("gumbel"), "gumbel",
        sampling=sampling(temperature=9.0),
    ),
    header(
        "meta.sampling colder", "acceptance bonus", sampled("gumbel"), "gumbel",
        sampling=sampling(temperature=0.05),
    ),
    header(
        "meta.sampling top_k 1", "acceptance bonus", sampled("gumbel"), "gumbel",
        sampling=sampling(top_k=1),
    ),
    header(
        "meta.sampling none", "acceptance bonus", sampled("gumbel"), "gumbel", sampling=None,
    ),
    header(
        "meta.sampling none (coins)", "acceptance bonus", sampled("rejection"), "rejection",
        sampling=None,
    ),
    header("meta.right_aligned true", "rectangle", is_ragged, "ragged rows", right_aligned=True),
    header("meta.batch_size 1", "schedule", always, "a run", batch_size=1),
    header("meta.vocabulary_size 9", "scores", always, "a run", vocabulary_size=9),
    header(
        "meta.decisions reversed", "schedule",
        lambda trace: decided("grouped", "realigned", "partial")(trace).any(), NAMED,
        decisions=swapped_decisions,
    ),
    header(
        "meta.drafter_options another", "drafts",
        lambda trace: trace.meta["drafter"] == "lookup", "prompt lookup",
        drafter_options={"max_ngram": 3, "min_ngram": 3},
    ),
)  # fmt: skip
MUTATIONS = (*MOVES, *POOL, *ROUNDS, *HEADER)
