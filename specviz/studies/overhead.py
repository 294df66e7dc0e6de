"""`measure_overhead`: what each phase of a round takes on the host, in the models' forwards and beside them."""

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt
from specviz.engine.run import Run, make_run
from specviz.generation.generate import generate
from specviz.record.schema import PHASES
from specviz.util.files import conditions
from specviz.util.validate import require_int


def measure_overhead(
    pair: Pair,
    prompts: Sequence[Prompt],
    strategies: Sequence[str] = ("autoregressive", "eqspec", "exspec", "inplace"),
    batch_sizes: Sequence[int] = (1, 8),
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    repetitions: int = 3,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Decode `prompts`, repetitions interleaved, each strategy and B once before that to warm up; nothing is recorded.

    Times are the host's: on a GPU they are what it takes to launch the work, which the GPU does meanwhile.

    Returns:
        (table, conditions). One entry per strategy, batch_size and phase: `forwards` a round, `model_ms` in them, `beside_ms` in all else,
        `share` of the phase in the round; medians over all rounds in which no prompt entered.

    Raises:
        ValueError: an argument cannot be used.
    """
    require_int("repetitions", repetitions)
    cells = [
        (strategy, require_int(f"batch_sizes[{i}]", b))
        for strategy in strategies
        for i, b in enumerate(batch_sizes)
    ]
    asked: dict[str, Any] = {"num_draft_tokens": num_draft_tokens, "max_new_tokens": max_new_tokens}
    times: dict[tuple[str, int], list[Round]] = {cell: [] for cell in cells}
    for repetition in range(repetitions + 1):
        for strategy, b in cells:
            options = Options(strategy=strategy, batch_size=b, **asked)
            measured = list(_rounds(make_run(pair, prompts, options)))
            times[strategy, b] += measured if repetition else []  # the first one warms up
    table = pd.DataFrame(
        [
            entry
            for (strategy, b), rounds in times.items()
            for entry in _entries(strategy, b, rounds)
        ]
    )
    meta = generate(pair, prompts[:1], max_new_tokens=1, progress=False).meta
    return table, conditions(
        meta,
        **asked,
        prompts=len(prompts),
        repetitions=repetitions,
        threads=torch.get_num_threads(),
    )


def _entries(strategy: str, batch_size: int, rounds: "list[Round]") -> Iterator[dict[str, object]]:
    whole_ms = median(sum(ms for ms, _, _ in phases) for phases in rounds)
    for number, phase in enumerate(PHASES):
        ms, inside, forwards = zip(*(phases[number] for phases in rounds), strict=True)
        beside = [each - within for each, within in zip(ms, inside, strict=True)]
        numbers = {
            "forwards": median(forwards),
            "model_ms": median(inside),
            "beside_ms": median(beside),
            "share": median(ms) / whole_ms,
        }
        yield {
            "strategy": strategy,
            "batch_size": batch_size,
            "phase": phase,
            "ms": median(ms),
        } | numbers


Round = list[
    tuple[float, float, int]
]  # of each phase: ms, those of them in forwards, and how many forwards


def _rounds(run: Run) -> Iterator[Round]:
    """The rounds in which no prompt entered."""
    watches = [
        _Forwards(model)
        for model in {id(cache.model): cache.model for cache in run.state.caches.values()}.values()
    ]
    phases: Round = []
    events, begin = run.events(), time.perf_counter()
    try:
        for event in events:
            took = 1e3 * (time.perf_counter() - begin)
            phases.append(
                (took, sum(watch.ms for watch in watches), sum(watch.count for watch in watches))
            )
            if event.phase == PHASES[-1]:
                if not run.state.admitted:
                    yield phases
                phases = []
            for watch in watches:
                watch.ms, watch.count = 0.0, 0
            begin = time.perf_counter()
    finally:
        for watch in watches:
            watch.end()


class _Forwards:
    """How long a model's forwards took since it was last asked, those without its head included."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.ms, self.count, self._deep, self._begin = 0.0, 0, 0, 0.0
        modules = (model, model.base_model)
        self._handles = [each.register_forward_pre_hook(self._enter) for each in modules]
        self._handles += [each.register_forward_hook(self._leave) for each in modules]

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, *_: object) -> None:
        self._deep += 1
        if self._deep == 1:
            self._begin = time.perf_counter()

    def _leave(self, *_: object) -> None:
        self._deep -= 1
        if self._deep == 0:
            self.ms += 1e3 * (time.perf_counter() - self._begin)
            self.count += 1
