"""`specviz study overhead`: what each phase of a round takes inside and outside the models."""

import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import Run, check_pair, make_run
from specviz.generation.generate import generate
from specviz.record.schema import PHASES
from specviz.util.files import conditions
from specviz.util.validate import require_int, require_ints, require_list


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
    """Decode `prompts` with each strategy and B, repetitions interleaved, after one to warm up.

    Nothing is recorded. Times are the host's. On a GPU they are what it takes to launch the work,
    which the GPU does meanwhile.

    Returns:
        (table, conditions). One entry per strategy, batch_size and phase: `ms`, `forwards` a
        round, `model_ms` inside them, `beside_ms` outside, `share` of the phase in the round;
        medians over all rounds in which no prompt entered.

    Raises:
        ValueError: an argument cannot be used.
    """
    require_int("repetitions", repetitions)
    require_ints("batch_sizes", batch_sizes)
    require_list("strategies", strategies)
    check_pair(pair)
    make_requests(pair, prompts, max_new_tokens, require_int("num_draft_tokens", num_draft_tokens))
    for name in strategies:
        Options(strategy=name)
    sizes: dict[str, Any] = {
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
    }
    phases = []
    for repetition in range(repetitions + 1):
        for strategy, size in product(strategies, batch_sizes):
            options = Options(strategy=strategy, batch_size=size, **sizes)
            for phase in _phases(make_run(pair, prompts, options)):
                if repetition > 0:  # the first one warms up
                    setup = {"strategy": strategy, "batch_size": size, "repetition": repetition}
                    phases.append(setup | phase)
    meta = generate(pair, prompts[:1], max_new_tokens=1, progress=False).meta
    settings = {**sizes, "prompts": len(prompts), "repetitions": repetitions}
    threads = torch.get_num_threads()
    return _medians(pd.DataFrame(phases)), conditions(meta, **settings, threads=threads)


def _medians(phases: pd.DataFrame) -> pd.DataFrame:
    """Return one entry per strategy, batch_size and phase."""
    setup = ["strategy", "batch_size"]
    measured = ["ms", "forwards", "model_ms", "beside_ms"]
    round_ms = phases.groupby([*setup, "repetition", "round"], sort=False)["ms"].sum()
    phases = phases.assign(beside_ms=phases["ms"] - phases["model_ms"])
    table = phases.groupby([*setup, "phase"], sort=False)[measured].median()
    table["share"] = table["ms"] / round_ms.groupby(setup).median()
    return table.reset_index()


def _phases(run: Run) -> Iterator[dict[str, object]]:
    """Yield the phases of the rounds in which no prompt entered, as they are on the host."""
    models = {id(cache.model): cache.model for cache in run.state.caches.values()}
    watches = [_Forwards(model) for model in models.values()]
    phases: list[dict[str, object]] = []
    events = run.events()
    begin = time.perf_counter()
    try:
        for event in events:
            ms = 1e3 * (time.perf_counter() - begin)
            phase = {
                "round": event.round,
                "phase": event.phase,
                "ms": ms,
                "forwards": sum(watch.count for watch in watches),
                "model_ms": sum(watch.ms for watch in watches),
            }
            phases.append(phase)
            if event.phase == PHASES[-1]:
                if not run.state.admitted:
                    yield from phases
                phases = []
            for watch in watches:
                watch.reset()
            begin = time.perf_counter()
    finally:
        for watch in watches:
            watch.end()


class _Forwards:
    """The number and the milliseconds of a model's forwards since the last reset.

    Forwards of the base model, without its head, count too.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.reset()
        self._depth = 0  # the base model's forward runs inside the model's own
        self._begin = 0.0
        self._handles = []
        for module in (model, model.base_model):
            self._handles.append(module.register_forward_pre_hook(self._enter))
            self._handles.append(module.register_forward_hook(self._leave))

    def reset(self) -> None:
        self.ms = 0.0
        self.count = 0

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin = time.perf_counter()

    def _leave(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.ms += 1e3 * (time.perf_counter() - self._begin)
            self.count += 1
