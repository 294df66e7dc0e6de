"""Checks of 18_serving: a policy's own load, how many devices, a percentile of latencies."""

import math
import random

from checks.base import Answer, WrongAnswerError, ask, exercise, expect

_SERVED = 50.0  # requests a second of the faster policy
_SLOWER = 30.0
_LOAD = 0.7


@exercise
def own_load(load: float, grows: bool) -> str:
    """Check the load of the slower policy, and whether its queue grows without end."""
    wanted = _LOAD * _SERVED / _SLOWER
    if abs(float(load) - wanted) > 0.01:
        raise WrongAnswerError(
            f"for 70 % of 50 requests a second, on a policy that serves 30, expected a load of "
            f"{wanted:.2f}, got {load!r}"
        )
    expect(grows, True, "a load above 1, as the answer to whether the queue grows,")
    return "35 requests a second arrive and 30 are served, so 5 more wait after every second"


@exercise
def devices(answer: Answer) -> str:
    """Check a function of rate, latency_s and B: the least number of devices on average."""
    for rate, latency_s, rows in (
        (40, 2, 8),
        (40, 2, 64),
        (1, 0.5, 8),
        (100, 1.5, 32),
        (33, 1, 32),
        (64, 1, 32),
        (7, 3, 1),
    ):
        expect(
            int(ask(answer, rate, latency_s, rows)),
            max(1, math.ceil(rate * latency_s / rows)),
            f"{rate}/s, {latency_s} s, B = {rows}",
        )
    return "right on average; a P99 needs some more, because arrivals come in bursts"


@exercise
def p99(answer: Answer) -> str:
    """Check a function of the times arrived, started and ended of requests: their P99."""
    rng = random.Random(0)
    for count in (100, 200, 500, 150, 1):
        arrived = [round(rng.uniform(0, 50), 2) for _ in range(count)]
        started = [round(time + rng.expovariate(0.5), 2) for time in arrived]
        ended = [round(time + rng.uniform(0.5, 3), 2) for time in started]
        latencies = sorted(end - begin for begin, end in zip(arrived, ended, strict=True))
        wanted = latencies[(99 * count + 99) // 100 - 1]
        found = float(ask(answer, list(arrived), list(started), list(ended)))
        expect(round(found, 6), round(wanted, 6), f"{count} requests")
    return "right for up to 500 requests: from arrival to end, sorted, and one in 100 may be slower"
