"""How much memory a run needs, and the largest batch that fits.

It adds up weights, both K/V slabs as the engine lays them out, what a draft head keeps of the
target's hidden states, logits and workspace. The strategy itself says how many rows and slots it
keeps, so that no rule is written twice.

Not known here: models. Nothing is measured.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

import pandas as pd

from specviz.costs.held import ALWAYS, Part, Sizes, kept, temporary
from specviz.costs.shapes import ModelShape
from specviz.util.levers import NONE, Levers
from specviz.util.search import smallest

MAX_ROWS = 2**20


class SlabUse(Protocol):
    """What a strategy of the engine says about the K/V it keeps."""

    @property
    def drafts(self) -> bool: ...
    def capacity(self, batch_size: int, requests: int) -> int: ...
    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int: ...


def memory(
    target: ModelShape, draft: ModelShape | None, strategy: SlabUse, **sizes: Any
) -> pd.DataFrame:
    """Return what is held, part by part; the arguments are those of `list_parts`.

    There is one entry a part: part, when ("always", or the phase that needs it for a while), bytes.
    The peak is `peak_bytes` of this table.
    """
    parts = list_parts(target, draft, strategy, **sizes)
    return pd.DataFrame(parts, columns=["part", "when", "bytes"])


def list_parts(
    target: ModelShape,
    draft: ModelShape | None,
    strategy: SlabUse,
    *,
    dtype: str,
    batch_size: int,
    num_draft_tokens: int = 5,
    prompt_tokens: int,
    max_new_tokens: int,
    requests: int | None = None,
    levers: Levers | None = None,
    keeps_draft: bool = True,
) -> list[Part]:
    """Return what a run holds, as lines (part, when, bytes).

    Args:
        target, draft: draft is None where proposals need no model, and a `HeadShape` where a head
            of the target drafts.
        strategy: one of the engine's, from `specviz.strategy(name, **options)`.
        dtype: of weights and K/V.
        batch_size, num_draft_tokens: B and K.
        prompt_tokens, max_new_tokens: of the longest prompt, and the largest budget.
        requests: how many prompts there are; None for so many that the rows never run out.
        levers: those of the run.
        keeps_draft: whether the draft model's K/V is kept between rounds; see `keep_cache` of the
            drafters.

    Weights, K/V and logits are exact. The workspace of a forward is computed for one layer at a
    time with its usual intermediate values, and for rows that may all realign at once. What
    libraries keep for themselves and the pool of captured graphs are not counted.

    Raises:
        ValueError: the strategy refuses the batch size.
    """
    k = num_draft_tokens if strategy.drafts else 0
    most = MAX_ROWS if requests is None else requests
    longest = prompt_tokens + max_new_tokens
    rows = strategy.capacity(batch_size, most)
    slots = strategy.slots(longest, max_new_tokens, k)
    sizes = Sizes(
        dtype=dtype,
        batch_size=min(batch_size, rows),
        num_draft_tokens=k,
        prompt_tokens=prompt_tokens,
        longest=longest,
        rows=rows,
        slots=slots,
        levers=levers or NONE,
        keeps_draft=keeps_draft,
        refills=most > rows,
        reach=slots - k - 1 if _ends_later(strategy, rows, most) else prompt_tokens,
    )
    return kept(target, draft, sizes) + temporary(target, draft, sizes)


def _ends_later(strategy: SlabUse, rows: int, requests: int) -> bool:
    """Return whether prompts enter later, and end in the column where the other rows end."""
    return requests > rows > 1 and getattr(strategy, "right_aligned", False)


def peak_bytes(table: pd.DataFrame) -> int:
    """Return what is always held plus what the phase with the largest need takes on top."""
    return peak_of(zip(table["part"], table["when"], table["bytes"], strict=True))


def peak_of(parts: Iterable[Part]) -> int:
    """Return `peak_bytes` of the lines of a table."""
    # Not by `groupby`, which takes longer than a round of a small model.
    sums: dict[str, int] = defaultdict(int)
    for _, when, size in parts:
        sums[when] += int(size)
    return sums.pop(ALWAYS) + max(sums.values())


def largest_batch(
    budget_bytes: float,
    target: ModelShape,
    draft: ModelShape | None,
    strategy: SlabUse,
    **sizes: Any,
) -> int:
    """Return the largest B whose peak is within `budget_bytes`; 0 if not even one row fits.

    The other arguments, and what is raised, are those of `list_parts`.
    """

    def exceeds(rows: int) -> bool:
        try:
            parts = list_parts(target, draft, strategy, batch_size=rows, **sizes)
        except ValueError:
            if rows == 1:
                raise
            return True  # the strategy refuses a batch that is larger than its pool
        return peak_of(parts) > budget_bytes

    too_many = smallest(exceeds, 0, MAX_ROWS + 1)
    return MAX_ROWS if too_many is None else too_many - 1
