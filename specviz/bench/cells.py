"""One cell, run once: decode, time the whole call, and compare every text with decoding alone.

A speed counts only with equal texts; without them the outcome says why there is no speed. Nothing
is written to files. Cells may take turns: each is a generator that stops after every round, or
after every batch of a baseline, and its clock stops with it.
"""

import gc
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch

from specviz.bench.baselines import Baseline, Written
from specviz.bench.clock import Clock, ClockedDrafter, synchronize
from specviz.bench.grid import Cell
from specviz.bench.outcome import (
    FIGURES,
    Outcome,
    SharedWork,
    compare_texts,
    failed,
    per_round,
    stamp,
)
from specviz.bench.resources import MemoryMeter, requests_in_flight, use_of
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.kv.attention import attending, attending_plainly
from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate_stepwise
from specviz.generation.interleave import Steps, interleave
from specviz.generation.result import Result

T = TypeVar("T")


class TimedResult(NamedTuple):
    """One decoding of all prompts.

    rounds: for a baseline, forwards of the target. uncounted_s: drafting that `seconds` leaves out.
    """

    result: Result
    seconds: float
    uncounted_s: float
    mean_acceptance_length: float
    rounds: int


def warm_up(work: SharedWork, cell: Cell) -> float | str | None:
    """Run the longest prompts, as many as are in flight at once.

    After it libraries are loaded and kernels chosen.
    CUDA graphs belong to a run and are captured in each: `round_ms` excludes that, `seconds` does
    not. A cell that cannot run fails when it is measured, not here.

    Returns:
        the most memory that they held at once, in MB; None where it is not measured, as for
        compiled methods, see `MemoryMeter`. If it failed, why.
    """
    # A compiled method runs on all prompts: every new shape takes seconds to compile.
    compiled = dict(cell.method.generate_options).get("compile", False)
    try:
        if compiled:  # what is watched is not what is compiled
            _drain(_run(work, cell))
            return None
        rows = requests_in_flight(cell, cell.batch_size, len(work.prompts))
        longest = sorted(work.prompts, key=len, reverse=True)[:rows]
        work = replace(work, prompts=longest)
        with MemoryMeter(work.pair, cell) as meter:
            _drain(_run(work, cell))
        return meter.peak_mb
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    # Outside the handler: the exception holds the tensors of the run.
    _free_memory(work.pair)
    return why


def memory_of(cell: Cell, warmed: float | str | None, outcome: Outcome) -> float | None:
    """Return the memory that a warm-up measured. Warn if only the warm-up failed."""
    if not isinstance(warmed, str):
        return warmed
    if not outcome["failure"]:
        warnings.warn(
            f"the memory of {cell.strategy} at B = {cell.batch_size} is unknown, because its "
            f"warm-up failed ({warmed})",
            stacklevel=2,
        )
    return None


def measure(work: SharedWork, cell: Cell, *, recording: bool = False) -> Outcome:
    """Run the cell and return what `measure_in_turns` returns."""
    return _drain(measure_in_turns(work, cell, recording=recording))


