"""Solutions to the exercises of 03_invariants."""

# %%
import numpy as np

import specviz as sv
from checks import invariants as check

# %% [markdown]
# 1. Predict: c + gained is [9, 7, 11], so L' = 11; d = 11 - 8 - gained.

# %%
gained = np.array([1, 3, 5])
new_length = int((np.array([8, 4, 6]) + gained).max())
assert check.realigned(new_length, [2, 0, -2])
assert (new_length - 8 - gained == [2, 0, -2]).all()

# %% [markdown]
# 2. The hunt:
# - In 1 the lines of row 3's mask end one slot too late, from the draft phase of round 2 on.
# - In 2 row 0's card in round 2 emits a token that is not the target's first choice.
# - In 3 row 2's pending token is fed in round 3 with a position that is not n - 1. The pending
#   token
#   shows it one round earlier.
# - In 4 row 1 is moved in synchronise of round 4, although the strategy is `inplace`, and its
#   positions
#   skip one.
# - In 5 the positions of all four rows jump from round 1 on, each by the number of its holes.

# %%
assert check.found(1, "mask", 3, 2)
assert check.found(2, "bonus", 0, 2)
assert check.found(3, "positions", 2, 3)
assert check.found(4, "kv", 1, 4)
assert check.found(5, "positions", 0, 1)

# %% [markdown]
# 3. Write: the two checks.


# %%
def positions_check(feeds):
    wrong = feeds["position"] != feeds["index"]
    return set(zip(feeds["round"][wrong].tolist(), feeds["row"][wrong].tolist(), strict=True))


assert check.positions_check(positions_check)


# %%
def mask_check(feeds, holes):
    hidden = np.bincount(
        holes["feed"], weights=holes["stop"] - holes["start"], minlength=len(feeds["slot"])
    )
    seen = feeds["visible_stop"] - feeds["visible_start"] - hidden
    wrong = (seen != feeds["index"] + 1) | (feeds["visible_stop"] - 1 != feeds["slot"])
    return set(zip(feeds["round"][wrong].tolist(), feeds["row"][wrong].tolist(), strict=True))


assert check.mask_check(mask_check)

# %% [markdown]
# They find three of the five; the other two are not about positions or masks.

# %%
found = {}
for n in range(1, 6):
    trace = check.mystery(n)
    found[n] = (positions_check(trace.feeds), mask_check(trace.feeds, trace.holes))
assert min(found[1][1]) == (2, 3)
assert min(found[3][0]) == (3, 2)
assert min(found[5][0]) == (1, 0)
assert found[2] == found[4] == (set(), set())

# %% [markdown]
# 4. The rest of the hunt.

# %%
for n in (2, 4):
    first = sv.check_invariants(check.mystery(n))[0]
    assert check.found(n, first.rule, first.row, first.round)


# %% [markdown]
# 5. Debug: count the valid columns, not all columns since the first valid one.


# %%
def position_ids(mask):
    return np.maximum(mask.cumsum() - 1, 0)


assert check.position_ids(position_ids)
