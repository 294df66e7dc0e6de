"""Plausible wrong answers to the exercises of 01_one_row."""


def accepted(drafts, choices):
    a = 0
    while a < len(drafts) and drafts[a] == choices[a]:
        a += 1
    return a


def every_match(drafts, choices):
    a = sum(map(int.__eq__, drafts, choices))
    return [*drafts[:a], choices[a]]


def decoder(target_forgets=lambda K, a: K - a, draft_forgets=lambda K, a: max(K - 1 - a, 0)):
    """Return a decoder whose models forget so many tokens after a round."""

    def decode(target, draft, prompt, K, budget):
        tokens = list(prompt)
        target.read(tokens[:-1])
        draft.read(tokens[:-1])
        while len(tokens) < len(prompt) + budget:
            drafts = draft.read([tokens[-1]])
            while len(drafts) < K:
                drafts += draft.read(drafts[-1:])
            choices = target.read([tokens[-1], *drafts])
            a = accepted(drafts, choices)
            tokens += choices[: a + 1]
            target.forget(target_forgets(K, a))
            draft.forget(draft_forgets(K, a))
        return tokens[len(prompt) :][:budget]

    return decode


WRONG = {
    "emitted": {
        "expected [7, 3, 5], got": [
            [[7, 3], [4, 4, 4, 4], []],
            [[7, 3, 3], [4, 4, 4, 4, 1], [8]],
            [[7, 3, 5, 9, 2], [4, 4, 4, 4, 1], [2, 2, 6, 5, 5]],
        ],
        "expected [4, 4, 4, 4, 1], got": [[[7, 3, 5], [4, 4, 4, 4], [2]]],
        "must have 3 lists, one for each round": [[[7, 3, 5], [4, 4, 4, 4, 1]]],
    },
    "accept": {
        "expected [7, 3, 5], got": [
            lambda drafts, choices: drafts[: accepted(drafts, choices)],  # no bonus
            every_match,
            lambda drafts, choices: drafts[: accepted(drafts, choices) + 1],  # keeps the rejected
        ],
        # Nothing after a full acceptance.
        "expected [4, 4, 4, 4, 1], got": [
            lambda drafts, choices: choices[: accepted(drafts, choices) + 1][: len(drafts)]
        ],
        "must be a function, but it is int": [5],
    },
    "expected_length": {
        "a rate of 0.5 and K = ": [
            lambda rate, K: 1 + rate * K,
            lambda rate, K: sum(rate**j for j in range(1, K + 1)),
            lambda rate, K: sum(rate**j for j in range(K)),
            lambda rate, K: "1",
        ],
        "stopped with ZeroDivisionError": [lambda rate, K: (1 - rate ** (K + 1)) / (1 - rate)],
    },
    "decode": {
        # The draft has not read its last draft.
        "at the end the draft holds": [decoder()],
        "the text differs from new token": [
            decoder(lambda K, a: 0, lambda K, a: 0),
            decoder(lambda K, a: K - a + 1),
        ],
        "stopped with ValueError: count must be": [decoder(draft_forgets=lambda K, a: K - 1 - a)],
    },
}
