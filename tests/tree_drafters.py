"""Drafters whose trees are known: at random around the right text, or a chain."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from conftest import EOS, VOCABULARY, generate, make_pair, make_prompts

import specviz as sv
from specviz.engine.drafters import Draft, Drafter
from specviz.engine.drafters.chains import ModelDrafter
from specviz.engine.drafters.trees import TreeDrafter
from specviz.engine.state import State

GUMBEL = sv.SamplingParams(0.8, top_p=0.9, coupling="gumbel")
TOKENS = 16  # of the longest text here
BEYOND = 4  # tokens behind an EOS
SHAPES = ("random", "fan", "chain")


@cache
def alone(name: str, dtype: torch.dtype, sampled: bool) -> list[list[int]]:
    """The target's own text for each of `make_prompts()`."""
    run: dict[str, Any] = {"max_new_tokens": TOKENS, "sampling": GUMBEL if sampled else None}
    pair = make_pair(name, dtype)
    return generate(pair, make_prompts(), strategy="autoregressive", **run).tokens


@cache
def going_on(name: str, dtype: torch.dtype, sampled: bool) -> dict[int, list[int]]:
    """The same by prompt, with what the target would say behind an EOS."""
    target = make_pair(name, dtype).target
    found = {}
    for i, (prompt, text) in enumerate(
        zip(make_prompts(), alone(name, dtype, sampled), strict=True)
    ):
        more = list(text)
        while len(more) < len(text) + BEYOND and text[-1] in EOS:
            with torch.inference_mode():
                said = target(torch.tensor([[*prompt, *more]])).logits[0, -1]
            more.append(int(said.float().argmax()))
        found[i] = more
    return found


@cache
def confident(dtype: torch.dtype) -> sv.Pair:
    """The tiny Llamas, with a draft whose q is peaked, so that deep branches are the best."""
    pair = make_pair("llama", dtype)
    draft = copy.deepcopy(pair.draft)
    with torch.no_grad():
        draft.lm_head.weight *= 5
    return sv.Pair(pair.target, draft)


def random_parents(generator: np.random.Generator, n: int, shape: str) -> list[int]:
    """Parents of n drafts: anywhere, all at the root, or each the one before."""
    if shape == "fan":
        return [-1] * n
    if shape == "chain":
        return list(range(-1, n - 1))
    return [int(generator.integers(-1, j)) for j in range(n)]


def random_tree(
    generator: np.random.Generator, n: int, shape: str, right: Sequence[int], share: float = 0.8
) -> tuple[list[int], list[int]]:
    """Parents and tokens of n drafts. Siblings differ; some branch follows `right` for a while."""
    parents = random_parents(generator, n, shape)
    depths: list[int] = []
    on_path: list[bool] = []
    tokens: list[int] = []
    for j, parent in enumerate(parents):
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
        taken = {tokens[i] for i in range(j) if parents[i] == parent}
        token = int(generator.integers(VOCABULARY))
        is_reached = parent < 0 or on_path[parent]
        wanted = right[depths[j] - 1] if is_reached and depths[j] <= len(right) else None
        if wanted is not None and wanted not in taken and generator.random() < share:
            token = wanted
        while token in taken:
            token = (token + 1) % VOCABULARY
        tokens.append(token)
        on_path.append(token == wanted)
    return parents, tokens


@dataclass(frozen=True)
class RandomTrees(Drafter):
    """Trees at random, the same for a row whatever the batch. `right` has the text by prompt."""

    seed: int = 0
    shape: str = "random"
    right: dict[int, list[int]] = field(default_factory=dict)

    name: ClassVar[str] = "random trees"
    gives_logits: ClassVar[bool] = False
    branches: ClassVar[bool] = True

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        drawn = []
        for row in state.batch.rows:
            index = row.request.index
            generator = np.random.default_rng([self.seed, index, row.length])
            rest = self.right.get(index, [])[len(row.output) :]
            drawn.append(random_tree(generator, num_draft_tokens, self.shape, rest))
        parents, tokens = zip(*drawn, strict=True)
        return Draft(torch.tensor(tokens), parents=torch.tensor(parents))


@dataclass(frozen=True)
class ChainAsTree(ModelDrafter):
    """The draft model's chain, said to be a tree."""

    branches: ClassVar[bool] = True
    capturable: ClassVar[bool] = True

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        draft = super().propose(state, num_draft_tokens)
        number = torch.arange(num_draft_tokens, device=draft.tokens.device)
        return replace(draft, parents=(number - 1).expand_as(draft.tokens), judged_by="rest")


@dataclass(frozen=True)
class Forgetful(TreeDrafter):
    """Says that the draft model keeps no K/V of every second draft."""

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        draft = super().propose(state, num_draft_tokens)
        assert draft.columns is not None
        odd = torch.arange(num_draft_tokens) % 2 == 1
        return replace(draft, columns=draft.columns.masked_fill(odd, 0))
