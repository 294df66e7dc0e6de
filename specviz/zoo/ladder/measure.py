"""How many drafts of a model the target accepts at every position of greedy texts.

As long as a greedy draft is right, it is the text itself. So one forward over the text tells how
many drafts in a row are right from each position on, whatever K is; see `studies.tables` for the
drafts themselves.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from specviz.record.schema import Array
from specviz.zoo.heads.measure import count_rounds


@torch.inference_mode()
def count_accepted(draft: PreTrainedModel, prompt: Sequence[int], output: Sequence[int]) -> Array:
    """Return how many drafts in a row are right before each token of `output` (T,), int64.

    The drafts end with the text.
    """
    text = torch.tensor([[*prompt, *output]], device=draft.device)
    logits = draft(text[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
    right = (logits.float().argmax(-1) == text[0, len(prompt) :]).cpu().numpy()
    found = np.zeros(len(output), np.int64)
    run = 0
    for i in range(len(output) - 1, -1, -1):
        run = run + 1 if right[i] else 0
        found[i] = run
    return found


def count_all_rounds(accepted: Sequence[Sequence[int]], num_draft_tokens: int) -> Array:
    """Return the rounds (R,) that each text takes with K drafts a round.

    accepted: for each text what `count_accepted` returns.
    """
    rounds = []
    for of_text in accepted:
        rounds.append(count_rounds([min(count, num_draft_tokens) for count in of_text]))
    return np.array(rounds)


def survival(accepted: Sequence[Sequence[int]], depth: int) -> Array:
    """Return the share of positions at which the first 1..depth drafts are all accepted (depth,).

    A position counts only while its text has that many tokens left; NaN where none has.
    """
    reached = np.zeros(depth)
    counted = np.zeros(depth)
    for of_text in accepted:
        runs = np.asarray(of_text)
        left = len(runs) - np.arange(len(runs))
        for k in range(depth):
            counted[k] += (left > k).sum()
            reached[k] += (runs > k).sum()
    with np.errstate(invalid="ignore"):
        return reached / counted
