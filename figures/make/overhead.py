"""What each phase of a round takes inside the models and beside them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import pandas as pd
from measure import Measured, command, measured_on
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.options import Options
from specviz.engine.run import Run, make_run
from specviz.record.schema import PHASES

SETUP = ["strategy", "batch_size"]
NOTHING = {"forwards": 0, "model_ms": 0.0}


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
    with watched([cache.model for cache in run.state.caches.values()]) as seen:
        phases: list[dict[str, object]] = []
        begin = time.perf_counter()
        for event in run.events():
            ms = 1e3 * (time.perf_counter() - begin)
            phases.append({"round": event.round, "phase": event.phase, "ms": ms, **seen})
            if event.phase == PHASES[-1]:
                if not run.state.admitted:
                    yield from phases
                phases = []
            seen.update(NOTHING)
            begin = time.perf_counter()


@contextmanager
def watched(models: Sequence[PreTrainedModel]) -> Iterator[dict[str, float]]:
    """Count forwards of the models and their milliseconds.

    Forwards of a base model, without its head, count too.
    """
    seen = dict(NOTHING)
    running: list[float] = []  # when they began; a base model's forward runs inside the model's own

    def leave(*_: object) -> None:
        begin = running.pop()
        if not running:
            seen["forwards"] += 1
            seen["model_ms"] += 1e3 * (time.perf_counter() - begin)

    handles = []
    for module in {each for model in models for each in (model, model.base_model)}:
        enter = module.register_forward_pre_hook(lambda *_: running.append(time.perf_counter()))
        handles += [enter, module.register_forward_hook(leave)]
    yield seen
    for handle in handles:
        handle.remove()


if __name__ == "__main__":
    whole = {"batch_sizes": (1, 4, 8, 16), "limit": 16}
    small = {"batch_sizes": (2,), "limit": 2, "repetitions": 1}
    command(overhead, {"overhead-cpu": whole}, small)
