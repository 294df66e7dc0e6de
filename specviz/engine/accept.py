"""The acceptance step: which drafts are kept, and what each row emits.

Pure tensor arithmetic. It knows no model, cache or tokenizer. B rows, K draft tokens, V vocabulary.

Source: speculative decoding (Leviathan et al. 2023), greedy case. The bonus token is the target's
own choice at index a. It is emitted after a rejection and after a full acceptance alike.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.engine.trees.walk import columns_of


@dataclass(frozen=True)
class Outcome:
    """What one round gave each row.

    Attributes:
        verified: (B,) int64, drafts that the target judged, 0..K.
        accepted: (B,) int64, drafts that the target agreed with, 0..verified.
        emitted: (B, K+1) int64, tokens to append; only the first `gained` count.
        gained: (B,) int64, accepted + 1 unless EOS or the budget cuts it; 0 for a row that had
            finished.
        finished: (B,) bool, whether the row has reached EOS, its budget or non-finite logits.
        discarded: (B,) int64, verified tokens that could have been kept, but that the strategy
            discarded.
        ended_nonfinite: (B,) bool, whether the row ends here because the target's logits for its
            next token are non-finite.
        any_nonfinite: (B,) bool, whether any logits of the row in this round were non-finite, the
            target's or the draft's.
        path: (B, K) int64, of trees the accepted drafts in order, -1 behind them; None for chains,
            whose first drafts these are.
        draft_columns: (B, K) int64, how far behind the pending token's slot the draft models keep
            the K/V of each draft of the path; None where that follows from `path`.
    """

    verified: Tensor
    accepted: Tensor
    emitted: Tensor
    gained: Tensor
    finished: Tensor
    discarded: Tensor
    ended_nonfinite: Tensor
    any_nonfinite: Tensor
    path: Tensor | None = None
    draft_columns: Tensor | None = None


def accept_greedy(
    drafts: Tensor, logits: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Accept the drafts before the first that is not the target's argmax.

    Args:
        drafts: (B, K) int64, K may be 0.
        logits: (B, K+1, V); logits[:, j] are the target's after j drafts.
        lengths: (B,) int64, how many drafts of each row are judged; None for all.

    Returns:
        accepted (B,) and the target's choices (B, K+1), which equal the drafts where these are
        accepted.
    """
    # float32 before the argmax, as `generate()` does it, so that near ties fall the same way.
    choice = likeliest(logits.float())  # (B, K+1)
    # choice[:, a] is what the target writes instead of the first rejected draft, or after all of
    # them. So the bonus token needs no case of its own.
    return count_leading(judged(drafts == choice[:, :-1], lengths)), choice


def likeliest(logits: Tensor) -> Tensor:
    """Return the argmax (B, ...) of logits (B, ..., V), of several equal ones the first.

    NaN counts as the largest. The logits are float32 or float64.
    """
    return logits.argmax(-1) if logits.device.type != "cpu" else argmax_by_numpy(logits)


def argmax_by_numpy(values: Tensor) -> Tensor:
    """Return `values.argmax(-1)`, on a CPU several times as fast as torch."""
    return torch.from_numpy(values.numpy().argmax(-1))


def count_leading(flags: Tensor) -> Tensor:
    """Return how many of the flags (B, K) are true before the first false one: (B,) int64."""
    # The running product is 1 up to the first 0, and 0 from there on.
    return flags.long().cumprod(1).sum(1)


def judged(right: Tensor, lengths: Tensor | None) -> Tensor:
    """Return `right` (B, K), false from each row's length (B,) on; None leaves all as they are."""
    if lengths is None:
        return right
    return right & (torch.arange(right.shape[1], device=right.device) < lengths[:, None])


