"""Greedy decoding by transformers, plain and assisted.

Contract: uses `generate` of transformers, and nothing of the loop.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.utils import logging

from specviz.bench.baselines.base import Baseline, Prompts, Written, cut
from specviz.engine.models.pair import Pair
from specviz.util.validate import is_share, short


@dataclass(frozen=True)
class HfGenerate(Baseline):
    """`generate` of transformers on static batches, padded on the left."""

    name: ClassVar[str] = "hf_generate"

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        return _generated(pair, batch, max_new_tokens)


@dataclass(frozen=True)
class HfAssisted(Baseline):
    """Assisted generation of transformers: batch 1, K drafts a round by the pair's draft model.

    Attributes:
        confidence: a draft token less likely than that ends a round's drafting, as
            `assistant_confidence_threshold` of transformers, whose default this is; 0: all K are
            drafted.
    """

    confidence: float = 0.4

    name: ClassVar[str] = "hf_assisted"
    drafts: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_share(self.confidence) or self.confidence == 1:
            raise ValueError(
                f"confidence must be a number >= 0 and < 1, got {short(self.confidence)}; "
                "pass 0 for all K draft tokens"
            )

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        # The default schedule changes K from round to round; the strategies keep theirs.
        settings = {
            "num_assistant_tokens": num_draft_tokens,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": self.confidence,
        }
        with _configured(pair.draft, settings):
            return _generated(pair, batch, max_new_tokens, assistant_model=pair.draft)


def _generated(pair: Pair, prompts: Prompts, max_new_tokens: int, **options: Any) -> Written:
    eos = pair.eos_token_ids
    padding = eos[0] if eos else 0  # masked, so that any id does
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), padding, device=pair.device)  # (B, T)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt, device=pair.device)
        mask[row, longest - len(prompt) :] = 1
    with _counted(pair.target) as forwards:
        written: Tensor = pair.target.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=padding,
            **options,
        )
    # Assisted generation may write a few tokens too many, and a batch pads rows that have ended.
    new = written[:, longest : longest + max_new_tokens].tolist()
    tokens = [cut(row, eos) for row in new]
    # Rows that have ended stay in the batch.
    return Written(tokens, len(forwards), len(forwards) * len(prompts))


@contextmanager
def _counted(model: Any) -> Iterator[list[None]]:
    """Yield a list that grows by one entry with each forward."""
    forwards: list[None] = []
    hook = model.register_forward_pre_hook(lambda *_: forwards.append(None))
    try:
        yield forwards
    finally:
        hook.remove()


@contextmanager
def _configured(model: Any, values: dict[str, object]) -> Iterator[None]:
    """Set values in the generation config, which assisted generation reads; mute its advice."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    before = {name: getattr(model.generation_config, name, None) for name in values}
    for name, value in values.items():
        setattr(model.generation_config, name, value)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        for name, value in before.items():
            setattr(model.generation_config, name, value)
