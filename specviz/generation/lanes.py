"""Run two lanes and collect what they write, each on its own and both together."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from specviz.engine.events import Event
from specviz.engine.kv.attention import attending
from specviz.engine.lanes.admission import Admission
from specviz.engine.lanes.lane import Lane, make_lanes
from specviz.engine.lanes.turns import Alternate, Turn, take_turns
from specviz.engine.lanes.workers import Workers, can_overlap
from specviz.engine.options import LANES, Options
from specviz.engine.run import Run
from specviz.engine.threads import computing_with
from specviz.generation.assemble import decode_texts, header, make_result
from specviz.generation.collect import ELSEWHERE, INTERRUPTED, Collected, Progress
from specviz.generation.result import Result
from specviz.record.schema import Table


class LaneCollected(Collected):
    """What one lane has written so far; a request from the other lane starts from no tokens."""

    def __init__(self, lane: Lane, *, record: bool, origin: Any) -> None:
        super().__init__(lane.run, record=record)
        self.lane = lane
        self._origin = origin

    @property
    def tokens(self) -> list[list[int]]:
        """New tokens that each prompt got in this lane."""
        live = self.lane.state.batch.live
        texts = {row.request.index: row.output for row in live} | self.lane.left
        texts |= self.recorder.outputs
        gained = self.recorder.gained()
        parts: list[list[int]] = []
        for request in self.run.requests:
            first = self._before(request.index)
            text = texts.get(request.index, [])
            parts.append(text[first : first + gained[request.index]])
        return parts

    @property
    def prompts(self) -> list[list[int]]:
        """Each prompt, with what it had written when it came into this lane."""
        entered = self.lane.entered
        found = []
        for request in self.run.requests:
            written = entered.get(request.index, request).written
            found.append([*request.prompt, *written])
        return found

    @property
    def budgets(self) -> list[int]:
        """How many new tokens each prompt may have in this lane."""
        return [request.budget - self._before(request.index) for request in self.run.requests]

    def _before(self, index: int) -> int:
        entered = self.lane.entered
        return len(entered[index].written) if index in entered else 0

    def facts(self) -> dict[str, Any]:
        """Return what the header of this lane's record says besides that of a run."""
        begins = self.run.stopwatch.spans_ms(self._origin)[:, :, 0].round(3).tolist()
        return super().facts() | {"lanes": LANES, "lane": self.lane.number, "begins_ms": begins}

    def status(self, index: int, tokens: list[int]) -> str:
        """Return how a prompt has ended in this lane."""
        if index not in self.lane.entered or index in self.lane.left:
            return ELSEWHERE
        return super().status(index, tokens)


@dataclass(frozen=True)
class LaneTexts:
    """What two lanes have written.

    Attributes:
        origin: of their times.
    """

    lanes: Sequence[LaneCollected]
    admission: Admission
    origin: Any


