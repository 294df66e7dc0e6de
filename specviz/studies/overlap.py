"""`specviz study overlap`: what two lanes gain, at equal rows in flight and on equal devices.

Beside it stands the protocol of MineDraft's paper, which gives two lanes twice the rows of the
single one, and one device more.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from specviz.engine.lanes.turns import Alternate
from specviz.engine.lanes.workers import can_overlap
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import check_pair, make_run
from specviz.generation.generate import generate
from specviz.generation.lanes import collect_lanes, make_lanes_result
from specviz.generation.result import Result
from specviz.generation.timeline import bubble_share
from specviz.record.schema import PHASES, Array
from specviz.simulation import Acceptance, Costs, Policy, Workload, simulate
from specviz.studies.resume import kept_entries, prompts_digest
from specviz.util.files import check_writable, conditions, save_measured
from specviz.util.validate import require_bool, require_int, require_ints, require_path, short

_DRAFTING = PHASES.index("draft") + 1  # phases up to the drafts; the others verify
# Percentiles of latencies.
LATENCIES = (50, 99)
# Requests of the simulation, and the replicas that they are spread over.
SIMULATED = (256, 4)


def measure_overlap(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int] = (4, 8, 16, 32),
    path: str | Path | None = None,
    *,
    strategy: str = "inplace",
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    repetitions: int = 5,
    compile: bool = False,
    fresh: bool = False,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Decode `prompts` in one lane and in two, in turns, after one repetition that warms up.

    Args:
        batch_sizes: rows in flight, even numbers.
        path: CSV file that the entry of each B is added to once it is complete. Entries that it
            holds already, measured under the same conditions, are not measured again.
        compile: as for `generate`, in all ways; a lane then computes without Python's lock.
        fresh: discard what the file holds.

    Returns:
        (table, conditions). One entry per B. Medians over steady rounds, in which no prompt enters
        and every lane is full: `draft_ms` and `verify_ms` of a lane, all phases of its side, when
        the lanes take turns; `ideal_ms`, the larger of the two; `step_ms`, from one verification
        to the next one of the other lane; `efficiency`, ideal_ms / step_ms; `one_lane_ms`, a round
        of one lane with B rows; `predicted_gain`, one_lane_ms / (2 ideal_ms). Medians over
        repetitions: `bubble_share`, of both lanes' time; `tokens_per_s` in two lanes; `gain` over
        one lane with B rows on all threads of the same machine, with its range (gain_low,
        gain_high); `published_gain` over one lane with B / 2 rows on half of the threads, which is
        the paper's protocol; p50 and p99 in seconds from the start to a request's end, in two
        lanes, in one and in one with B / 2 rows. `simulated_gain` is that of
        `Policy(overlap=True)` at the costs of recorded runs, on devices that do not disturb each
        other.

    Raises:
        ValueError: an argument cannot be used, the file holds results under other conditions, or
            lanes cannot run at the same time here.
    """
    check_pair(pair)
    require_ints("batch_sizes", batch_sizes)
    require_int("repetitions", repetitions)
    require_bool("compile", compile)
    require_bool("fresh", fresh)
    require_bool("progress", progress)
    _check(pair, prompts, batch_sizes, strategy, num_draft_tokens, max_new_tokens)
    place = None if path is None else require_path("path", path)
    if place is not None:
        check_writable(place)
    settings: dict[str, Any] = {
        "strategy": strategy,
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "compile": compile,
    }
    meta = generate(pair, prompts[:1], max_new_tokens=1, progress=False).meta
    asked = {
        **settings,
        "prompts": len(prompts),
        "prompts_digest": prompts_digest(pair, prompts),
        "repetitions": repetitions,
    }
    found = conditions(meta, **asked, threads=torch.get_num_threads())
    entries = kept_entries(place, found, fresh=fresh)
    done = {entry["batch_size"] for entry in entries}
    missing = [size for size in batch_sizes if size not in done]
    for size in tqdm(missing, desc="overlap", unit="B", disable=not progress):
        entries.append(_entry(pair, prompts, size, settings, repetitions))
        entries.sort(key=lambda entry: entry["batch_size"])
        if place is not None:
            save_measured(pd.DataFrame(entries), found, place)
    return pd.DataFrame(entries), found


