"""Functions that the decoders share, all of them correct."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

Tokens = list[int]


def count_accepted(drafts: Sequence[int], choices: Sequence[int]) -> int:
    """Return how many drafts, from the first on, are the target's choices."""
    count = 0
    while count < len(drafts) and drafts[count] == choices[count]:
        count += 1
    return count


def finish(output: Tokens, new: Sequence[int], budget: int, eos: int) -> bool:
    """Append a row's new tokens, up to EOS or its budget; return whether the row ends."""
    for token in new:
        output.append(token)
        if token == eos or len(output) == budget:
            return True
    return False


def left_padded(rows: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask of rows with padding on the left, (rows, columns) each."""
    longest = max(len(row) for row in rows)
    ids = [[0] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def positions_of(mask: Tensor) -> Tensor:
    """Return the index of each column's token in its own row; padding and holes do not count."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def draft_greedily(draft: PreTrainedModel, rows: Sequence[Tokens], K: int) -> list[Tokens]:
    """Return K drafts for each row. The draft reads the rows again for each, without a cache."""
    longer = [list(row) for row in rows]
    for _ in range(K):
        ids, mask = left_padded(longer, draft.device)
        logits = draft(ids, attention_mask=mask, position_ids=positions_of(mask)).logits
        for row, token in zip(longer, logits[:, -1].float().argmax(-1).tolist(), strict=True):
            row.append(token)
    return [row[-K:] for row in longer]
