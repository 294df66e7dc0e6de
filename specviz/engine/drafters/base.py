"""What a drafter is: whoever proposes K tokens for each row, without knowing how rows are kept in step."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.batch import Request
from specviz.engine.models.pair import Pair
from specviz.engine.sampling import SamplingParams
from specviz.engine.state import State

_PLAIN = (bool, int, float, str, list, tuple, type(None))


@dataclass(frozen=True)
class Draft:
    """A round's proposals: `tokens` (b, K) int64; `logits` (b, K, V) float32 that they were chosen from, None without a model."""

    tokens: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class Task:
    """What a run was asked for, as far as a drafter may need it.

    Attributes:
        num_draft_tokens: the largest K of the run.
        sampling: None for greedy decoding.
    """

    pair: Pair
    requests: Sequence[Request]
    num_draft_tokens: int
    sampling: SamplingParams | None
    seed: int


@dataclass(frozen=True)
class Drafter:
    """Proposes tokens. A drafter of your own subclasses this, sets `name`, and overrides `propose`, and `models` if it needs K/V kept.

    Under coupling="rejection" a drafter of your own has to draw its drafts from the very q that it reports (without logits: all of it
    on the draft), and without a look at the target's output for that position: else what is emitted is no longer distributed as the
    target's. Greedy decoding and coupling="gumbel" do not mind.

    Attributes:
        needs_hidden: whether it reads the target's hidden states, `state.hidden` (R, D), as a draft head does: for each row the last
            layer's state at its last token but one, from which the target chose the last one. Zero for a prompt of one token.
        capturable: whether `propose` reads tensors that stay in place alone, and no value on the host, so that it may be replayed. Each
            class says so for itself: it is not inherited.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    needs_hidden: ClassVar[bool] = False
    capturable: ClassVar[bool] = False

    @property
    def keeps_cache(self) -> bool:
        """Whether K/V of its models is kept from round to round; without, they read each row's whole text before every round."""
        return True

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        """Models whose K/V the loop keeps for this drafter, by the name under which they stand in `state.caches`."""
        return {}

    @property
    def options(self) -> dict[str, Any]:
        """The options that this drafter was made with, by name; a model or a tensor among them is left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, _PLAIN)}

    def check(self, task: Task) -> None:
        """Raise ValueError if this drafter cannot serve the run. No model has run yet."""

    def prepare(self, task: Task, state: State) -> Any:
        """Return what `propose` will find in `state.prepared`; called before each draft phase, outside of what is timed."""

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """K proposals for each row of the batch, given its committed tokens. K may differ from round to round; it is never 0 here."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoDrafter(Drafter):
    """Proposes nothing, whatever K: what autoregressive decoding uses."""

    name: ClassVar[str] = "none"
    description: ClassVar[str] = "no proposals"
    capturable: ClassVar[bool] = True

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        b = len(state.batch)
        return Draft(torch.empty(b, 0, dtype=torch.long, device=state.batch.tokens.device))
