"""Threshold: stop verifying a row at the first draft that its draft model was unsure of.

Engines know it as an early exit by the draft's confidence.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from specviz.engine.accept import count_leading
from specviz.engine.drafters.base import Draft
from specviz.engine.selectors.base import Selector
from specviz.engine.selectors.tetris import available, log_q, score_round
from specviz.engine.state import State
from specviz.util.validate import is_real, require_choice, short


@dataclass(frozen=True)
class Threshold(Selector):
    """Verifies a row's drafts up to the first whose q is below `at_least`.

    Where drafts branch, it goes by a draft's whole branch: the chance that all of it is accepted.

    Attributes:
        at_least: 0 to 1.
        score: "chosen": q of the draft itself, which foresees. "largest": the largest q at its
            position; of trees, in place of the branch's last q.

    Raises:
        ValueError: an option cannot be used.
    """

    at_least: float = 0.5
    score: str = "chosen"

    name: ClassVar[str] = "threshold"
    description: ClassVar[str] = "a row's drafts up to the first that its draft was unsure of"
    needs_logits: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    ranks_nan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_real(self.at_least) or not 0 <= self.at_least <= 1:
            raise ValueError(
                f"at_least must be a number from 0 to 1, got {short(self.at_least)}; "
                "pass the smallest q that is worth verifying"
            )
        object.__setattr__(self, "at_least", float(self.at_least))
        require_choice("score", self.score, ("chosen", "largest"))
        super().__post_init__()

    @property
    def foresees(self) -> bool:
        return self.score == "chosen"

    @property
    def unbiased(self) -> str:
        return 'pass score="largest"'

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        if draft.parents is not None:
            scores = score_round(state, draft, self.score)  # (b, K)
        elif self.score == "chosen":
            scores = log_q(state, draft).gather(2, draft.tokens[:, :, None])[:, :, 0]
        else:
            scores = log_q(state, draft).amax(-1)
        confident = torch.exp(scores) >= self.at_least
        lengths = count_leading(confident & available(state, draft))
        return replace(draft, lengths=lengths, scores=scores)
