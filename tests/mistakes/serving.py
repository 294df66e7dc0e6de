"""Plausible wrong answers to the exercises of 18_serving."""

import math


def latencies(begins, ended):
    return [end - begin for begin, end in zip(begins, ended, strict=True)]


def place(count):
    return math.ceil(99 * count / 100) - 1


WRONG = {
    "own_load": {
        "expected a load of 1.17, got": [(0.7, False), (0.42, False), (1.67, True)],
        "whether the queue grows, expected True": [(1.17, False)],
    },
    "devices": {
        "B = 8 expected 10, got": [
            lambda rate, latency_s, B: math.ceil(rate / B),
            lambda rate, latency_s, B: math.ceil(rate * latency_s),
        ],
        "B = 64 expected 2, got": [lambda rate, latency_s, B: int(rate * latency_s / B)],
    },
    "p99": {
        "for 100 requests expected 9.07, got": [
            # Since the start, which forgets the queue; not sorted; one too many.
            lambda arrived, started, ended: sorted(latencies(started, ended))[place(len(ended))],
            lambda arrived, started, ended: latencies(arrived, ended)[place(len(ended))],
            lambda arrived, started, ended: sorted(latencies(arrived, ended))[
                int(0.99 * len(ended))
            ],
        ]
    },
}
