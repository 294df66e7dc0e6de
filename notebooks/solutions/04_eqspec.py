"""Solutions of 04_eqspec."""

# %%
import torch

from checks import eqspec as check

# %% [markdown]
# **1.** The rectangle grows from 9 to 10 columns, so a row moves by 1 - gain: 1 - 1, 1 - 5, 1 - 3,
# 1 - 2. The row that ends up longest sets the new width, and it need not be the one that gains
# most.

# %%
n, gain = [9, 4, 7, 7], [1, 5, 3, 2]
new_width = max(length + g for length, g in zip(n, gain, strict=True))
my_offsets = [new_width - max(n) - g for g in gain]
assert check.offsets(my_offsets)

# %% [markdown]
# **2.** Rows, tokens with K/V, layers, K and V, heads, head size, bytes an element. The pending
# token has no K/V yet.

# %%
my_bytes = 7 * 500 * 36 * 2 * 8 * 128 * 2
assert check.copied_bytes(my_bytes)


# %% [markdown]
# **3.** Slot c of the result comes from slot c - d of its row, where d is how far the row moves.


# %%
def my_realign(kv, starts, n, gain):
    """Return kv moved so that all rows end in one column, and the new starts."""
    new_starts = (n + gain).max() - (n + gain)
    slots = torch.arange(kv.shape[1])
    source = (slots - (new_starts - starts)[:, None]).clamp(0, kv.shape[1] - 1)  # (B, T)
    return kv[torch.arange(len(kv))[:, None], source], new_starts


assert check.realign_at_once(my_realign)


# %% [markdown]
# **4.** A block that moves to the right is copied from its right end, as C's memmove does. The
# library copies the block to a buffer first, which also works for rows that trade places.


# %%
def shift_row(row, start, length, d):
    """Move `length` slots of `row`, a list, from `start` to `start + d`."""
    order = range(length) if d < 0 else reversed(range(length))
    for j in order:
        row[start + d + j] = row[start + j]
    return row


assert check.shift_row(shift_row)
