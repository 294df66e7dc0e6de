"""What a training step of each head costs in CPU time, so that heads train equally long.

Trainings one after another meet a machine that is busy now and idle then. So the steps are measured
side by side beforehand, and each head's number of steps follows from the ratio.
"""

import time
from collections.abc import Sequence
from statistics import median

from tqdm.auto import tqdm
from transformers import PreTrainedModel

from specviz.zoo.heads.contenders import Contender
from specviz.zoo.heads.features import StoredFeatures
from specviz.zoo.heads.loss import head_loss
from specviz.zoo.heads.training import RATES, chain_steps, frozen, head_batches, new_head
from specviz.zoo.train import learning_rate_factor, optimisers_for, update

WARM = 2  # steps that are not counted
TURNS = 9  # steps that are


class Trial:
    """The first steps of a contender's training."""

    def __init__(
        self, contender: Contender, target: PreTrainedModel, features: StoredFeatures
    ) -> None:
        self.plan = contender.plan(WARM + TURNS)
        self.target = target
        self.head = new_head(contender.kind, target, self.plan, **contender.changes)
        self.optimisers = optimisers_for(self.head, RATES)
        self.batches = head_batches(features, self.head, self.plan, 0)

    def step(self) -> float:
        """Make one step. Return its CPU seconds."""
        begun = time.process_time()
        number, batch, _ = next(self.batches)
        loss = head_loss(self.head, self.target, chain_steps(self.head, self.plan), batch)
        factor = learning_rate_factor(number, self.plan.steps)
        update(self.head, self.optimisers, loss, factor, RATES)
        return time.process_time() - begun


def measure_steps(
    contenders: Sequence[Contender],
    target: PreTrainedModel,
    features: StoredFeatures,
    *,
    progress: bool = True,
) -> list[float]:
    """Return the CPU seconds of a step of each contender: medians of steps taken in turn."""
    trials = [Trial(contender, target, features) for contender in contenders]
    seconds: list[list[float]] = [[] for _ in trials]
    with frozen(target):
        for turn in tqdm(range(WARM + TURNS), desc="steps", unit="turn", disable=not progress):
            for trial, found in zip(trials, seconds, strict=True):
                taken = trial.step()
                if turn >= WARM:
                    found.append(taken)
    return [median(found) for found in seconds]
