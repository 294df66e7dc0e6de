"""Solutions of 13_overlap."""

# %%
from checks import overlap as check

# %% [markdown]
# **1.** Lane 0 drafts for 20 ms. From then on verifications follow each other without a pause,
# since the other lane has always drafted by then: six of them, 30 ms each.

# %%
my_finish_ms = 20 + 6 * 30
assert check.finish(my_finish_ms)


# %% [markdown]
# **2.** One lane verifies 2m rows in V(2m) + t(2m). Two lanes need two steps for as many rows, and
# a step takes the longer of V(m) and t(m).


# %%
def gain(V, t, m):
    """Return how many times as many rows a second two lanes of m verify as one of 2m."""
    one_lane = V(2 * m) + t(2 * m)
    two_lanes = 2 * max(V(m), t(m))
    return one_lane / two_lanes


assert check.gain(gain)


# %% [markdown]
# **3.** A lane's round takes two steps, one in which it drafts and one in which it verifies. In
# these 2 max(V, t) it works for V + t. The function counted one step.


# %%
def waiting(V, t):
    """Return the share of a lane's time in which it waits."""
    return 1 - (V + t) / (2 * max(V, t))


assert check.waiting(waiting)
