"""Plausible wrong answers to the exercises of 00_quickstart.ipynb."""


def forgets_the_rows(rows):
    return rows[rows["gained"] > 0].groupby("round")["gained"].min().sum()


def counts_finished_rows(rows):
    return sum(gains.min() * len(gains) for _, gains in rows.groupby("round")["gained"])


def counts_all_agreements(drafts, target_says):
    return sum(draft == said for draft, said in zip(drafts, target_says, strict=False))


def counts_the_bonus(drafts, target_says):
    a = 0
    while a < len(drafts) and drafts[a] == target_says[a]:
        a += 1
    return a + 1


WRONG = {
    "twins": [(13, 0), (10, 0), (11, 8)],
    "kept_by_rollback": [(forgets_the_rows,), (counts_finished_rows,)],
    "accepted_drafts": [(counts_all_agreements,), (counts_the_bonus,)],
}
