"""Plausible wrong answers to the exercises of 18_serving."""

import math


def since_the_start(arrived, started, ended):
    """Forgets the time in the queue."""
    latencies = sorted(end - begin for begin, end in zip(started, ended, strict=True))
    return latencies[math.ceil(99 * len(latencies) / 100) - 1]


def unsorted(arrived, started, ended):
    latencies = [end - begin for begin, end in zip(arrived, ended, strict=True)]
    return latencies[math.ceil(99 * len(latencies) / 100) - 1]


def one_too_many(arrived, started, ended):
    latencies = sorted(end - begin for begin, end in zip(arrived, ended, strict=True))
    return latencies[int(0.99 * len(latencies))]


WRONG = {
    "own_load": [(0.7, False), (0.42, False), (1.17, False), (1.67, True)],
    "devices": [
        (lambda rate, latency_s, B: math.ceil(rate / B),),
        (lambda rate, latency_s, B: int(rate * latency_s / B),),
        (lambda rate, latency_s, B: math.ceil(rate * latency_s),),
    ],
    "p99": [(since_the_start,), (unsorted,), (one_too_many,)],
}
