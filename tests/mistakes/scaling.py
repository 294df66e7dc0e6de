"""Plausible wrong answers to the exercises of 15_scaling."""

import numpy as np

ONE_DOUBLING = 1.65
EIGHT_TIMES_THE_GAIN = 1.5 + 8 * 0.15
OVER_TOKENS = 1.5 + 560 * 0.15 / 40
FROM_THE_FIRST = 1.2 + 3 * 0.15


def of_base_10(tokens, lengths):
    b, a = np.polyfit(np.log10(tokens), lengths, 1)
    return a, b


def of_base_2(tokens, lengths):
    b, a = np.polyfit(np.log2(tokens), lengths, 1)
    return a, b


def over_tokens(tokens, lengths):
    b, a = np.polyfit(tokens, lengths, 1)
    return a, b


def slope_first(tokens, lengths):
    return np.polyfit(np.log(tokens), lengths, 1)


def ends_alone(tokens, lengths):
    b = (lengths[-1] - lengths[0]) / np.log(tokens[-1] / tokens[0])
    return lengths[0] - b * np.log(tokens[0]), b


def slope_alone(tokens, lengths):
    return np.polyfit(np.log(tokens), lengths, 1)[0]


def longest(lengths, round_ms):
    return max(lengths, key=lengths.get)


def shortest_round(lengths, round_ms):
    return min(round_ms, key=round_ms.get)


def without_the_bonus(lengths, round_ms):
    return max(lengths, key=lambda k: (lengths[k] - 1) / round_ms[k])


def for_each_draft(lengths, round_ms):
    return max(lengths, key=lambda k: lengths[k] / (k + 1))


def never_none(lengths, round_ms):
    return max(list(lengths)[1:], key=lambda k: lengths[k] / round_ms[k])


WRONG = {
    "next_rung": [(ONE_DOUBLING,), (EIGHT_TIMES_THE_GAIN,), (OVER_TOKENS,), (FROM_THE_FIRST,)],
    "fit": [
        (of_base_10,),
        (of_base_2,),
        (over_tokens,),
        (slope_first,),
        (ends_alone,),
        (slope_alone,),
    ],
    "best": [
        (longest,),
        (shortest_round,),
        (without_the_bonus,),
        (for_each_draft,),
        (never_none,),
    ],
}
