"""From the events of a run to what it wrote: counted, recorded if asked for, and kept when it is interrupted or memory runs out.

Contract: what is kept are whole rounds; tokens, tables and record end at the same one. Not known here: what a result looks like.
"""

import gc
import warnings
from typing import Any

import torch
from tqdm.auto import tqdm

from specviz.engine.batch import Request
from specviz.engine.events import Event
from specviz.engine.graphs import PhaseGraphs
from specviz.engine.recorder import Recorder, Tally
from specviz.engine.run import Run
from specviz.record.schema import STATUSES

EOS, BUDGET, NOT_FINITE, INTERRUPTED = STATUSES


class Collected:
    """A run and what it has written so far.

    Attributes:
        run: the running one; another than the one it began with if memory ran out.
        rounds: how many whole rounds are over.
        halvings: how often the batch was halved.
    """

    def __init__(self, run: Run, *, record: bool) -> None:
        self.run, self.rounds, self.halvings = run, 0, 0
        self.tally, self.recorder = Tally(run), Recorder(run) if record else None
        self._requests = run.requests

    def take(self, bar: "_Progress") -> str | None:
        """Run, to the end or until memory runs out: then its words."""
        try:
            for event in self.run.events():
                bar.see(event)
                self.see(event)
        except torch.OutOfMemoryError as error:
            return " ".join(str(error).split())[
                :200
            ]  # the error itself would keep the round's tensors
        return None

    def see(self, event: Event) -> None:
        """To be called with each event of the run, before the next one is asked for."""
        self.tally.see(event)
        if self.recorder is not None:
            self.recorder.see(event)
        if event.phase == "synchronise":
            self.rounds = event.round + 1

    def halve(self, why: str) -> None:
        """Go on with half the batch size: rows begin with the text that they have."""
        size, device = self.run.batch_size, self.run.pair.device
        if size == 1:
            raise MemoryError(
                f"batch_size=1 is more than {device} can hold ({why}); lower max_new_tokens, or shorten the prompts"
            )
        warnings.warn(
            f"{device} is out of memory at batch_size={size}; the run goes on with {size // 2} ({why})",
            stacklevel=4,
        )
        self.cut()
        left = [request for request in self.run.requests if request.index not in self.tally.outputs]
        written = self.tally.written(self.run)
        begun = sorted(
            left, key=lambda request: not written[request.index]
        )  # those that were at work go first
        rest = [
            Request(each.index, each.prompt, each.budget, tuple(written[each.index]))
            for each in begun
        ]
        self.run.state.caches.clear()  # whoever still holds the old run holds no K/V
        self.run.state.graphs = PhaseGraphs()
        self.run = self.run.halved(rest, self.rounds)
        self.halvings += 1
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if self.recorder is not None:
            self.recorder.follow(self.run)

    def cut(self) -> None:
        """Forget the round that is not over."""
        self.tally.cut(self.rounds)
        if self.recorder is not None:
            self.recorder.cut(self.rounds)
        self.run.stopwatch.cut(self.rounds)

    @property
    def tokens(self) -> list[list[int]]:
        """New tokens of each prompt, in the caller's order."""
        written = self.tally.written(self.run)
        return [written[request.index] for request in self._requests]

    def facts(self) -> dict[str, Any]:
        """What the header of a record says of how it ended: the status of each prompt, and how often the batch was halved."""
        eos = set(self.run.pair.eos_token_ids)
        return {
            "status": [self._status(i, tokens, eos) for i, tokens in enumerate(self.tokens)],
            "halvings": self.halvings,
        }

    def _status(self, index: int, tokens: list[int], eos: set[int]) -> str:
        if index in self.tally.broken:
            return NOT_FINITE
        if index not in self.tally.outputs:
            return INTERRUPTED
        return EOS if tokens[-1] in eos else BUDGET


def collect(run: Run, *, record: bool, partial: bool, progress: bool) -> Collected:
    """Run it. `partial`: an interrupt ends it early, with the whole rounds so far.

    Raises:
        KeyboardInterrupt: unless `partial`.
        MemoryError: memory ran out with a single row.
    """
    found = Collected(run, record=record)
    with _Progress(len(run.requests), run.strategy.name, enabled=progress) as bar:
        try:
            while (why := found.take(bar)) is not None:
                found.halve(why)
        except KeyboardInterrupt:
            if not partial:
                raise
            found.cut()
    return found


class _Progress:
    """A bar over prompts; silent if not enabled."""

    def __init__(self, prompts: int, name: str, enabled: bool) -> None:
        self._bar = tqdm(total=prompts, desc=name, unit="prompt", disable=not enabled)
        self._tokens = self._accepted = self._row_rounds = 0

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def see(self, event: Event) -> None:
        if event.phase != "accept" or self._bar.disable:
            return
        working = [row for row in event.state.batch.rows if row.gained]
        self._row_rounds += len(working)
        self._tokens += sum(row.gained for row in working)
        self._accepted += sum(row.accepted for row in working)
        speed, length = (
            self._tokens / max(self._bar.format_dict["elapsed"], 1e-9),
            1 + self._accepted / max(self._row_rounds, 1),
        )
        self._bar.set_postfix_str(
            f"{speed:.0f} tokens/s, mean acceptance length {length:.2f}", refresh=False
        )
        self._bar.update(sum(row.finished for row in working))
