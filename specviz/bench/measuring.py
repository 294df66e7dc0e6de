"""One cell, run once: decode, time the whole call, and compare every text with decoding alone.

A speed counts only with equal texts; without them the outcome says why there is no speed. Nothing
is written to files. Cells may take turns: each is a generator that stops after every round, or
after every batch of a baseline, and its clock stops with it.
"""

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from specviz.bench.cells import Cell
from specviz.checks.compare import compare
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.kv.attention import attending, attending_plainly
from specviz.engine.models.pair import Pair
from specviz.engine.peak import PeakMeter
from specviz.engine.state import State
from specviz.generation.generate import generate, generate_stepwise
from specviz.generation.interleave import Steps, interleave
from specviz.generation.result import Result

MB = 1e6
T = TypeVar("T")
Outcome = dict[str, Any]
# What an outcome says of a run, None if the cell failed before it was known.
FIGURES = (
    "exact_match", "near_ties", "mean_acceptance_length", "rounds", "new_tokens", "seconds",
    "tokens_per_s", "round_ms", "draft_ms", "sync_share", "verified_a_round", "uncounted_s",
    "in_flight", "devices", "training_s",
)  # fmt: skip


@dataclass(frozen=True)
class SharedWork:
    """What cells that must write the same texts share.

    Attributes:
        prompts: token ids.
        reference: what the target writes for each prompt alone.
    """

    pair: Pair
    prompts: Sequence[Sequence[int]]
    reference: Result


class Clock:
    """Sums the seconds inside its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(frozen=True)
class ClockedDrafter(SyntheticDrafter):
    """A synthetic drafter that sums how long the target decodes ahead for it.

    No real drafter knows the target's tokens beforehand, so that time is not part of the method.
    It is also most of the time that a benchmark of a large target takes, so the target decodes
    ahead only where its texts are not known.

    `known` has what the target writes after a prompt, decoding greedily.
    """

    clock: Clock = field(default_factory=Clock, compare=False, repr=False)
    known: Mapping[tuple[int, ...], Sequence[int]] = field(
        default_factory=dict, compare=False, repr=False
    )

    capturable: ClassVar[bool] = SyntheticDrafter.capturable

    @classmethod
    def of(cls, drafter: SyntheticDrafter, clock: Clock, texts: Result) -> "ClockedDrafter":
        """Return the same drafter with a clock and with the texts that are known."""
        known = dict(zip(map(tuple, texts.prompts), texts.tokens, strict=True))
        return cls(**vars(drafter), clock=clock, known=known)

    def prepare(self, task: Task, state: State) -> torch.Tensor:
        synchronize(task.pair.device)
        with self.clock:
            prepared = super().prepare(task, state)
            synchronize(task.pair.device)
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


def warm_up(work: SharedWork, cell: Cell) -> float | str | None:
    """Run the longest prompts, as many as are in flight at once.

    After it libraries are loaded and kernels chosen. CUDA graphs belong to a run and are captured
    in each: `round_ms` excludes that, `seconds` does not.

    Returns:
        what `memory_mb` returns; None for compiled methods. If it failed, why: a cell that cannot
        run fails when it is measured, not here.
    """
    try:
        # A compiled method runs on all prompts: every new shape takes seconds to compile. What is
        # watched is not what is compiled.
        if dict(cell.method.generate_options).get("compile", False):
            _drain(_run(work, cell))
            return None
        rows = cell.method.how.capacity(cell.batch_size, len(work.prompts))
        longest = sorted(work.prompts, key=len, reverse=True)[:rows]
        few = replace(work, prompts=longest)
        return memory_mb(work.pair, cell, lambda: _drain(_run(few, cell)))
    except Exception as error:  # `with_memory` reports it if the cell itself runs
        why = f"{type(error).__name__}: {error}"
    # Outside the handler: the exception holds the tensors of the run.
    _free_memory(work.pair)
    return why


def memory_mb(pair: Pair, cell: Cell, run: Callable[[], object]) -> float | None:
    """Run a cell; return the most that its tensors and its models' weights took at once, in MB.

    On a CPU every operation is watched, which takes time, so nothing is timed inside. It is None
    for decoders without torch, and on other devices than CPUs and CUDA.
    """
    drafting = drafting_modules(pair, cell)
    gpus = [place.index or 0 for place in places(pair) if place.type == "cuda"]
    watched = pair.device.type == "cpu" or bool(gpus)
    if not watched or (cell.baseline is not None and not cell.baseline.on_torch):
        run()
        return None
    if pair.device.type == "cpu":
        # The weights of a draft that the method does not use are not its memory.
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


def with_memory(outcome: Outcome, cell: Cell, warmed: float | str | None) -> Outcome:
    """Add the memory that a warm-up measured. Warn if only the warm-up failed."""
    if isinstance(warmed, str) and not outcome["failure"]:
        warnings.warn(
            f"the memory of {cell.strategy} at B = {cell.batch_size} is unknown, because its "
            f"warm-up failed ({warmed})",
            stacklevel=2,
        )
    return outcome | {"memory_mb": None if isinstance(warmed, str) else warmed}


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
        return attending(models) if cells[place].baseline is None else attending_plainly(models)

    running = [measure_in_turns(work, cell, recording=recording) for cell in cells]
    total = sum(map(len, work.reference.tokens))
    yield from interleave(running, total, turns, turn)


def measure_in_turns(work: SharedWork, cell: Cell, *, recording: bool = False) -> Steps[Outcome]:
    """Run the cell; yield the number of tokens so far whenever another cell may have its turn.

    Returns:
        FIGURES, failure ("", or why there is no speed: then seconds, tokens_per_s and what
        `per_round` says are None), with `recording` recorded_tokens_per_s (of a second run, whose
        texts are compared, too), and on what, with what and when this process ran. Seconds are
        those of the whole call without uncounted_s, which a synthetic drafter needs to learn the
        right tokens. A baseline has no times of rounds and no recorded run.
    """
    try:
        outcome = yield from _measured(work, cell, recording)
    except Exception as error:  # it ends this cell, not the grid
        outcome = failed(error)
    if outcome["failure"]:
        _free_memory(work.pair)
    return outcome | stamp(work.reference, len(work.prompts))


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell that raised an error."""
    why = " ".join(str(error).split())
    if not isinstance(error, ValueError):
        why = f"{type(error).__name__}: {why}"
    return dict.fromkeys(FIGURES) | {"failure": why[:300] or type(error).__name__}


