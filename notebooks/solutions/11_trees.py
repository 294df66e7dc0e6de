"""Solutions of 11_trees."""

# %%
import numpy as np

from checks import trees as check

# %% [markdown]
# **1.** Every token attends to itself and to the pending token. In between, go from parent to
# parent: d6 follows d3, which follows d1.

# %%
my_mask = [
    "1000000",
    "1100000",
    "1010000",
    "1101000",
    "1100100",
    "1010010",
    "1101001",
]
assert check.mask(my_mask)


# %% [markdown]
# **2.** A parent stands before its children, so its line is complete when a child copies it.


# %%
def ancestors(parents):
    """Return bool (N+1, N+1): which columns each column attends to."""
    seen = np.eye(len(parents) + 1, dtype=bool)
    for number, parent in enumerate(parents):
        seen[number + 1] |= seen[parent + 1]
    return seen


assert check.ancestors(ancestors)


# %% [markdown]
# **3.** NumPy reads all slots of a list before it writes the first one.


# %%
def compact(kv, path, pending):
    """Return K/V (T, D) after the accepted drafts have moved behind the pending token."""
    source = [pending + 1 + number for number in path]
    kv[pending + 1 : pending + 1 + len(path)] = kv[source]
    return kv


assert check.compact(compact)


# %% [markdown]
# **4.** The second child was drawn from what the first one left of q. So judge it by that.


# %%
def judge(p, q, children):
    """Return the distribution of the token that follows."""
    emitted = np.zeros(len(p))
    reached = 1.0
    for child in children:
        accepted = min(1, p[child] / q[child])
        emitted[child] += reached * accepted
        reached *= 1 - accepted
        rest = np.maximum(p - q, 0)
        p = rest / rest.sum()
        q = np.where(np.arange(len(q)) == child, 0, q)
        q = q / q.sum()
    return emitted + reached * p


assert check.judge(judge)
