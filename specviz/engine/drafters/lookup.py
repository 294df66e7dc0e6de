"""Prompt lookup: what followed the last few tokens when they stood in the row before. No second model, no K/V of its own.

Source: Saxena, "Prompt Lookup Decoding" (2023); `PromptLookupCandidateGenerator` of transformers. Both take the earliest occurrence;
here the most recent one counts. It pays where the output repeats the prompt: editing, summaries, code.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import pad

from specviz.engine.drafters.base import Draft, Drafter
from specviz.engine.state import State
from specviz.util.validate import require_int


@dataclass(frozen=True)
class LookupDrafter(Drafter):
    """Finds the longest run of min_ngram to max_ngram tokens at the row's end that stands in it before, of equals the most recent.

    The engine drafts K tokens for every row. Where fewer than K followed the match, they are repeated from the match on, as if the text
    went on in that period; a row without a match repeats its last token. The target rejects what is wrong.
    """

    max_ngram: int = 3
    min_ngram: int = 1

    name: ClassVar[str] = "lookup"
    description: ClassVar[str] = (
        "what followed the row's last tokens where they stood before; no second model"
    )

    def __post_init__(self) -> None:
        for name in ("max_ngram", "min_ngram"):
            object.__setattr__(self, name, require_int(name, getattr(self, name)))
        if self.min_ngram > self.max_ngram:
            raise ValueError(
                f"min_ngram={self.min_ngram} is larger than max_ngram={self.max_ngram}; pass a min_ngram of at most max_ngram"
            )

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """A few comparisons of all rows at once on the device; nothing is read on the host."""
        longest = max(row.length for row in state.batch.rows)
        tokens, n = (
            state.batch.tokens[: len(state.batch), :longest],
            state.batch.n[:, None],
        )  # (b, w), (b, 1)
        column = torch.arange(longest, device=tokens.device)
        same = (
            column < n - 1
        )  # (b, w): whether the tokens column - i ... column equal the row's last i + 1 ones, and end before them
        start = n - 1  # (b, 1): where what followed the match begins
        for i in range(min(self.max_ngram, longest)):
            last = tokens.gather(1, (n - 1 - i).clamp(min=0))  # (b, 1)
            same = same & pad(tokens[:, : longest - i] == last, (i, 0))
            if i + 1 >= self.min_ngram:
                found = torch.where(same, column, -1).amax(1, keepdim=True)
                start = torch.where(found >= 0, found + 1, start)
        ahead = torch.arange(num_draft_tokens, device=tokens.device)
        return Draft(tokens.gather(1, start + ahead % (n - start)))  # (b, K)
