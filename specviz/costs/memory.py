"""How much memory a run needs, and the largest batch that fits.

It adds up weights, both K/V slabs as the engine lays them out, what a draft head keeps of the
target's hidden states, logits and workspace. The strategy itself says how many rows and slots it
keeps, so that no rule is written twice.

Not known here: models. Nothing is measured.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from specviz.costs.head_shape import HeadShape
from specviz.costs.shapes import ModelShape, itemsize
from specviz.util.search import smallest
from specviz.util.validate import require_int, require_kind, require_positive, short

INDEX_BYTES = 8  # a token id or a length
CHOSEN_BYTES = 4  # a logit that the draft chose from: always float32
MAX_ROWS = 2**20
ALWAYS = "always"
Part = tuple[str, str, int]  # part, when, bytes


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a run.

    Attributes:
        batch_size, num_draft_tokens: B and K; K is 0 where nothing is drafted.
        longest: tokens of the longest request, with its prompt.
        rows, slots: of the K/V slabs.
    """

    dtype: str
    batch_size: int
    num_draft_tokens: int
    prompt_tokens: int
    longest: int
    rows: int
    slots: int

    @property
    def value_bytes(self) -> int:
        return itemsize(self.dtype)

    def kv_bytes(self, shape: ModelShape) -> int:
        return self.rows * self.slots * shape.kv_bytes_per_slot(self.dtype)

    def draft_logits(self, draft: ModelShape) -> int:
        """Return how many logits the draft chooses from in a round."""
        return self.batch_size * self.num_draft_tokens * draft.vocabulary

    def target_logits(self, target: ModelShape) -> int:
        """Return how many logits one verification makes."""
        return self.batch_size * (self.num_draft_tokens + 1) * target.vocabulary


class Slabs(Protocol):
    """What a strategy of the engine says about the K/V it keeps."""

    @property
    def drafts(self) -> bool: ...
    def capacity(self, batch_size: int, requests: int) -> int: ...
    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int: ...


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
        target, draft: draft is None where proposals need no model, and a `HeadShape` where a head
            of the target drafts.
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
    _check_held(target, draft, strategy)
    itemsize(dtype)
    require_int("batch_size", batch_size)
    require_int("prompt_tokens", prompt_tokens)
    require_int("max_new_tokens", max_new_tokens)
    k = require_int("num_draft_tokens", num_draft_tokens, 0) if strategy.drafts else 0
    most = MAX_ROWS if requests is None else require_int("requests", requests)
    longest = prompt_tokens + max_new_tokens
    rows = strategy.capacity(batch_size, most)
    sizes = _Sizes(
        dtype=dtype,
        batch_size=min(batch_size, rows),
        num_draft_tokens=k,
        prompt_tokens=prompt_tokens,
        longest=longest,
        rows=rows,
        slots=strategy.slots(longest, max_new_tokens, k),
    )
    parts = _kept(target, draft, sizes) + _temporary(target, draft, sizes)
    return pd.DataFrame(parts, columns=["part", "when", "bytes"])


def _check_held(target: object, draft: object, strategy: object) -> None:
    remedy = "make one with ModelShape.from_config, or take one of named_pair(...)"
    require_kind("target", target, ModelShape, remedy)
    if draft is not None:
        require_kind("draft", draft, ModelShape, remedy)
    if not all(hasattr(strategy, name) for name in ("drafts", "capacity", "slots")):
        raise ValueError(
            f"strategy must be a Strategy, got {short(strategy)}; "
            "use specviz.strategy(name, **options)"
        )


def peak_bytes(table: pd.DataFrame) -> int:
    """Return what is always held plus what the phase with the largest need takes on top.

    Raises ValueError if `table` is no table of `memory`.
    """
    if not isinstance(table, pd.DataFrame) or not {"when", "bytes"} <= set(table.columns):
        raise ValueError(f"table must be a table of memory, got {short(table)}; pass that table")
    # Not by `groupby`, which takes longer than a round of a small model.
    sums: dict[str, int] = defaultdict(int)
    for when, size in zip(table["when"], table["bytes"], strict=True):
        sums[when] += int(size)
    return sums.pop(ALWAYS) + max(sums.values())


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

    def exceeds(rows: int) -> bool:
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
            return True  # the strategy refuses a batch that is larger than its pool
        return peak_bytes(table) > budget_bytes

    too_many = smallest(exceeds, 0, MAX_ROWS + 1)
    return MAX_ROWS if too_many is None else too_many - 1


