"""Plausible wrong answers to the exercises of 09_your_models."""

from statistics import mean, median


def same(output, reference):
    """Return for each token up to the shorter end whether both agree."""
    return [a == b for a, b in zip(output, reference, strict=False)]


def common(output, reference):
    return [*same(output, reference), False].index(False)


def match(outputs, references, equal=lambda a, b: a == b, share=None):
    share = share or (lambda a, b: common(a, b) / len(b))
    pairs = list(zip(outputs, references, strict=True))
    return mean(equal(a, b) for a, b in pairs), mean(share(a, b) for a, b in pairs)


def speedup(runs, strategy, B, eos, first=1, end=True, baseline=True):
    def kept(text):
        return text.index(eos) + 1 if eos in text and end else len(text)

    def speed(name, size):
        own = [run for run in runs if (run["strategy"], run["B"]) == (name, size)][first:]
        return median(sum(kept(text) for text in run["texts"]) / run["seconds"] for run in own)

    return speed(strategy, B) / speed("autoregressive", B if baseline else 1)


WRONG = {
    "taken": {
        "pair A expected True, got False": [(False, False, False, True)],
        "pair B expected False, got True": [(True, True, False, True)],
        "pair C expected False, got True": [(True, False, True, True)],
        "pair D expected True, got False": [(True, False, False, False)],
    },
    "match": {
        # An output that is the beginning of its reference counts as equal.
        "expected exact": [lambda a, b: match(a, b, equal=lambda x, y: all(same(x, y)))],
        "expected partial": [
            # Goes on behind the first difference; divides by the output.
            lambda a, b: match(a, b, share=lambda x, y: sum(same(x, y)) / len(y)),
            lambda a, b: match(a, b, share=lambda x, y: common(x, y) / len(x)),
        ],
    },
    "speedup": {
        "for eqspec at B = 1 expected": [
            lambda *runs: speedup(*runs, first=0),
            lambda *runs: speedup(*runs, end=False),
        ],
        "for eqspec at B = 8 expected": [lambda *runs: speedup(*runs, baseline=False)],
    },
}
