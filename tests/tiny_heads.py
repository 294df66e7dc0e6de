"""Draft heads for the tiny targets, fitted to the very texts that the tests decode."""

from dataclasses import replace
from functools import cache

import torch
from conftest import make_pair, make_prompts
from torch.nn.functional import cross_entropy
from tree_drafters import TOKENS, going_on

import specviz as sv
from specviz.engine.heads import DraftHead, build_head
from specviz.zoo.heads import unroll

LEARNING_RATE = 1e-2
FITTING_STEPS = 20  # with more, no draft would be rejected
STEPS = 4  # tokens that a head is fitted to draft; Medusa and Clover could draft one more


@cache
def texts(name: str, sampled: bool = False) -> list[list[int]]:
    """The prompts with the target's own text after them, and what it would say behind an EOS."""
    found = going_on(name, torch.float32, sampled)
    return [prompt + found[i] for i, prompt in enumerate(make_prompts())]


@cache
def fitted(name: str, kind: str) -> DraftHead:
    """A head that knows most of the texts of this target by heart."""
    target = make_pair(name).target
    head = build_head(kind, target, seed=1).float()
    optimiser = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE)
    known = texts(name)
    length = max(map(len, known))
    # Padding behind a text changes nothing before it.
    tokens = torch.tensor([text + [0] * (length - len(text)) for text in known])
    ends = torch.tensor([[len(text)] for text in known])
    starts = (ends + torch.arange(-TOKENS, -STEPS)).clamp(min=0)
    with torch.no_grad():
        features = head.select(target.base_model(tokens, output_hidden_states=True).hidden_states)
    for _ in range(FITTING_STEPS):
        loss = torch.zeros(())
        for ahead, output in enumerate(unroll(head, tokens, features, starts, STEPS)):
            right = tokens.gather(1, starts + ahead + 1)
            loss = loss + cross_entropy(output.logits.flatten(0, 1), right.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
    return head.eval().requires_grad_(False)


@cache
def pair_with(name: str, kind: str, dtype: torch.dtype = torch.float32) -> sv.Pair:
    """The tiny pair of this class with a fitted head."""
    pair = make_pair(name, dtype)
    known = fitted(name, kind)
    head = build_head(kind, pair.target)
    head.load_state_dict(known.state_dict())
    return replace(pair, heads={kind: head.to(dtype).eval().requires_grad_(False)})


def hiding_first(pair: sv.Pair, kind: str) -> sv.Pair:
    """The pair with a head of the same weights that hides its entry 0."""
    known = pair.heads[kind]
    head = build_head(kind, pair.target, hides_first=True).to(known.dtype)
    head.load_state_dict(known.state_dict())
    return replace(pair, heads={kind: head.eval().requires_grad_(False)})
