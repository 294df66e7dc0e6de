"""The acceptance step: which drafts are kept and what each row emits. Pure tensors; knows no model, cache or tokenizer.

B rows, K draft tokens, V vocabulary. Source: speculative decoding (Leviathan et al. 2023), greedy case; the bonus token is the
target's own choice at index a, emitted after a rejection and after a full acceptance alike.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """What one round gave each row.

    Attributes:
        accepted: (B,) int64, drafts that the target agreed with, 0..K.
        emitted: (B, K+1) int64, tokens to append; only the first `gained` count.
        gained: (B,) int64, accepted + 1 unless EOS or the budget cuts it; 0 for a row that had finished before.
        finished: (B,) bool, whether the row has reached EOS or its budget.
    """

    accepted: Tensor
    emitted: Tensor
    gained: Tensor
    finished: Tensor


def accept_greedy(drafts: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Accept the drafts up to the first that is not the target's argmax.

    Args:
        drafts: (B, K) int64, K may be 0.
        logits: (B, K+1, V); logits[:, j] is what the target says after j drafts. Cast to float32 before the argmax, as
            `generate()` does, so that near ties fall the same way.

    Returns:
        accepted (B,) and emitted (B, K+1): up to index a the accepted drafts and the target's choices are the same tokens.
    """
    choice = logits.float().argmax(-1)  # (B, K+1)
    accepted = (drafts == choice[:, :-1]).long().cumprod(1).sum(1)
    return accepted, choice


def clip(accepted: Tensor, emitted: Tensor, room: Tensor, eos_token_ids: Tensor) -> Outcome:
    """Cut what is emitted after the first EOS and at the row's remaining budget.

    Args:
        room: (B,) int64, tokens that each row may still emit; 0 for a finished row.
        eos_token_ids: (E,) int64, E may be 0.
    """
    width = emitted.shape[1]
    is_eos = torch.isin(emitted, eos_token_ids)
    before_eos = torch.where(is_eos.any(1), is_eos.long().argmax(1) + 1, width)  # tokens up to the first EOS, itself included
    gained = torch.minimum(torch.minimum(accepted + 1, before_eos), room)
    last = emitted.gather(1, (gained - 1).clamp(min=0)[:, None])[:, 0]
    finished = (gained == room) | torch.isin(last, eos_token_ids)
    return Outcome(accepted, emitted, gained, finished)
