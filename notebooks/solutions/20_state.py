"""Solutions of 20_state."""

# %%
import torch

from checks import state as check

# %% [markdown]
# **1.** The verification reads the pending token, index 9, and four drafts, indices 10 to 13. It
# leaves a state behind each. One draft is accepted, index 10, so the row goes on behind it: n is
# 12 now, and the bonus with index 11 is read first. The draft model reads the last two tokens
# again, indices 10 and 11, so it goes on behind index 9.

# %%
left, target, draft = [9, 10, 11, 12, 13], 10, 9
assert check.indices(left, target, draft)


# %% [markdown]
# **2.** The tag tells whose state a place holds. Without it, a state that was overwritten would be
# taken for the one that is asked for.


# %%
def take(held, tags, indices):
    """Return the states after these tokens, zeros for index -1."""
    rows = torch.arange(len(held))
    places = indices % held.shape[1]
    if ((tags[rows, places] != indices) & (indices >= 0)).any():
        raise KeyError("a state is gone")
    states = held[rows, places]
    states[indices < 0] = 0
    return states


assert check.take(take)

# %% [markdown]
# **3.** `update_recurrent_state` and `update_conv_state` copy into the tensors that the layer has.
# A snapshot that holds these tensors changes with them: what is put back is what was there.

# %%
old = "(layer.conv_states[0], layer.recurrent_states[0])\n"
new = "(layer.conv_states[0].clone(), layer.recurrent_states[0].clone())\n"
assert check.replay(old, new)
