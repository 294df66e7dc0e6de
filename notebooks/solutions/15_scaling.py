"""Solutions of 15_scaling."""

# %%
import numpy as np

from checks import scaling as check

# %% [markdown]
# **1.** From 80k to 640k tokens are three doublings. Each adds as much as the ones before, 0.15.

# %%
my_length = 1.50 + 3 * 0.15
assert check.next_rung(my_length)


# %% [markdown]
# **2.** The law is a straight line over ln x, so its slope is the covariance of ln x and the
# lengths over the variance of ln x. The line goes through the means.


# %%
def fit(tokens, lengths):
    """Return a and b of length = a + b ln(tokens), by least squares."""
    x = np.log(tokens)
    y = np.array(lengths)
    b = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    a = y.mean() - b * x.mean()
    return a, b


assert check.fit(fit)


# %% [markdown]
# **3.** The function took the K with the longest acceptance, which is always the largest. What
# counts is how many tokens a round gains for each millisecond that it takes.


# %%
def best(lengths, round_ms):
    """Return the K with most tokens a second."""
    return max(lengths, key=lambda k: lengths[k] / round_ms[k])


assert check.best(best)
