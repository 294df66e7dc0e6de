"""What the draft model proposes at every position of greedy texts: `specviz study tables`.

The table replays schedulers without models; see `specviz.simulation.tables`.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.generation.generate import generate
from specviz.record.schema import Array
from specviz.simulation.tables import AcceptanceTable, check_depth
from specviz.util.files import conditions
from specviz.util.validate import require_bool, require_kind

# Positions whose drafts are made together. More need a larger mask.
POSITIONS = 128


def make_table(
    pair: Pair,
    prompts: Sequence[Prompt],
    depth: int = 10,
    *,
    max_new_tokens: int = 128,
    batch_size: int = 8,
    progress: bool = True,
) -> AcceptanceTable:
    """Decode `prompts` greedily and draft at every position of the texts.

    Args:
        pair: target and draft model.
        prompts: texts or token ids.
        depth: D, drafts at each position.
        max_new_tokens: the budget of each text.
        batch_size: rows while the texts are written.
        progress: show progress bars.

    Raises:
        ValueError: as `generate`, `depth` is out of range, or a text with `depth` drafts has more
            positions than the draft model; no drafts have been made.
    """
    check_depth(depth)
    require_bool("progress", progress)
    result = generate(
        pair,
        prompts,
        strategy="autoregressive",
        # Not used, but the run leaves as many positions free behind each text.
        num_draft_tokens=depth,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        progress=progress,
    )
    _check_room(pair, result.prompts, result.tokens, depth)
    parts: dict[str, list[Array]] = {"drafts": [], "log_q": [], "entropy": []}
    accepted = []
    texts = list(zip(result.prompts, result.tokens, strict=True))
    for prompt, output in tqdm(texts, desc="drafts", unit="text", disable=not progress):
        drafted = _draft_everywhere(pair, prompt, output, depth)
        for name, values in zip(parts, drafted, strict=True):
            parts[name].append(values)
        accepted.append(_count_accepted(drafted[0], output))
    return AcceptanceTable(
        prompt_tokens=np.array([len(prompt) for prompt, _ in texts], np.int32),
        offsets=np.cumsum([0, *(len(output) for _, output in texts)]).astype(np.int64),
        **{name: np.concatenate(values) for name, values in parts.items()},
        accepted=np.concatenate(accepted),
        meta=conditions(
            result.meta, prompts=len(texts), depth=depth, max_new_tokens=max_new_tokens
        ),
    )


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
) -> tuple[Array, Array, Array]:
    """Return drafts, their log q, and entropies, each (T, D), before each of T tokens of `output`.

    All positions share one row of a slab: the text, and behind it a chain of drafts for each
    position. A chain sees the text before its position, and itself.
    """
    text = torch.tensor([*prompt, *output], device=pair.device)
    slots = len(text) + POSITIONS * (depth - 1)
    cache = CachedModel(pair.draft, 1, slots, pair.vocabulary_size)
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
        log_probabilities = logits.double().log_softmax(-1)
        draft = logits.float().argmax(-1)
        drafts.append(draft)
        log_q.append(log_probabilities.gather(1, draft[:, None])[:, 0].float())
        information = torch.special.entr(log_probabilities.exp())
        entropy.append(information.sum(-1).float())
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
    """Return one entry a depth. Raises ValueError if `table` is no table.

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
