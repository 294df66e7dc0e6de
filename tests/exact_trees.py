"""What a round of a tree writes, by exact enumeration: no model, and no random part.

All trees that can be drawn are summed, and the chance that a draft is accepted is found by
bisection. The rules are the engine's own. The tree is small: two drafts behind the pending token,
two behind each of them, over a vocabulary of four tokens.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.engine.trees import find_tree, follow_choices, judge_children, without_repeats
from specviz.record.schema import Array

V, PARENTS = 4, (-1, -1, 0, 0, 1, 1)
TEXTS = list(itertools.product(range(V), repeat=3))
Conditional = dict[tuple[int, ...], Array]
Judge = Callable[[Mapping[int, Any]], tuple[Tensor, Tensor]]


def conditional(seed: int, depth: int) -> Conditional:
    """Return a distribution over V tokens after each text of up to `depth` tokens."""
    rng = np.random.default_rng(seed)
    texts = itertools.chain(*(itertools.product(range(V), repeat=n) for n in range(depth + 1)))
    return {text: rng.dirichlet(np.ones(V)) for text in texts}


def chance_of(drawn: tuple[int, int], q: Array) -> float:
    """Return the chance that two draws without replacement give these tokens, in this order."""
    first, second = drawn
    return float(q[first] * q[second] / (1 - q[first]))


def drawn_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """Return all trees of siblings drawn without replacement: drafts (b, 6) and chances (b,)."""
    pairs = list(itertools.permutations(range(V), 2))
    drafts, chances = [], []
    for root, left, right in itertools.product(pairs, repeat=3):
        drafts.append([*root, *left, *right])
        parts = [(root, ()), (left, root[:1]), (right, root[1:])]
        chances.append(math.prod(chance_of(drawn, q[text]) for drawn, text in parts))
    return torch.tensor(drafts), torch.tensor(chances, dtype=torch.float64)


def independent_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """Return all trees of siblings drawn independently, of which two may be the same token."""
    pairs = list(itertools.product(range(V), repeat=2))
    drafts, chances = [], []
    for root, left, right in itertools.product(pairs, repeat=3):
        drafts.append([*root, *left, *right])
        parts = [(root, ()), (left, root[:1]), (right, root[1:])]
        chances.append(math.prod(q[text][token] for drawn, text in parts for token in drawn))
    return torch.tensor(drafts), torch.tensor(chances, dtype=torch.float64)


def filled_trees(q: Conditional) -> tuple[Tensor, Tensor, Tensor]:
    """Return the trees of siblings drawn independently as a run makes them, and what was drawn.

    Another token has the place of one that is drawn twice.
    """
    pairs = torch.tensor(list(itertools.product(range(V), repeat=2)))
    found: dict[str, list[Any]] = {"drafts": [], "drawn": [], "chances": []}
    of_root = torch.tensor(q[()]).log()
    for root, left, right in itertools.product(pairs, repeat=3):
        first, second = without_repeats(root, of_root).tolist()
        below = [(left, q[first,]), (right, q[second,])]
        placed = [without_repeats(each, torch.tensor(given).log()) for each, given in below]
        found["drafts"].append([first, second, *torch.cat(placed).tolist()])
        found["drawn"].append(torch.cat([root, left, right]).tolist())
        parts = [(root, q[()]), *below]
        found["chances"].append(math.prod(float(given[each].prod()) for each, given in parts))
    chances = torch.tensor(found["chances"], dtype=torch.float64)
    return torch.tensor(found["drafts"]), chances, torch.tensor(found["drawn"])


def likeliest_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """Return the one tree of the likeliest siblings."""

    def best(text: tuple[int, ...]) -> list[int]:
        return np.argsort(-q[text])[:2].tolist()

    root = best(())
    drafts = [*root, *best((root[0],)), *best((root[1],))]
    return torch.tensor([drafts]), torch.ones(1, dtype=torch.float64)


def reranked_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """Return siblings that were drawn, then put in the order of their q."""
    drafts, chances = drawn_trees(q)
    for row in drafts:
        text = row.tolist()
        for first, before in ((0, ()), (2, (text[0],)), (4, (text[1],))):
            siblings = text[first : first + 2]
            # The order of the first pair stays, since the others hang on it.
            if first and q[before][siblings[0]] < q[before][siblings[1]]:
                row[first : first + 2] = torch.tensor(siblings[::-1])
    return drafts, chances


def table(given: Conditional, depth: int) -> Tensor:
    """Return the distributions after texts of `depth` tokens, (V, ..., V, V)."""
    texts = itertools.product(range(V), repeat=depth)
    return torch.tensor(np.array([given[text] for text in texts])).reshape([V] * (depth + 1))


def after(drafts: Tensor, given: Conditional) -> Tensor:
    """Return the distribution after the pending token and each draft, (b, 7, V)."""
    first, second = drafts[:, :2], drafts[:, 2:]
    parts = [
        table(given, 0).expand(len(drafts), 1, V),
        table(given, 1)[first],
        table(given, 2)[first.repeat_interleave(2, 1), second],
    ]
    return torch.cat(parts, 1)


def behind(drafts: Tensor, q: Conditional) -> Tensor:
    """Return the distribution that each draft was drawn from, (b, 6, V)."""
    root = table(q, 0).expand(len(drafts), 2, V)
    return torch.cat([root, table(q, 1)[drafts[:, :2].repeat_interleave(2, 1)]], 1)


def text_chances(
    drafts: Tensor, p: Conditional, last: Tensor, weights: Tensor, chances: Tensor
) -> dict[tuple[int, ...], float]:
    """Return the chance of each text of three tokens; the target writes what the round does not."""
    found = dict.fromkeys(TEXTS, 0.0)
    for row, column, weight, chance in zip(
        drafts.tolist(), last.tolist(), weights.tolist(), chances.tolist(), strict=True
    ):
        if chance <= 0:
            continue
        path: tuple[int, ...] = ()
        while column:
            path = (row[column - 1], *path)
            column = PARENTS[column - 1] + 1
        for token, share in enumerate(weight):
            start = (*path, token)
            for rest in itertools.product(range(V), repeat=3 - len(start)):
                text = (*start, *rest)
                follows = [p[text[:j]][text[j]] for j in range(len(start), 3)]
                found[text] += chance * share / sum(weight) * math.prod(follows)
    return found


def distance(found: dict[tuple[int, ...], float], p: Conditional) -> float:
    """Return the total variation between what is emitted and what the target would write."""
    right = {text: math.prod(p[text[:j]][text[j]] for j in range(3)) for text in TEXTS}
    return sum(abs(found[text] - right[text]) for text in TEXTS) / 2


ACCEPTED, REJECTED = 0.0, math.inf  # uniforms that decide
# By draft, what has to happen for it to be judged; then all ways in which a round may end.
REACHED: list[dict[int, float]] = [
    {}, {0: REJECTED}, {0: ACCEPTED}, {0: ACCEPTED, 2: REJECTED},
    {0: REJECTED, 1: ACCEPTED}, {0: REJECTED, 1: ACCEPTED, 4: REJECTED},
]  # fmt: skip
ENDS: list[dict[int, float]] = [
    {0: ACCEPTED, 2: ACCEPTED},
    {0: ACCEPTED, 2: REJECTED, 3: ACCEPTED},
    {0: ACCEPTED, 2: REJECTED, 3: REJECTED},
    {0: REJECTED, 1: ACCEPTED, 4: ACCEPTED},
    {0: REJECTED, 1: ACCEPTED, 4: REJECTED, 5: ACCEPTED},
    {0: REJECTED, 1: ACCEPTED, 4: REJECTED, 5: REJECTED},
    {0: REJECTED, 1: REJECTED},
]


def judged(
    trees: Callable[[Conditional], tuple[Tensor, ...]],
    seed: int,
    renormalise: bool,
    lengths: int | Callable[[Tensor, Tensor], Tensor] = 6,
) -> float:
    """Return the total variation between the target's text and that of a round.

    Args:
        trees: returns the drafts (b, 6) that q can give, the chance (b,) of each, and perhaps what
            was drawn.
        seed: of p and q.
        renormalise: whether q loses each child that was judged; else the first q judges all.
        lengths: how many drafts of a tree are judged; or for drafts (b, 6) and the log q (b, 6, V)
            that they were drawn from, how many of each tree, (b,).
    """
    p, q = conditional(seed, 2), conditional(seed + 1000, 1)
    drafts, chances, *drawn = trees(q)
    given = (find_tree(torch.tensor(PARENTS).expand(len(drafts), -1), 2), after(drafts, p))
    of_drafts = behind(drafts, q)
    if callable(lengths):
        count = lengths(drafts, of_drafts.log())
    else:
        count = torch.full((len(drafts),), lengths)

    def judge(decided: Mapping[int, Any]) -> tuple[Tensor, Tensor]:
        uniforms = torch.full((len(drafts), 6), REJECTED, dtype=torch.float64)
        for j, value in decided.items():
            uniforms[:, j] = value
        return judge_children(
            drafts, *given, of_drafts, uniforms, count, renormalise=renormalise,
            drawn=drawn[0] if drawn else None,
        )  # fmt: skip

    takes = [accepted_share(judge, j, len(drafts)) for j in range(6)]
    found = dict.fromkeys(TEXTS, 0.0)
    for end in ENDS:
        chance = chances.clone()
        for j, value in end.items():
            chance *= takes[j] if value == ACCEPTED else 1 - takes[j]
        for text, share in text_chances(drafts, p, *judge(end), chance).items():
            found[text] += share
    assert abs(math.fsum(found.values()) - 1) < 1e-9
    return distance(found, p)


def accepted_share(judge: Judge, j: int, b: int) -> Tensor:
    """Return the chance (b,) that draft j is accepted once it is judged."""
    low, high = torch.zeros(b, dtype=torch.float64), torch.ones(b, dtype=torch.float64)
    is_sure = judge({**REACHED[j], j: high})[0] == j + 1
    for _ in range(50):
        middle = (low + high) / 2
        is_accepted = judge({**REACHED[j], j: middle})[0] == j + 1
        low, high = low.where(~is_accepted, middle), high.where(is_accepted, middle)
    return torch.where(is_sure, 1.0, low)


def followed(trees: Callable[[Conditional], tuple[Tensor, ...]], seed: int) -> float:
    """Return the same for the first tree, if the target's own draws are followed.

    All choices that the target may draw after the seven columns are summed.
    """
    p, q = conditional(seed, 2), conditional(seed + 1000, 1)
    drafts = trees(q)[0][:1]
    said = after(drafts, p)[0]
    choices = torch.tensor(list(itertools.product(range(V), repeat=7)))
    chances = said[torch.arange(7), choices].prod(1)
    many = drafts.expand(len(choices), -1)
    walk = follow_choices(many, find_tree(torch.tensor(PARENTS).expand_as(many), 2), choices)
    last = torch.nn.functional.pad(walk.path + 1, (1, 0)).gather(1, walk.accepted[:, None])[:, 0]
    own = walk.emitted.gather(1, walk.accepted[:, None])[:, 0]
    weights = torch.nn.functional.one_hot(own, V).double()
    return distance(text_chances(many, p, last, weights, chances), p)
