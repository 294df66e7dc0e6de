"""Plausible wrong answers to the exercises of 01_one_row."""

import checks.one_row as module


def forget_the_bonus(drafts, said):
    a = 0
    while a < len(drafts) and drafts[a] == said[a]:
        a += 1
    return drafts[:a]


def count_all_matches(drafts, said):
    a = sum(draft == choice for draft, choice in zip(drafts, said, strict=False))
    return [*drafts[:a], said[a]]


def nothing_after_full_acceptance(drafts, said):
    a = len(forget_the_bonus(drafts, said))
    return [*drafts[:a], said[a]][: len(drafts)]


def keep_the_rejected(drafts, said):
    return drafts[: len(forget_the_bonus(drafts, said)) + 1]


def loop(
    target,
    draft,
    prompt,
    K,
    budget,
    *,
    draft_forgets=lambda K, a: max(K - 1 - a, 0),
    target_forgets=lambda K, a: K - a,
    cut=True,
):
    tokens = list(prompt)
    target.read(tokens[:-1])
    draft.read(tokens[:-1])
    while len(tokens) < len(prompt) + budget:
        drafts = draft.read([tokens[-1]])
        while len(drafts) < K:
            drafts += draft.read(drafts[-1:])
        gained = module._gained(drafts, target.read([tokens[-1], *drafts]))
        target.forget(target_forgets(K, len(gained) - 1))
        draft.forget(draft_forgets(K, len(gained) - 1))
        tokens += gained
    return tokens[len(prompt) :][:budget] if cut else tokens[len(prompt) :]


def never_forgets(*arguments):
    return loop(*arguments, draft_forgets=lambda K, a: 0, target_forgets=lambda K, a: 0)


def forgets_one_too_many(*arguments):
    return loop(*arguments, target_forgets=lambda K, a: K - a + 1)


def negative_count(*arguments):
    return loop(*arguments, draft_forgets=lambda K, a: K - 1 - a)


def past_the_budget(*arguments):
    return loop(*arguments, cut=False)


WRONG = {
    "emitted": [
        ([[7, 3], [4, 4, 4, 4], []],),
        ([[7, 3, 3], [4, 4, 4, 4, 1], [8]],),
        ([[7, 3, 5, 9, 2], [4, 4, 4, 4, 1], [2, 2, 6, 5, 5]],),
        ([[7, 3, 5], [4, 4, 4, 4], [2]],),
        ([[7, 3, 5], [4, 4, 4, 4, 1]],),
    ],
    "accept": [
        (forget_the_bonus,),
        (count_all_matches,),
        (nothing_after_full_acceptance,),
        (keep_the_rejected,),
        (5,),
    ],
    "expected_length": [
        (lambda rate, K: 1 + rate * K,),
        (lambda rate, K: sum(rate**j for j in range(1, K + 1)),),
        (lambda rate, K: sum(rate**j for j in range(K)),),
        (
            lambda rate, K: (1 - rate ** (K + 1)) / (1 - rate),
        ),  # divides by 0 where every draft is right
        (lambda rate, K: "1",),
    ],
    "decode": [
        (loop,),
        (never_forgets,),
        (forgets_one_too_many,),
        (negative_count,),
        (past_the_budget,),
    ],
}
