"""Solutions of 16_debug."""

# %%
import numpy as np

from checks import debug as check

# %% [markdown]
# **1.** A bonus of the draft's changes text at once and stays fluent. Padding that is seen touches
# every row but the longest, which has none. A draft that lacks a token predicts worse, and the
# target still decides. `ids != pad` hides every EOS if EOS is the pad token. The wrong residual
# changes frequencies alone. What happens when a prompt takes over a row touches that one alone.

# %%
my_symptoms = ["a", "d", "c", "g", "h", "f"]
assert check.symptoms(my_symptoms)

# %% [markdown]
# **2.** The slots of a row begin at `start`, so its n - 1 tokens end at `start + n - 1`. The
# longest row has no padding: `start` is 0, and nothing is missing.

# %%
old = "        kept = state[:, start : len(row) - 1]"
new = "        kept = state[:, start : start + len(row) - 1]"
assert check.repad(old, new)

# %% [markdown]
# **3.** The new request is written into the last slots. The mask of the slots before it is still
# that of the request which had the row before.

# %%
old = "    seen[row, start:] = 1"
new = "    seen[row] = torch.arange(seen.shape[1], device=seen.device) >= start"
assert check.refill(old, new)

# %% [markdown]
# **4.** EOS may be among the accepted drafts, and then more tokens follow it.

# %%
old = "            new = [*drafts[:a], choices[a]]"
new = """            new = [*drafts[:a], choices[a]]
            if eos in new:
                new = new[: new.index(eos) + 1]"""
assert check.lookup(old, new)


# %% [markdown]
# **5.** A token is emitted if it is drawn and accepted, or if some draft is rejected and the token
# is drawn from the residual.


# %%
def emitted(p, q, drawn):
    """Return the distribution of the token that comes of one draft."""
    accepted = drawn * np.minimum(1, p / q)
    residual = np.maximum(p - q, 0)
    residual = residual / residual.sum()
    return accepted + (1 - accepted.sum()) * residual


assert check.emitted(emitted)

# %% [markdown]
# **6.** The draft gets a mask and no positions. Then transformers counts columns, and with them
# padding and holes. The target's call passes `positions_of(seen)`; the draft's must, too.

# %%
old = "        output = draft(ids[:, -1:], attention_mask=seen, past_key_values=cache)"
new = """        positions = positions_of(seen)[:, -1:]
        output = draft(ids[:, -1:], seen, positions, cache)"""
assert check.mystery(old, new)
