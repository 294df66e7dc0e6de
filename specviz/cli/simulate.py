"""`specviz simulate`: the schedulers on many requests, without a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.cli.shared import NOWHERE, Device, print_conditions, print_table, print_written
from specviz.costs.roofline import Roofline
from specviz.engine.names import parse
from specviz.record.trace import Trace
from specviz.servers.log import read_log
from specviz.servers.traffic import replay_traffic
from specviz.servers.traffic import unanswered as unanswered_by
from specviz.simulation import Acceptance, Policy, Workload, compare, size_cluster
from specviz.simulation.comparisons import TooSlowError
from specviz.simulation.inputs import Inputs
from specviz.simulation.tables import MAX_DEPTH
from specviz.util.files import check_writable, is_file, save_measured
from specviz.util.validate import quoted_path, require_int, require_ints, require_positive

POLICIES = (
    "autoregressive", "eqspec:refill=false", "eqspec", "exspec", "exspec:fallback=partial",
    "exspec:fallback=wait", "inplace",
)  # fmt: skip
DRAFT_TOKENS = 5
MAX_REQUESTS = 1_000_000  # which take minutes, and gigabytes
MAX_ROWS = 4096
MAX_TOKENS = 2**24  # of a prompt, or of an answer
# The columns of a wide table that fit on a screen.
SHOWN = (
    "policy", "batch_size", "num_draft_tokens", "devices", "load", "rounds", "tokens_per_s",
    "ratio", "latency_s", "latency_p50_s", "latency_p99_s", "waiting_mean_s", "grouping_rate",
    "mean_rows", "busy_share", "note",
)  # fmt: skip


def simulate(
    *,
    runs: tuple[Path, ...] = (),
    log: Path | None = None,
    device: Device = NOWHERE,
    policies: tuple[str, ...] = POLICIES,
    batch_sizes: tuple[int, ...] = (8,),
    num_draft_tokens: tuple[int, ...] = (),
    requests: int = 1_000,
    alpha: tuple[float, ...] = (),
    prompt_tokens: tuple[int, ...] = (),
    max_new_tokens: int = 64,
    rate: float | None = None,
    latency: float | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare policies, size a cluster, or replay what a server logged of its own requests.

    Args:
        runs: runs saved by generate --record, for costs, acceptance and prompt lengths.
        log: instead: JSONL with statistics of each request, of vLLM, SGLang or AIPerf.
        device: instead of runs, or for the times of a log.
        policies: strategies, with options: exspec:window=64,fallback=wait. With runs,
            autoregressive needs a run of it.
        batch_sizes: each B.
        num_draft_tokens: each K (those of the runs or of the log, otherwise 5).
        requests: how many are drawn.
        alpha: probability that a draft token is accepted; several: kinds of requests.
        prompt_tokens: from N to N (the lengths in the runs).
        max_new_tokens: of each request.
        rate: requests a second, a Poisson process (all at once).
        latency: with --rate: find the devices that end 99 % of the requests in so many seconds.
        seed: of all sampling.
        out: CSV file for the table; the conditions go next to it, to .json.
    """
    check_options(dict(locals()))
    roofline = device.load()

    unanswered: list[str] = []
    drafts: Sequence[int]
    if log is not None:
        read = read_log(log)
        drafts = num_draft_tokens or range(1, read.num_draft_tokens + 1)
        chosen = named_policies(policies, batch_sizes, drafts)
        costs = None if roofline is None else roofline.phase_seconds
        table, found = replay_traffic(read, chosen, costs, seed=seed)
        if roofline is not None:
            found |= {"device": roofline.ceilings.device, "dtype": roofline.dtype}
        unanswered = unanswered_by(read, max(drafts))
        print_table(table)
    else:
        traces = [Trace.load(path) for path in runs]
        recorded = {trace.meta["num_draft_tokens"] for trace in traces}
        drafts = num_draft_tokens or sorted(recorded - {0}) or [DRAFT_TOKENS]
        if recorded and 0 not in recorded and policies == POLICIES:
            policies = POLICIES[1:]  # no run says what a step without drafts costs
        chosen = named_policies(policies, batch_sizes, drafts)
        acceptance = Acceptance.geometric(alpha, max(drafts)) if alpha else None
        inputs = inputs_of(roofline, traces, acceptance, prompt_tokens)
        lengths = inputs.prompt_tokens
        workload = Workload.drawn(
            requests, lengths, max_new_tokens, inputs.acceptance, arrivals=rate, seed=seed
        )
        if rate is not None and latency is not None:
            table = sizes(workload, chosen, inputs, rate, latency, seed)
        else:
            table = compare(workload, chosen, inputs.costs, skip=0.1 if rate else 0.0)
        found = {
            **inputs.conditions,
            "requests": requests,
            "new_tokens": max_new_tokens,
            "mean_acceptance_length": round(inputs.acceptance.mean_acceptance_length, 4),
            "prompt_tokens": f"{min(lengths)} to {max(lengths)}",
            "rate": rate,
            "seed": seed,
            **({} if latency is None else {"latency_s": latency}),
        }
        print_table(table[[name for name in SHOWN if name in table]])
    print_conditions(found)
    if unanswered:
        print("\nThis log cannot answer:")
    for sentence in unanswered:
        print(f"- {sentence}")
    if out is not None:
        print_written(save_measured(table, found, out))


