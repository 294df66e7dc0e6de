"""What the strategies are measured against: greedy decoding by transformers, plain and assisted.

Baselines go from the ids of prompts to the ids that they write, and use nothing of the loop.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.utils import logging

from specviz.engine.models.pair import Pair
from specviz.generation.interleave import Steps
from specviz.util.validate import is_share, short

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Written:
    """What a baseline wrote.

    Attributes:
        tokens: the new ones of each prompt, up to and with EOS.
        forwards: of the target.
        row_forwards: the same, counted once for each row that took part.
    """

    tokens: list[list[int]]
    forwards: int
    row_forwards: int


@dataclass(frozen=True)
class Baseline:
    """A way to decode that is not a strategy of specviz. Subclass it and pass an object to `Grid`.

    Attributes:
        name: in tables.
        drafts: whether it uses K.
        alone: whether it decodes at batch 1 only.
        on_torch: whether it computes with torch, so that its memory can be watched.
    """

    name: ClassVar[str] = ""
    drafts: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    on_torch: ClassVar[bool] = True

    @property
    def options(self) -> dict[str, object]:
        """The options that it was made with, by name."""
        return asdict(self)

    def capacity(self, batch_size: int, prompts: int) -> int:
        """Return how many requests it has begun and not ended, at most."""
        return min(1 if self.alone else batch_size, prompts)

    def prepare(self, pair: Pair) -> None:
        """Load what decoding with the pair needs. This is not timed.

        Raises:
            ImportError, ValueError: it cannot decode with the pair on this machine.
        """

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        """Decode one batch."""
        raise NotImplementedError

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Steps[Written]:
        """Decode the prompts in order; yield the number of tokens so far after each batch."""
        tokens: list[list[int]] = []
        forwards = 0
        row_forwards = 0
        for first in range(0, len(prompts), batch_size):
            batch = prompts[first : first + batch_size]
            written = self.decode(pair, batch, max_new_tokens, num_draft_tokens)
            tokens += written.tokens
            forwards += written.forwards
            row_forwards += written.row_forwards
            yield sum(map(len, tokens))
        return Written(tokens, forwards, row_forwards)


def cut(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return the row up to and with its first EOS."""
    ends = [i for i, token in enumerate(row) if token in eos]
    return row[: ends[0] + 1] if ends else row


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


BASELINES: dict[str, type[Baseline]] = {kind.name: kind for kind in (HfGenerate, HfAssisted)}