def take_turns(
    work: SharedWork, cells: Sequence[Cell], turns: int, *, recording: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """Interleave cells; yield the place and the outcome of each as it ends."""

    def turn(place: int) -> AbstractContextManager[object]:
        models = [work.pair.target, work.pair.draft]
        # Our own runs are suspended in a baseline's turn, and must not change what it measures.
        is_baseline = isinstance(cells[place].method.how, Baseline)
        return attending_plainly(models) if is_baseline else attending(models)

    running = [measure_in_turns(work, cell, recording=recording) for cell in cells]
    total = sum(map(len, work.reference.tokens))
    yield from interleave(running, total, turns, turn)


def measure_in_turns(work: SharedWork, cell: Cell, *, recording: bool = False) -> Steps[Outcome]:
    """Run the cell; yield the number of tokens so far whenever another cell may have its turn.

    Returns:
        exact_match (share of the prompts whose tokens equal the reference's), near_ties (texts
        that differ where rounding explains it), mean_acceptance_length, rounds (target forwards
        after the prompts' own), new_tokens, seconds, tokens_per_s, round_ms, draft_ms and
        sync_share (see `per_round`; None for a baseline) and failure ("", or why there is no speed;
        then seconds and what follows are None). With `recording` also recorded_tokens_per_s, from a
        second run whose texts are compared, too (None for a baseline). Seconds are those of the
        whole call, without what a synthetic drafter needs to learn the right tokens, which is
        uncounted_s. Then what `use_of` and `stamp` say.
    """
    try:
        outcome = yield from _measure(work, cell, recording)
    except Exception as error:  # it ends this cell, not the grid
        outcome = failed(error)
    if outcome["failure"]:
        _free_memory(work.pair)
    return outcome | stamp(work.reference, len(work.prompts))


def _drain(steps: Steps[T]) -> T:
    """Take all steps and return the value at their end."""
    ((_, value),) = interleave([steps], 0, 1, lambda place: nullcontext())
    return value


def _measure(work: SharedWork, cell: Cell, recording: bool) -> Steps[Outcome]:
    run = yield from _run(work, cell)
    new_tokens = sum(map(len, run.result.tokens))
    outcome: Outcome = dict.fromkeys(FIGURES)
    outcome |= compare_texts(run.result, work)
    outcome["mean_acceptance_length"] = run.mean_acceptance_length
    outcome["rounds"] = run.rounds
    outcome["new_tokens"] = new_tokens
    outcome["uncounted_s"] = run.uncounted_s
    outcome |= use_of(work.pair, cell, run.result)
    equal = not outcome["failure"]
    if equal:
        outcome["seconds"] = run.seconds
        outcome["tokens_per_s"] = new_tokens / run.seconds
    ours = not isinstance(cell.method.how, Baseline)
    if equal and ours:
        outcome |= per_round(run.result)
    if recording:
        outcome["recorded_tokens_per_s"] = None
        if equal and ours:
            recorded = yield from _run(work, cell, record=True)
            if not compare_texts(recorded.result, work)["failure"]:
                outcome["recorded_tokens_per_s"] = new_tokens / recorded.seconds
    return outcome


def _run(work: SharedWork, cell: Cell, record: bool = False) -> Steps[TimedResult]:
    how = cell.method.how
    if isinstance(how, Baseline):
        how.prepare(work.pair)
    aside = Clock()
    uncounted = Clock()
    gc.collect()  # now, not in the middle of what is timed
    synchronize(work.pair.device)
    began = time.perf_counter()
    if isinstance(how, Baseline):
        written = yield from _pausing(_write(how, work, cell), aside)
    else:
        options = _drafting(work, cell, uncounted) | dict(cell.method.generate_options)
        if record:
            options |= {"record": True, "graphs": False}  # what is captured leaves no records
        steps = generate_stepwise(
            work.pair,
            work.prompts,
            strategy=how,
            batch_size=cell.batch_size,
            max_new_tokens=cell.max_new_tokens,
            **options,
        )
        result = yield from _pausing(steps, aside)
    synchronize(work.pair.device)
    seconds = time.perf_counter() - began - aside.seconds - uncounted.seconds
    if isinstance(how, Baseline):
        return _baseline_run(written, seconds, work, cell)
    summary = result.summary.iloc[0]
    length = float(summary["mean_acceptance_length"])
    return TimedResult(result, seconds, uncounted.seconds, length, int(summary["rounds"]))


def _write(how: Baseline, work: SharedWork, cell: Cell) -> Steps[Written]:
    k = cell.num_draft_tokens if isinstance(cell.num_draft_tokens, int) else 0
    for written in how.write(work.pair, work.prompts, cell.batch_size, cell.max_new_tokens, k):
        yield sum(map(len, written.tokens))
    return written


def _pausing(steps: Steps[T], aside: Clock) -> Steps[T]:
    """Yield the same steps, and sum in `aside` the time that other cells take in between."""
    while True:
        try:
            written = next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        with aside:
            yield written


def _drafting(work: SharedWork, cell: Cell, uncounted: Clock) -> dict[str, Any]:
    """Return the drafter and K. Name a drafter without options: a strategy may set some."""
    drafter: str | Drafter | None = cell.drafter if cell.drafter in DRAFTERS else cell.proposer
    if drafter is None:
        return {}
    if isinstance(drafter, SyntheticDrafter):
        drafter = ClockedDrafter.of(drafter, uncounted, work.known_texts())
    return {"drafter": drafter, "num_draft_tokens": cell.num_draft_tokens}


def _baseline_run(written: Written, seconds: float, work: SharedWork, cell: Cell) -> TimedResult:
    """Return a baseline's output as a result. Every forward of assisted decoding verifies."""
    drafts = cell.method.how.drafts
    length = sum(map(len, written.tokens)) / written.row_forwards if drafts else 1.0
    meta = work.reference.meta | {
        "strategy": cell.strategy,
        "batch_size": cell.batch_size,
        "num_draft_tokens": cell.num_draft_tokens if drafts else 0,
    }
    result = replace(work.reference, tokens=written.tokens, meta=meta)
    return TimedResult(result, seconds, 0.0, length, written.forwards)


def _free_memory(pair: Pair) -> None:
    """Give back what a failed run left in a GPU's memory."""
    gc.collect()
    if pair.device.type == "cuda":
        torch.cuda.empty_cache()
