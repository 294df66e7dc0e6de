"""Solutions to the exercises of 02_ragged_failure.ipynb. Look here after you have tried."""

import specviz as sv
from checks import ragged_failure as check

# %% 1. Predict: K - a more with each round: 2, then 0, then 4, then 3
assert check.drift([2, 2, 6, 9])

# %% 2. Predict: a row alone rejects drafts, but has no padding
assert check.alone({"positions counted in columns", "the draft's token as bonus"})

# The same, measured:
pair, prompt = sv.load_pair(), sv.load_prompts()[18]
switches = ("skip_unpadding", "ones_mask", "draft_bonus")


def run(strategy):
    return sv.generate(
        pair, [prompt], strategy=strategy, batch_size=1, max_new_tokens=24, progress=False
    ).tokens


right = run("autoregressive")
assert run(sv.strategy("masking", positions="column")) != right
for mistake in switches:
    one = run(sv.strategy("repadding", **{name: name == mistake for name in switches}))
    assert (one != right) == (mistake == "draft_bonus")


# %% 3. Write: the pending token and the accepted drafts are valid, the others are holes.
# Positions count what is valid.
def holes(valid, accepted, K):
    first = sum(valid)
    return valid + [1] * (1 + accepted) + [0] * (K - accepted), list(range(first, first + K + 1))


assert check.holes(holes)


# %% 4. Debug: a row's own K/V begins at its start; behind it is that of rejected drafts
def realign(slots, starts, lengths):
    end = max(lengths)
    return [
        row[start : start + length].rjust(end, ".")
        for row, start, length in zip(slots, starts, lengths, strict=True)
    ]


assert check.realign(realign)
