"""What a drafter proposes at every position of greedy texts, as a table that replays schedulers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch

from specviz.engine.drafters import Draft
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.selectors import Selector
from specviz.engine.state import State
from specviz.generation.generate import generate
from specviz.record.schema import Array
from specviz.simulation.tables import MAX_DEPTH, AcceptanceTable
from specviz.util.files import conditions
from specviz.util.validate import require_int

Drafted = tuple[Array, Array, Array]  # drafts, their log q, and entropies, each (D,)


@dataclass(frozen=True)
class _Noting(Selector):
    """Verifies nothing, so that a run visits every position, and keeps what was proposed."""

    notes: dict[int, list[Drafted]] = field(default_factory=dict, compare=False)

    name: ClassVar[str] = "noting"
    needs_logits: ClassVar[bool] = True

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        if draft.parents is not None:
            raise ValueError("drafter must propose chains, got one of trees; pass another one")
        assert draft.logits is not None
        log_probabilities = draft.logits.double().log_softmax(-1)  # (b, D, V)
        log_q = log_probabilities.gather(-1, draft.tokens[..., None])[..., 0]
        entropy = torch.special.entr(log_probabilities.exp()).sum(-1)
        columns = [each.cpu().numpy() for each in (draft.tokens.int(), log_q.float(), entropy)]
        for i, row in enumerate(state.batch.rows):
            if not row.finished:
                of_row = (columns[0][i], columns[1][i], columns[2][i].astype(np.float32))
                self.notes.setdefault(row.request.index, []).append(of_row)
        none = torch.zeros(len(state.batch), dtype=torch.long, device=draft.tokens.device)
        return replace(draft, lengths=none)


def make_table(
    pair: Pair,
    prompts: Sequence[Prompt],
    depth: int = 10,
    *,
    drafter: str = "model",
    max_new_tokens: int = 128,
    batch_size: int = 8,
    progress: bool = True,
) -> AcceptanceTable:
    """Decode `prompts` greedily and draft at every position of the texts.

    Args:
        pair: target, draft model and heads.
        prompts: texts or token ids.
        depth: D, drafts at each position.
        drafter: whose drafts, by name: "model", or one of chains with logits, such as a head's.
        max_new_tokens: the budget of each text.
        batch_size: rows while the texts are written.
        progress: show a progress bar.

    Raises:
        ValueError: as `generate`, `depth` is out of range, or the drafter gives no logits or
            proposes trees.
    """
    require_int("depth", depth, maximum=MAX_DEPTH)
    noting = _Noting()
    result = generate(
        pair,
        prompts,
        drafter=drafter,
        selector=noting,
        num_draft_tokens=depth,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        progress=progress,
    )
    # Of each round in turn, text by text.
    notes = [note for number in range(len(result.tokens)) for note in noting.notes[number]]
    drafts, log_q, entropy = (np.stack(column) for column in zip(*notes, strict=True))
    following = []
    for text in result.tokens:
        ended = np.concatenate([np.array(text), np.full(depth, -1)])  # no draft is -1
        following.append(np.lib.stride_tricks.sliding_window_view(ended, depth)[: len(text)])
    is_right = drafts == np.concatenate(following)
    given = {"drafter": drafter, "depth": depth, "max_new_tokens": max_new_tokens}
    return AcceptanceTable(
        prompt_tokens=np.array([len(prompt) for prompt in result.prompts], np.int32),
        offsets=np.cumsum([0, *(len(output) for output in result.tokens)]).astype(np.int64),
        drafts=drafts,
        log_q=log_q,
        entropy=entropy,
        accepted=np.logical_and.accumulate(is_right, axis=1).sum(1).astype(np.int8),
        meta=conditions(result.meta, prompts=len(result.tokens), **given),
    )
