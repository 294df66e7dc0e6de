"""Solutions of 10_selection."""

# %%
import numpy as np

from checks import selection as check

# %% [markdown]
# **1.** The scores are 0.8 0.4 0.36, then 0.4 0.36 0.324, then 0.9 0.81 0.405. The five largest are
# 0.9, 0.81, 0.8, 0.405 and one of the two 0.4. The first draft of row 1 stands at the earlier
# position.

# %%
q = np.array([[0.8, 0.5, 0.9], [0.4, 0.9, 0.9], [0.9, 0.9, 0.5]])
counts = [1, 1, 3]
assert check.frontier(counts)


# %% [markdown]
# **2.** A stable sort keeps the order of what is equal. So write the scores position by position,
# the rows of one position one after the other, and sort.


# %%
def choose(scores, C):
    """Return how many drafts of each row are verified; scores: (b, K), C: how many in all."""
    b = len(scores)
    by_position = scores.T.reshape(-1)
    order = np.argsort(-by_position, kind="stable")[:C]
    return np.bincount(order % b, minlength=b)


assert check.choose(choose)
assert (choose(q.cumprod(axis=1), 5) == counts).all()

# %% [markdown]
# **3.** The third largest score stands more than once, on both sides of the frontier.

# %%
scores = [[0.9, 0.5, 0.5], [0.8, 0.5, 0.2], [0.5, 0.5, 0.1]]
assert check.too_many(scores)


# %% [markdown]
# **4.** Of the drafts before, what they are; of this one, only what it may be.


# %%
def predictable(q, drafts):
    """Return scores (b, K); q: (b, K, V), drafts: (b, K)."""
    own = np.take_along_axis(q, drafts[:, :, None], axis=2)[:, :, 0]
    before = np.ones_like(own)
    before[:, 1:] = own.cumprod(axis=1)[:, :-1]
    return before * q.max(axis=2)


assert check.predictable(predictable)
