"""How much memory a run needs, and the largest batch that fits.

It adds up weights, both K/V slabs as the engine lays them out, logits and workspace. The strategy
itself says how many rows and slots it keeps, so that no rule is written twice.

Not known here: models. Nothing is measured.
"""

from typing import Protocol

import pandas as pd

from specviz.costs.shapes import ModelShape, itemsize
from specviz.util.validate import require_int, require_positive

INDEX_BYTES = 8  # a token id or a length
CHOSEN_BYTES = 4  # a logit that the draft chose from: always float32
MAX_ROWS = 2**20
ALWAYS = "always"


class Slabs(Protocol):
    """What a strategy of the engine says about the K/V it keeps."""

    @property
    def drafts(self) -> bool: ...
    def capacity(self, batch_size: int, requests: int) -> int: ...
    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int: ...


def memory(
    target: ModelShape,
    draft: ModelShape | None,
    strategy: Slabs,
    *,
    dtype: str,
    batch_size: int,
    num_draft_tokens: int = 5,
    prompt_tokens: int,
    max_new_tokens: int,
    requests: int | None = None,
) -> pd.DataFrame:
    """Return what is held, part by part.

    There is one entry a part: part, when ("always", or the phase that needs it for a while), bytes.

    Args:
        target, draft: draft is None where proposals need no model.
        strategy: one of the engine's, from `specviz.strategy(name, **options)`.
        dtype: of weights and K/V.
        batch_size, num_draft_tokens: B and K.
        prompt_tokens, max_new_tokens: of the longest prompt, and the largest budget.
        requests: how many prompts there are; None for so many that the rows never run out.

    The peak is `peak_bytes` of this table. Weights, K/V and logits are exact. The workspace of a
    forward is computed for one layer at a time with its usual intermediate values, and for rows
    that may all realign at once. What libraries keep for themselves and the pool of captured
    graphs are not counted.

    Raises:
        ValueError: a size is not an int >= 1, or the strategy refuses the batch size.
    """
    require_int("batch_size", batch_size)
    require_int("prompt_tokens", prompt_tokens)
    require_int("max_new_tokens", max_new_tokens)
    k = require_int("num_draft_tokens", num_draft_tokens, 0) if strategy.drafts else 0
    most = MAX_ROWS if requests is None else require_int("requests", requests)
    size = itemsize(dtype)
    longest = prompt_tokens + max_new_tokens
    rows = strategy.capacity(batch_size, most)
    slots = strategy.slots(longest, max_new_tokens, k)
    b = min(batch_size, rows)

    models = [target]
    draft_kv = 0
    draft_logits = 0
    drafting = 0
    if draft is not None and k:
        models.append(draft)
        draft_kv = rows * slots * draft.kv_bytes_per_slot(dtype)
        draft_logits = CHOSEN_BYTES * b * k * draft.vocabulary
        drafting = 2 * draft_logits + _workspace(draft, size, b, 2, slots)
    num_logits = b * (k + 1) * target.vocabulary
    target_logits = size * num_logits
    float32_logits = CHOSEN_BYTES * num_logits if size < CHOSEN_BYTES else 0
    prefill = max(
        _workspace(shape, size, b, prompt_tokens - 1, prompt_tokens)
        + 2 * _layer_bytes(shape, size, b, prompt_tokens)  # K and V in their new order
        for shape in models
    )
    verification = max(_workspace(target, size, b, k + 1, slots), target_logits)
    realignment = max(_layer_bytes(shape, size, b, slots) for shape in models)
    parts = [
        ("target weights", ALWAYS, target.weight_bytes(dtype)),
        ("draft weights", ALWAYS, draft.weight_bytes(dtype) if draft is not None else 0),
        ("target K/V", ALWAYS, rows * slots * target.kv_bytes_per_slot(dtype)),
        ("draft K/V", ALWAYS, draft_kv),
        ("tokens", ALWAYS, INDEX_BYTES * rows * (longest + k + 4)),
        ("draft logits", ALWAYS, draft_logits),  # kept until the next round's replace them
        ("target logits", ALWAYS, target_logits),
        ("prefill", "schedule", prefill),
        ("drafting", "draft", drafting),
        ("verification", "verify", verification),
        ("logits in float32", "accept", float32_logits),
        ("realignment", "synchronise", realignment),
    ]
    return pd.DataFrame(parts, columns=["part", "when", "bytes"])


def peak_bytes(table: pd.DataFrame) -> int:
    """Return what is always held plus what the phase with the largest need takes on top."""
    sums = table.groupby("when")["bytes"].sum()
    return int(sums[ALWAYS] + sums.drop(ALWAYS).max())


def largest_batch(
    budget_bytes: float,
    target: ModelShape,
    draft: ModelShape | None,
    strategy: Slabs,
    *,
    dtype: str,
    num_draft_tokens: int = 5,
    prompt_tokens: int,
    max_new_tokens: int,
    requests: int | None = None,
) -> int:
    """Return the largest B whose peak is within `budget_bytes`; 0 if not even one row fits.

    The other arguments, and what is raised, are those of `memory`.
    """
    require_positive("budget_bytes", budget_bytes)

    def fits(rows: int) -> bool:
        try:
            table = memory(
                target,
                draft,
                strategy,
                dtype=dtype,
                batch_size=rows,
                num_draft_tokens=num_draft_tokens,
                prompt_tokens=prompt_tokens,
                max_new_tokens=max_new_tokens,
                requests=requests,
            )
        except ValueError:
            if rows == 1:
                raise
            return False  # the strategy refuses a batch that is larger than its pool
        return peak_bytes(table) <= budget_bytes

    low = 0  # fits
    high = 1  # may not fit
    while high <= MAX_ROWS and fits(high):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _workspace(shape: ModelShape, size: int, rows: int, tokens: int, slots: int) -> int:
    """Return the bytes one forward needs for a while.

    These are the masks, the residual stream, and one layer's MLP or attention, whichever is larger.
    """
    groups = shape.heads // shape.kv_heads
    masks = rows * tokens * slots * (1 + groups * size)  # one bool, and one float a query group
    attention = 4 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    mlp = (3 if shape.gated else 2) * shape.intermediate
    values = rows * tokens * (3 * shape.hidden + max(mlp, attention))
    return masks + size * values


def _layer_bytes(shape: ModelShape, size: int, rows: int, slots: int) -> int:
    """Return the bytes of one layer's K, or of its V."""
    return rows * slots * size * shape.kv_heads * shape.head_dim
