"""Solutions of 05_exspec."""

# %%
from checks import exspec as check

# %% [markdown]
# **1.** With seven sequences of each of the 20 lengths there is no group of eight. One more
# sequence is the eighth of some length.

# %%
my_window = 20 * 7 + 1
assert check.certain_window(my_window)


# %% [markdown]
# **2.** Try lengths from the largest down. Requests keep the order of the dictionary, which is that
# of their arrival.


# %%
def longest_group(lengths, B):
    """Return the first B requests of the largest length that has so many."""
    for n in sorted(set(lengths.values()), reverse=True):
        group = [request for request, length in lengths.items() if length == n]
        if len(group) >= B:
            return group[:B]
    return []


assert check.longest_group(longest_group)


# %% [markdown]
# **3.** The batch was cut to B after the counts had been set, so the rest of a group, or of the
# overdue requests, counted as served although it was not.


# %%
def choose_fairly(lengths, waited, B, max_wait):
    """Return up to B requests.

    lengths: {request: n} in order of arrival; waited: {request: rounds passed over}.
    """
    groups = {}
    for request, n in lengths.items():
        groups.setdefault(n, []).append(request)
    group = max(groups.values(), key=len)
    overdue = [request for request in lengths if waited[request] >= max_wait]
    if overdue:
        group = overdue
    group = group[:B]
    for request in lengths:
        waited[request] = 0 if request in group else waited[request] + 1
    return group


assert check.choose_fairly(choose_fairly)


# %% [markdown]
# **4.** The probability of each gain, squared and added up. At alpha = 0.7 and K = 5 it is about
# 0.2, so after two rounds little is left of a group of equal rows.


# %%
def stay_together(alpha, K):
    """Return the probability that two independent rows gain the same in a round."""
    exactly = [alpha**a * (1 - alpha) for a in range(K)] + [alpha**K]
    return sum(p * p for p in exactly)


assert check.stay_together(stay_together)
