"""What every baseline offers: from the ids of prompts to the ids that it writes.

Contract: uses nothing of the loop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from specviz.engine.models.pair import Pair

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

    def __add__(self, other: "Written") -> "Written":
        return Written(
            self.tokens + other.tokens,
            self.forwards + other.forwards,
            self.row_forwards + other.row_forwards,
        )


@dataclass(frozen=True)
class Baseline:
    """A way to decode that is not a strategy of specviz.

    Attributes:
        name: in a grid.
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

    def prepare(self, pair: Pair) -> None:
        """Load what decoding with the pair needs. This is not timed.

        Raises:
            ImportError, ValueError: it cannot decode with the pair on this machine.
        """

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Iterator[Written]:
        """Decode the prompts in order, `batch_size` at a time; yield all so far after a batch."""
        found = Written([], 0, 0)
        for first in range(0, len(prompts), batch_size):
            batch = prompts[first : first + batch_size]
            found += self.decode(pair, batch, max_new_tokens, num_draft_tokens)
            yield found

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        """Decode one batch."""
        raise NotImplementedError


def cut(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return the row up to and with its first EOS."""
    for i, token in enumerate(row):
        if token in eos:
            return row[: i + 1]
    return row
