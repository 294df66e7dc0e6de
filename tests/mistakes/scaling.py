"""Plausible wrong answers to the exercises of 15_scaling."""

import numpy as np


def fit(tokens, lengths, axis=np.log):
    b, a = np.polyfit(axis(tokens), lengths, 1)
    return a, b


def ends_alone(tokens, lengths):
    b = (lengths[-1] - lengths[0]) / np.log(tokens[-1] / tokens[0])
    return lengths[0] - b * np.log(tokens[0]), b


def argmax(values):
    return max(values, key=values.get)


WRONG = {
    "next_rung": {
        "one doubling further": [1.65],
        # Eight times the gain; a line over tokens.
        "what each doubling adds": [1.5 + 8 * 0.15, 1.5 + 560 * 0.15 / 40],
    },
    "fit": {
        "b is that of log10": [lambda tokens, lengths: fit(tokens, lengths, np.log10)],
        "b is that of log2": [lambda tokens, lengths: fit(tokens, lengths, np.log2)],
        "expected a = -1.338 and b = 0.562, got": [
            lambda tokens, lengths: fit(tokens, lengths, np.asarray),
            lambda tokens, lengths: fit(tokens, lengths)[::-1],
            ends_alone,
        ],
        "two numbers, a and b": [lambda tokens, lengths: fit(tokens, lengths)[1]],
    },
    "best": {
        "which is most a second; got K = ": [
            lambda lengths, ms: argmax(lengths),
            lambda lengths, ms: min(ms, key=ms.get),
            lambda lengths, ms: argmax({k: (lengths[k] - 1) / ms[k] for k in lengths}),
            lambda lengths, ms: argmax({k: lengths[k] / (k + 1) for k in lengths}),
            lambda lengths, ms: argmax({k: lengths[k] / ms[k] for k in lengths if k}),
        ]
    },
}
