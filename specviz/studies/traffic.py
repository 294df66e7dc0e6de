"""What another policy would have given on a server's traffic: `specviz study traffic`.

It replays the statistics that the server gave with each request, without a model.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import pandas as pd
from tqdm.auto import tqdm

from specviz.costs.roofline import Roofline
from specviz.servers.log import ServerLog
from specviz.servers.traffic import (
    Bounds,
    acceptance_tables,
    measured_acceptance,
    missing_drafts,
)
from specviz.simulation.costs import Costs
from specviz.simulation.policy import MAX_WINDOW, Policy
from specviz.simulation.serving import simulate
from specviz.simulation.tables import MAX_DEPTH
from specviz.simulation.workload import Workload
from specviz.util.validate import (
    require_bool,
    require_choice,
    require_int,
    require_ints,
    require_kind,
    require_list,
)

REPLAYED = ("inplace", "eqspec", "exspec")
POOL = 4  # batches that the window of exspec holds
MAX_ROWS = MAX_WINDOW // POOL
UNIT = Costs(verify=1.0)  # a round takes a second: what is counted are rounds


def replay_traffic(
    log: ServerLog,
    batch_sizes: Sequence[int] = (1, 8, 32),
    num_draft_tokens: Sequence[int] = (1, 2, 3, 4, 5),
    strategies: Sequence[str] = REPLAYED,
    *,
    roofline: Roofline | None = None,
    seed: int = 0,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Replay a log's requests, all at once, under each policy.

    Args:
        log: of `specviz.servers.read_log`.
        batch_sizes, num_draft_tokens, strategies: B, K and the policies. A K beyond the log's own
            is left out.
        roofline: a device and a pair, for times; None: only rounds are counted.
        seed: of what is drawn where the log has no order of rounds.

    Returns:
        (table, conditions). There is one entry for each B and policy, the first of each B without
        speculation: tokens_per_round, of a row, and rounds, of the batch; with `roofline` also
        tokens_per_s and speedup over no speculation. Each has a low and a high end, between which
        the truth lies; see `specviz.servers.traffic`.

    Raises:
        ValueError: an argument is out of range, or every K is beyond the log's.
    """
    require_kind("log", log, ServerLog, "read one with specviz.servers.read_log")
    require_ints("batch_sizes", batch_sizes, maximum=MAX_ROWS)
    require_ints("num_draft_tokens", num_draft_tokens, maximum=MAX_DEPTH)
    require_list("strategies", strategies)
    for name in strategies:
        require_choice("strategies", name, REPLAYED)
    if roofline is not None:
        require_kind("roofline", roofline, Roofline, "make one with Roofline(...)")
    require_int("seed", seed, 0)
    require_bool("progress", progress)
    work, bounds = _workloads(log, seed)
    deepest = max(request.num_draft_tokens for request in log.requests)
    drafts = [drafted for drafted in num_draft_tokens if drafted <= deepest]
    if not drafts:
        raise ValueError(
            f"num_draft_tokens must have a K that the log drafted, at most {deepest}, got "
            f"{list(num_draft_tokens)}; pass a smaller one"
        )
    costs = {K: UNIT if roofline is None else _costs(roofline, K) for K in (0, *drafts)}
    entries: list[dict[str, object]] = []
    policies = _policies(batch_sizes, drafts, strategies)
    for policy in tqdm(policies, unit="policy", disable=not progress):
        entries.append(_entry(work, policy, costs[policy.drafted], roofline is not None))
    table = pd.DataFrame(entries)
    if roofline is not None:
        _add_speedups(table)
    return table, _conditions(log, bounds, roofline)


def _policies(
    batch_sizes: Sequence[int], drafts: Sequence[int], strategies: Sequence[str]
) -> list[Policy]:
    policies = []
    for B in batch_sizes:
        policies.append(Policy("autoregressive", B))
        for name in strategies:
            window = POOL * B if name == "exspec" else Policy.window
            policies += [Policy(name, B, K, window=window) for K in drafts]
    return policies


