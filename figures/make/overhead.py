"""What each phase of a round takes inside the models and beside them."""

import time
from collections.abc import Iterator, Sequence
from itertools import product

import pandas as pd
from measure import Measured, command, measured_on
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.options import Options
from specviz.engine.run import Run, make_run
from specviz.record.schema import PHASES

SETUP = ["strategy", "batch_size"]


def overhead(batch_sizes: Sequence[int], limit: int, repetitions: int = 3) -> Measured:
    """Decode with each strategy and B, repetitions interleaved, after one to warm up.

    Nothing is recorded. Times are the host's: on a GPU, what it takes to launch the work. All are
    medians over rounds in which no prompt entered.
    """
    pair = sv.load_pair()
    sizes = {"num_draft_tokens": 5, "max_new_tokens": 64}
    strategies = ("autoregressive", "eqspec", "exspec", "inplace")
    found = []
    for repetition in range(repetitions + 1):
        for strategy, size in product(strategies, batch_sizes):
            options = Options(strategy=strategy, batch_size=size, **sizes)
            run = make_run(pair, sv.load_prompts(limit=limit), options)
            setup = {"strategy": strategy, "batch_size": size, "repetition": repetition}
            phases = [setup | phase for phase in timed(run)]
            found += phases if repetition else []
    table = pd.DataFrame(found)
    round_ms = table.groupby([*SETUP, "repetition", "round"], sort=False)["ms"].sum()
    table["beside_ms"] = table["ms"] - table["model_ms"]
    measured = ["ms", "forwards", "model_ms", "beside_ms"]
    medians = table.groupby([*SETUP, "phase"], sort=False)[measured].median()
    medians["share"] = medians["ms"] / round_ms.groupby(SETUP).median()
    return medians.reset_index(), measured_on(pair, **sizes, prompts=limit, repetitions=repetitions)


def timed(run: Run) -> Iterator[dict[str, object]]:
    """Yield the phases of the rounds in which no prompt entered, as they are on the host."""
    models = {id(cache.model): cache.model for cache in run.state.caches.values()}
    watches = [Forwards(model) for model in models.values()]
    phases: list[dict[str, object]] = []
    begin = time.perf_counter()
    for event in run.events():
        ms = 1e3 * (time.perf_counter() - begin)
        phase = {"round": event.round, "phase": event.phase, "ms": ms}
        phase["forwards"] = sum(watch.count for watch in watches)
        phase["model_ms"] = sum(watch.ms for watch in watches)
        phases.append(phase)
        if event.phase == PHASES[-1]:
            if not run.state.admitted:
                yield from phases
            phases = []
        for watch in watches:
            watch.reset()
        begin = time.perf_counter()
    for watch in watches:
        watch.end()


class Forwards:
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
        """Begin to count again."""
        self.ms = 0.0
        self.count = 0

    def end(self) -> None:
        """Leave the model as it was."""
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


if __name__ == "__main__":
    whole = {"batch_sizes": (1, 4, 8, 16), "limit": 16}
    small = {"batch_sizes": (2,), "limit": 2, "repetitions": 1}
    command(overhead, {"overhead-cpu": whole}, small)
