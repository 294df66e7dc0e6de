"""Solutions of 08_cost."""

# %%
from checks import cost as check

# %% [markdown]
# **1.** A token needs two operations for each parameter of two bytes: one operation a byte and
# token. The device does 800e12 / 4e12 = 200 operations in the time it reads a byte. A row of a
# verification with K = 4 has five tokens, so 40 rows.

# %%
tokens, batch = 200, 40
assert check.turns(tokens, batch)


# %% [markdown]
# **2.** Tokens and seconds of a round for each k.


# %%
def best_k(draft_s, verify_s, rates):
    """Return the number of drafts with the most tokens a second; 0: do not speculate."""
    speeds = [(1 + sum(rates[:k])) / (k * draft_s + verify_s[k]) for k in range(len(verify_s))]
    return speeds.index(max(speeds))


assert check.best_k(best_k)


# %% [markdown]
# **3.** A round has K drafts, a price counts steps, and the bonus is a token, too.


# %%
def is_faster(draft_s, verify_s, step_s, rates):
    """Return True if K = len(rates) drafts a round beat autoregressive steps of step_s."""
    price = (len(rates) * draft_s + verify_s) / step_s
    return 1 + sum(rates) > price


assert check.is_faster(is_faster)
