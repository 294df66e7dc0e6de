"""What a drafter proposes at every position of greedy texts: `specviz study tables`.

The table replays schedulers without models; see `specviz.simulation.tables`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from specviz.engine.drafters import Draft
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.selectors import Selector
from specviz.engine.state import State
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.record.schema import Array
from specviz.simulation.tables import MAX_DEPTH, AcceptanceTable
from specviz.util.files import conditions
from specviz.util.validate import require_bool, require_int, require_kind, require_str

# Positions whose drafts are made together. More need a larger mask.
POSITIONS = 128


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
        progress: show progress bars.

    Raises:
        ValueError: as `generate`, `depth` is out of range, the drafter gives no logits or proposes
            trees, or a text with `depth` drafts has more positions than the draft model.
    """
    require_int("depth", depth, maximum=MAX_DEPTH)
    require_bool("progress", progress)
    require_str("drafter", drafter, "pass the name of a drafter")
    run: dict[str, Any] = {
        # Of the draft model, so many positions are left free behind each text.
        "num_draft_tokens": depth,
        "max_new_tokens": max_new_tokens,
        "batch_size": batch_size,
        "progress": progress,
    }
    if drafter == "model":
        result = generate(pair, prompts, strategy="autoregressive", **run)
        _check_room(pair, result.prompts, result.tokens, depth)
        drafted = _draft_texts(pair, result, depth, progress)
    else:
        noting = _Noting()
        result = generate(pair, prompts, drafter=drafter, selector=noting, **run)
        drafted = [noting.text(number) for number in range(len(result.tokens))]
    columns = [np.concatenate(values) for values in zip(*drafted, strict=True)]
    texts = zip(drafted, result.tokens, strict=True)
    accepted = [_count_accepted(found[0], output) for found, output in texts]
    given = {"drafter": drafter, "depth": depth, "max_new_tokens": max_new_tokens}
    return AcceptanceTable(
        prompt_tokens=np.array([len(prompt) for prompt in result.prompts], np.int32),
        offsets=np.cumsum([0, *(len(output) for output in result.tokens)]).astype(np.int64),
        drafts=columns[0],
        log_q=columns[1],
        entropy=columns[2],
        accepted=np.concatenate(accepted),
        meta=conditions(result.meta, prompts=len(result.tokens), **given),
    )


Drafted = tuple[Array, Array, Array]  # drafts, their log q, and entropies, each (T, D)


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
        log_q, entropy = _describe(draft.logits, draft.tokens)
        kept = [each.cpu().numpy() for each in (draft.tokens, log_q, entropy)]
        for i, row in enumerate(state.batch.rows):
            if not row.finished:
                of_row = (kept[0][i].astype(np.int32), kept[1][i], kept[2][i])
                self.notes.setdefault(row.request.index, []).append(of_row)
        none = torch.zeros(len(state.batch), dtype=torch.long, device=draft.tokens.device)
        return replace(draft, lengths=none)

    def text(self, number: int) -> Drafted:
        """Return what was noted at the positions of this text."""
        drafts, log_q, entropy = (np.stack(part) for part in zip(*self.notes[number], strict=True))
        return drafts, log_q, entropy


