"""Solutions of 09_your_models."""

# %%
from statistics import median

from specviz.exercises import your_models as check

# %% [markdown]
# **1.** A: lines beyond the last named id are padding, which is cut. B: ids mean other tokens. C: what a layer has forgotten cannot be
# taken back. D: nothing is wrong with it, it only cannot pay.

# %%
assert check.taken(True, False, False, True)


# %% [markdown]
# **2.** The common beginning, counted.


# %%
def common(output, reference):
    """Length of the common beginning."""
    count = 0
    for ours, theirs in zip(output, reference, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def match(outputs, references):
    """(exact, partial), both from 0 to 1."""
    pairs = list(zip(outputs, references, strict=True))
    exact = sum(output == reference for output, reference in pairs) / len(pairs)
    return exact, sum(
        common(output, reference) / len(reference) for output, reference in pairs
    ) / len(pairs)


assert check.match(match)


# %% [markdown]
# **3.** Tokens behind EOS are no output, the first run warms up, and the baseline has to have the same B. (Where an output is its reference
# and more, its partial match is 1 in exercise 2, and it still is not exact.)


# %%
def speedup(runs, strategy, B, eos):
    """Median tokens/s of a strategy at B, over that of autoregressive decoding."""

    def kept(text):
        return text.index(eos) + 1 if eos in text else len(text)

    def speed(name, size):
        own = [run for run in runs if (run["strategy"], run["B"]) == (name, size)][1:]
        return median(sum(kept(text) for text in run["texts"]) / run["seconds"] for run in own)

    return speed(strategy, B) / speed("autoregressive", B)


assert check.speedup(speedup)
