"""Solutions to the exercises of 00_quickstart.ipynb. Look here after you have tried."""

from checks import quickstart as check

# %% 1. Predict: every row gains K + 1 = 6 tokens a round, so all stay in step
assert check.twins(11, 0)


# %% 2. Write: the smallest gain among the rows at work, once for each of them
def kept_by_rollback(rows):
    kept = 0
    for _, gains in rows[rows["gained"] > 0].groupby("round")["gained"]:
        kept += gains.min() * len(gains)
    return kept


assert check.kept_by_rollback(kept_by_rollback)


# %% 3. Debug: counting has to stop at the first disagreement
def accepted_drafts(drafts, target_says):
    a = 0
    while a < len(drafts) and drafts[a] == target_says[a]:
        a += 1
    return a


assert check.accepted_drafts(accepted_drafts)