def unanswered(log: ServerLog, deepest: int) -> list[str]:
    """Return what a log of this kind cannot say, as sentences. `deepest` is the largest K asked."""
    require_kind("log", log, ServerLog, "read one with specviz.servers.read_log")
    require_int("deepest", deepest)
    drafted = max(request.num_draft_tokens for request in log.requests)
    found = [
        "TETRIS and other selectors by q: the log has no q.",
        "When requests arrived, and which shared a batch: all are served at once.",
        "Sampled texts: with a temperature, whether a draft is accepted is random.",
        "K other than the server's, where a fresh draft does not continue an old one, as with "
        "EAGLE and MTP: there it is an estimate.",
    ]
    if deepest > drafted:
        found.append(f"K above {drafted}: so many drafts were never made.")
    if any(request.accepted is not None for request in log.requests):
        found.append("What a round would have accepted beyond its own drafts: hence low and high.")
    else:
        found.append("The order of rounds: each round is drawn from its request's histogram.")
    if missing_drafts(log) > 0:
        found.append(
            f"{missing_drafts(log):.1%} of the drafts that K allows were not made; a histogram "
            "cannot tell them from rejected ones."
        )
    if any(request.prompt_tokens is None for request in log.requests):
        found.append("Times, where requests do not say how long their prompts were.")
    return found


def _workloads(log: ServerLog, seed: int) -> tuple[list[Workload], Bounds | None]:
    """Return the workloads of the low and the high end, and the bounds if rounds have an order."""
    if any(request.accepted is not None for request in log.requests):
        bounds = acceptance_tables(log)
        return [bounds.low.workload(), bounds.high.workload()], bounds
    prompts = [request.prompt_tokens or 1 for request in log.requests]
    outputs = []
    for request in log.requests:
        gained = sum(count * (n + 1) for n, count in enumerate(request.histogram))
        outputs.append(max(1, gained if request.new_tokens is None else request.new_tokens - 1))
    drawn = Workload.given(prompts, outputs, measured_acceptance(log), seed=seed)
    return [drawn, drawn], None


def _costs(roofline: Roofline, num_draft_tokens: int) -> Costs:
    return Costs(**roofline.simulated(num_draft_tokens))


def _entry(work: list[Workload], policy: Policy, costs: Costs, timed: bool) -> dict[str, object]:
    entry: dict[str, object] = {
        "policy": policy.strategy,
        "batch_size": policy.batch_size,
        "num_draft_tokens": policy.drafted,
    }
    ends: dict[str, list[float]] = {"tokens_per_round": [], "rounds": [], "tokens_per_s": []}
    for workload in work:
        found = simulate(workload, policy, costs)
        summary = found.summary().iloc[0]
        ends["tokens_per_round"].append(float(summary["new_tokens"] / found.own_rounds.sum()))
        ends["rounds"].append(int(summary["rounds"]))
        ends["tokens_per_s"].append(float(summary["tokens_per_s"]))
    if not timed:
        del ends["tokens_per_s"]
    for name, values in ends.items():
        entry |= {f"{name}_low": min(values), f"{name}_high": max(values)}
    return entry


def _add_speedups(table: pd.DataFrame) -> None:
    plain = table[table["policy"] == "autoregressive"].set_index("batch_size")
    for end in ("low", "high"):
        # Without speculation both ends are equal.
        base = table["batch_size"].map(plain[f"tokens_per_s_{end}"])
        table[f"speedup_{end}"] = table[f"tokens_per_s_{end}"] / base


def _conditions(
    log: ServerLog, bounds: Bounds | None, roofline: Roofline | None
) -> dict[str, object]:
    found: dict[str, object] = {"requests": len(log.requests), "lines_without": log.without}
    if bounds is not None:
        found |= {"left_out": bounds.left_out, "known_positions": round(bounds.known, 4)}
    if roofline is not None:
        found |= {"device": roofline.ceilings.device, "dtype": roofline.dtype}
    found["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    found["versions"] = {name: version(name) for name in ("specviz", "numpy")}
    return found