def stamp(reference: Result, prompts: int) -> Outcome:
    """Say on what, with what and when this process runs."""
    meta = reference.meta
    return {
        **{name: meta[name] for name in ("target", "draft", "dtype")},
        "device_name": meta["device"],
        **meta["versions"],
        "threads": torch.get_num_threads(),
        "prompts": prompts,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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


def _drain(steps: Steps[T]) -> T:
    """Take all steps and return the value at their end."""
    ((_, value),) = interleave([steps], 0, 1, lambda place: nullcontext())
    return value


def _measured(work: SharedWork, cell: Cell, recording: bool) -> Steps[Outcome]:
    result, figures = yield from _run(work, cell)
    outcome: Outcome = dict.fromkeys(FIGURES)
    outcome |= figures | _compared(result, work) | use_of(work.pair, cell, result)
    if recording:
        outcome["recorded_tokens_per_s"] = None
    if outcome["failure"]:
        return outcome | {"seconds": None}
    outcome["tokens_per_s"] = outcome["new_tokens"] / outcome["seconds"]
    if cell.baseline is None:
        outcome |= per_round(result)
    if recording and cell.baseline is None:
        again, recorded = yield from _run(work, cell, record=True)
        if not _compared(again, work)["failure"]:
            outcome["recorded_tokens_per_s"] = recorded["new_tokens"] / recorded["seconds"]
    return outcome


def _compared(result: Result, work: SharedWork) -> Outcome:
    """Return exact_match, near_ties, and a failure if rounding does not explain a difference."""
    reference = work.reference
    pairs = zip(result.tokens, reference.tokens, strict=True)
    differing = sum(ours != theirs for ours, theirs in pairs)
    prompts = len(reference.tokens)
    outcome: Outcome = {"exact_match": 1 - differing / prompts, "near_ties": 0, "failure": ""}
    if differing:
        causes = compare(result, reference, pair=work.pair).summary.iloc[0]
        outcome["near_ties"] = int(causes["near_ties"])
        if causes["near_ties"] < differing:
            outcome["failure"] = (
                f"{differing} of {prompts} texts differ from decoding alone, "
                f"{causes['unexplained']} of them not explained by noise, "
                f"{causes['unknown']} for an unknown cause"
            )
    return outcome


def use_of(pair: Pair, cell: Cell, result: Result) -> Outcome:
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


def _run(work: SharedWork, cell: Cell, record: bool = False) -> Steps[tuple[Result, Outcome]]:
    """Decode all prompts once; return the result, and what FIGURES says of time and rounds.

    Of a baseline, forwards of the target are the rounds.
    """
    baseline = cell.baseline
    if baseline is not None:
        baseline.prepare(work.pair)
    aside = Clock()
    uncounted = Clock()
    gc.collect()  # now, not in the middle of what is timed
    synchronize(work.pair.device)
    began = time.perf_counter()
    if baseline is not None:
        k = int(cell.num_draft_tokens)
        lengths = (cell.batch_size, cell.max_new_tokens, k)
        written = yield from _pausing(baseline.write(work.pair, work.prompts, *lengths), aside)
    else:
        options: dict[str, Any] = dict(cell.method.generate_options)
        # A drafter without options is named: a strategy may set some.
        drafter: str | Drafter | None = cell.drafter if cell.drafter in DRAFTERS else cell.proposer
        if isinstance(drafter, SyntheticDrafter):
            drafter = ClockedDrafter.of(drafter, uncounted, work.reference)
        if drafter is not None:
            options |= {"drafter": drafter, "num_draft_tokens": cell.num_draft_tokens}
        if record:
            options |= {"record": True, "graphs": False}  # what is captured leaves no records
        steps = generate_stepwise(
            work.pair,
            work.prompts,
            strategy=cell.method.how,
            batch_size=cell.batch_size,
            max_new_tokens=cell.max_new_tokens,
            **options,
        )
        result = yield from _pausing(steps, aside)
    synchronize(work.pair.device)
    seconds = time.perf_counter() - began - aside.seconds - uncounted.seconds
    if baseline is None:
        summary = result.summary.iloc[0]
        new_tokens = sum(map(len, result.tokens))
        length = float(summary["mean_acceptance_length"])
        rounds = int(summary["rounds"])
    else:
        meta = {"strategy": cell.strategy, "batch_size": cell.batch_size, "num_draft_tokens": k}
        result = replace(work.reference, tokens=written.tokens, meta=work.reference.meta | meta)
        new_tokens = sum(map(len, result.tokens))
        # Every forward of assisted decoding verifies.
        length = new_tokens / written.row_forwards if baseline.drafts else 1.0
        rounds = written.forwards
    return result, {
        "mean_acceptance_length": length,
        "rounds": rounds,
        "new_tokens": new_tokens,
        "seconds": seconds,
        "uncounted_s": uncounted.seconds,
    }


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


def _free_memory(pair: Pair) -> None:
    """Give back what a failed run left in a GPU's memory."""
    gc.collect()
    if pair.device.type == "cuda":
        torch.cuda.empty_cache()
