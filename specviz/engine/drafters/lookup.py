"""Prompt lookup: propose what followed the row's last few tokens at an earlier occurrence.

It needs no second model and no K/V. It pays where the output repeats the prompt: editing,
summaries, code.

Source: Saxena, "Prompt Lookup Decoding" (2023); `PromptLookupCandidateGenerator` of transformers.
Both take the earliest occurrence; this drafter takes the most recent one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import pad

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter
from specviz.engine.state import State
from specviz.util.validate import require_int, short


@dataclass(frozen=True)
class LookupDrafter(Drafter):
    """Match the last min_ngram to max_ngram tokens of a row with an earlier place in that row.

    The longest match counts; of equally long ones, the most recent.

    The engine drafts K tokens for every row. Where fewer than K tokens followed the match, they are
    repeated, as if the text went on with that period. A row without a match repeats its last token.
    The target rejects what is wrong.
    """

    max_ngram: int = 3
    min_ngram: int = 1

    name: ClassVar[str] = "lookup"
    gives_logits: ClassVar[bool] = False
    description: ClassVar[str] = (
        "what followed an earlier occurrence of the row's last tokens; no second model"
    )

    def __post_init__(self) -> None:
        for name in ("max_ngram", "min_ngram"):
            object.__setattr__(self, name, require_int(name, getattr(self, name)))
        if self.min_ngram > self.max_ngram:
            raise ValueError(
                f"min_ngram={short(self.min_ngram)} is larger than max_ngram={self.max_ngram}; "
                "pass a min_ngram of at most max_ngram"
            )

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """Compare all rows at once on the device. Nothing is read on the host."""
        longest = max(row.length for row in state.batch.rows)
        tokens = state.batch.tokens[: len(state.batch), :longest]  # (b, w)
        n = state.batch.n[:, None]  # (b, 1)
        column = torch.arange(longest, device=tokens.device)  # (w,)
        # Whether the tokens up to each column equal the row's last i + 1 tokens. The last column is
        # left out, or every row would match itself.
        same = column < n - 1  # (b, w)
        # Where the text after the match begins; without a match, at the last token.
        start = n - 1  # (b, 1)
        for i in range(min(self.max_ngram, longest)):
            last = tokens.gather(1, (n - 1 - i).clamp(min=0))  # (b, 1)
            same = same & pad(tokens[:, : longest - i] == last, (i, 0))
            # Longer matches come later and take precedence; the last matching column is the most
            # recent place.
            if i + 1 >= self.min_ngram:
                match = torch.where(same, column, -1).amax(1, keepdim=True)  # (b, 1)
                start = torch.where(match >= 0, match + 1, start)
        # Modulo what is there: the text after the match repeats if it is shorter than K.
        ahead = torch.arange(num_draft_tokens, device=tokens.device)  # (K,)
        return Draft(tokens.gather(1, start + ahead % (n - start)))  # (b, K)
