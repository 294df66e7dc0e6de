"""Solutions to the exercises of 07_equivalence."""

# %%
import numpy as np

from specviz.exercises import equivalence as check

# %% [markdown]
# 1. Predict: the two distributions share min(p, q) = [0.2, 0.3, 0.2], and only token 0 has more of p than of q.

# %%
assert check.acceptance(0.7, [1.0, 0.0, 0.0])

# %% [markdown]
# 2. Causes: a near tie needs every number that was measured to lie within twice the noise, and noise that was measured.

# %%
near, bug, unknown = "near tie", "not explained by noise", "unknown"
assert check.causes({"A": near, "B": bug, "C": bug, "D": bug, "E": unknown})

# %% [markdown]
# 3. Write: the residual. Where nothing is left, p equals q, and no draft is ever rejected; p itself is as good as anything.


# %%
def residual(p, q):
    left = np.maximum(p - q, 0)
    return left / left.sum() if left.sum() > 0 else p


assert check.residual(residual)

# %% [markdown]
# 4. Debug: a rejected draft has told something about u: it was large. The second draw needs a number of its own.


# %%
def emit(draft, p, q, u, v):
    if u * q[draft] < p[draft]:
        return draft
    left = np.maximum(p - q, 0)
    return int((left.cumsum() <= v * left.sum()).sum())


assert check.sampler(emit)
