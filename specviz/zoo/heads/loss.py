"""The loss of a head: cross-entropy against the target's p, over chains from sampled starts.

Step s of a chain predicts token start + s + 1, whose p the target gives after token start + s. The
chain is fed with its own features and the true tokens. Later steps count less, as they matter only
if all before them are accepted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.heads.modules import DraftHead
from specviz.zoo.heads.chains import unroll

DECAY = 0.8  # weight of a step against the one before


@dataclass(frozen=True)
class HeadBatch:
    """What a training step reads.

    Attributes:
        tokens: (b, T).
        features: (b, T, F), what the head reads of the target.
        last: (b, T, D), the output of the target's final norm.
        starts: (b, m), the entries at which chains start.
    """

    tokens: Tensor
    features: Tensor
    last: Tensor
    starts: Tensor


def head_loss(
    head: DraftHead,
    target: PreTrainedModel,
    steps: int,
    batch: HeadBatch,
) -> Tensor:
    """Return the mean over starts and steps of the cross-entropy in nats, by the steps' weights.

    It is -sum p log q, so it falls to the entropy of p.
    """
    with torch.no_grad():
        p = target.get_output_embeddings()(batch.last).float().softmax(-1)  # (b, T, V)
    rows = torch.arange(len(p), device=p.device)[:, None]
    outputs = unroll(head, batch.tokens, batch.features, batch.starts, steps)
    total = torch.zeros((), device=p.device)
    for step, output in enumerate(outputs):
        places = batch.starts + step
        log_q = output.logits.float().log_softmax(-1)  # (b, m, V)
        value = -(p[rows, places] * log_q).sum(-1).mean()
        total = total + DECAY**step * value
    return total / sum(DECAY**step for step in range(steps))
