"""How long replays of an acceptance table take: 10,000 requests in one queue, without a model.

`OMP_NUM_THREADS=1 PYTHONPATH=tests python -m replay_cost runs/table.safetensors` prints the seconds
of one replay each. `specviz study tables --out runs/table.safetensors` makes the table.
"""

import sys
import time

from specviz.simulation import AcceptanceTable, Policy, Tetris, replay

REQUESTS = 10_000
BATCH_SIZES = (8, 32)
K = 4


def main(path: str) -> None:
    """Measure and print."""
    table = AcceptanceTable.load(path)
    for batch_size in BATCH_SIZES:
        policies = [Policy(name, batch_size, K) for name in ("inplace", "eqspec", "exspec")]
        policies.append(Policy("inplace", batch_size, K, selector=Tetris(extra=2)))
        for policy in policies:
            begin = time.perf_counter()
            found = replay(table, policy, requests=REQUESTS)
            seconds = time.perf_counter() - begin
            rounds = int(found.totals.rounds.sum())
            sys.stdout.write(f"B = {batch_size}, {policy.name}: {seconds:.1f} s, {rounds} rounds\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
