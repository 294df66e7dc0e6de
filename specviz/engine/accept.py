"""The acceptance step: which drafts are kept and what each row emits. Pure tensors; knows no model, cache or tokenizer.

B rows, K draft tokens, V vocabulary. Source: speculative decoding (Leviathan et al. 2023), greedy case; the bonus token is the
target's own choice at index a, emitted after a rejection and after a full acceptance alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
        discarded: (B,) int64, tokens that were verified and could have been kept, but that the strategy threw away.
    """

    accepted: Tensor
    emitted: Tensor
    gained: Tensor
    finished: Tensor
    discarded: Tensor


class Chooser(Protocol):
    """How tokens are chosen from logits. b rows; `requests` (b) are the rows' places in the caller's list, `indices` (b) the index in
    its row of the (first) token that is chosen: all that randomness may depend on besides the seed.
    """

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """The draft's next token (b,), from its logits (b, V) float32."""
        ...

    def accept(
        self, drafts: Tensor, draft_logits: Tensor | None, logits: Tensor, requests: Sequence[int], indices: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Accepted drafts (b,) and emitted tokens (b, K+1), from drafts (b, K), what the draft said (b, K, V) float32, None for proposals
        that were not drawn from a distribution, and what the target said (b, K+1, V) in its own dtype.
        """
        ...


class Greedy:
    """Always the most likely token; nothing is random."""

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        return logits.argmax(-1)

    def accept(
        self, drafts: Tensor, draft_logits: Tensor | None, logits: Tensor, requests: Sequence[int], indices: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        return accept_greedy(drafts, logits)


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


def clip(
    accepted: Tensor, emitted: Tensor, room: Tensor, eos_token_ids: Tensor, verified: Tensor | None = None, bonus: bool = True
) -> Outcome:
    """Cut what is emitted after the first EOS and at the row's remaining budget.

    Args:
        verified: (B,) int64, drafts that the target accepted, where the strategy keeps fewer of them; None where it keeps all.
        room: (B,) int64, tokens that each row may still emit; 0 for a finished row.
        eos_token_ids: (E,) int64, E may be 0.
        bonus: whether the target's token is emitted after a full acceptance, too; without, K tokens are, if any were drafted.
    """
    width = emitted.shape[1]
    is_eos = torch.isin(emitted, eos_token_ids)
    before_eos = torch.where(is_eos.any(1), is_eos.long().argmax(1) + 1, width)  # tokens up to the first EOS, itself included
    limit = torch.minimum(before_eos, room)
    most = width if bonus else max(width - 1, 1)
    gained = torch.minimum((accepted + 1).clamp(max=most), limit)
    discarded = torch.minimum((accepted if verified is None else verified) + 1, limit) - gained
    last = emitted.gather(1, (gained - 1).clamp(min=0)[:, None])[:, 0]
    finished = (gained == room) | torch.isin(last, eos_token_ids)
    return Outcome(accepted, emitted, gained, finished, discarded)
