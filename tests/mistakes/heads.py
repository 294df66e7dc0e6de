"""Plausible wrong answers to the exercises of 12_heads."""

import numpy as np

TRUE = [(14, 13, "true"), (15, 14, "true"), (16, 15, "true"), (17, 16, "true")]
OWN = [(18, 17, "own"), (19, 18, "own"), (20, 19, "own")]
# A draft model needs its last two tokens alone.
TWO_TOKENS = TRUE[-2:] + OWN
LAST_DRAFT_TOO = [*TRUE, *OWN, (21, 20, "own")]
FEATURE_OF_ITS_OWN_TOKEN = [(token, token, source) for token, _, source in TRUE + OWN]
# Accepted drafts were read with own features, but in the round before.
STILL_OWN = [(token, feature, "own") for token, feature, _ in TRUE[:-1]] + TRUE[-1:] + OWN
FIRST_DRAFT_TRUE = [*TRUE, (18, 17, "true"), *OWN[1:]]
FROM_THE_PENDING = [(17, 16, "true"), *OWN]


def conditional(first, then):
    """Drafts as a head that knows the token before."""
    a = int(np.argmax(first))
    b = int(np.argmax(then[a]))
    return a, b, first[a] * then[a, b]


def likeliest_pair(first, then):
    a, b = np.unravel_index(np.argmax(first[:, None] * then), then.shape)
    return int(a), int(b), first[a] * then[a, b]


def product_of_marginals(first, then):
    """What the heads believe, not what the target does."""
    second = first @ then
    a = int(np.argmax(first))
    b = int(np.argmax(second))
    return a, b, first[a] * second[b]


def unweighted(first, then):
    a = int(np.argmax(first))
    b = int(np.argmax(then.mean(0)))
    return a, b, first[a] * then[a, b]


def as_in_the_notebook(n, a, K):
    return list(range(n, n + a)), [n + a]


def two_tokens(n, a, K):
    return [n + a - 1], [n + a]


def all_drafts(n, a, K):
    """Rejected drafts, too: the next drafts overwrite those."""
    return list(range(n, n + K - 1)), [n + a]


def from_the_pending(n, a, K):
    read = min(a, K - 1)
    return list(range(n - 1, n + read)), list(range(n + read, n + a + 1))


def without_the_bonus(n, a, K):
    read = min(a, K - 1)
    return list(range(n, n + read)), list(range(n + read, n + a))


def without_the_bonus_token(chances):
    return float(np.cumprod(chances).sum())


def unconditional(chances):
    return 1 + sum(chances)


def all_or_nothing(chances):
    return 1 + len(chances) * float(np.prod(chances))


def mean_chance(chances):
    c = float(np.mean(chances))
    return sum(c**power for power in range(len(chances) + 1))


WRONG = {
    "entries": [
        (TWO_TOKENS,),
        (LAST_DRAFT_TOO,),
        (FEATURE_OF_ITS_OWN_TOKEN,),
        (STILL_OWN,),
        (FIRST_DRAFT_TRUE,),
        (FROM_THE_PENDING,),
    ],
    "independent": [(conditional,), (likeliest_pair,), (product_of_marginals,), (unweighted,)],
    "reread": [
        (as_in_the_notebook,),
        (two_tokens,),
        (all_drafts,),
        (from_the_pending,),
        (without_the_bonus,),
    ],
    "expected_length": [
        (without_the_bonus_token,),
        (unconditional,),
        (all_or_nothing,),
        (mean_chance,),
    ],
}
