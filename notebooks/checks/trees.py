"""Checks of 11_trees: a mask by hand, ancestors, compaction, and how siblings are judged."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from checks.base import Answer, WrongAnswerError, ask, exercise, expect, rounded
from specviz.engine.trees import find_tree, judge_children
from specviz.record.schema import Array

# The tree of the notebook: d1 and d2 follow the pending token, and so on.
_PARENTS = (-1, -1, 0, 0, 1, 2)
_GRID = 200  # random numbers of each of two siblings


@exercise
def mask(answer: Any) -> str:
    """Check which of the seven columns each of the seven tokens attends to, as 0 and 1."""
    wanted = _ancestors(_PARENTS)
    rows = [[int(cell) for cell in row] for row in answer]
    if [len(row) for row in rows] != [7] * 7:
        raise WrongAnswerError("expected seven lines of seven zeros and ones")
    names = ["the pending token", *(f"d{number + 1}" for number in range(len(_PARENTS)))]
    for name, row, right in zip(names, rows, wanted.astype(int).tolist(), strict=True):
        for other, found, seen in zip(names, row, right, strict=True):
            if found != seen:
                verb = "attends" if seen else "does not attend"
                raise WrongAnswerError(f"{name} {verb} to {other}, but your mask says {found}")
    return f"{wanted.sum()} of 49 cells, where a chain of six drafts has {np.tri(7).sum():.0f}"


@exercise
def ancestors(answer: Answer) -> str:
    """Check answer(parents): bool (N+1, N+1), the columns on the branch of each column."""
    rng = random.Random(0)
    for _ in range(200):
        parents = [rng.randint(-1, number - 1) for number in range(rng.randint(1, 9))]
        found = np.asarray(ask(answer, list(parents)))
        wanted = _ancestors(parents)
        if found.shape != wanted.shape:
            raise WrongAnswerError(f"expected shape {wanted.shape}, got {found.shape}")
        for column, (row, right) in enumerate(zip(found != 0, wanted, strict=True)):
            case = f"parents {parents} and column {column}"
            expect(row.nonzero()[0].tolist(), right.nonzero()[0].tolist(), case)
    return "right for 200 trees, as the engine finds"


def _ancestors(parents: Sequence[int]) -> Array:
    """Return the columns on the branch of each column, as the engine finds them."""
    return find_tree(torch.tensor([parents])).ancestors[0].numpy()


@exercise
def compact(answer: Answer) -> str:
    """Check answer(kv, path, pending): kv (T, D) after the accepted drafts have moved together."""
    rng = random.Random(0)
    moved = 0
    for trial in range(200):
        n = rng.randint(1, 8)
        path = _any_path(rng, n)
        pending = rng.randint(0, 5)
        # A slot's K/V says where it was written.
        kv = np.arange(pending + n + 3)[:, None] * np.array([1.0, 10.0])
        given = kv.copy()
        found = np.asarray(ask(answer, given, list(path), pending), np.float64)
        wanted = [*range(pending + 1), *(pending + 1 + number for number in path)]
        if found.ndim != 2 or len(found) < len(wanted):
            raise WrongAnswerError(f"expected K/V of shape {kv.shape}, got {found.shape}")
        case = f"the path {path} behind the pending slot {pending}"
        held = found[: len(wanted)]
        expect(held[:, 0].astype(int).tolist(), wanted, f"{case}, the slots that K/V came from,")
        assert (held == kv[wanted]).all(), trial
        moved += sum(number != place for place, number in enumerate(path))
    return f"right for 200 paths, in which {moved} drafts had to move"


def _any_path(rng: random.Random, n: int) -> list[int]:
    """Return a branch of a random tree of n drafts, from the root on."""
    parents = [rng.randint(-1, number - 1) for number in range(n)]
    at = rng.randint(-1, n - 1)
    path: list[int] = []
    while at >= 0:
        path.insert(0, at)
        at = parents[at]
    return path


@exercise
def judge(answer: Answer) -> str:
    """Check answer(p, q, children): the distribution (V,) of the token after them.

    The children were drawn from q one after the other, without replacement.
    """
    rng = np.random.default_rng(0)
    for V, count in ((3, 1), (3, 2), (4, 2), (4, 3)):
        for _ in range(25):
            p, q = rng.dirichlet(np.ones(V), 2)
            found = _emitted(answer, p, q, count)
            distance = float(np.abs(found - p).sum() / 2)
            if not distance < 1e-9:
                raise WrongAnswerError(
                    f"with p = {rounded(p)}, q = {rounded(q)} and {count} children it emits "
                    f"{rounded(found)}, a total variation of {distance:.3f} from p"
                )
    p, q = rng.dirichlet(np.ones(3), 2)
    for children in itertools.permutations(range(3), 2):
        engine = _by_the_engine(p, q, children)
        found = np.asarray(answer(p.copy(), q.copy(), children), np.float64)
        if np.abs(found - engine).max() > 2 / _GRID:
            raise WrongAnswerError(
                f"it emits p on average, but after the children {children} the engine emits "
                f"{rounded(engine)} and your rule {rounded(found)}"
            )
    return "it emits p for 100 pairs of p and q, and judges as the engine does"


def _emitted(rule: Answer, p: Array, q: Array, count: int) -> Array:
    """Sum what the rule emits over all ways to draw `count` children."""
    total = np.zeros(len(p))
    for children in itertools.permutations(range(len(p)), count):
        chance = 1.0
        left = 1.0
        for child in children:
            chance *= q[child] / left
            left -= q[child]
        found = np.asarray(ask(rule, p.copy(), q.copy(), children), np.float64)
        if found.shape != p.shape:
            raise WrongAnswerError(f"expected a distribution of shape {p.shape}, got {found.shape}")
        total += chance * found
    return total


def _by_the_engine(p: Array, q: Array, children: tuple[int, ...]) -> Array:
    """Return what the engine's rule emits, averaged over a grid of two random numbers."""
    steps = (torch.arange(_GRID, dtype=torch.float64) + 0.5) / _GRID
    uniforms = torch.cartesian_prod(steps, steps)  # (b, 2)
    b = len(uniforms)
    drafts = torch.tensor([children]).expand(b, -1)
    tree = find_tree(torch.full((b, 2), -1))
    p_all = torch.tensor(p).expand(b, 3, -1)
    q_all = torch.tensor(q).expand(b, 2, -1)
    last, weights = judge_children(drafts, tree, p_all, q_all, uniforms)
    emitted = weights / weights.sum(1, keepdim=True)
    # An accepted child is itself the token; otherwise it is drawn from what is left of p.
    taken = torch.eye(len(p), dtype=torch.float64)[drafts[torch.arange(b), last.clamp(min=1) - 1]]
    return torch.where((last > 0)[:, None], taken, emitted).mean(0).numpy()