def _check(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int],
    strategy: str,
    num_draft_tokens: int,
    max_new_tokens: int,
) -> None:
    require_int("max_new_tokens", max_new_tokens)
    make_requests(pair, prompts, max_new_tokens, require_int("num_draft_tokens", num_draft_tokens))
    for size in batch_sizes:
        Options(strategy=strategy, batch_size=size, lanes=2)
        Policy(strategy, size, num_draft_tokens, overlap=True)
    if max(batch_sizes) > len(prompts):
        raise ValueError(
            f"batch_sizes must be at most {len(prompts)}, the number of prompts, got "
            f"{max(batch_sizes)}; pass more prompts, or smaller sizes"
        )
    if not can_overlap(pair):
        raise ValueError(
            f"pair.device must run two lanes at the same time, got {short(str(pair.device))}; use "
            "CUDA, or a CPU with two cores or more"
        )


def _entry(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_size: int,
    settings: Mapping[str, Any],
    repetitions: int,
) -> dict[str, Any]:
    """Measure all ways at one B, a run of each in every repetition."""
    run = partial(generate, pair, prompts, progress=False, **settings)
    threads = torch.get_num_threads()  # not the number that a run chooses: devices are equal
    half = max(1, threads // 2)
    ways: dict[str, Callable[[], Result]] = {
        "two": partial(run, batch_size=batch_size, lanes=2),
        "one": partial(run, batch_size=batch_size, num_threads=threads),
        "turns": partial(_in_turns, pair, prompts, batch_size, settings),
        "half": partial(run, batch_size=batch_size // 2, num_threads=half),
    }
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            result = way()
            if repetition:  # the first one warms up
                results[name].append(result)
    entry: dict[str, Any] = {"batch_size": batch_size, **_times(results, batch_size)}
    entry |= _gains(results)
    traces = [run(batch_size=size, record=True).trace for size in (batch_size, batch_size // 2)]
    return entry | {"simulated_gain": _simulated(traces, batch_size, settings)}


def _in_turns(
    pair: Pair, prompts: Sequence[Prompt], batch_size: int, settings: Mapping[str, Any]
) -> Result:
    """Decode in two lanes of which none runs while the other does."""
    threads = max(1, torch.get_num_threads() // 2)
    options = Options(batch_size=batch_size, lanes=2, num_threads=threads, **settings)
    run = make_run(pair, prompts, options)
    found = collect_lanes(run, record=False, partial=False, progress=False, turn=Alternate())
    return make_lanes_result(run, found)


def _times(results: Mapping[str, Sequence[Result]], batch_size: int) -> dict[str, float]:
    """Return the milliseconds of steady rounds, and what follows from them."""
    sides = np.concatenate([_sides(lane) for each in results["turns"] for lane in each.lanes])
    draft_ms, verify_ms = np.median(sides, 0)
    alone = np.concatenate([_sides(each) for each in results["one"]])
    one_lane_ms = float(np.median(alone.sum(1)))
    step_ms = float(np.median(np.concatenate([_steps(each) for each in results["two"]])))
    ideal_ms = max(draft_ms, verify_ms)
    return {
        "draft_ms": float(draft_ms),
        "verify_ms": float(verify_ms),
        "ideal_ms": float(ideal_ms),
        "step_ms": step_ms,
        "efficiency": float(ideal_ms / step_ms),
        "one_lane_ms": one_lane_ms,
        "predicted_gain": float(one_lane_ms / (2 * ideal_ms)),
    }


def _steady(lane: Result) -> Array:
    """Return the rounds of one lane that are full and that no prompt enters."""
    _, first = np.unique(lane.rows["request"], return_index=True)
    entered = np.zeros(len(lane.rounds["batch"]), bool)
    entered[lane.rows["round"][first]] = True
    batch = lane.rounds["batch"]
    steady = (batch == batch.max(initial=0)) & ~entered
    # A short run may have none; then all rounds have to do.
    return np.flatnonzero(steady) if steady.any() else np.arange(len(batch))


def _sides(lane: Result) -> Array:
    """Return the ms of drafting and of verifying in each steady round of a lane, (n, 2)."""
    spans = lane.spans_ms[_steady(lane)]
    phases = spans[..., 1] - spans[..., 0]  # (n, 5)
    return np.stack([phases[:, :_DRAFTING].sum(1), phases[:, _DRAFTING:].sum(1)], 1)


def _steps(result: Result) -> Array:
    """Return the ms between verifications that follow each other, where both are steady."""
    parts = []
    for number, lane in enumerate(result.lanes):
        steady = np.zeros(len(lane.spans_ms), bool)
        steady[_steady(lane)] = True
        begins = lane.spans_ms[:, _DRAFTING, 0]
        parts.append(pd.DataFrame({"begin": begins, "lane": number, "steady": steady}))
    order = pd.concat(parts).sort_values("begin")
    both = order["steady"] & order["steady"].shift(fill_value=False)
    alternates = order["lane"] != order["lane"].shift()
    steps: Array = order["begin"].diff()[both & alternates].to_numpy()
    return steps if len(steps) else order["begin"].diff().dropna().to_numpy()


def _gains(results: Mapping[str, Sequence[Result]]) -> dict[str, float]:
    """Return speeds and latencies, and their ratios repetition by repetition."""
    speeds = {name: np.array([_speed(each) for each in runs]) for name, runs in results.items()}
    gains = speeds["two"] / speeds["one"]
    shares = [bubble_share(each.timeline) for each in results["two"]]
    entry = {
        "bubble_share": float(np.median(shares)),
        "tokens_per_s": float(np.median(speeds["two"])),
        "gain": float(np.median(gains)),
        "gain_low": float(gains.min()),
        "gain_high": float(gains.max()),
        "published_gain": float(np.median(speeds["two"] / speeds["half"])),
    }
    for name in ("two", "one", "half"):
        latencies = np.concatenate([latency_s(each) for each in results[name]])
        for percentile, value in zip(LATENCIES, np.percentile(latencies, LATENCIES), strict=True):
            entry[f"{name}_p{percentile}_s"] = float(value)
    return entry


def _speed(result: Result) -> float:
    return sum(map(len, result.tokens)) / result.elapsed_ms * 1e3


def latency_s(result: Result) -> Array:
    """Return the seconds from the run's first phase to the last token of each request, unordered.

    Raises:
        ValueError: `result` is not a Result.
    """
    if not isinstance(result, Result):
        raise ValueError(f"result must be a Result, got {short(result)}; pass that of generate")
    parts = result.lanes or (result,)
    begin = min(float(part.spans_ms.min()) for part in parts if part.spans_ms.size)
    ends = []
    for part in parts:
        last = part.rows["round"][part.rows["finished"] == 1]
        ends.append(part.spans_ms[last, PHASES.index("accept"), 1] - begin)
    latencies: Array = np.concatenate(ends) / 1e3
    return latencies


def _simulated(traces: Sequence[Any], batch_size: int, settings: Mapping[str, Any]) -> float:
    """Return the gain in tokens a second of a simulated queue at the costs of recorded runs."""
    costs = Costs.measured(traces)
    lengths = np.diff(traces[0].requests["prompt_offsets"]).tolist()
    requests, replicas = SIMULATED
    workload = Workload.drawn(
        requests,
        lengths,
        settings["max_new_tokens"],
        Acceptance.measured(traces[:1]),
        replicas=replicas,
    )
    speeds = []
    for overlap in (True, False):
        policy = Policy(
            settings["strategy"], batch_size, settings["num_draft_tokens"], overlap=overlap
        )
        found = simulate(workload, policy, costs).summary()
        speeds.append(found["tokens_per_s"].iloc[0])
    return float(speeds[0] / speeds[1])
