"""Plausible wrong answers to the exercises of 09_your_models."""

from statistics import mean, median


def common(output, reference):
    pairs = enumerate(zip(output, reference, strict=False))
    return next(
        (at for at, (ours, theirs) in pairs if ours != theirs), min(len(output), len(reference))
    )


def zipped(outputs, references):
    """Takes an output for equal that is the beginning of its reference."""
    pairs = list(zip(outputs, references, strict=True))
    exact = mean(
        all(a == b for a, b in zip(output, reference, strict=False)) for output, reference in pairs
    )
    return exact, mean(common(output, reference) / len(reference) for output, reference in pairs)


def positions_that_agree(outputs, references):
    """Goes on counting behind the first difference."""
    pairs = list(zip(outputs, references, strict=True))
    agree = [
        sum(a == b for a, b in zip(output, reference, strict=False)) / len(reference)
        for output, reference in pairs
    ]
    return mean(output == reference for output, reference in pairs), mean(agree)


def over_the_output(outputs, references):
    pairs = list(zip(outputs, references, strict=True))
    exact = mean(output == reference for output, reference in pairs)
    return exact, mean(common(output, reference) / len(output) for output, reference in pairs)


def _speedup(runs, strategy, B, eos, first, end, baseline):
    def kept(text):
        return text.index(eos) + 1 if eos in text and end else len(text)

    def speed(name, size):
        own = [run for run in runs if (run["strategy"], run["B"]) == (name, size)][first:]
        return median(sum(kept(text) for text in run["texts"]) / run["seconds"] for run in own)

    return speed(strategy, B) / speed("autoregressive", B if baseline else 1)


WRONG = {
    "taken": [
        (False, False, False, True),
        (True, False, True, True),
        (True, False, False, False),
        (True, True, False, True),
    ],
    "match": [(zipped,), (positions_that_agree,), (over_the_output,)],
    "speedup": [
        (lambda runs, strategy, B, eos: _speedup(runs, strategy, B, eos, 0, True, True),),
        (lambda runs, strategy, B, eos: _speedup(runs, strategy, B, eos, 1, False, True),),
        (lambda runs, strategy, B, eos: _speedup(runs, strategy, B, eos, 1, True, False),),
    ],
}
