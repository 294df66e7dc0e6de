"""Plausible wrong answers to the exercises of 12_heads."""

import numpy as np

TRUE = [(14, 13, "true"), (15, 14, "true"), (16, 15, "true"), (17, 16, "true")]
OWN = [(18, 17, "own"), (19, 18, "own"), (20, 19, "own")]


def independent(first, then, second=None, share=None):
    a = int(np.argmax(first))
    b = int(np.argmax(first @ then if second is None else second))
    return a, b, share(a, b) if share else first[a] * then[a, b]


def likeliest_pair(first, then):
    a, b = np.unravel_index(np.argmax(first[:, None] * then), then.shape)
    return int(a), int(b), first[a] * then[a, b]


def reread(n, a, K, begin=0, end=0):
    read = min(a, K - 1)
    return list(range(n + begin, n + read)), list(range(n + read, n + a + 1 + end))


WRONG = {
    "entries": {
        "7 entries in the order of their tokens": [
            TRUE[-2:] + OWN,  # as a draft model, which needs its last two tokens
            [*TRUE, *OWN, (21, 20, "own")],  # the last draft, too
            [(17, 16, "true"), *OWN],  # from the pending token on
        ],
        "the number of its feature, expected 13, got 14": [
            [(token, token, source) for token, _, source in TRUE + OWN]
        ],
        # Accepted drafts were read with own features, but in the round before.
        "which the target knows, but you said 'own'": [
            [(token, feature, "own") for token, feature, _ in TRUE[:-1]] + TRUE[-1:] + OWN
        ],
        "which the target does not know yet, but you said 'true'": [
            [*TRUE, (18, 17, "true"), *OWN[1:]]
        ],
    },
    "independent": {
        "the two tokens, expected": [
            # A head that knows the token before; the likeliest pair; a plain average.
            lambda first, then: independent(first, then, then[np.argmax(first)]),
            likeliest_pair,
            lambda first, then: independent(first, then, then.mean(0)),
        ],
        # What the heads believe, not what the target does.
        "expected the chance": [
            lambda first, then: independent(
                first, then, share=lambda a, b: first[a] * (first @ then)[b]
            )
        ],
    },
    "reread": {
        "what is overwritten, expected": [
            lambda n, a, K: (list(range(n, n + a)), [n + a]),  # as in the notebook
            lambda n, a, K: ([n + a - 1], [n + a]),
            lambda n, a, K: reread(n, a, K, begin=-1),  # from the pending token on
        ],
        "what is read first, expected": [
            lambda n, a, K: (list(range(n, n + K - 1)), [n + a]),  # rejected drafts, too
            lambda n, a, K: reread(n, a, K, end=-1),  # without the bonus
        ],
    },
    "expected_length": {
        "expected 1.339 tokens, got": [
            lambda chances: float(np.cumprod(chances).sum()),  # no bonus
            lambda chances: 1 + sum(chances),
            lambda chances: 1 + len(chances) * float(np.prod(chances)),  # all or nothing
            lambda chances: sum(np.mean(chances) ** k for k in range(len(chances) + 1)),
        ]
    },
}
