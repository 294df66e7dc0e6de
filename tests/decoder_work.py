"""The work that `decoders` are tested on, and what the target itself makes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from decoders import CASES, Case
from torch import nn

import specviz as sv

PROMPTS = (0, 1, 6, 7)  # of load_prompts(): 10 to 22 tokens
K = 4
MAX_NEW_TOKENS = 32
EOS = (16,)  # a full stop, which is in the outputs and in one prompt


@cache
def pair() -> sv.Pair:
    return sv.load_pair(device="cpu", dtype="float32")


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    texts = sv.load_prompts()
    return tuple(tuple(pair().tokenizer(texts[number]).input_ids) for number in PROMPTS)


@cache
def reference(eos_token_ids: tuple[int, ...]) -> list[list[int]]:
    """What transformers' greedy decoding makes of each prompt alone."""
    outputs = []
    for prompt in prompts():
        ids = torch.tensor([prompt])
        text = pair().target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=list(eos_token_ids) or None,
            pad_token_id=0,
        )
        outputs.append(text[0, len(prompt) :].tolist())
    return outputs


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def watched(
    decoder: Any, models: Any = None, given: Any = None, K: int = K, count: int = MAX_NEW_TOKENS,
    eos: Any = (), tokenizer: Any = None, **options: Any,
) -> tuple[sv.Watched, list[list[int]]]:  # fmt: skip
    """Decode these prompts, or the usual ones; return what was seen, and the outputs."""
    target, draft = models or (pair().target, pair().draft)
    rows = [list(prompt) for prompt in given or prompts()]
    with sv.watch(target, draft, tokenizer=tokenizer) as seen:
        outputs = decoder.decode(target, draft, rows, K, count, eos, **options)
    return seen, outputs


@dataclass
class Cost:
    """What the target was made to do."""

    forwards: int = 0
    tokens: int = 0


@dataclass
class Run:
    outputs: list[list[int]]
    cost: Cost = field(default_factory=Cost)


@contextmanager
def counted(model: nn.Module) -> Iterator[Cost]:
    """Count a model's forward passes, and the tokens that they read, padding included."""
    cost = Cost()

    def count(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input_ids"]
        cost.forwards += 1
        cost.tokens += ids.numel()

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield cost
    finally:
        handle.remove()


def run(case: Case, eos_token_ids: tuple[int, ...] = ()) -> Run:
    """Run a decoder on the work."""
    rows = [list(prompt) for prompt in prompts()]
    with counted(pair().target.model) as cost:
        outputs = case.decode(
            pair().target, pair().draft, rows, K, MAX_NEW_TOKENS, eos_token_ids=eos_token_ids
        )
    return Run(outputs, cost)
