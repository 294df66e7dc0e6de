"""Drafters of chains that need no draft head: a draft model, prompt lookup, and synthetic drafts.

Source of the lookup: Saxena, "Prompt Lookup Decoding" (2023), and
`PromptLookupCandidateGenerator` of transformers. Both take the earliest occurrence; this drafter
takes the most recent one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter, Task
from specviz.engine.models.pair import Pair
from specviz.engine.rng import DRAFT, Noise
from specviz.engine.state import State
from specviz.util.validate import is_share, require_int, short


@dataclass(frozen=True)
class ModelDrafter(Drafter):
    """The pair's draft model, K forwards a round."""

    name: ClassVar[str] = "model"
    description: ClassVar[str] = "the pair's draft model, one forward a draft token"
    capturable: ClassVar[bool] = True

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return {"draft": pair.draft}

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        # The last draft of a round is proposed, but never fed. If it is accepted, its K/V is
        # missing beside that of the pending token. Two tokens fill both slots, and feeding two in
        # every round keeps the shape the same, whatever was accepted.
        return run_ahead(state, "draft", num_draft_tokens, fed_first=2)


def run_ahead(
    state: State, model: str, num_tokens: int, fed_first: int, instead: Tensor | None = None
) -> Draft:
    """Run the model `state.caches[model]` for `num_tokens` tokens, one forward for each.

    The first forward reads each row's last `fed_first` tokens, the others the token just chosen, or
    the one in its place in `instead` (b, num_tokens).
    """
    cache = state.caches[model]
    fed, indices = state.batch.last_tokens(fed_first)  # both (b, fed_first)
    new_indices = indices[:, -1:] + torch.arange(1, num_tokens, device=indices.device)
    indices = torch.cat([indices, new_indices], 1)
    # One feed for all forwards: where the tokens go is known, which ones they are is not yet.
    feed = cache.ready(state.feed(indices, indices))
    tokens: list[Tensor] = []
    logits = []
    own_features: Tensor | None = None  # of a head
    for j in range(num_tokens):
        count = cache.reads(j) if j else fed_first
        part = feed.part(fed, slice(fed_first + j - count, fed_first + j))
        output = cache.forward_next(part, own_features) if j else cache.forward(part)
        own_features = output.features
        step_logits = output.logits[:, -1].float()  # (b, V)
        if state.processors is not None and instead is None:
            step_logits = state.processors.next(state.batch, tokens, step_logits)
        own = choose(state, step_logits, j)[:, None]  # (b, 1)
        tokens.append(own if instead is None else instead[:, j : j + 1])
        logits.append(step_logits)
        fed = torch.cat(tokens[-cache.reads(j + 1) :], 1)
    return Draft(torch.cat(tokens, 1), torch.stack(logits, 1))


def choose(state: State, logits: Tensor, ahead: int) -> Tensor:
    """Return the drafts (b,) chosen from logits (b, V), `ahead` tokens behind the first one."""
    # As in `accept`: both sides draw from the same numbers.
    return state.chooser.draft(logits, state.batch.places(ahead))


