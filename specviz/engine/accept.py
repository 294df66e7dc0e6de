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
        broken: (B,) bool, whether the row ends here because the target's logits for its next token are no numbers.
        unsound: (B,) bool, whether anything that target or draft said of the row in this round was no number.
    """

    accepted: Tensor
    emitted: Tensor
    gained: Tensor
    finished: Tensor
    discarded: Tensor
    broken: Tensor
    unsound: Tensor


class Chooser(Protocol):
    """How tokens are chosen from logits. b rows; `requests` (b) are the rows' places in the caller's list, `indices` (b) the index in
    its row of the (first) token that is chosen: all that randomness may depend on besides the seed.

    Attributes:
        weighs_drafts: whether the text depends on what the draft said, and not on the target alone.
    """

    weighs_drafts: bool

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """The draft's next token (b,), from its logits (b, V) float32."""
        ...

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """Accepted drafts (b,) and emitted tokens (b, K+1), from drafts (b, K), what the draft said (b, K, V) float32, None for proposals
        that were not drawn from a distribution, and what the target said (b, K+1, V) in its own dtype.
        """
        ...


class Greedy:
    """Always the most likely token; nothing is random."""

    weighs_drafts = False

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        return logits.argmax(-1)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
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


def soundness(logits: Tensor, drafts: Tensor, draft_logits: Tensor | None) -> tuple[Tensor, Tensor]:
    """How far the target's logits (B, K+1, V) can be chosen from: (B,) int64, positions before the first with a NaN, an infinity or nothing
    but -inf (a few are a model's way to rule tokens out). And (B,) bool, whether anything said of the row was no number.

    Of what the draft said, the logits of the tokens it proposed are looked at: K/V that is no number makes all logits so.
    """
    width = logits.shape[1]
    fine = (
        logits.amax(-1).abs() < torch.inf
    )  # (B, K+1); the maximum of anything with a NaN is NaN, which is below nothing
    sound = torch.where(fine, width, torch.arange(width, device=logits.device)).amin(1)
    unsound = sound < width
    if draft_logits is not None and drafts.shape[1]:
        unsound = (
            unsound | ~(draft_logits.gather(2, drafts[:, :, None]).abs() < torch.inf).all(1)[:, 0]
        )
    return sound, unsound


def clip(
    accepted: Tensor,
    emitted: Tensor,
    room: Tensor,
    eos_token_ids: Tensor,
    verified: Tensor | None = None,
    bonus: bool = True,
    sound: Tensor | None = None,
    unsound: Tensor | None = None,
) -> Outcome:
    """Cut what is emitted after the first EOS, at the row's remaining budget, and where the target's logits are no numbers.

    Args:
        verified: (B,) int64, drafts that the target accepted, where the strategy keeps fewer of them; None where it keeps all.
        room: (B,) int64, tokens that each row may still emit; 0 for a finished row.
        eos_token_ids: (E,) int64, E may be 0.
        bonus: whether the target's token is emitted after a full acceptance, too; without, K tokens are, if any were drafted.
        sound, unsound: of `soundness`; None where all is known to be numbers.
    """
    width = emitted.shape[1]
    is_eos = (emitted[:, :, None] == eos_token_ids).any(-1)
    up_to = torch.arange(1, width + 1, device=room.device)
    before_eos = torch.where(is_eos, up_to, width + 1).amin(
        1
    )  # tokens up to EOS, or more than there are
    limit = torch.minimum(before_eos, room)
    reached = torch.minimum(accepted + 1, limit)
    wanted = reached if bonus else reached.clamp(max=max(width - 1, 1))
    right = reached if verified is None else torch.minimum(verified + 1, limit)
    if sound is None or unsound is None:
        nothing = torch.zeros_like(room, dtype=torch.bool)
        return Outcome(accepted, emitted, wanted, wanted == limit, right - wanted, nothing, nothing)
    gained = torch.minimum(wanted, sound)
    broken = gained < wanted
    finished, discarded = (gained == limit) | broken, torch.minimum(right, sound) - gained
    return Outcome(
        torch.minimum(accepted, sound), emitted, gained, finished, discarded, broken, unsound
    )
