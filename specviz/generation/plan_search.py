"""Which options of a run fit into a budget, and which of them would be fastest.

Contract: from sizes alone; no model runs. Each candidate is checked with the memory model, with a
margin for what that leaves out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from specviz.costs.memory import ALWAYS, Part, SlabUse, list_parts, peak_of
from specviz.costs.predict import DecodingJob, tokens_per_s
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape
from specviz.util.levers import Levers
from specviz.util.search import smallest

MARGIN = 0.02  # of what a run takes beside the weights
CHUNKS = (None, 2048, 512, 128, 32)


@dataclass(frozen=True)
class Search:
    """What is given, and what may be chosen.

    Attributes:
        target, draft: the shapes; draft is None where proposals need no model.
        strategy: one of the engine's.
        sizes: `dtype`, `prompt_tokens`, `max_new_tokens` and `requests` of the memory model.
        mean_prompt: tokens of a prompt, on average.
        batch_size, num_draft_tokens: the largest B and K.
        levers: those that the caller has chosen stay as they are.
    """

    target: ModelShape
    draft: ModelShape | None
    strategy: SlabUse
    sizes: dict[str, Any]
    mean_prompt: float
    batch_size: int
    num_draft_tokens: int
    levers: Levers

    def parts(self, candidate: "Candidate") -> list[Part]:
        """Return the parts of a candidate's memory, the margin among them."""
        parts = list_parts(
            self.target,
            self.draft,
            self.strategy,
            batch_size=candidate.batch_size,
            num_draft_tokens=candidate.num_draft_tokens,
            levers=candidate.levers,
            **self.sizes,
        )
        margin = int(MARGIN * (peak_of(parts) - weight_bytes(parts))) + 1
        return [*parts, ("margin", ALWAYS, margin)]

    def peak(self, candidate: "Candidate") -> int:
        return peak_of(self.parts(candidate))

    def largest(self, candidate: "Candidate", budget: float) -> int:
        """Return the largest B of the candidate that fits; 0 if none does."""
        most = self.batch_size

        def exceeds(rows: int) -> bool:
            return self.peak(replace(candidate, batch_size=rows)) > budget

        too_many = smallest(exceeds, 0, most)
        return most if too_many is None else too_many - 1

    def candidates(self) -> Iterator["Candidate"]:
        """Yield every combination of levers and K, with one row; the largest K comes first."""
        given = self.levers
        drafts = self.num_draft_tokens if self.strategy.drafts else 0
        chunks = [given.prefill_tokens]
        if given.prefill_tokens is None:
            most = self.batch_size * self.sizes["prompt_tokens"]
            chunks = [c for c in CHUNKS if c is None or c < most]
        keeping = [given.keep_draft]
        if self.draft is not None and given.keep_draft:
            keeping.append(False)
        ks = range(drafts, 0, -1) if drafts else [0]
        for k, keeps, chunk in product(ks, keeping, chunks):
            yield Candidate(1, k, replace(given, prefill_tokens=chunk, keep_draft=keeps))


@dataclass(frozen=True)
class Candidate:
    """Options that a plan may choose."""

    batch_size: int
    num_draft_tokens: int
    levers: Levers


def weight_bytes(parts: list[Part]) -> int:
    """Return the bytes of the weights among the parts."""
    return sum(size for part, _, size in parts if part in ("target weights", "draft weights"))


def least_bytes(search: Search) -> int:
    """Return the smallest budget that any candidate fits into."""
    return min(search.peak(candidate) for candidate in search.candidates())


def fitting(
    search: Search, budget: float, roofline: Roofline, job: DecodingJob, *, any_k: bool
) -> pd.DataFrame:
    """Return the candidates that fit, the fastest first, each with the largest B and smaller ones.

    any_k: whether every K is tried; otherwise a smaller K only where no larger one fits.

    Columns: batch_size, num_draft_tokens, draft_kv ("all" or "none"), prefill_tokens, peak_bytes,
    tokens_per_s, and candidate.
    """
    entries: list[dict[str, Any]] = []
    for candidate in search.candidates():
        if entries and not any_k and candidate.num_draft_tokens < entries[-1]["num_draft_tokens"]:
            break
        most = search.largest(candidate, budget)
        for rows in _sizes(most):
            chosen = replace(candidate, batch_size=rows)
            speed = tokens_per_s(
                roofline,
                job,
                batch_size=rows,
                num_draft_tokens=chosen.num_draft_tokens,
                levers=chosen.levers,
            )
            entries.append(_entry(chosen, search, speed))
    if not entries:
        return pd.DataFrame()
    table = pd.DataFrame(entries)
    # Of those that are equally fast, the one that takes least.
    table = table.sort_values(["tokens_per_s", "peak_bytes"], ascending=[False, True])
    # Whole numbers, though some entries have none.
    return table.reset_index(drop=True).astype({"prefill_tokens": "Int64"})


def _sizes(most: int) -> list[int]:
    """Return `most` and half of it, again and again."""
    found = []
    while most:
        found.append(most)
        most //= 2
    return found


def _entry(candidate: Candidate, search: Search, speed: float) -> dict[str, Any]:
    kept = "all" if search.draft is not None and candidate.levers.keep_draft else "none"
    return {
        "batch_size": candidate.batch_size,
        "num_draft_tokens": candidate.num_draft_tokens,
        "draft_kv": kept,
        "prefill_tokens": candidate.levers.prefill_tokens,
        "peak_bytes": search.peak(candidate),
        "tokens_per_s": speed,
        "candidate": candidate,
    }
