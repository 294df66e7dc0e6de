"""Solutions of 08_cost."""

# %%
import math

from specviz.exercises import cost as check

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
# **3.** Keys *and* values are kept, of the K/V heads only, and a row fits as a whole or not at all.


# %%
def rows_that_fit(memory, weights, layers, heads, kv_heads, head_dim, itemsize, T):
    """Return the largest B; memory and weights in bytes."""
    per_slot = 2 * layers * kv_heads * head_dim * itemsize
    return (memory - weights) // (per_slot * T)


assert check.rows_that_fit(rows_that_fit)


# %% [markdown]
# **4.** On average, rate x latency_s requests are in the system (Little's law).


# %%
def devices(rate, latency_s, B):
    """Return the least number of devices with a row for each request, on average."""
    return max(1, math.ceil(rate * latency_s / B))


assert check.devices(devices)
