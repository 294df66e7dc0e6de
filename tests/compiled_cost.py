"""How long a compiled forward of the embedded target takes on a CPU, by tokens and by weights.

`OMP_NUM_THREADS=1 PYTHONPATH=tests python -m compiled_cost` prints the median milliseconds of each
kind of forward, measured in turns, and the seconds for which it was compiled before. Set
TORCHINDUCTOR_CACHE_DIR to an empty folder, or torch takes what it has compiled from its disk cache.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from unittest.mock import patch

import torch
from torch import Tensor

import specviz as sv
from specviz.engine.kv import compiled
from specviz.engine.kv.compiled import CompiledModel

SHAPES = ((1, 1), (1, 4), (8, 1), (4, 4), (8, 4), (16, 4), (16, 6))
TURNS = 40
Call = Callable[..., object]


def settings(kind: str) -> dict[str, object]:
    """Return the constants of `compiled` under which a forward is of this kind."""
    if kind == "transposed":
        return {"MAX_PACKED_BYTES": 0}
    if kind == "packed":
        return {"late_inlining": lambda: None}
    return {}


def make(kind: str, model: torch.nn.Module, ids: Tensor) -> tuple[Call, float]:
    """Return a call that is compiled for inputs like these, and for how many seconds it was."""
    if kind == "not compiled":
        return model, 0.0
    compiled._known.clear()  # a call of its own for each kind and shape
    with ExitStack() as stack:
        for name, value in settings(kind).items():
            stack.enter_context(patch.object(compiled, name, value))
        call = CompiledModel(model)
        call._packs_many = kind != "transposed"
        begin = time.perf_counter()
        call(input_ids=ids, use_cache=False)
    return call, time.perf_counter() - begin


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
    for rows, tokens in SHAPES:
        ids = torch.randint(5, 4000, (rows, tokens))
        calls = {}
        said = []
        for kind in ("not compiled", "transposed", "packed", "packed, inlined late"):
            calls[kind], seconds = make(kind, model, ids)
            said.append(f"{seconds:.0f} s")
        found = measure(calls, ids)
        sys.stdout.write(f"{rows} x {tokens}, compiled for {', '.join(said)}\n")
        for kind, milliseconds in found.items():
            sys.stdout.write(f"  {kind}: {milliseconds:.2f} ms\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
