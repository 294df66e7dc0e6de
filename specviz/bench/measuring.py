"""One cell, run once: decode, time the whole call, and compare every text with decoding alone.

A speed counts only with equal texts; without them the outcome says why there is no speed. Nothing
is written to files. Cells may take turns: each is a generator that stops after every round, or
after every batch of a baseline, and its clock stops with it. `pays` is the short measurement.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from specviz.bench.cells import Cell
from specviz.bench.interleave import Steps, interleave
from specviz.checks.compare import compare
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.chains import SyntheticDrafter
from specviz.engine.kv.attention import attending, attending_plainly
from specviz.engine.models.pair import Pair
from specviz.engine.peak import PeakMeter
from specviz.engine.requests import Prompt
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.generation.generate import generate, generate_stepwise
from specviz.generation.result import Result

MB = 1e6
FEWEST_PROMPTS = 4  # of one prompt alone, the text decides
T = TypeVar("T")
Outcome = dict[str, Any]


@dataclass(frozen=True)
class SharedWork:
    """What cells that must write the same texts share.

    Attributes:
        reference: what the target writes for each prompt alone.
        memory_mb: what `warm_up` returned, for each cell that is warm.
    """

    pair: Pair
    reference: Result
    memory_mb: dict[Cell, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ClockedDrafter(SyntheticDrafter):
    """A synthetic drafter that sums in `spent` the seconds in which the target decodes ahead.

    No real drafter knows the target's tokens beforehand, so that time is not part of the method.
    It would also be most of the time that a benchmark of a large target takes, so the target
    decodes ahead only where a row has left `known`: what it writes after a prompt, greedily.
    """

    known: Mapping[tuple[int, ...], Sequence[int]] = field(
        default_factory=dict, compare=False, repr=False
    )
    spent: dict[str, float] = field(default_factory=lambda: {"s": 0.0}, compare=False, repr=False)

    def prepare(self, task: Task, state: State) -> torch.Tensor:
        synchronize(task.pair.device)
        began = time.perf_counter()
        prepared = super().prepare(task, state)
        synchronize(task.pair.device)
        self.spent["s"] += time.perf_counter() - began
        return prepared

    def _right_tokens(self, task: Task, state: State) -> np.ndarray:
        """Return the next K tokens of the known texts, or ask the target for those of all rows.

        It is asked, too, where rounding took a row off its known text, and at the end of a text.
        """
        k = state.num_draft_tokens
        following = []
        for row in state.batch.rows:
            text = list(self.known.get(row.request.prompt, ()))
            written = len(row.output)
            is_known = text[:written] == row.output and len(text) >= written + k
            if task.sampling is not None or not is_known:
                return super()._right_tokens(task, state)
            following.append(text[written : written + k])
        return np.array(following)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reference_of(pair: Pair, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Result:
    """Return what the target writes for each prompt alone. Raises ValueError as `generate`."""
    alone: dict[str, Any] = {"strategy": "autoregressive", "batch_size": 1, "progress": False}
    return generate(pair, prompts, max_new_tokens=max_new_tokens, **alone)


def measure(work: SharedWork, cell: Cell, *, recording: bool = False) -> Outcome:
    """Run the cell and return what `measure_in_turns` returns."""
    return drain(measure_in_turns(work, cell, recording=recording))


def take_turns(
    work: SharedWork, cells: Sequence[Cell], turns: int, *, recording: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """Interleave cells; yield the place and the outcome of each as it ends."""

    def turn(place: int) -> AbstractContextManager[object]:
        models = [work.pair.target, work.pair.draft]
        # Our own runs are suspended in a baseline's turn, and must not change what it measures.
        return attending(models) if cells[place].baseline is None else attending_plainly(models)

    running = [measure_in_turns(work, cell, recording=recording) for cell in cells]
    total = sum(map(len, work.reference.tokens))
    yield from interleave(running, total, turns, turn)


def measure_in_turns(work: SharedWork, cell: Cell, *, recording: bool = False) -> Steps[Outcome]:
    """Run the cell; yield the number of tokens so far whenever another cell may have its turn.

    A cell that is not warm yet runs once uncounted.

    Returns:
        failure ("", or why there is no speed), memory_mb, and on what, with what and when this
        process ran; unless an error ended the run, its counts, too, and what `_compared` and
        `_used` say; and without a failure seconds, tokens_per_s, what `per_round` says, and with
        `recording` recorded_tokens_per_s, of a second run, whose texts are compared, too. Seconds
        are those of the whole call without uncounted_s, which a synthetic drafter needs to learn
        the right tokens. A baseline has no times of rounds and no recorded run.
    """
    try:
        if cell not in work.memory_mb:
            work.memory_mb[cell] = warm_up(work, cell)
        outcome = yield from _measured(work, cell, recording)
    except Exception as error:  # it ends this cell, not the grid
        outcome = failed(error)
    if outcome["failure"]:
        # Give back what a failed run left in a GPU's memory.
        gc.collect()
        if work.pair.device.type == "cuda":
            torch.cuda.empty_cache()
    return outcome | {"memory_mb": work.memory_mb.get(cell)} | stamp(work.reference)


def _measured(work: SharedWork, cell: Cell, recording: bool) -> Steps[Outcome]:
    prompts = work.reference.prompts
    result, outcome = yield from _run(work, cell, prompts)
    outcome |= _compared(result, work) | _used(work.pair, cell, result)
    seconds = outcome.pop("seconds")
    if outcome["failure"]:
        return outcome
    outcome |= {"seconds": seconds, "tokens_per_s": outcome["new_tokens"] / seconds}
    if cell.baseline is None:
        outcome |= per_round(result)
    if recording:
        outcome["recorded_tokens_per_s"] = None
    if recording and cell.baseline is None:
        again, recorded = yield from _run(work, cell, prompts, record=True)
        if not _compared(again, work)["failure"]:
            outcome["recorded_tokens_per_s"] = recorded["new_tokens"] / recorded["seconds"]
    return outcome


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell that raised an error."""
    why = " ".join(str(error).split())
    if not isinstance(error, ValueError):
        why = f"{type(error).__name__}: {why}"
    return {"failure": why[:300] or type(error).__name__}