def with_own_threads(options: Options) -> Options:
    """Return the options of a run in lanes, with the CPU threads of each lane."""
    # With another number, sums are rounded otherwise, which `deterministic` rules out.
    if options.num_threads is not None or options.deterministic:
        return options
    return replace(options, num_threads=max(1, torch.get_num_threads() // LANES))


def collect_lanes(
    run: Run, *, record: bool, partial: bool, progress: bool, turn: Turn | None = None
) -> LaneTexts:
    """Run it in two lanes to the end. Arguments are those of `collect`.

    Args:
        turn: which lane runs its next phase; None: both run at the same time if they can.

    Raises:
        KeyboardInterrupt: unless `partial`.
        MemoryError: memory ran out. The batch is not halved.
    """
    lanes = make_lanes(run)
    admission = Admission(lanes, run.state.waiting)
    # The lanes have rows of their own.
    run.state.features = None
    origin = run.stopwatch.mark()
    found = LaneTexts(
        lanes=[LaneCollected(lane, record=record, origin=origin) for lane in lanes],
        admission=admission,
        origin=origin,
    )
    models = [cache.model for cache in run.state.caches.values()]
    bar = Progress(len(run.requests), run.strategy.name, enabled=progress)
    try:
        with computing_with(run.num_threads), bar, attending(models):
            _run(admission, _observer(found, bar), turn)
    except KeyboardInterrupt:
        if not partial:
            raise
        for collected in found.lanes:
            collected.cut()
    except torch.OutOfMemoryError as error:
        reason = " ".join(str(error).split())[:200]
        raise MemoryError(
            f"batch_size={run.batch_size} in {LANES} lanes is more than {run.pair.device} can hold "
            f"({reason}); pass a smaller batch_size, or lanes=1, which halves the batch by itself"
        ) from None
    finally:
        for lane in lanes:
            lane.close()
    return found


def _run(admission: Admission, observe: Callable[[Lane, Event], None], turn: Turn | None) -> None:
    if turn is None and can_overlap(admission.lanes[0].run.pair):
        Workers(admission, observe).run()
        return
    for lane, event in take_turns(admission, turn or Alternate()):
        observe(lane, event)


def _observer(found: LaneTexts, bar: Progress) -> Callable[[Lane, Event], None]:
    lock = threading.Lock()

    def observe(lane: Lane, event: Event) -> None:
        with lock:  # both lanes share the bar
            bar.observe(event)
        found.lanes[lane.number].observe(event)

    return observe


def make_lanes_result(run: Run, found: LaneTexts) -> Result:
    """Return the result of both lanes: each on its own, and what they wrote together."""
    lanes = [make_result(each.run, each, origin=found.origin) for each in found.lanes]
    tokens = _joined_tokens(run, found, lanes)
    statuses = [_status(list(each)) for each in zip(*(lane.status for lane in lanes), strict=True)]
    facts = {
        "status": statuses,
        "halvings": 0,
        "lanes": LANES,
        "handovers": [asdict(handover) for handover in found.admission.handovers],
    }
    rounds, rows = _joined_tables(lanes)
    return Result(
        tokens=tokens,
        texts=decode_texts(run.pair, tokens),
        meta=header(run, found.lanes[0].run.state.caches) | facts,
        rounds=rounds,
        rows=rows,
        prompts=[list(request.prompt) for request in run.requests],
        budgets=[request.budget for request in run.requests],
        lanes=tuple(lanes),
    )


def _joined_tokens(run: Run, found: LaneTexts, lanes: Sequence[Result]) -> list[list[int]]:
    """Return the new tokens of each prompt, from one lane or from one after the other."""
    tokens = []
    for request in run.requests:
        parts = [(lane.budgets[request.index], lane.tokens[request.index]) for lane in lanes]
        # What a request wrote first was charged to its whole budget.
        ordered = sorted(parts, key=lambda part: -part[0])
        tokens.append([token for _, part in ordered for token in part])
    return tokens


def _status(statuses: Sequence[str]) -> str:
    """Return how a prompt has ended, from what both lanes say."""
    return next((status for status in statuses if status != ELSEWHERE), INTERRUPTED)


def _joined_tables(lanes: Sequence[Result]) -> tuple[Table, Table]:
    """Return the tables `rounds` and `rows` of both lanes, their rounds by when they began."""
    begins = np.concatenate([lane.spans_ms[:, 0, 0] for lane in lanes])
    order = np.argsort(begins, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    rounds = {name: values[order] for name, values in _concatenated(lanes, "rounds").items()}
    rows = _concatenated(lanes, "rows")
    first = np.repeat([0, len(lanes[0].spans_ms)], [len(lane.rows["round"]) for lane in lanes])
    rows["round"] = number[rows["round"] + first].astype(rows["round"].dtype)
    by_round = np.argsort(rows["round"], kind="stable")
    return rounds, {name: values[by_round] for name, values in rows.items()}


def _concatenated(lanes: Sequence[Result], table: str) -> Table:
    tables: list[Mapping[str, np.ndarray]] = [getattr(lane, table) for lane in lanes]
    return {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
