"""What the strategies are measured against: decoding as transformers itself does it, from the same token ids, greedily.

Knows `generate` of transformers and nothing of the loop.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.utils import logging

from specviz.engine.models.pair import Pair
from specviz.util.validate import short

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Written:
    """tokens: the new ones of each prompt, EOS kept, nothing behind it. forwards: of the target."""

    tokens: list[list[int]]
    forwards: int


@dataclass(frozen=True)
class Baseline:
    """A way to decode that is not ours.

    Attributes:
        name: what it is called in a grid.
        drafts: whether K matters to it.
        alone: whether it knows batches of one only.
    """

    name: ClassVar[str] = ""
    drafts: ClassVar[bool] = False
    alone: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, object]:
        """The options that it was made with, by name."""
        return asdict(self)

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Iterator[Written]:
        """Decode the prompts, `batch_size` at a time, in their order; yields after each batch all that was written so far."""
        raise NotImplementedError


@dataclass(frozen=True)
class HfGenerate(Baseline):
    """`generate` of transformers on static batches, padded on the left."""

    name: ClassVar[str] = "hf_generate"

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Iterator[Written]:
        found = Written([], 0)
        for first in range(0, len(prompts), batch_size):
            with _counted(pair.target) as forwards:
                tokens = _generated(pair, prompts[first : first + batch_size], max_new_tokens)
            found = Written(found.tokens + tokens, found.forwards + len(forwards))
            yield found


@dataclass(frozen=True)
class HfAssisted(Baseline):
    """Assisted generation of transformers: batch 1, K drafts a round by the pair's draft model.

    Attributes:
        confidence: a draft less likely than that ends a round's drafting, as `assistant_confidence_threshold`; 0: all K are drafted. The
            default is that of transformers.
    """

    confidence: float = 0.4

    name: ClassVar[str] = "hf_assisted"
    drafts: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (
            isinstance(self.confidence, bool)
            or not isinstance(self.confidence, Real)
            or not 0 <= self.confidence < 1
        ):
            raise ValueError(
                f"confidence={short(self.confidence)} is no probability; pass a number from 0 to below 1, 0 for all K drafts"
            )

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Iterator[Written]:
        """`num_draft_tokens` is kept as it is (`num_assistant_tokens_schedule="constant"`)."""
        asked = {
            "num_assistant_tokens": num_draft_tokens,
            "num_assistant_tokens_schedule": "constant",
        }
        found = Written([], 0)
        for prompt in prompts:
            with (
                _counted(pair.target) as forwards,
                _configured(
                    pair.draft, asked | {"assistant_confidence_threshold": self.confidence}
                ),
            ):
                tokens = _generated(pair, [prompt], max_new_tokens, assistant_model=pair.draft)
            found = Written(found.tokens + tokens, found.forwards + len(forwards))
            yield found


BASELINES: dict[str, type[Baseline]] = {kind.name: kind for kind in (HfGenerate, HfAssisted)}


def _generated(
    pair: Pair, prompts: Prompts, max_new_tokens: int, **options: Any
) -> list[list[int]]:
    """The new tokens of one batch. What fills it on the left is masked, so that any id does."""
    width, eos = max(map(len, prompts)), pair.eos_token_ids
    filler = eos[0] if eos else 0
    ids = torch.tensor(
        [[filler] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=pair.device
    )
    mask = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=pair.device
    )
    written: Tensor = pair.target.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=max_new_tokens, pad_token_id=filler, **options
    )  # fmt: skip
    return [_cut(row, set(eos)) for row in written[:, width : width + max_new_tokens].tolist()]


def _cut(row: list[int], eos: set[int]) -> list[int]:
    """Up to the first EOS, which is kept."""
    return row[: next((i + 1 for i, token in enumerate(row) if token in eos), len(row))]


@contextmanager
def _counted(model: Any) -> Iterator[list[None]]:
    """A list that grows by an entry with each forward."""
    forwards: list[None] = []
    hook = model.register_forward_pre_hook(lambda *_: forwards.append(None))
    try:
        yield forwards
    finally:
        hook.remove()


@contextmanager
def _configured(model: Any, values: dict[str, object]) -> Iterator[None]:
    """With these values in the model's generation config, from which assisted generation takes them; without its advice on its use."""
    told = logging.get_verbosity()
    logging.set_verbosity_error()
    before = {name: getattr(model.generation_config, name, None) for name in values}
    for name, value in values.items():
        setattr(model.generation_config, name, value)
    try:
        yield
    finally:
        logging.set_verbosity(told)
        for name, value in before.items():
            setattr(model.generation_config, name, value)