def check_options(given: dict[str, Any]) -> None:
    """Raise ValueError or WriteError for options that cannot be used."""
    require_ints("batch_sizes", given["batch_sizes"], maximum=MAX_ROWS)
    require_ints("num_draft_tokens", given["num_draft_tokens"] or (1,), maximum=MAX_DEPTH)
    require_int("requests", given["requests"], maximum=MAX_REQUESTS)
    require_int("max_new_tokens", given["max_new_tokens"], maximum=MAX_TOKENS)
    require_int("seed", given["seed"], 0)
    for name in ("rate", "latency"):
        if given[name] is not None:
            require_positive(name, given[name])
    if given["latency"] is not None and given["rate"] is None:
        raise ValueError(
            f"latency={given['latency']} needs a rate; give the requests a second that have to end "
            "in it"
        )
    out, log = given["out"], given["log"]
    if out is not None:
        replaced = out.with_suffix(".json")
        check_writable(out)
        check_writable(replaced)
        if log is not None and is_file(log) and is_file(replaced) and replaced.samefile(log):
            raise ValueError(f"log={quoted_path(log)} would be replaced; name another file")


def inputs_of(
    roofline: Roofline | None,
    traces: Sequence[Trace],
    acceptance: Acceptance | None,
    prompt_tokens: Sequence[int],
) -> Inputs:
    """Return the inputs of runs or of a roofline, with what is given in place of the runs' own."""
    lengths = None
    if prompt_tokens:
        require_ints("prompt_tokens", prompt_tokens, maximum=MAX_TOKENS)
        lengths = range(min(prompt_tokens), max(prompt_tokens) + 1)
    if bool(traces) == (roofline is not None):
        raise ValueError(
            "--runs and --shapes say what a round costs; give one of them, or --log for the "
            "requests of a server"
        )
    if roofline is None:
        inputs = Inputs.of_runs(traces)
        return replace(
            inputs,
            acceptance=acceptance or inputs.acceptance,
            prompt_tokens=lengths or inputs.prompt_tokens,
        )
    if acceptance is None or lengths is None:
        raise ValueError(
            "--shapes says nothing of acceptance and prompts; give --alpha and --prompt-tokens, too"
        )
    return Inputs.of_roofline(roofline, acceptance, lengths)


def sizes(
    workload: Workload,
    policies: Sequence[Policy],
    inputs: Inputs,
    rate: float,
    latency_s: float,
    seed: int,
) -> pd.DataFrame:
    """Return how many devices each policy needs, or a note why no number of them is enough."""
    entries = []
    for policy in policies:
        entry: dict[str, object] = {"policy": policy.name, "batch_size": policy.batch_size}
        try:
            found = size_cluster(
                workload, policy, inputs.costs, rate=rate, latency_s=latency_s, seed=seed
            )
        except TooSlowError as error:
            entries.append(entry | {"note": str(error)})
            continue
        fewest = found.tried[found.tried["devices"] == found.devices].iloc[0]
        entries.append(entry | fewest.drop("enough").to_dict())
    return pd.DataFrame(entries)


def named_policies(
    policies: Sequence[str], batch_sizes: Sequence[int], num_draft_tokens: Sequence[int]
) -> list[Policy]:
    """Return each policy at each B and K; one that drafts nothing once for each B."""
    found = []
    for batch_size in batch_sizes:
        for text in policies:
            name, options = parse(text)
            given = {"window": max(Policy.window, 4 * batch_size), **options}
            for k in num_draft_tokens if name != "autoregressive" else num_draft_tokens[:1]:
                try:
                    found.append(Policy(name, batch_size, k, **given))  # type: ignore[arg-type]
                except TypeError:
                    raise ValueError(
                        f"policies names {text!r}, whose options are not simulated; "
                        "use window, fallback, max_wait, refill or overlap"
                    ) from None
    return found
