"""Solutions of 18_serving."""

# %%
import math

from checks import serving as check

# %% [markdown]
# **1.** 70 % of 50 are 35 requests a second, and 35 / 30 is 1.17. What cannot be served waits.

# %%
load, grows = 0.7 * 50 / 30, True
assert check.own_load(load, grows)


# %% [markdown]
# **2.** On average, rate x latency_s requests are in the system (Little's law).


# %%
def devices(rate, latency_s, B):
    """Return the least number of devices with a row for each request, on average."""
    return max(1, math.ceil(rate * latency_s / B))


assert check.devices(devices)


# %% [markdown]
# **3.** A request waits from its arrival on. Latencies have to be sorted. Of 100, one may be
# slower, so it is the 99th, with index 98.


# %%
def p99(arrived, started, ended):
    """Return the least latency that 99 of 100 requests do not exceed."""
    latencies = sorted(end - begin for begin, end in zip(arrived, ended, strict=True))
    return latencies[math.ceil(99 * len(latencies) / 100) - 1]


assert check.p99(p99)
