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
WINDOWS = (None, 1024, 512, 256, 128, 64)
JUDGED = (None, 8, 1)


@dataclass(frozen=True)
class Search:
    """What is given, and what may be chosen.

    Attributes:
        target, draft: the shapes; draft is None where proposals need no model.
        strategy: one of the engine's.
        sizes: `dtype`, `prompt_tokens`, `max_new_tokens` and `requests` of the memory model.
        mean_prompt: tokens of a prompt, on average.
        batch_size, num_draft_tokens: the largest B and K.
        windows: whether the draft model may keep K/V of a row's last tokens alone.
        drops: whether it may keep none.
        keeps_draft: whether it keeps any, where it may not drop it.
        levers: those that the caller has chosen stay as they are.
    """

    target: ModelShape
    draft: ModelShape | None
    strategy: SlabUse
    sizes: dict[str, Any]
    mean_prompt: float
    batch_size: int
    num_draft_tokens: int
    windows: bool
    drops: bool
    keeps_draft: bool
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
            keeps_draft=candidate.keeps_draft,
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
        longest = self.sizes["prompt_tokens"] + self.sizes["max_new_tokens"]
        drafts = self.num_draft_tokens if self.strategy.drafts else 0
        windows = [given.draft_window]
        if self.windows and given.draft_window is None:
            windows = [w for w in WINDOWS if w is None or w < longest]
        chunks = [given.prefill_tokens]
        if given.prefill_tokens is None:
            most = self.batch_size * self.sizes["prompt_tokens"]
            chunks = [c for c in CHUNKS if c is None or c < most]
        judged = [given.accept_rows]
        if given.accept_rows is None and self.sizes["dtype"] in ("bfloat16", "float16"):
            judged = [rows for rows in JUDGED if rows is None or rows < self.batch_size]
        keeping = [True, False] if self.drops else [self.keeps_draft]
        ks = range(drafts, 0, -1) if drafts else [0]
        for k, window, keeps, chunk, rows in product(ks, windows, keeping, chunks, judged):
            # A window holds two rounds of drafts; without kept K/V it would save nothing more.
            if window is not None and (window < 2 * k + 4 or not keeps):
                continue
            levers = replace(given, draft_window=window, prefill_tokens=chunk, accept_rows=rows)
            yield Candidate(1, k, levers, keeps)


@dataclass(frozen=True)
class Candidate:
    """Options that a plan may choose."""

    batch_size: int
    num_draft_tokens: int
    levers: Levers
    keeps_draft: bool


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

    Columns: batch_size, num_draft_tokens, draft_kv ("all", "window N" or "none"), prefill_tokens,
    accept_rows, peak_bytes, tokens_per_s, and candidate.
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
                keeps_draft=chosen.keeps_draft,
            )
            entries.append(_entry(chosen, search, speed))
    if not entries:
        return pd.DataFrame()
    table = pd.DataFrame(entries)
    # Of those that are equally fast, one that keeps all draft K/V, and then the one that takes
    # least: a window may cost acceptance, which is not predicted.
    partly = table["draft_kv"] != "all"
    order = ["tokens_per_s", "partly", "peak_bytes"]
    table = table.assign(partly=partly).sort_values(order, ascending=[False, True, True])
    table = table.drop(columns="partly")
    # Whole numbers, though some entries have none.
    whole = dict.fromkeys(("prefill_tokens", "accept_rows"), "Int64")
    return table.reset_index(drop=True).astype(whole)


def _sizes(most: int) -> list[int]:
    """Return `most` and half of it, again and again."""
    found = []
    while most:
        found.append(most)
        most //= 2
    return found


def _entry(candidate: Candidate, search: Search, speed: float) -> dict[str, Any]:
    kept = "all"
    if candidate.levers.draft_window is not None:
        kept = f"window {candidate.levers.draft_window}"
    if search.draft is None or not candidate.keeps_draft:
        kept = "none"
    return {
        "batch_size": candidate.batch_size,
        "num_draft_tokens": candidate.num_draft_tokens,
        "draft_kv": kept,
        "prefill_tokens": candidate.levers.prefill_tokens,
        "accept_rows": candidate.levers.accept_rows,
        "peak_bytes": search.peak(candidate),
        "tokens_per_s": speed,
        "candidate": candidate,
    }
