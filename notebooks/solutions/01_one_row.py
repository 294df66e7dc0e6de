"""Solutions to the exercises of 01_one_row.ipynb. Look here after you have tried."""

from checks import one_row as check

# %% 1. Predict: accepted drafts up to the first disagreement, then the target's own token
assert check.emitted([[7, 3, 5], [4, 4, 4, 4, 1], [2]])


# %% 2. Write: the acceptance of one round
def accept(drafts, target_says):
    gained = []
    # The target makes one choice more than there are drafts.
    for draft, choice in zip(drafts, target_says, strict=False):
        gained.append(choice)  # the draft where both agree, else the bonus
        if draft != choice:
            return gained
    return [*gained, target_says[-1]]  # all agreed: the bonus stands behind the last draft


assert check.accept(accept)


# %% 3. Write: the expected length. The sum needs no division, so a rate of 1 is no special case
def expected_length(rate, K):
    return sum(rate**j for j in range(K + 1))


assert check.expected_length(expected_length)


# %% 4. Debug: after a full acceptance the draft has not read its own last draft.
# So let it read all that it lacks.
def read_drafts(draft, tokens, K):
    drafts = draft.read(tokens[len(draft.held) :])[-1:]
    while len(drafts) < K:
        drafts += draft.read(drafts[-1:])
    return drafts


def decode(target, draft, prompt, K, budget):
    tokens = list(prompt)
    target.read(tokens[:-1])
    while len(tokens) < len(prompt) + budget:
        drafts = read_drafts(draft, tokens, K)
        gained = accept(drafts, target.read([tokens[-1], *drafts]))
        a = len(gained) - 1
        target.forget(K - a)
        draft.forget(max(K - 1 - a, 0))
        tokens += gained
    return tokens[len(prompt) :][:budget]


assert check.decode(decode)
