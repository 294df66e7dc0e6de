"""Solutions of 14_memory."""

# %%
from checks import memory as check

# %% [markdown]
# **1.** Chunks: reading all prompts at once makes the peak. The draft's K/V takes more, but while a
# round drafts it is there again, so its lever only moves the peak into another phase.

# %%
my_lever = "chunks"
assert check.lever(my_lever)


# %% [markdown]
# **2.** A row has a slot for each token of its prompt and its text, for K drafts and for the bonus.
# Each slot holds keys and values of every layer.


# %%
def kv_bytes(rows, prompt, new, K, layers, kv_heads, head_dim, size):
    """Return the bytes of a model's K/V."""
    slots = prompt + new + K + 1
    slot = 2 * layers * kv_heads * head_dim * size
    return rows * slots * slot


assert check.kv_bytes(kv_bytes)


# %% [markdown]
# **3.** Decoding without drafts needs neither the draft's weights nor its K/V. The function took
# both away from the baseline's budget.


# %%
def rows_alone(budget, target_weights, draft_weights, target_row, draft_row):
    """Return how many rows fit without drafts."""
    return (budget - target_weights) // target_row


assert check.rows_alone(rows_alone)

# %% [markdown]
# **4.** The conversation has 40 + 24 + 12 tokens, and the last one is pending. With all kept, K/V
# exists for 40 + 23 of them: the reply's last token was never read. With the prompt kept it exists
# for 40.

# %%
my_all = 12
my_prompt = 40 + 24 + 12 - 1 - 40
my_none = 40 + 24 + 12 - 1
assert check.reading(my_all, my_prompt, my_none)
