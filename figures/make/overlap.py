"""What two lanes gain, at equal rows in flight and on equal devices.

Beside it stands the protocol of MineDraft's paper, which gives two lanes twice the rows of the
single one, and one device more. Run it with `chrt -r 5`: the lanes then keep their cores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import Kept, Measured, command, measured_on

import specviz as sv
from specviz.engine.lanes import alternate
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.generation.lanes import run_lanes
from specviz.metrics import bubble_share
from specviz.record.schema import PHASES, Array
from specviz.simulation import Acceptance, Costs, Policy, Workload, compare

DRAFTING = PHASES.index("draft") + 1  # phases up to the drafts; the others verify
Results = Mapping[str, Sequence[sv.Result]]


def overlap(
    batch_sizes: Sequence[int], compile: bool, limit: int = 32, repetitions: int = 3
) -> Measured:
    """Decode in one lane and in two, in turns, after a repetition to warm up. One entry for each B.

    Medians over steady rounds: draft_ms and verify_ms of a lane when the lanes take turns;
    ideal_ms, the larger one; step_ms, from one verification to the next one of the other lane;
    efficiency, ideal_ms / step_ms; one_lane_ms, a round of one lane with B rows; predicted_gain,
    one_lane_ms / (2 ideal_ms). Over repetitions: bubble_share of both lanes' time; gain over one
    lane with B rows on all threads; published_gain over one lane with B / 2 rows on half of the
    threads, the paper's protocol; p50 and p99 in seconds from the start to a request's end.
    simulated_gain is at the costs of recorded runs, on devices that do not disturb each other.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    run = {"strategy": "inplace", "num_draft_tokens": 5, "max_new_tokens": 64, "compile": compile}
    about = measured_on(pair, **run, prompts=limit, repetitions=repetitions)
    kept = Kept("overlap", about)
    at_size = partial(measure, pair, prompts, run, repetitions)
    entries = [{"batch_size": b, **kept.get(b, partial(at_size, b))} for b in batch_sizes]
    kept.done()
    return pd.DataFrame(entries), about


