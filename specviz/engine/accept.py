"""The acceptance step: of what the target accepted, what each row keeps and emits.

Pure tensor arithmetic. It knows no model, cache or tokenizer. B rows, K draft tokens, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.trees import Walk, columns_of


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


def check_finite(logits: Tensor, draft: Draft, path: Tensor | None) -> tuple[Tensor, Tensor]:
    """Find the logits that no token can be chosen from.

    A position has such logits if they hold a NaN or +inf, or nothing but -inf. Some -inf are fine:
    a model uses them to rule tokens out.

    Args:
        logits: (B, K+1, V), the target's. What it computed behind the drafts that were to be
            verified is not looked at.
        draft: only the logits of the proposed tokens are checked: non-finite K/V makes all of them
            non-finite.
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
    if draft.logits is not None and draft.tokens.shape[1]:
        chosen = draft.logits.gather(2, draft.tokens[:, :, None])[:, :, 0]  # (B, K)
        found = torch.cat([found, chosen], 1)
    are_usable = found.abs() < torch.inf
    usable = are_usable[:, :width]  # (B, K+1), the target's
    if draft.lengths is not None:
        usable |= torch.arange(width, device=logits.device) > draft.lengths[:, None]
    any_nonfinite = ~are_usable.all(1)
    if path is not None:
        # Behind its end the path names the pending token's column, whose logits came first.
        usable = usable.gather(1, columns_of(path))
    return count_leading(usable), any_nonfinite


def clip(
    walk: Walk,
    room: Tensor,
    eos_token_ids: Tensor,
    *,
    stops: Tensor | None = None,
    agreed: Tensor | None = None,
    max_gain: int | Tensor | None = None,
    finite: tuple[Tensor, Tensor] | None = None,
    draft: Draft | None = None,
) -> Outcome:
    """Cut what is emitted after the first EOS, at the budget, and at non-finite target logits.

    Args:
        walk: the drafts that are kept, and the tokens emitted with them.
        room: (B,) int64, tokens that each row may still emit; 0 for a finished row.
        eos_token_ids: (E,) int64, E may be 0.
        stops: (B,) int64, how many tokens come up to one that completes a stop string, more than
            K + 1 where none does; None for no stop strings.
        agreed: (B,) int64, drafts that the target accepted; None where the strategy keeps all of
            them.
        max_gain: tokens that a row may gain, for all rows or (B,); None allows all K + 1.
        finite: from `check_finite`; None where all logits are known to be finite.
        draft: what was proposed; None for K drafts that were all verified.
    """
    emitted = walk.emitted
    width = emitted.shape[1]
    is_eos = (emitted[:, :, None] == eos_token_ids).any(-1)  # (B, K+1)
    # A finished row has no room, so it gains nothing and takes this path like any other. Without an
    # EOS there are width + 1 tokens up to it.
    limit = torch.minimum(count_leading(~is_eos) + 1, room)
    if stops is not None:
        limit = torch.minimum(limit, stops)

    # accepted + 1: the target's own token follows the drafts that are kept.
    wanted = torch.minimum(walk.accepted + 1, limit)
    possible = wanted if agreed is None else torch.minimum(agreed + 1, limit)
    if max_gain is not None:
        # After `possible`, so that what this cuts off counts as discarded.
        wanted = wanted.clamp(max=max_gain)

    if finite is None:
        finite = torch.full_like(room, width), torch.zeros_like(room, dtype=torch.bool)
    usable, any_nonfinite = finite
    # The token chosen from position j is valid if positions 0..j are finite: `usable` tokens are.
    gained = torch.minimum(wanted, usable)
    # Only if non-finite logits cost a token: those behind a rejection change nothing.
    ended_nonfinite = gained < wanted
    lengths = None if draft is None else draft.lengths
    columns = None
    if walk.path is not None and draft is not None and draft.columns is not None:
        columns = draft.columns.gather(1, walk.path.clamp(min=0)).masked_fill(walk.path < 0, 0)
    return Outcome(
        verified=torch.full_like(room, width - 1) if lengths is None else lengths,
        accepted=torch.minimum(walk.accepted, usable),
        emitted=emitted,
        gained=gained,
        finished=(gained == limit) | ended_nonfinite,
        discarded=torch.minimum(possible, usable) - gained,
        ended_nonfinite=ended_nonfinite,
        any_nonfinite=any_nonfinite,
        path=walk.path,
        draft_columns=columns,
    )