def stamp(reference: Result) -> Outcome:
    """Say on what, with what and when this process runs."""
    meta = reference.meta
    return {
        **{name: meta[name] for name in ("target", "draft", "dtype")},
        "device_name": meta["device"],
        **meta["versions"],
        "threads": torch.get_num_threads(),
        "prompts": len(reference.prompts),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _compared(result: Result, work: SharedWork) -> Outcome:
    """Return exact_match, near_ties, and a failure if rounding does not explain a difference."""
    pairs = zip(result.tokens, work.reference.tokens, strict=True)
    differing = sum(ours != theirs for ours, theirs in pairs)
    prompts = len(result.tokens)
    outcome: Outcome = {"exact_match": 1 - differing / prompts, "near_ties": 0, "failure": ""}
    if differing:
        causes = compare(result, work.reference, pair=work.pair).summary.iloc[0]
        outcome["near_ties"] = int(causes["near_ties"])
        if causes["near_ties"] < differing:
            outcome["failure"] = (
                f"{differing} of {prompts} texts differ from decoding alone, "
                f"{causes['unexplained']} of them not explained by noise, "
                f"{causes['unknown']} for an unknown cause"
            )
    return outcome


def _used(pair: Pair, cell: Cell, result: Result) -> Outcome:
    """Return what a run used besides time and memory, which `check` compares.

    verified_a_round: drafts that the target verified, a row and round; None for a baseline that
    drafts, which cannot be observed inside. in_flight: requests that were begun and had not ended,
    at most. devices: on which the weights of its models lie. training_s: of the weights that draft;
    0 without any, None where their files do not say.
    """
    how = cell.method.how
    verified: float | None = None
    if cell.baseline is None:
        active = result.rows["gained"] > 0
        verified = float(result.rows["verified"][active].mean())
    elif not how.drafts:
        verified = 0.0
    batch_size = int(result.meta["batch_size"])  # the run's own: it may have been lowered
    drafting = drafting_modules(pair, cell)
    trained: list[Any] = [getattr(module, "training_s", None) for module in drafting]
    return {
        "verified_a_round": verified,
        "in_flight": float(how.capacity(batch_size, len(result.tokens))),
        "devices": float(len(places(pair, drafting))),
        "training_s": None if None in trained else sum(trained, 0.0),
    }


def drafting_modules(pair: Pair, cell: Cell) -> list[Any]:
    """Return the models and heads that draft in this cell; [] where none does."""
    if cell.proposer is not None:
        return list(cell.proposer.models(pair).values())
    return [pair.draft] if cell.method.how.drafts else []


def places(pair: Pair, drafting: Sequence[Any] = ()) -> set[torch.device]:
    """Return the devices on which the weights of the target and of `drafting` lie."""
    modules = [pair.target, *drafting]
    return {parameter.device for module in modules for parameter in module.parameters()}


def per_round(result: Result) -> Outcome:
    """Return medians over the largest rounds. On a GPU, events on the stream measure them.

    round_ms: a round from its drafts on, without prompts. draft_ms: its phase draft. sync_share:
    its phase synchronise.
    """
    rows = result.rounds["batch"]
    stages = result.stages[rows == rows.max()]
    ms = stages["total_ms"] - stages["schedule_ms"]
    return {
        "round_ms": float(ms.median()),
        "draft_ms": float(stages["draft_ms"].median()),
        "sync_share": float((stages["sync_ms"] / ms).median()),
    }


def _run(
    work: SharedWork, cell: Cell, prompts: Sequence[Sequence[int]], record: bool = False
) -> Steps[tuple[Result, Outcome]]:
    """Decode the prompts once; return the result, its seconds and its counts.

    Of a baseline, forwards of the target are the rounds.
    """
    baseline = cell.baseline
    spent = {"s": 0.0}
    steps: Steps[Any]
    if baseline is not None:
        baseline.prepare(work.pair)
        lengths = (cell.batch_size, cell.max_new_tokens, int(cell.num_draft_tokens))
        steps = baseline.write(work.pair, prompts, *lengths)
    else:
        options: dict[str, Any] = dict(cell.method.generate_options)
        # A drafter without options is named: a strategy may set some.
        drafter: str | Drafter | None = cell.drafter if cell.drafter in DRAFTERS else cell.proposer
        if isinstance(drafter, SyntheticDrafter):
            reference = work.reference
            known = dict(zip(map(tuple, reference.prompts), reference.tokens, strict=True))
            drafter = ClockedDrafter(**vars(drafter), known=known, spent=spent)
        if drafter is not None:
            options |= {"drafter": drafter, "num_draft_tokens": cell.num_draft_tokens}
        if record:
            options |= {"record": True, "graphs": False}  # what is captured leaves no records
        options |= {"batch_size": cell.batch_size, "max_new_tokens": cell.max_new_tokens}
        steps = generate_stepwise(work.pair, prompts, strategy=cell.method.how, **options)
    gc.collect()  # now, not in the middle of what is timed
    synchronize(work.pair.device)
    written: Any
    written, seconds = yield from _timed(steps, work.pair.device)
    new_tokens = sum(map(len, written.tokens))
    if baseline is None:
        result = written
        summary = result.summary.iloc[0]
        length = float(summary["mean_acceptance_length"])
        rounds = int(summary["rounds"])
    else:
        asked = {name: cell.key[name] for name in ("strategy", "batch_size", "num_draft_tokens")}
        meta = work.reference.meta | asked
        result = replace(work.reference, tokens=written.tokens, meta=meta)
        # Every forward of assisted decoding verifies.
        length = new_tokens / written.row_forwards if baseline.drafts else 1.0
        rounds = written.forwards
    return result, {
        "mean_acceptance_length": length,
        "rounds": rounds,
        "new_tokens": new_tokens,
        "seconds": seconds - spent["s"],
        "uncounted_s": spent["s"],
    }


def _timed(steps: Steps[T], device: torch.device) -> Steps[tuple[T, float]]:
    """Yield the same steps; return their value and the seconds that they took, without pauses."""
    seconds = 0.0
    while True:
        began = time.perf_counter()
        try:
            written = next(steps)
        except StopIteration as end:
            synchronize(device)
            return end.value, seconds + time.perf_counter() - began
        seconds += time.perf_counter() - began
        yield written


def drain(steps: Steps[T]) -> T:
    """Take all steps and return the value at their end."""
    ((_, value),) = interleave([steps], 0, 1, lambda place: nullcontext())
    return value


def warm_up(work: SharedWork, cell: Cell) -> float | None:
    """Run the longest prompts, as many as are in flight at once.

    After it libraries are loaded and kernels chosen. CUDA graphs belong to a run and are captured
    in each: `round_ms` excludes that, `seconds` does not.

    Returns:
        the most that the run's tensors and its models' weights took at once, in MB. None for
        compiled methods, decoders without torch, and on other devices than CPUs and CUDA.
    """
    pair = work.pair
    prompts = work.reference.prompts
    # Compiled, every new shape takes seconds, so all prompts run. What is watched is not compiled.
    compiled = bool(cell.method.generate_options.get("compile"))
    if not compiled:
        rows = cell.method.how.capacity(cell.batch_size, len(prompts))
        prompts = sorted(prompts, key=len, reverse=True)[:rows]

    def run() -> None:
        drain(_run(work, cell, prompts))

    drafting = drafting_modules(pair, cell)
    gpus = [place.index or 0 for place in places(pair) if place.type == "cuda"]
    on_torch = cell.baseline is None or cell.baseline.on_torch
    if compiled or not on_torch or not (gpus or pair.device.type == "cpu"):
        run()
        return None
    if pair.device.type == "cpu":
        # Every operation is watched, which takes time, so nothing is timed inside. The weights of
        # a draft that the method does not use are not its memory.
        with PeakMeter([pair.target, pair.draft, *drafting]) as meter:
            run()
        peak = meter.peak_bytes
    else:
        peak = allocated_bytes(gpus, run)
    return (peak + PeakMeter([pair.target, *drafting]).weight_bytes) / MB


def allocated_bytes(gpus: Sequence[int], run: Callable[[], object]) -> int:
    """Run; return the most bytes that were allocated on these GPUs beyond those before."""
    before = 0
    for gpu in gpus:
        torch.cuda.reset_peak_memory_stats(gpu)
        before += torch.cuda.memory_allocated(gpu)
    run()
    return sum(torch.cuda.max_memory_allocated(gpu) for gpu in gpus) - before


def pays(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int] = (1, 8),
    *,
    strategy: str | Strategy = "inplace",
    drafter: str | Drafter = "model",
    num_draft_tokens: int | str = 5,
    max_new_tokens: int = 24,
    repetitions: int = 3,
) -> pd.DataFrame:
    """Time a strategy against autoregressive decoding of the same prompts, in turns.

    At each B the first B prompts are decoded, or the first four if B is smaller. `run_bench` is
    the thorough measurement: it compares texts, keeps its log and knows baselines.

    Args:
        strategy, drafter, num_draft_tokens, max_new_tokens: as in `generate`.
        repetitions: how often both are timed. Before that each decodes once uncounted.

    Returns:
        One entry for each B: batch_size; step_ms and round_ms (medians over full batches, without
        prompts); price (the round in steps); gain (mean acceptance length); ratio (of tokens/s,
        prompts included; median), ratio_low and ratio_high (range over the repetitions); verdict:
        "pays" if every repetition was faster than autoregressive decoding, "loses" if none was,
        else "too close to tell".

    Raises:
        ValueError: an argument cannot be used, or there are fewer prompts than the largest B.
    """
    most = max(batch_sizes)
    if len(prompts) < most:
        raise ValueError(
            f"prompts must be at least as many as the largest B, {most}, got {len(prompts)};"
            " pass more prompts, or smaller batch_sizes"
        )
    common = {"max_new_tokens": max_new_tokens, "progress": False}
    drafted = {"strategy": strategy, "drafter": drafter, "num_draft_tokens": num_draft_tokens}
    # The drafted run comes first: it refuses what cannot be used before any model runs.
    ways: list[dict[str, Any]] = [common | drafted, common | {"strategy": "autoregressive"}]
    entries = []
    for size in batch_sizes:
        taken = prompts[: max(size, FEWEST_PROMPTS)]
        times = []
        ratios = []
        for _ in range(repetitions + 1):
            runs = [generate(pair, taken, batch_size=size, **way) for way in ways]
            times.append([per_round(run)["round_ms"] for run in runs])
            speeds = [float(run.summary["tokens_per_s"].iloc[0]) for run in runs]
            ratios.append(speeds[0] / speeds[1])
        round_ms, step_ms = pd.DataFrame(times[1:]).median()  # the first repetition warms up
        measured = pd.Series(ratios[1:])
        verdict = "too close to tell"
        if measured.min() > 1 or measured.max() < 1:
            verdict = "pays" if measured.min() > 1 else "loses"
        entries.append(
            {
                "batch_size": size,
                "step_ms": step_ms,
                "round_ms": round_ms,
                "price": round_ms / step_ms,
                "gain": float(runs[0].summary["mean_acceptance_length"].iloc[0]),
                "ratio": measured.median(),
                "ratio_low": measured.min(),
                "ratio_high": measured.max(),
                "verdict": verdict,
            }
        )
    return pd.DataFrame(entries)