def _describe(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Return log q of drafts (...), and the entropies (...) of logits (..., V), as float32."""
    log_probabilities = logits.double().log_softmax(-1)
    log_q = log_probabilities.gather(-1, drafts[..., None])[..., 0]
    information = torch.special.entr(log_probabilities.exp())
    return log_q.float(), information.sum(-1).float()


def _draft_texts(pair: Pair, result: Result, depth: int, progress: bool) -> list[Drafted]:
    texts = list(zip(result.prompts, result.tokens, strict=True))
    found = []
    for prompt, output in tqdm(texts, desc="drafts", unit="text", disable=not progress):
        found.append(_draft_everywhere(pair, prompt, output, depth))
    return found


def _check_room(
    pair: Pair, prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], depth: int
) -> None:
    longest = max(len(prompt) + len(out) for prompt, out in zip(prompts, outputs, strict=True))
    if pair.max_positions is not None and longest + depth > pair.max_positions:
        raise ValueError(
            f"depth must leave a text of {longest} tokens within the models' {pair.max_positions} "
            f"positions, got {depth}; pass less, or a smaller max_new_tokens"
        )


@torch.inference_mode()
def _draft_everywhere(
    pair: Pair, prompt: Sequence[int], output: Sequence[int], depth: int
) -> Drafted:
    """Return drafts, their log q, and entropies, each (T, D), before each of T tokens of `output`.

    All positions share one row of a slab: the text, and behind it a chain of drafts for each
    position. A chain sees the text before its position, and itself.
    """
    text = torch.tensor([*prompt, *output], device=pair.device)
    slots = len(text) + POSITIONS * (depth - 1)
    cache = CachedModel(pair.draft, 1, slots, pair.vocabulary_size)
    if cache.keeps_states:
        raise ValueError(
            f"draft={type(pair.draft).__name__} has layers with states, so it cannot draft "
            "from all positions of a text in one forward; choose a draft whose layers attend"
        )
    index = torch.arange(len(text), device=pair.device)
    causal = index <= index[:, None]
    logits = cache.forward(_feed(text, index, index, causal))[0]  # (T_all, V)
    found = []
    for first in range(len(prompt), len(text), POSITIONS):
        ends = index[first : first + POSITIONS]  # each chain's first draft takes this index
        found.append(_draft_chains(cache, logits[ends - 1], ends, len(text), depth))
    columns = [torch.cat(values).cpu().numpy() for values in zip(*found, strict=True)]
    return columns[0].astype(np.int32), columns[1], columns[2]


def _draft_chains(
    cache: CachedModel, logits: Tensor, ends: Tensor, text: int, depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return drafts, log q and entropies, each (P, D), of chains that begin at indices `ends` (P,).

    `logits` (P, V) are those of the first drafts; the slots from `text` on are free.
    """
    chains = len(ends)
    slots = torch.arange(text + chains * (depth - 1), device=ends.device)
    chain = torch.arange(chains, device=ends.device)
    # Slots of a chain lie `chains` apart, so that those of one depth are side by side.
    own = (slots >= text) & ((slots - text) % chains == chain[:, None])
    visible = (slots < ends[:, None]) | own
    drafts, log_q, entropy = [], [], []
    for j in range(depth):
        draft = logits.float().argmax(-1)
        found = _describe(logits, draft)
        drafts.append(draft)
        log_q.append(found[0])
        entropy.append(found[1])
        if j + 1 < depth:
            window = text + chains * (j + 1)
            feed = _feed(draft, slots[window - chains : window], ends + j, visible[:, :window])
            logits = cache.forward(feed)[0]
    return torch.stack(drafts, 1), torch.stack(log_q, 1), torch.stack(entropy, 1)


def _feed(tokens: Tensor, slots: Tensor, positions: Tensor, visible: Tensor) -> Feed:
    """Return a feed of one row; each argument lacks the dimension of rows."""
    return Feed(
        rows=torch.zeros(1, dtype=torch.long, device=tokens.device),
        requests=[0],
        tokens=tokens[None],
        indices=positions[None],
        positions=positions[None],
        slots=slots[None],
        visible=visible[None],
        valid=torch.ones_like(tokens[None], dtype=torch.bool),
    )


def _count_accepted(drafts: Array, output: Sequence[int]) -> Array:
    """Return how many of each position's drafts (T, D) are the text's own next tokens (T,) int8."""
    depth = drafts.shape[1]
    # No draft is -1, so nothing behind the end of the text is accepted.
    ended = np.concatenate([np.array(output), np.full(depth, -1)])
    following = np.lib.stride_tricks.sliding_window_view(ended, depth)[: len(output)]
    return np.logical_and.accumulate(drafts == following, axis=1).sum(1).astype(np.int8)


def summarise(table: AcceptanceTable) -> pd.DataFrame:
    """Return one entry a depth. Raises ValueError if `table` is not a table.

    Columns: depth, survival (share of positions whose first drafts up to there are all accepted),
    mean_q (of the proposals), mean_entropy (nats).
    """
    require_kind("table", table, AcceptanceTable, "make one with make_table")
    return pd.DataFrame(
        {
            "depth": np.arange(1, table.depth + 1),
            "survival": table.survival(),
            "mean_q": np.exp(table.log_q).mean(0),
            "mean_entropy": table.entropy.mean(0),
        }
    )
