"""How much memory a run needs: weights, both K/V slabs as the engine lays them out, logits, workspace; and the largest batch that fits.

How many rows and slots are kept is asked of the strategy, so that no rule stands twice. Knows shapes, not models; measures nothing.
"""

from typing import Protocol

import pandas as pd

from specviz.costs.shapes import ModelShape, itemsize
from specviz.util.validate import require_int

INDEX = 8  # bytes of a token id or a length
CHOSEN = 4  # bytes of a number among the logits that the draft chose from: always float32
MOST_ROWS = 2**20
ALWAYS = "always"


class Slabs(Protocol):
    """What a strategy of the engine says of the K/V it keeps."""

    @property
    def drafts(self) -> bool: ...
    def capacity(self, batch_size: int, requests: int) -> int: ...
    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int: ...


def memory(
    target: ModelShape, draft: ModelShape | None, strategy: Slabs, *, dtype: str, batch_size: int, num_draft_tokens: int = 5,
    prompt_tokens: int, max_new_tokens: int, requests: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """What is held, part by part. One entry a part: part, when ("always", or the phase that needs it for a while), bytes.

    Args:
        draft: None where proposals need no model.
        strategy: one of the engine's, from `specviz.strategy(name, **options)`.
        dtype: of weights and K/V.
        prompt_tokens, max_new_tokens: of the longest prompt, and the largest budget.
        requests: how many prompts there are; None for so many that the rows never run out.

    The peak is `peak_bytes` of this. Weights, K/V and logits are exact; the workspace of a forward is reckoned for one layer after the
    other with its usual intermediate values, and rows may realign all at once. Not counted: what libraries keep for themselves, and the
    pool of captured graphs.

    Raises:
        ValueError: a size cannot be, or the strategy refuses the batch size.
    """
    for name, value in (
        ("batch_size", batch_size),
        ("prompt_tokens", prompt_tokens),
        ("max_new_tokens", max_new_tokens),
    ):
        require_int(name, value)
    k = require_int("num_draft_tokens", num_draft_tokens, minimum=0) if strategy.drafts else 0
    size, longest = itemsize(dtype), prompt_tokens + max_new_tokens
    rows = strategy.capacity(
        batch_size, MOST_ROWS if requests is None else require_int("requests", requests)
    )
    slots, b = strategy.slots(longest, max_new_tokens, k), min(batch_size, rows)
    models = [shape for shape in (target, draft if k else None) if shape is not None]
    chosen = CHOSEN * b * k * draft.vocabulary if draft is not None else 0
    said = size * b * (k + 1) * target.vocabulary
    parts = {
        ("target weights", ALWAYS): target.weight_bytes(dtype),
        ("draft weights", ALWAYS): draft.weight_bytes(dtype) if draft is not None else 0,
        ("target K/V", ALWAYS): rows * slots * target.kv_bytes_per_slot(dtype),
        ("draft K/V", ALWAYS): rows * slots * draft.kv_bytes_per_slot(dtype)
        if draft is not None and k
        else 0,
        ("tokens", ALWAYS): INDEX * rows * (longest + k + 4),
        ("draft logits", ALWAYS): chosen,  # until the next round's take their place
        ("target logits", ALWAYS): said,
        ("prefill", "schedule"): max(
            _workspace(shape, size, b, prompt_tokens - 1, prompt_tokens, copied=True)
            for shape in models
        ),
        ("drafting", "draft"): 2 * chosen
        + (_workspace(draft, size, b, 2, slots, copied=False) if draft is not None and k else 0),
        ("verification", "verify"): max(
            _workspace(target, size, b, k + 1, slots, copied=False), said
        ),
        ("logits in float32", "accept"): CHOSEN * b * (k + 1) * target.vocabulary
        if size < CHOSEN
        else 0,
        ("realignment", "synchronise"): max(
            b * slots * size * shape.kv_heads * shape.head_dim for shape in models
        ),
    }
    return pd.DataFrame(
        [{"part": part, "when": when, "bytes": int(count)} for (part, when), count in parts.items()]
    )


def peak_bytes(table: pd.DataFrame) -> int:
    """What is held always, and what the hungriest phase needs on top."""
    sums = table.groupby("when")["bytes"].sum()
    return int(sums[ALWAYS] + sums.drop(ALWAYS).max())


def largest_batch(
    budget_bytes: float, target: ModelShape, draft: ModelShape | None, strategy: Slabs, *, dtype: str, num_draft_tokens: int = 5,
    prompt_tokens: int, max_new_tokens: int, requests: int | None = None,
) -> int:  # fmt: skip
    """The largest B whose peak is within `budget_bytes`; 0 if not even one row fits. Other arguments are those of `memory`."""
    if not 0 < budget_bytes < float("inf"):
        raise ValueError(f"budget_bytes={budget_bytes!r} is no budget; pass a number above 0")

    def fits(rows: int) -> bool:
        try:
            table = memory(
                target, draft, strategy, dtype=dtype, batch_size=rows, num_draft_tokens=num_draft_tokens, prompt_tokens=prompt_tokens,
                max_new_tokens=max_new_tokens, requests=requests,
            )  # fmt: skip
        except ValueError:
            if rows == 1:
                raise
            return False  # a pool smaller than the batch
        return peak_bytes(table) <= budget_bytes

    low, high = 0, 1  # low fits, high may not
    while high <= MOST_ROWS and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _workspace(
    shape: ModelShape, size: int, rows: int, tokens: int, slots: int, *, copied: bool
) -> int:
    """Bytes that one forward needs for a while: masks, residual stream, one layer's MLP or attention. `copied`: K/V in new order."""
    groups = shape.heads // shape.kv_heads
    masks = rows * tokens * slots * (1 + groups * size)
    attention = 4 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    seen = 2 * rows * slots * shape.kv_heads * shape.head_dim if copied else 0
    mlp = (3 if shape.gated else 2) * shape.intermediate
    return masks + size * (rows * tokens * (3 * shape.hidden + max(mlp, attention)) + seen)
