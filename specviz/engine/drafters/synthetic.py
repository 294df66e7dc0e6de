"""Proposals that are right as often as they are asked to be: for benchmarks without a trained draft.

As the synthetic acceptance of serving engines, with rates by position, but without touching the text: what is proposed is the target's
own continuation, spoilt by lot. The lots are independent; a schedule of smallest variance would hide how ragged real rounds are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from specviz.engine.drafters.base import Draft, Task
from specviz.engine.drafters.model import ModelDrafter, run_ahead
from specviz.engine.rng import DRAFT, Noise
from specviz.engine.state import State
from specviz.util.validate import is_share, short


@dataclass(frozen=True)
class SyntheticDrafter(ModelDrafter):
    """`rates[j]`: the share of rounds in which draft j, and so all before it, is accepted: unconditional, and none above the one before.

    One number u in [0, 1) is drawn for each row and round from (seed, prompt, tokens written so far), so that it depends on neither batch
    nor schedule; the drafts with u < rates[j] are right. Before each round the target itself runs K tokens ahead, in no phase's time, to
    know what is right; then the draft model runs as ever, at its real cost, over what is proposed. In low precision the verification
    may break a near tie the other way, so that the measured rates come out a little lower.
    """

    rates: Sequence[float] | np.ndarray | Tensor = ()

    name: ClassVar[str] = "synthetic"
    description: ClassVar[str] = (
        "the target's own continuation, wrong by lot so that drafts are accepted at given rates; for benchmarks"
    )
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        rates: Any = (
            self.rates.tolist() if isinstance(self.rates, np.ndarray | torch.Tensor) else self.rates
        )
        if (
            not isinstance(rates, Sequence)
            or isinstance(rates, str)
            or not all(is_share(rate) for rate in rates)
        ):
            raise ValueError(
                f"rates={short(rates)} is no list of shares; pass numbers from 0 to 1, for instance rates=[0.8, 0.6, 0.5]"
            )
        if not rates:
            raise ValueError(
                'drafter "synthetic" needs rates; pass one for each draft position, for instance rates=[0.8, 0.6, 0.5]'
            )
        if any(later > earlier for earlier, later in pairwise(rates)):
            why = "a draft is accepted only with all before it"
            raise ValueError(
                f"rates={short(list(rates))} rise, but {why}; pass unconditional rates, none above the one before"
            )
        object.__setattr__(self, "rates", tuple(float(rate) for rate in rates))

    def check(self, task: Task) -> None:
        if len(self.rates) < (k := task.num_draft_tokens):
            raise ValueError(
                f"rates has {len(self.rates)} entries for num_draft_tokens={k}; pass one for each, or lower it"
            )
        if task.sampling is not None and (coupling := task.sampling.coupling) != "gumbel":
            instead = 'sampling=None or coupling="gumbel"'
            raise ValueError(
                f'drafter "synthetic" cannot know what coupling={coupling!r} will accept; pass {instead}'
            )

    def prepare(self, task: Task, state: State) -> Tensor:
        """The round's proposals (b, K): the target runs ahead, its K/V to be overwritten by the verification, and lots spoil some."""
        k, cache, noise = state.num_draft_tokens, state.caches["target"], Noise(task.seed)
        if task.sampling is not None:
            state = replace(
                state, chooser=task.sampling.chooser(task.seed)
            )  # keeps its noise to itself: drafting pays for its own
        log, cache.log = cache.log, None  # no drafter could do this, so it is no part of the record
        right = run_ahead(state, "target", k, fed_first=1).tokens.cpu().numpy()
        cache.log = log
        drawn = np.stack(
            [noise.uniforms(row.request.index, row.length, 1)[:, DRAFT] for row in state.batch.rows]
        )  # (b, 1)
        harmless = np.setdiff1d(np.arange(task.pair.vocabulary_size), task.pair.eos_token_ids)
        wrong = harmless[
            np.searchsorted(harmless, right, side="right") % len(harmless)
        ]  # the next id that is no EOS
        proposals = torch.from_numpy(np.where(drawn < np.array(self.rates[:k]), right, wrong)).to(
            task.pair.device
        )
        return state.graphs.static_copy(proposals)

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """As `ModelDrafter`, over the proposals that were prepared; without logits, since these did not come from the draft's."""
        return Draft(
            run_ahead(state, "draft", num_draft_tokens, fed_first=2, instead=state.prepared).tokens
        )
