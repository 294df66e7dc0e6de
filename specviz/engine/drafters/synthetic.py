"""Proposals that are right at given rates, for benchmarks without a trained draft.

Serving engines offer synthetic acceptance with rates by position. This does the same without
changing the text: it proposes the target's own continuation and corrupts drafts at random. The
draws are independent. A schedule of smallest variance would hide how ragged real rounds are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.model import ModelDrafter, run_ahead
from specviz.engine.rng import DRAFT, Noise
from specviz.engine.state import State
from specviz.util.validate import is_share, short


@dataclass(frozen=True)
class SyntheticDrafter(ModelDrafter):
    """Propose drafts of which a given share is right, at the real cost of the draft model.

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
