"""What a drafter is: it proposes K tokens for each row, and does not know how rows stay in step.

A drafter of one's own subclasses `Drafter`, sets `name`, and writes `propose`. It overrides
`models` if a model of its own needs K/V, `prepare` if it computes something before each draft
phase, and `check` if there are runs that it cannot serve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel

from specviz.engine.batch import Request
from specviz.engine.draft import Draft
from specviz.engine.features import Features
from specviz.engine.models.pair import Pair
from specviz.engine.registry import plain_options
from specviz.engine.sampling import SamplingParams
from specviz.engine.state import State


@dataclass(frozen=True)
class Task:
    """What a drafter may know of the run that it serves.

    Attributes:
        max_draft_tokens: the most that a row drafts in a round, also beyond K.
        sampling: None for greedy decoding.
    """

    pair: Pair
    requests: Sequence[Request]
    max_draft_tokens: int
    sampling: SamplingParams | None
    seed: int


@dataclass(frozen=True)
class Drafter:
    """Proposes tokens. See the module's docstring.

    Under coupling="rejection", drafts have to be drawn from exactly the q that is reported, which
    without logits is all of it on the draft, and without looking at the target's output for that
    position. Otherwise the output is no longer distributed as the target's. Greedy decoding and
    coupling="gumbel" have no such condition: a wrong draft costs time, never the text.

    Class attributes, which a subclass sets:
        name, description: what it is called and does.
        gives_logits: whether its drafts come with logits, which some selectors need.
        branches: whether its drafts may be trees, with `Draft.parents`.
        runs_target: whether it lets the target run ahead of the verification.
        capturable: whether `propose` reads only tensors that stay in place and no value on the
            host, so that CUDA graphs may replay it. A subclass does not inherit this: each class
            sets it for itself.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    gives_logits: ClassVar[bool] = True
    branches: ClassVar[bool] = False
    runs_target: ClassVar[bool] = False
    capturable: ClassVar[bool] = False

    @property
    def draft_kv(self) -> str:
        """What its models' caches hold of drafts, one of `record.schema.DRAFT_KV`."""
        return "kept"

    @property
    def rereads(self) -> str:
        """Which tokens of a round its models read again afterwards; see `Batch`."""
        return "none" if self.draft_kv == "kept" else "drafts"

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        """Return the models whose K/V the loop keeps, by their names in `state.caches`."""
        return {}

    def features(self, pair: Pair) -> Features | None:
        """Return what `state.features` keeps of the target's hidden states; None for nothing."""
        return None

    def fed_first(self, max_draft_tokens: int) -> int:
        """Return how many of a row's last tokens `propose` may feed before it drafts.

        Their K/V need not be there when a round begins.
        """
        # All that a round may have gained; or else two, since the last draft of a round is
        # proposed, but never fed.
        again = {"none": 2, "drafts": max_draft_tokens + 1, "pending": max_draft_tokens + 2}
        return again[self.rereads]

    @property
    def options(self) -> dict[str, Any]:
        """The options that this drafter was made with, by name, without models and tensors."""
        return plain_options(self)

    @property
    def biased(self) -> bool:
        """Whether its trees are judged in a way that biases coupling="rejection"."""
        return False

    @property
    def judged_by_q(self) -> bool:
        """Whether coupling="rejection" weighs its drafts by the q that they were drawn from.

        If not, all its drafts have `parents` and are judged by "target". Then the text does not
        depend on how the drafts were found, nor on which of them are verified.
        """
        return True

    @property
    def by_level(self) -> bool:
        """Whether the drafts of its trees stand level by level, those next to the root first."""
        return False

    def columns(self, num_draft_tokens: int) -> int:
        """Return how many slots behind the pending token its models write, in a round of K."""
        return num_draft_tokens

    def limit(self, pair: Pair) -> int | None:
        """Return how many tokens a row can draft, which "auto" keeps to; None for any number."""
        return None

    def check(self, task: Task) -> None:
        """Raise ValueError if this drafter cannot serve the run. No model has run yet."""

    def prepare(self, task: Task, state: State) -> Any:
        """Return what `propose` finds in `state.prepared`. No phase's time includes this."""

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """Return K >= 1 proposals for each row of the batch. K may differ from round to round."""
        raise NotImplementedError(
            f"drafter={self.name!r} must override `propose`; let it return a Draft"
        )


@dataclass(frozen=True)
class NoDrafter(Drafter):
    """Proposes nothing, whatever K: for autoregressive decoding and rounds with K = 0."""

    name: ClassVar[str] = "none"
    description: ClassVar[str] = "no proposals"
    capturable: ClassVar[bool] = True

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        b = len(state.batch)
        return Draft(torch.empty(b, 0, dtype=torch.long, device=state.batch.tokens.device))
