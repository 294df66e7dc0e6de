"""What the trial of the embedded pair costs, in CPU time, beside a run of 64 tokens at B = 8.

`OMP_NUM_THREADS=1 PYTHONPATH=tests python -m probe_cost` prints both, from interleaved repetitions.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch

import specviz as sv
from specviz.engine import probe

REPETITIONS = 9


def cpu_ms(call: Callable[[], object]) -> float:
    """Return the milliseconds of CPU time that a call took."""
    before = time.process_time()
    call()
    return (time.process_time() - before) * 1000


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    pair = sv.load_pair(device="cpu")
    prompts = sv.load_prompts(limit=8)

    def run() -> None:
        sv.generate(pair, prompts, batch_size=8, max_new_tokens=64, progress=False)

    def trial() -> None:
        probe._tried.clear()
        probe._passed.clear()
        probe.check_exact("target", pair.target)
        probe.check_exact("draft", pair.draft)

    run()
    trials = []
    runs = []
    for _ in range(REPETITIONS):
        trials.append(cpu_ms(trial))
        runs.append(cpu_ms(run))
    shares = [100 * a / b for a, b in zip(trials, runs, strict=True)]
    sys.stdout.write(
        f"trial {statistics.median(trials):.1f} ms, run {statistics.median(runs):.0f} ms: "
        f"{statistics.median(shares):.2f} % ({min(shares):.2f} to {max(shares):.2f}), "
        f"{REPETITIONS} repetitions\n"
    )


if __name__ == "__main__":
    main()
