"""Collect from the events of a run what it writes: counts, tables and, if requested, the record.

A run is cut short by an interrupt, or because memory runs out. What is kept are complete rounds:
tokens, tables and record end at the same one. How a result looks is not known here.
"""

import gc
import warnings
from dataclasses import replace
from typing import Any

import torch
from tqdm.auto import tqdm

from specviz.engine.events import Event
from specviz.engine.graphs import PhaseGraphs
from specviz.engine.recorder import Recorder
from specviz.engine.run import Run
from specviz.engine.threads import computing_with
from specviz.record.schema import STATUSES

EOS, BUDGET, NOT_FINITE, INTERRUPTED, ELSEWHERE, STOP = STATUSES


class Collected:
    """A run and what it has written so far.

    Attributes:
        run: the current one. It differs from the first one if memory ran out.
        requests: of all prompts, in the caller's order.
        halvings: how often the batch was halved.
    """

    def __init__(self, run: Run, *, record: bool) -> None:
        self.run = run
        self.halvings = 0
        self.recorder = Recorder(run, record=record)
        self.requests = run.requests

    def run_on(self, bar: "Progress") -> str | None:
        """Run to the end, or until memory runs out; then return the message of the error."""
        try:
            for event in self.run.events():
                bar.observe(event)
                # Before the next event: this one's state is live and goes on changing.
                self.recorder.observe(event)
        except torch.OutOfMemoryError as error:
            # Only its text: the error itself would keep the round's tensors alive.
            return " ".join(str(error).split())[:200]
        return None

    def halve(self, message: str) -> None:
        """Continue with half the batch size. Rows begin with the text that they have.

        Raises:
            MemoryError: the batch is a single row.
        """
        batch_size = self.run.batch_size
        device = self.run.pair.device
        if batch_size == 1:
            raise MemoryError(
                f"batch_size=1 is more than {device} can hold ({message}); "
                "lower max_new_tokens, or shorten the prompts"
            )
        warnings.warn(
            f"{device} is out of memory at batch_size={batch_size}; "
            f"the run goes on with {batch_size // 2} ({message})",
            stacklevel=4,
        )
        # Cut first: what the failed round wrote must not become a prompt.
        self.cut()
        written = self.recorder.written(self.run)
        rest = [
            replace(request, written=tuple(written[request.index]))
            for request in self.run.requests
            if request.index not in self.recorder.outputs
        ]
        rest.sort(key=lambda request: not request.written)  # stable: begun ones first
        # Free the old run's memory even if an event that somebody kept still refers to its state.
        self.run.state.caches.clear()
        self.run.state.graphs = PhaseGraphs()
        self.run = self.run.halved(rest, self.recorder.rounds)
        self.halvings += 1
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        self.recorder.follow(self.run)

    def cut(self) -> None:
        """Forget the round that is not complete."""
        self.recorder.cut()
        self.run.stopwatch.cut(self.recorder.rounds)

    @property
    def tokens(self) -> list[list[int]]:
        """New tokens of each prompt, in the caller's order."""
        written = self.recorder.written(self.run)
        return [written[request.index] for request in self.requests]

    def facts(self) -> dict[str, Any]:
        """Return what a record's header says of the end: each prompt's status, and `halvings`."""
        status = [self.status(i, tokens) for i, tokens in enumerate(self.tokens)]
        return {"status": status, "halvings": self.halvings}

    def status(self, index: int, tokens: list[int]) -> str:
        """Return how a prompt with these new tokens has ended."""
        if index in self.recorder.nonfinite:
            return NOT_FINITE
        if index not in self.recorder.outputs:
            return INTERRUPTED
        if tokens[-1] in self.run.pair.eos_token_ids:
            return EOS
        stops = self.run.state.stops
        return STOP if stops is not None and stops.ends(tokens) else BUDGET


def collect(run: Run, *, record: bool, partial: bool, progress: bool) -> Collected:
    """Run it to the end, halving the batch whenever memory runs out.

    Args:
        partial: whether an interrupt ends the run early, with its complete rounds.

    Raises:
        KeyboardInterrupt: unless `partial`.
        MemoryError: memory ran out with a single row.
    """
    collected = Collected(run, record=record)
    # Recording computes, too, between the events.
    threads = computing_with(run.num_threads)
    with threads, Progress(len(run.requests), run.strategy.name, enabled=progress) as bar:
        try:
            while (message := collected.run_on(bar)) is not None:
                collected.halve(message)
        except KeyboardInterrupt:
            if not partial:
                raise
            # The interrupt may have come in the middle of a round.
            collected.cut()
    return collected


class Progress:
    """A bar over prompts; silent unless enabled."""

    def __init__(self, prompts: int, name: str, enabled: bool) -> None:
        self._bar = tqdm(total=prompts, desc=name, unit="prompt", disable=not enabled)
        self._tokens = 0
        self._accepted = 0
        self._row_rounds = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def observe(self, event: Event) -> None:
        if event.phase != "accept" or self._bar.disable:
            return
        rows = [row for row in event.state.batch.rows if row.gained]
        self._row_rounds += len(rows)
        self._tokens += sum(row.gained for row in rows)
        self._accepted += sum(row.accepted for row in rows)
        speed = self._tokens / max(self._bar.format_dict["elapsed"], 1e-9)
        length = 1 + self._accepted / max(self._row_rounds, 1)
        text = f"{speed:.0f} tokens/s, mean acceptance length {length:.2f}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(sum(row.finished for row in rows))
