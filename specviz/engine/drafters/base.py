"""What a drafter is: it proposes K tokens for each row, and does not know how rows stay in step.

A drafter of one's own subclasses `Drafter`, sets `name`, and writes `propose`. It overrides
`models` if a model of its own needs K/V, `prepare` if it computes something before each draft
phase, and `check` if there are runs that it cannot serve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.batch import Request
from specviz.engine.features import Features
from specviz.engine.models.pair import Pair
from specviz.engine.registry import plain_options
from specviz.engine.sampling import SamplingParams
from specviz.engine.state import State
from specviz.engine.trees.shape import check_parents
from specviz.util.validate import require_choice, require_kind

# How trees are judged under coupling="rejection"; see `Draft.judged_by`.
JUDGES = ("target", "rest", "each", "first")


@dataclass(frozen=True)
class Draft:
    """The proposals of a round.

    Attributes:
        tokens: (b, K) int64.
        logits: (b, K, V) float32, from which the tokens were chosen; None without a model.
        lengths: (b,) int64, how many of a row's tokens are verified, 0..K; None for all.
        scores: (b, K) float32, by which they were selected; None where nothing was.
        total: the sum of `lengths`, where the host knows it.
        parents: (b, K) int64, the draft that each draft follows, -1 for the pending token. None for
            a chain, where each follows the one before. A parent stands before its children, and
            drafts of one parent differ.
        height: the most drafts on one branch, where it is known to be less than K.
        columns: (b, K) int64, how far behind the pending token's slot the draft models keep the K/V
            of each draft of a tree; 0 where they have none. None for draft j at j + 1.
        judged_by: under coupling="rejection", how a tree is judged. "target": a token is drawn
            from the target's distribution after each node, and followed where it is a draft. That
            is exact however the drafts were found. "rest": each child by the q that is left
            without its earlier siblings, which is exact for children drawn from `logits` without
            replacement, in this order. "each": each child by the whole q, which is exact for
            children drawn from it independently, with `drawn`. "first": the same without `drawn`,
            which is biased.
        drawn: (b, K) int64, for judged_by="each": what was drawn in the place of each draft. Where
            an earlier sibling is that token already, `tokens` has another one, which is not
            accepted.
    """

    tokens: Tensor
    logits: Tensor | None = None
    lengths: Tensor | None = None
    scores: Tensor | None = None
    total: int | None = None
    parents: Tensor | None = None
    height: int | None = None
    columns: Tensor | None = None
    judged_by: str = "target"
    drawn: Tensor | None = None


@dataclass(frozen=True)
class Task:
    """What a drafter may know of the run that it serves.

    Attributes:
        max_draft_tokens: the largest K of the run.
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
    def rereads_drafts(self) -> bool:
        """Whether its models read drafts again once they are accepted."""
        return False

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
        return 2

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


def check_draft(
    drafter: Drafter, draft: object, rows: int, num_draft_tokens: int, vocabulary: int | None
) -> None:
    """Raise ValueError unless a drafter returned K tokens for each of `rows` rows.

    Ids outside the vocabulary are looked for on a CPU alone: elsewhere the host would wait for the
    device.
    """
    shape = rows, num_draft_tokens
    remedy = f"return Draft(tokens) with an int64 tensor of shape {shape}"
    require_kind(f"what drafter={drafter.name!r} proposes", draft, Draft, remedy)
    assert isinstance(draft, Draft)
    require_kind("Draft.tokens", draft.tokens, Tensor, remedy)
    if draft.tokens.shape != shape or draft.tokens.dtype != torch.long:
        raise ValueError(
            f"Draft.tokens must be int64 of shape {shape}, "
            f"got {str(draft.tokens.dtype).removeprefix('torch.')} of shape "
            f"{tuple(draft.tokens.shape)}; {remedy}, and say in `lengths` where rows have fewer"
        )
    if vocabulary is None or draft.tokens.device.type != "cpu":
        return
    for token in map(int, draft.tokens.aminmax()):
        if not 0 <= token < vocabulary:
            raise ValueError(
                f"Draft.tokens must be ids from 0 to {vocabulary - 1}, got {token}; "
                f"let drafter={drafter.name!r} propose tokens of the target's vocabulary, and say "
                "in `lengths` where rows have fewer"
            )


def check_trees(drafter: Drafter, draft: Draft) -> None:
    """Raise ValueError unless the trees of this draft can be verified and judged."""
    if not drafter.branches:
        raise ValueError(
            f"drafter={drafter.name!r} returned Draft.parents, but says branches = False; "
            "set `branches = True` on its class, so that the run can take trees"
        )
    check_parents(draft.parents, draft.tokens, draft.height)
    require_choice("Draft.judged_by", draft.judged_by, JUDGES)
    if draft.judged_by == "first" and not drafter.biased:
        raise ValueError(
            f"drafter={drafter.name!r} returned Draft.judged_by='first', but says biased = False; "
            "pass 'rest' or 'target', or override `biased`"
        )
    if (draft.judged_by == "each") != (draft.drawn is not None):
        raise ValueError(
            f"drafter={drafter.name!r} returned Draft.judged_by={draft.judged_by!r} and Draft.drawn"
            f" is {'not ' if draft.drawn is not None else ''}None; pass judged_by='each' together "
            "with the tokens that were drawn, and only then"
        )
    if draft.columns is None:
        return
    require_kind("Draft.columns", draft.columns, Tensor, "pass a tensor (b, K) of ints, or None")
    if draft.columns.shape != draft.tokens.shape or draft.columns.dtype != torch.long:
        raise ValueError(
            f"Draft.columns must be int64 of shape {tuple(draft.tokens.shape)}, as Draft.tokens, "
            f"got {str(draft.columns.dtype).removeprefix('torch.')} of shape "
            f"{tuple(draft.columns.shape)}; pass one column for each draft, or None"
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