@dataclass(frozen=True)
class LookupDrafter(Drafter):
    """Match the last min_ngram to max_ngram tokens of a row with an earlier place in that row.

    It needs no second model and no K/V. It pays where the output repeats the prompt: editing,
    summaries, code.

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


@dataclass(frozen=True)
class SyntheticDrafter(ModelDrafter):
    """Propose drafts of which a given share is right, at the real cost of the draft model.

    It proposes the target's own continuation and corrupts drafts at random, for benchmarks without
    a trained draft. The draws are independent: a schedule of smallest variance would hide how
    ragged real rounds are.

    `rates[j]` is the share of rounds in which draft j, and so every draft before it, is accepted.
    Rates are unconditional, and none is above the one before.

    One number u in [0, 1) is drawn for each row and round from (seed, prompt, tokens written so
    far), so it depends on neither batch nor schedule. The drafts with u < rates[j] are right.

    Before each round, in no phase's time, the target itself runs K tokens ahead, to know what is
    right. Then the draft model runs as usual, at its real cost, over the proposals. In low
    precision the verification may break a near tie the other way, so the measured rates come out a
    little lower.
    """

    rates: Sequence[float] | np.ndarray | Tensor = ()

    name: ClassVar[str] = "synthetic"
    gives_logits: ClassVar[bool] = False
    runs_target: ClassVar[bool] = True
    description: ClassVar[str] = (
        "the target's own continuation, corrupted at random so that drafts are accepted at "
        "given rates; for benchmarks"
    )
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", _valid_rates(self.rates))

    def check(self, task: Task) -> None:
        k = task.max_draft_tokens
        if len(self.rates) < k:
            raise ValueError(
                f"rates has {len(self.rates)} entries for num_draft_tokens={k}; "
                "pass one for each, or lower it"
            )
        if task.sampling is not None and task.sampling.coupling != "gumbel":
            raise ValueError(
                f'drafter "synthetic" cannot know what coupling={task.sampling.coupling!r} will '
                'accept; pass sampling=None or coupling="gumbel"'
            )

    def prepare(self, task: Task, state: State) -> Tensor:
        """Return the round's proposals (b, K): the target's own tokens, some of them corrupted.

        The target runs ahead for them. The verification overwrites the K/V that this leaves.
        """
        k = state.num_draft_tokens
        right = self._right_tokens(task, state)  # (b, K)
        noise = Noise(task.seed)
        # One number for the whole round: with rates that fall, u < rates[j] holds for a prefix of
        # the drafts, so that exactly rates[j] of the rounds accept draft j and all before it.
        drawn = np.stack(
            [noise.uniforms(row.request.index, row.length, 1)[:, DRAFT] for row in state.batch.rows]
        )  # (b, 1)
        # A wrong token is the next id except EOS, which a row might end with by chance.
        usable = np.setdiff1d(np.arange(task.pair.vocabulary_size), task.pair.eos_token_ids)
        next_usable = np.searchsorted(usable, right, side="right") % len(usable)
        wrong = usable[next_usable]  # (b, K)
        proposals = np.where(drawn < np.array(self.rates[:k]), right, wrong)
        return state.graphs.static_copy(torch.from_numpy(proposals).to(task.pair.device))

    def _right_tokens(self, task: Task, state: State) -> np.ndarray:
        """Return the target's next K tokens for each row, (b, K), from the target itself."""
        if task.sampling is not None:
            # A chooser of its own, because one keeps the noise it has drawn, and drafting must pay
            # for its own.
            state = replace(state, chooser=task.sampling.chooser(task.seed))
        # A real drafter could not do this, so the record leaves it out.
        cache = state.caches["target"]
        log = cache.log
        cache.log = None
        draft = run_ahead(state, "target", state.num_draft_tokens, fed_first=1)
        cache.log = log
        return draft.tokens.cpu().numpy()

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """Run the draft model over the prepared proposals.

        No logits are returned, because the proposals were not drawn from the draft's.
        """
        draft = run_ahead(state, "draft", num_draft_tokens, fed_first=2, instead=state.prepared)
        return Draft(draft.tokens)


def _valid_rates(rates: Any) -> tuple[float, ...]:
    """Return the rates as a tuple. Raise ValueError unless they can be rates of acceptance."""
    example = "for instance rates=[0.8, 0.6, 0.5]"
    if isinstance(rates, np.ndarray | Tensor):
        rates = rates.tolist()
    is_list = isinstance(rates, Sequence) and not isinstance(rates, str)
    if not is_list or not all(is_share(rate) for rate in rates):
        raise ValueError(f"rates must be numbers from 0 to 1, got {short(rates)}; pass {example}")
    if not rates:
        raise ValueError(
            f'drafter "synthetic" needs rates; pass one for each draft position, {example}'
        )
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise ValueError(
            f"rates must not rise, got {short(list(rates))}: a draft is accepted only with all "
            "before it; pass unconditional rates, none above the one before"
        )
    return tuple(float(rate) for rate in rates)