def _kept(target: ModelShape, draft: ModelShape | None, sizes: _Sizes) -> list[Part]:
    """Return what is held all the time."""
    draft_weights = 0
    draft_kv = 0
    draft_logits = 0
    if draft is not None:
        draft_weights = draft.weight_bytes(sizes.dtype)
        draft_kv = sizes.kv_bytes(draft) if sizes.num_draft_tokens else 0
        draft_logits = CHOSEN_BYTES * sizes.draft_logits(draft)
    features = 0
    if isinstance(draft, HeadShape) and sizes.num_draft_tokens:
        kept_tokens = sizes.longest + sizes.num_draft_tokens + 1
        features = draft.kept_bytes(sizes.dtype, sizes.rows, kept_tokens)
    tokens = INDEX_BYTES * sizes.rows * (sizes.longest + sizes.num_draft_tokens + 4)
    target_logits = sizes.value_bytes * sizes.target_logits(target)
    return [
        ("target weights", ALWAYS, target.weight_bytes(sizes.dtype)),
        ("draft weights", ALWAYS, draft_weights),
        ("target K/V", ALWAYS, sizes.kv_bytes(target)),
        ("draft K/V", ALWAYS, draft_kv),
        ("features", ALWAYS, features),
        ("tokens", ALWAYS, tokens),
        ("draft logits", ALWAYS, draft_logits),  # kept until the next round's replace them
        ("target logits", ALWAYS, target_logits),
    ]


def _temporary(target: ModelShape, draft: ModelShape | None, sizes: _Sizes) -> list[Part]:
    """Return what the phases need for a while."""
    size = sizes.value_bytes
    b = sizes.batch_size
    prompt_tokens = sizes.prompt_tokens
    slots = sizes.slots
    models = [target]
    head = draft if isinstance(draft, HeadShape) else None
    drafting = 0
    if draft is not None and sizes.num_draft_tokens:
        models.append(draft)
        drafting = _drafting(draft, sizes)
    if head is not None and not head.attends:
        models.remove(head)  # it reads no prompt and has no K/V to move
    # Models are prefilled one after the other, too.
    prefill = max(
        _workspace(shape, size, b, prompt_tokens - 1, prompt_tokens, head)
        + 2 * _layer_bytes(shape, size, b, prompt_tokens)  # K and V in their new order
        for shape in models
    )
    num_logits = sizes.target_logits(target)
    width = sizes.num_draft_tokens + 1
    verification = max(_workspace(target, size, b, width, slots, head), size * num_logits)
    float32_logits = CHOSEN_BYTES * num_logits if size < CHOSEN_BYTES else 0
    realignment = max(_layer_bytes(shape, size, b, slots) for shape in models)
    return [
        ("prefill", "schedule", prefill),
        ("drafting", "draft", drafting),
        ("verification", "verify", verification),
        ("logits in float32", "accept", float32_logits),
        ("realignment", "synchronise", realignment),
    ]


def _drafting(draft: ModelShape, sizes: _Sizes) -> int:
    """Return the bytes that drafting needs for a while."""
    k = sizes.num_draft_tokens
    copies = 2  # the logits of single forwards, and all of them put together
    first = 2  # tokens that the first forward reads
    if isinstance(draft, HeadShape):
        copies = 1 if draft.parallel else 2
        first = 2 * k if draft.parallel else k + 1
    needs = []
    for tokens, kept in ((2, copies), (first, 0)):
        space = _workspace(draft, sizes.value_bytes, sizes.batch_size, tokens, sizes.slots)
        needs.append(space + kept * CHOSEN_BYTES * sizes.draft_logits(draft))
    return max(needs)


def _workspace(
    shape: ModelShape,
    size: int,
    rows: int,
    tokens: int,
    slots: int,
    head: HeadShape | None = None,
) -> int:
    """Return the bytes one forward needs for a while.

    head: what reads the hidden states of the target's forwards.
    """
    # Layers run one after the other, and a layer's attention is done before its MLP: only the
    # larger of the two counts, once, beside the masks and the residual stream.
    groups = shape.heads // shape.kv_heads
    masks = rows * tokens * slots * (1 + groups * size)  # one bool, and one float a query group
    attention = 4 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    mlp = (3 if shape.gated else 2) * shape.intermediate
    values = 3 * shape.hidden + max(mlp, attention)
    if isinstance(shape, HeadShape):
        values += shape.entry_values
    elif head is not None:
        # In the last layer the outputs of the others are still there. After it, all of them and
        # those that the head reads, side by side.
        after = (shape.layers + 1) * shape.hidden + head.read + head.features
        values = max(values + (shape.layers - 1) * shape.hidden, after)
    return masks + size * rows * tokens * values


def _layer_bytes(shape: ModelShape, size: int, rows: int, slots: int) -> int:
    """Return the bytes of one layer's K, or of its V."""
    return rows * slots * size * shape.kv_heads * shape.head_dim