def measure(
    pair: sv.Pair, prompts: Sequence[str], run: Mapping[str, Any], repetitions: int, size: int
) -> dict[str, float]:
    """Measure all ways at one B, a run of each in every repetition."""
    decode = partial(sv.generate, pair, prompts, progress=False, **run)
    threads = torch.get_num_threads()  # not the number that a run chooses: devices are equal
    half = max(1, threads // 2)

    def in_turns() -> sv.Result:
        """Decode in two lanes of which none runs while the other does."""
        options = Options(batch_size=size, lanes=2, num_threads=half, **run)
        made = make_run(pair, prompts, options)
        quiet = {"record": False, "partial": False, "progress": False}
        return run_lanes(made, turn=alternate(), **quiet)

    ways: dict[str, Callable[[], sv.Result]] = {
        "two": partial(decode, batch_size=size, lanes=2),
        "one": partial(decode, batch_size=size, num_threads=threads),
        "turns": in_turns,
        "half": partial(decode, batch_size=size // 2, num_threads=half),
    }
    results: dict[str, list[sv.Result]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            result = way()
            if repetition:  # the first one warms up
                results[name].append(result)
    traces = [decode(batch_size=each, record=True).trace for each in (size, size // 2)]
    return {**times(results), **gains(results), "simulated_gain": simulated(traces, size)}


def times(results: Results) -> dict[str, float]:
    """Return the milliseconds of steady rounds, and what follows from them."""
    apart = np.concatenate([sides(lane) for each in results["turns"] for lane in each.lanes])
    draft_ms, verify_ms = np.median(apart, 0)
    ideal_ms = max(draft_ms, verify_ms)
    step_ms = np.median(np.concatenate([steps(each) for each in results["two"]]))
    one_lane_ms = np.median(np.concatenate([sides(each).sum(1) for each in results["one"]]))
    found = {"draft_ms": draft_ms, "verify_ms": verify_ms, "ideal_ms": ideal_ms}
    found |= {"step_ms": step_ms, "efficiency": ideal_ms / step_ms, "one_lane_ms": one_lane_ms}
    return found | {"predicted_gain": one_lane_ms / (2 * ideal_ms)}


def steady(lane: sv.Result) -> Array:
    """Return the rounds of one lane that are full and that no prompt enters, or else all."""
    _, first = np.unique(lane.rows["request"], return_index=True)
    batch = lane.rounds["batch"]
    entered = np.zeros(len(batch), bool)
    entered[lane.rows["round"][first]] = True
    found = (batch == batch.max(initial=0)) & ~entered
    return np.flatnonzero(found) if found.any() else np.arange(len(batch))


def sides(lane: sv.Result) -> Array:
    """Return the ms of drafting and of verifying in each steady round of a lane, (n, 2)."""
    spans = lane.spans_ms[steady(lane)]
    phases = spans[..., 1] - spans[..., 0]  # (n, 5)
    return np.stack([phases[:, :DRAFTING].sum(1), phases[:, DRAFTING:].sum(1)], 1)


def steps(result: sv.Result) -> Array:
    """Return the ms between verifications that follow each other, where both are steady."""
    parts = []
    for number, lane in enumerate(result.lanes):
        part = pd.DataFrame({"begin": lane.spans_ms[:, DRAFTING, 0], "lane": number})
        parts.append(part.assign(steady=part.index.isin(steady(lane))))
    order = pd.concat(parts).sort_values("begin")
    both = order["steady"] & order["steady"].shift(fill_value=False)
    alternates = order["lane"] != order["lane"].shift()
    found = order["begin"].diff()[both & alternates].to_numpy()
    return found if len(found) else order["begin"].diff().dropna().to_numpy()


def gains(results: Results) -> dict[str, float]:
    """Return speeds and latencies, and their ratios repetition by repetition."""
    speeds = {}
    for name, runs in results.items():
        tokens = [sum(map(len, each.tokens)) / each.elapsed_ms * 1e3 for each in runs]
        speeds[name] = np.array(tokens)
    ratios = speeds["two"] / speeds["one"]
    entry = {
        "bubble_share": np.median([bubble_share(each.timeline) for each in results["two"]]),
        "tokens_per_s": np.median(speeds["two"]),
        "gain": np.median(ratios),
        "gain_low": ratios.min(),
        "gain_high": ratios.max(),
        "published_gain": np.median(speeds["two"] / speeds["half"]),
    }
    for name in ("two", "one", "half"):
        latencies = np.concatenate([latency_s(each) for each in results[name]])
        entry |= {f"{name}_p{each}_s": np.percentile(latencies, each) for each in (50, 99)}
    return entry


def latency_s(result: sv.Result) -> Array:
    """Return the seconds from the run's start to the last token of each request, unordered."""
    parts = result.lanes or (result,)
    begin = min(float(part.spans_ms.min()) for part in parts if part.spans_ms.size)
    ends = []
    for part in parts:
        last = part.rows["round"][part.rows["finished"] == 1]
        ends.append(part.spans_ms[last, PHASES.index("accept"), 1] - begin)
    return np.concatenate(ends) / 1e3


def simulated(traces: Sequence[sv.Trace], size: int) -> float:
    """Return the gain in tokens a second of a simulated queue at the costs of recorded runs."""
    costs = Costs.measured(traces)
    lengths = np.diff(traces[0].requests["prompt_offsets"]).tolist()
    workload = Workload.drawn(256, lengths, 64, Acceptance.measured(traces[:1]), replicas=4)
    policies = [Policy("inplace", size, 5, overlap=overlap) for overlap in (False, True)]
    return float(compare(workload, policies, costs)["ratio"][1])


TABLES = {
    "overlap": {"batch_sizes": (4, 8, 16, 32), "compile": False},
    "overlap-compiled": {"batch_sizes": (16,), "compile": True},
}

if __name__ == "__main__":
    command(overlap, TABLES, {"batch_sizes": (2,), "compile": False, "limit": 4, "repetitions": 1})