def check_finite(
    logits: Tensor,
    drafts: Tensor,
    draft_logits: Tensor | None,
    lengths: Tensor | None = None,
    path: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the logits that no token can be chosen from.

    A position has such logits if they hold a NaN or +inf, or nothing but -inf. Some -inf are fine:
    a model uses them to rule tokens out.

    Args:
        logits: (B, K+1, V), the target's.
        drafts: (B, K).
        draft_logits: (B, K, V) or None. Only the logits of the proposed tokens are checked:
            non-finite K/V makes all of them non-finite.
        lengths: (B,), how many drafts of each row were verified; None for all. What the target
            computed behind them is not looked at.
        path: (B, K), of trees the accepted drafts. Only the positions on it are counted.

    Returns:
        (B,) int64, how many of the target's positions come before the first non-finite one, and
        (B,) bool, whether the target or the draft had any non-finite logits in the row.
    """
    width = logits.shape[1]
    # One pass over the vocabulary: a NaN or +inf is the maximum itself, and a maximum of -inf means
    # that every token is ruled out. None of the three is below infinity in magnitude.
    found = logits.amax(-1)  # (B, K+1)
    # Without drafts there is nothing to gather from.
    if draft_logits is not None and drafts.shape[1]:
        chosen = draft_logits.gather(2, drafts[:, :, None])[:, :, 0]  # (B, K)
        found = torch.cat([found, chosen], 1)
    are_usable = found.abs() < torch.inf
    usable = are_usable[:, :width]  # (B, K+1), the target's
    if lengths is not None:
        usable |= torch.arange(width, device=logits.device) > lengths[:, None]
    any_nonfinite = ~are_usable.all(1)
    if path is not None:
        # Behind its end the path names the pending token's column, whose logits came first.
        usable = usable.gather(1, columns_of(path))
    return count_leading(usable), any_nonfinite


def clip(
    accepted: Tensor,
    emitted: Tensor,
    room: Tensor,
    eos_token_ids: Tensor,
    agreed: Tensor | None = None,
    max_gain: int | Tensor | None = None,
    finite: Tensor | None = None,
    any_nonfinite: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    path: Tensor | None = None,
    draft_columns: Tensor | None = None,
) -> Outcome:
    """Cut what is emitted after the first EOS, at the budget, and at non-finite target logits.

    Args:
        accepted: (B,) int64, drafts that are kept.
        emitted: (B, K+1) int64.
        room: (B,) int64, tokens that each row may still emit; 0 for a finished row.
        eos_token_ids: (E,) int64, E may be 0.
        agreed: (B,) int64, drafts that the target accepted; None where the strategy keeps all of
            them.
        max_gain: tokens that a row may gain, for all rows or (B,); None allows all K + 1.
        finite, any_nonfinite: from `check_finite`; None where all logits are known to be finite.
        lengths: (B,) int64, drafts of each row that were verified; None for all K.
        path, draft_columns: of the outcome.
    """
    width = emitted.shape[1]
    is_eos = (emitted[:, :, None] == eos_token_ids).any(-1)  # (B, K+1)
    # A finished row has no room, so it gains nothing and takes this path like any other. Without an
    # EOS there are width + 1 tokens up to it.
    limit = torch.minimum(count_leading(~is_eos) + 1, room)

    # accepted + 1: the target's own token follows the drafts that are kept.
    wanted = torch.minimum(accepted + 1, limit)
    possible = wanted
    if agreed is not None and agreed is not accepted:
        possible = torch.minimum(agreed + 1, limit)
    if max_gain is not None:
        # After `possible`, so that what this cuts off counts as discarded.
        wanted = wanted.clamp(max=max_gain)

    if finite is None or any_nonfinite is None:
        finite = torch.full_like(room, width)
        any_nonfinite = torch.zeros_like(room, dtype=torch.bool)
    # The token chosen from position j is valid if positions 0..j are finite: `finite` tokens are.
    gained = torch.minimum(wanted, finite)
    # Only if non-finite logits cost a token: those behind a rejection change nothing.
    ended_nonfinite = gained < wanted
    return Outcome(
        verified=torch.full_like(room, width - 1) if lengths is None else lengths,
        accepted=torch.minimum(accepted, finite),
        emitted=emitted,
        gained=gained,
        finished=(gained == limit) | ended_nonfinite,
        discarded=torch.minimum(possible, finite) - gained,
        ended_nonfinite=ended_nonfinite,
        any_nonfinite=any_nonfinite,
        path=path,
        draft_columns=draft_columns,
    )
