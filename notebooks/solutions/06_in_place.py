"""Solutions of 06_in_place."""

# %%
import torch

from checks import in_place as check

# %% [markdown]
# **1.** Slots 9 to 13 were written. Slot 9 holds the token that was pending, 10 and 11 the accepted
# drafts, 12 and 13 the rejected ones. The row has 13 tokens now. The last one, the bonus, has index
# 12 and is fed first in the next round.

# %%
stale_slots, written_next = [12, 13], [12, 13, 14, 15, 16]
assert check.slots(stale_slots, written_next)


# %% [markdown]
# **2.** One table of positions serves both.


# %%
def write_and_mask(slab, n, new):
    """Write `new` in place; return which slots each query sees."""
    positions = n[:, None] - 1 + torch.arange(new.shape[1])  # (B, K+1)
    slab.scatter_(1, positions, new)
    return torch.arange(slab.shape[1]) <= positions[:, :, None]


assert check.write_and_mask(write_and_mask)


# %% [markdown]
# **3.** The same positions, looked up in the table.


# %%
def paged_slots(n, K, table, size):
    """Return the physical slots of the tokens at positions n - 1 to n - 1 + K."""
    return [table[position // size] * size + position % size for position in range(n - 1, n + K)]


assert check.paged_slots(paged_slots)


# %% [markdown]
# **4.** The draft has read up to position n + K - 2. If all K drafts are accepted, the row's last
# token but one is at n + K - 1, which leaves a gap. Reading the last two tokens always fills it,
# and has the same shape in every round. The texts are right even with the gap, because the target
# verifies each token with its own K/V; the gap only makes the drafts worse.


# %%
def draft_reads(n, K, a):
    """Return the positions of the tokens that the draft reads before it proposes, in order."""
    return [n + a - 1, n + a]


assert check.draft_reads(draft_reads)
