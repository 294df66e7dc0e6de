"""What a drafter is: whoever proposes K tokens for each row, without knowing how rows are kept in step."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.pair import Pair
from specviz.engine.state import State

if TYPE_CHECKING:
    from specviz.engine.decode import Run

_PLAIN = (bool, int, float, str, list, tuple, type(None))


@dataclass(frozen=True)
class Draft:
    """A round's proposals: `tokens` (b, K) int64; `logits` (b, K, V) float32 that they were chosen from, None without a model."""

    tokens: Tensor
    logits: Tensor | None = None


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

    def check(self, run: "Run") -> None:
        """Raise ValueError if it cannot serve this run. No model has run yet."""

    def prepare(self, run: "Run") -> Any:
        """Called before each round's draft phase and in no phase's time; what it returns stands in `state.prepared` when it proposes."""

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
