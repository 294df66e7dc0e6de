"""How long a compiled forward of the embedded target takes on a CPU, by tokens and by weights.

`OMP_NUM_THREADS=1 PYTHONPATH=tests python -m compiled_cost` prints the median milliseconds of each
kind of forward, measured in turns, and the seconds that its first call took. That is what compiling
takes, if TORCHINDUCTOR_CACHE_DIR names an empty folder; otherwise torch may have the code on disk.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from unittest.mock import patch

import torch
from torch import Tensor, nn

import specviz as sv
from specviz.engine.kv import compiled
from specviz.engine.kv.compiled import CompiledModel

SHAPES = ((1, 1), (1, 4), (8, 1), (4, 4), (8, 4), (16, 4), (16, 6))
# By kind, the constants of `compiled` under which a model is compiled so.
KINDS: dict[str, dict[str, object]] = {
    "transposed": {"MAX_PACKED_BYTES": 0},
    "packed": {"late_inlining": lambda: None},
    "packed, inlined late": {},
}
TURNS = 40
Call = Callable[..., object]


def make(kind: str, model: nn.Module, ids: Tensor) -> Call:
    """Return what calls the model compiled, after a first call."""
    compiled._known.clear()  # each kind has code of its own
    with ExitStack() as stack:
        for name, value in KINDS[kind].items():
            stack.enter_context(patch.object(compiled, name, value))
        call = CompiledModel(model)
        call._packs_many = True
        call(input_ids=ids, use_cache=False)
    return call


def measure(calls: dict[str, Call], ids: Tensor) -> dict[str, float]:
    """Return the median milliseconds of each call, measured in turns."""
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(TURNS):
        for kind, call in calls.items():
            call(input_ids=ids, use_cache=False)  # so that its weights are in the processor's cache
            begin = time.perf_counter()
            call(input_ids=ids, use_cache=False)
            times[kind].append(1e3 * (time.perf_counter() - begin))
    return {kind: median(found) for kind, found in times.items()}


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    model = sv.load_pair().target
    calls: dict[str, Call] = {"not compiled": model}
    for rows, tokens in SHAPES:
        ids = torch.randint(5, 4000, (rows, tokens))
        first = []
        for kind in KINDS:
            begin = time.perf_counter()
            if kind not in calls:
                calls[kind] = make(kind, model, ids)
            else:
                calls[kind](input_ids=ids, use_cache=False)
            first.append(f"{time.perf_counter() - begin:.0f}")
        sys.stdout.write(f"{rows} x {tokens}: first calls took {', '.join(first)} s\n")
        for kind, milliseconds in measure(calls, ids).items():
            sys.stdout.write(f"  {kind}: {milliseconds:.2f} ms\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
