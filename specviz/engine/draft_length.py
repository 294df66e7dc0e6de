"""How many tokens a row drafts in each round: a fixed K, or the K with the most tokens a second.

Contract: the loop calls `choose` once a round's rows are known, before they draft. `Meter` calls
`learn` afterwards, with what the round cost and gained. A `DraftLength` goes by lengths, acceptance
and times, and reads no tensor. So it decides when a token is written, never which one. Not known
here: models and tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.engine.state import State
from specviz.util.validate import require_int


@dataclass(frozen=True)
class Spent:
    """What a round cost and gained.

    Times are in ms. On a CPU they are what the run's thread computed, without the time that other
    programs took from it.

    Attributes:
        rows: rows in its forwards.
        num_draft_tokens: its K.
        extra: tokens that each row drafted beyond K.
        verified: drafts that the target judged, of each active row; None: K each.
        caught_up: tokens that the draft models had missed and read in this round.
        accepted: accepted drafts of each active row.
        draft_ms: time of the draft phase.
        rest_ms: time of the other phases; of the phase schedule only where no row entered.
        cold: whether something ran for the first time or was captured, so that the times are not
            those of later rounds.
    """

    rows: int
    num_draft_tokens: int
    caught_up: int
    accepted: Sequence[int]
    draft_ms: float
    rest_ms: float
    cold: bool = False
    verified: Sequence[int] | None = None
    extra: int = 0


class DraftLength:
    """The same K in every round.

    To choose K differently, subclass this and override `choose`, and `learn` if the choice depends
    on earlier rounds.

    Attributes:
        most: the largest K that it ever chooses.
    """

    name = "fixed"

    def __init__(self, most: int) -> None:
        self.most = require_int("most", most, minimum=0)

    def choose(self, state: State) -> int:
        """Return K, 0 to `most`, of the round that begins. Its rows are in the batch already."""
        return self.most

    def learn(self, spent: Spent) -> None:
        """Take what a finished round cost and gained. On a GPU, this may come a round late."""
