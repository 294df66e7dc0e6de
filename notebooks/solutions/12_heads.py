"""Solutions of 12_heads."""

# %%
import numpy as np

from checks import heads as check

# %% [markdown]
# **1.** Three drafts were accepted, so the row has 18 tokens, 0 to 17, and 17 is pending. The head
# has read 13 with a true feature, 14 to 16 with its own ones, and 17 not at all. So it reads 14 to
# 17 with true features. Behind them it drafts 18 to 21, and reads all of these but the last.

# %%
my_entries = [
    (14, 13, "true"),
    (15, 14, "true"),
    (16, 15, "true"),
    (17, 16, "true"),
    (18, 17, "own"),
    (19, 18, "own"),
    (20, 19, "own"),
]
assert check.entries(my_entries)


# %% [markdown]
# **2.** A head that does not know the first token can do no better than the average over it.


# %%
def independent(first, then):
    """Return (a, b, chance)."""
    second = first @ then
    a = int(np.argmax(first))
    b = int(np.argmax(second))
    return a, b, first[a] * then[a, b]


assert check.independent(independent)

# %% [markdown]
# After `def __init__(self, name, value` the target gives `,` 0.55, `):` 0.33 and `=` 0.10. After
# `):` the line ends for certain. After `,` come many different names, none of them above 0.05. So
# the likeliest second token is the end of the line, and two ideal heads draft `,` and the end of
# the line: a pair that the target hardly ever writes.


# %% [markdown]
# **3.** The head reads a draft in order to propose the next one. Nothing is proposed after the last
# draft, so that one is never read: if all are accepted, it is read for the first time with the
# bonus.


# %%
def reread(n, a, K):
    """Return entries that are overwritten, and entries that are read for the first time."""
    read = min(a, K - 1)
    overwritten = list(range(n, n + read))
    first_time = list(range(n + read, n + a + 1))
    return overwritten, first_time


assert check.reread(reread)


# %% [markdown]
# **4.** Draft k counts if it and all before it are accepted. The target's own token is always
# emitted.


# %%
def expected_length(chances):
    """Return the expected number of tokens of a round."""
    length = 1.0
    reached = 1.0
    for chance in chances:
        reached *= chance
        length += reached
    return length


assert check.expected_length(expected_length)
