"""One cell, run once: decode, time it by the clock on the wall, and compare every text with decoding alone.

A speed without equal texts is none: such a row says why it has no speed. Writes no files. Cells may take turns, so each is a generator
that stops after every round, or batch of a baseline, and whose clock stops with it.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch

from specviz.bench.baselines import Baseline, Written
from specviz.bench.grid import Cell
from specviz.checks.compare import compare
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.kv.attention import attending
from specviz.engine.models.pair import Pair
from specviz.engine.state import State
from specviz.generation.generate import generate, generate_stepwise
from specviz.generation.interleave import Steps, interleave
from specviz.generation.result import Result

Outcome = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """What cells that have to write the same texts share: the pair, the prompts' ids, and what the target writes for each alone."""

    pair: Pair
    prompts: Sequence[Sequence[int]]
    reference: Result


def reference_of(pair: Pair, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Result:
    """What the target writes for each prompt alone.

    Raises:
        ValueError: as `generate`.
    """
    return generate(
        pair,
        prompts,
        strategy="autoregressive",
        batch_size=1,
        max_new_tokens=max_new_tokens,
        progress=False,
    )


def warm_up(work: Work, cell: Cell) -> None:
    """One batch of the longest prompts, uncounted: libraries load, kernels are chosen. What is compiled runs as a whole, since every shape
    that is new to it takes seconds. CUDA graphs belong to a run and are captured in each: `round_ms` is free of that, the seconds are not.

    What cannot run says so when it is measured.
    """
    compiled = dict(cell.method.asked).get("compile", False)
    longest = sorted(work.prompts, key=len, reverse=True)[: cell.batch_size]
    try:
        _drained(_run(work if compiled else replace(work, prompts=longest), cell))
        return
    except Exception:  # it holds the tensors of the run, so what they leave is given back behind it
        pass
    _clean(work.pair)


def measure(work: Work, cell: Cell, *, recording: bool = False) -> Outcome:
    """Run the cell. Returns what the value of `measure_in_turns` is."""
    return _drained(measure_in_turns(work, cell, recording=recording))


def take_turns(
    work: Work, cells: Sequence[Cell], turns: int, *, recording: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """Run cells side by side, as `interleave` does, and yield the place of each cell and its outcome as it ends."""

    def turn(place: int) -> AbstractContextManager[object]:
        return (
            nullcontext()
            if isinstance(cells[place].method.how, Baseline)
            else attending([work.pair.target, work.pair.draft])
        )

    running = [measure_in_turns(work, cell, recording=recording) for cell in cells]
    yield from interleave(running, sum(map(len, work.reference.tokens)), turns, turn)


def measure_in_turns(work: Work, cell: Cell, *, recording: bool = False) -> Steps[Outcome]:
    """Run the cell; yields how many tokens there are whenever another one may have its turn.

    Its value is:
        exact_match (share of the prompts whose tokens equal the reference's), near_ties (texts that differ where rounding explains it),
        mean_acceptance_length, rounds (target forwards behind the prompts' own), new_tokens, seconds, tokens_per_s, round_ms and sync_share
        (see `_per_round`; None for a baseline), failure ("", or why there is no speed: then those from seconds on are None), and with
        `recording` recorded_tokens_per_s, measured in a second run whose texts are compared, too (None for a baseline). Seconds are those
        of the whole call; what a synthetic drafter needs to know the right tokens beforehand is taken off. Beside them: what `stamp` says.
    """
    try:
        found = yield from _measured(work, cell, recording)
    except Exception as error:  # whatever it is, it ends this cell and not the grid
        found = failed(error)
    if found["failure"]:
        _clean(work.pair)
    return found | stamp(work.reference, len(work.prompts))


def stamp(reference: Result, prompts: int) -> Outcome:
    """What runs of this process, with this reference, run on and with, and when."""
    meta, now = reference.meta, datetime.now(UTC).isoformat(timespec="seconds")
    kept = (
        {name: meta[name] for name in ("target", "draft", "dtype")}
        | {"device_name": meta["device"]}
        | dict(meta["versions"])
    )
    return kept | {"threads": torch.get_num_threads(), "prompts": prompts, "created": now}


def failed(error: BaseException) -> Outcome:
    """The outcome of a cell that could not be run."""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    why = kind + " ".join(str(error).split())
    names = (
        "exact_match", "near_ties", "mean_acceptance_length", "rounds", "new_tokens", "seconds", "tokens_per_s", "round_ms", "sync_share",
    )  # fmt: skip
    return dict.fromkeys(names) | {"failure": why[:300] or type(error).__name__}


class Ran(NamedTuple):
    """One run. rounds: for a baseline, forwards of the target."""

    result: Result
    seconds: float
    mean_acceptance_length: float
    rounds: int


def _drained(steps: Steps[T]) -> T:
    """Go through all steps; returns the value at their end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def _measured(work: Work, cell: Cell, recording: bool) -> Steps[Outcome]:
    ran = yield from _run(work, cell)
    new = sum(map(len, ran.result.tokens))
    found: Outcome = _equality(ran.result, work)
    found |= {
        "mean_acceptance_length": ran.mean_acceptance_length,
        "rounds": ran.rounds,
        "new_tokens": new,
    }
    equal = not found["failure"]
    found |= {
        "seconds": ran.seconds if equal else None,
        "tokens_per_s": new / ran.seconds if equal else None,
    }
    counted = equal and not isinstance(cell.method.how, Baseline)
    found |= _per_round(ran.result) if counted else {"round_ms": None, "sync_share": None}
    if recording:
        recorded = (yield from _run(work, cell, record=True)) if counted else None
        fine = recorded is not None and not _equality(recorded.result, work)["failure"]
        found["recorded_tokens_per_s"] = (
            new / recorded.seconds if recorded is not None and fine else None
        )
    return found


def _per_round(result: Result) -> Outcome:
    """Medians over the rounds of as many rows as there ever were: ms of a round from its drafts on, no prompt included, and the share of
    its phase synchronise. On a GPU by events on the stream.
    """
    stages, rows = result.stages, result.rounds["batch"]
    ms = stages["total_ms"] - stages["schedule_ms"]
    full = rows == rows.max()
    return {
        "round_ms": float(ms[full].median()),
        "sync_share": float((stages["sync_ms"] / ms)[full].median()),
    }


def _equality(result: Result, work: Work) -> Outcome:
    """exact_match, near_ties, and a failure if a text differs for another reason than rounding."""
    reference = work.reference
    differing = [
        ours != theirs for ours, theirs in zip(result.tokens, reference.tokens, strict=True)
    ]
    found: Outcome = {
        "exact_match": 1 - sum(differing) / len(differing),
        "near_ties": 0,
        "failure": "",
    }
    if any(differing):
        causes = compare(result, reference, pair=work.pair).summary.iloc[0]
        found["near_ties"] = int(causes["near_ties"])
        if causes["near_ties"] < sum(differing):
            why = f"{causes['unexplained']} of them not explained by noise, {causes['unknown']} for an unknown cause"
            found["failure"] = (
                f"{sum(differing)} of {len(differing)} texts differ from decoding alone, {why}"
            )
    return found


def _run(work: Work, cell: Cell, record: bool = False) -> Steps[Ran]:
    how, pair, aside = cell.method.how, work.pair, Clock()
    gc.collect()
    _wait(pair.device)
    began = time.perf_counter()
    if isinstance(how, Baseline):
        k = cell.num_draft_tokens if isinstance(cell.num_draft_tokens, int) else 0
        for written in how.write(pair, work.prompts, cell.batch_size, cell.max_new_tokens, k):
            with aside:
                yield sum(map(len, written.tokens))
        _wait(pair.device)
        return _as_ran(written, time.perf_counter() - began - aside.seconds, work, cell)
    options = (
        _drafting(cell, aside)
        | dict(cell.method.asked)
        | ({"record": True, "graphs": False} if record else {})
    )
    steps = generate_stepwise(
        pair, work.prompts, strategy=how, batch_size=cell.batch_size, max_new_tokens=cell.max_new_tokens, **options
    )  # fmt: skip
    result = yield from _timed(steps, aside)
    _wait(pair.device)
    seconds = time.perf_counter() - began - aside.seconds
    summary = result.summary.iloc[0]
    return Ran(result, seconds, float(summary["mean_acceptance_length"]), int(summary["rounds"]))


def _timed(steps: Steps[T], aside: "Clock") -> Steps[T]:
    """The same steps; `aside` takes the time of whoever has his turn in between."""
    while True:
        try:
            written = next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        with aside:
            yield written


def _drafting(cell: Cell, clock: "Clock") -> dict[str, Any]:
    """K and drafter. A drafter without options of its own goes by its name: a strategy may have options for it."""
    drafter: str | Drafter | None = cell.drafter if cell.drafter in DRAFTERS else cell.proposer
    if drafter is None:
        return {}
    if isinstance(drafter, SyntheticDrafter):
        drafter = Clocked(
            **{item.name: getattr(drafter, item.name) for item in fields(drafter)}, clock=clock
        )
    return {"drafter": drafter, "num_draft_tokens": cell.num_draft_tokens}


def _as_ran(written: Written, seconds: float, work: Work, cell: Cell) -> Ran:
    """What a baseline wrote, as far as a comparison needs it. Every forward of assisted generation verifies drafts."""
    drafts = cell.method.how.drafts
    length = sum(map(len, written.tokens)) / written.forwards if drafts else 1.0
    asked = {
        "strategy": cell.strategy,
        "batch_size": cell.batch_size,
        "num_draft_tokens": cell.num_draft_tokens if drafts else 0,
    }
    result = replace(work.reference, tokens=written.tokens, meta=work.reference.meta | asked)
    return Ran(result, seconds, length, written.forwards)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _clean(pair: Pair) -> None:
    """Give back what a run that failed left in a GPU's memory."""
    gc.collect()
    if pair.device.type == "cuda":
        torch.cuda.empty_cache()


class Clock:
    """Seconds that are not to be counted: those within its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(frozen=True)
class Clocked(SyntheticDrafter):
    """A synthetic drafter that notes how long the target ran ahead for it, which no real drafter could let it do."""

    clock: Clock = field(default_factory=Clock, compare=False, repr=False)

    capturable: ClassVar[bool] = SyntheticDrafter.capturable

    def prepare(self, task: Task, state: State) -> torch.Tensor:
        _wait(task.pair.device)
        with self.clock:
            prepared = super().prepare(task, state)
            _wait(task.pair.device)
        return prepared
