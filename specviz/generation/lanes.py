"""Run two lanes and collect what they write, each on its own and both together."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from specviz.engine.events import Event
from specviz.engine.kv.attention import attending
from specviz.engine.lanes import Lane, Turn, Workers, alternate, can_overlap, make_lanes, take_turns
from specviz.engine.options import LANES
from specviz.engine.run import Run
from specviz.engine.threads import computing_with
from specviz.generation.assemble import decode_texts, header, make_result
from specviz.generation.collect import ELSEWHERE, INTERRUPTED, Collected, Progress
from specviz.generation.result import Result
from specviz.record.schema import Table


class LaneCollected(Collected):
    """What one lane has written so far. Requests of the other lane have the status "elsewhere"."""

    def __init__(self, lane: Lane, *, record: bool, origin: Any) -> None:
        super().__init__(lane.run, record=record)
        self.lane = lane
        self.origin = origin

    def facts(self) -> dict[str, Any]:
        """Return what the header of this lane's record says besides that of a run."""
        begins = self.run.stopwatch.spans_ms(self.origin)[:, :, 0].round(3).tolist()
        return super().facts() | {"lanes": LANES, "lane": self.lane.number, "begins_ms": begins}

    def status(self, index: int, tokens: list[int]) -> str:
        return super().status(index, tokens) if index in self.lane.entered else ELSEWHERE


def run_lanes(
    run: Run, *, record: bool, partial: bool, progress: bool, turn: Turn | None = None
) -> Result:
    """Run it in two lanes to the end and return what both have written. See `collect`.

    Args:
        turn: which lane runs its next phase; None: both run at the same time if they can.

    Raises:
        KeyboardInterrupt: unless `partial`.
        MemoryError: memory ran out. The batch is not halved.
    """
    lanes = make_lanes(run)
    # The lanes have rows of their own.
    run.state.features = None
    origin = run.stopwatch.mark()
    found = [LaneCollected(lane, record=record, origin=origin) for lane in lanes]
    models = [cache.model for cache in run.state.caches.values()]
    bar = Progress(len(run.requests), run.strategy.name, enabled=progress)
    lock = threading.Lock()

    def observe(lane: Lane, event: Event) -> None:
        with lock:  # both lanes share the bar
            bar.observe(event)
        found[lane.number].recorder.observe(event)

    try:
        with computing_with(run.num_threads), bar, attending(models):
            if turn is None and can_overlap(run.pair):
                Workers(lanes, observe).run()
            else:
                for lane, event in take_turns(lanes, turn or alternate()):
                    observe(lane, event)
    except KeyboardInterrupt:
        if not partial:
            raise
        for collected in found:
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
    return _join(run, found)


def _join(run: Run, found: Sequence[LaneCollected]) -> Result:
    """Return the result of both lanes: each on its own, and what they wrote together."""
    lanes = [make_result(each.run, each, origin=each.origin) for each in found]
    tokens: list[list[int]] = [[] for _ in run.requests]
    status = [INTERRUPTED for _ in run.requests]
    for result, each in zip(lanes, found, strict=True):
        for index in each.lane.entered:
            tokens[index] = result.tokens[index]
            status[index] = result.status[index]
    # The rounds of both lanes by when they began.
    begins = np.concatenate([lane.spans_ms[:, 0, 0] for lane in lanes])
    order = np.argsort(begins, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    rows = _concatenated([lane.rows for lane in lanes])
    first = np.repeat([0, len(lanes[0].spans_ms)], [len(lane.rows["round"]) for lane in lanes])
    rows["round"] = number[rows["round"] + first].astype(rows["round"].dtype)
    by_round = np.argsort(rows["round"], kind="stable")
    rounds = _concatenated([lane.rounds for lane in lanes])
    facts = {"status": status, "halvings": 0, "lanes": LANES}
    return Result(
        tokens=tokens,
        texts=decode_texts(run.pair, tokens),
        meta=header(run, found[0].run.state.caches) | facts,
        rounds={name: values[order] for name, values in rounds.items()},
        rows={name: values[by_round] for name, values in rows.items()},
        prompts=lanes[0].prompts,
        budgets=lanes[0].budgets,
        lanes=tuple(lanes),
    )


def _concatenated(tables: Sequence[Mapping[str, np.ndarray]]) -> Table:
    return {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
