"""What the loop yields: one event after each phase of a round.

The tensors are the run's own, on its device; copy what you keep. `state` is the live state, as it
is after the phase. B rows, K draft tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from specviz.engine.accept import Outcome
from specviz.engine.draft import Draft
from specviz.engine.state import State


@dataclass(frozen=True)
class Event:
    """A phase of round `round` (from 0) has ended."""

    round: int
    state: State
    phase: ClassVar[str]


@dataclass(frozen=True)
class Scheduled(Event):
    """Finished rows have left; new ones (`state.admitted`) have entered and are prefilled."""

    phase: ClassVar[str] = "schedule"


@dataclass(frozen=True)
class Drafted(Event):
    """`draft.tokens` (B, K) have been proposed."""

    draft: Draft
    phase: ClassVar[str] = "draft"


@dataclass(frozen=True)
class Verified(Event):
    """One target forward has read pending token and drafts; `logits` (B, K+1, V) in its dtype."""

    logits: Tensor
    phase: ClassVar[str] = "verify"


@dataclass(frozen=True)
class Accepted(Event):
    """Each row has committed what it gained; `state.batch.rows` shows it on the host."""

    outcome: Outcome
    phase: ClassVar[str] = "accept"


@dataclass(frozen=True)
class Synchronised(Event):
    """The strategy has brought positions, masks and K/V back into step."""

    phase: ClassVar[str] = "synchronise"
