"""What `generate` returns: tokens and texts, counts as tables, and the trace if one was recorded.

It runs no model.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from specviz import metrics
from specviz.generation.planned import Plan
from specviz.record.trace import Trace


@dataclass(frozen=True)
class Result:
    """The outcome of one run.

    Attributes:
        tokens: new tokens of each prompt, in the caller's order. EOS is kept, nothing follows it,
            and no row exceeds its budget.
        texts: the same as text, without special tokens; empty strings if the pair has no tokenizer.
        status: how each prompt ended: "eos", "budget", "not_finite" (the target's logits for its
            next token were non-finite) or "interrupted". With the last two, the tokens so far are
            kept.
        trace: the recorded run, or None without record=True.
        plan: how the run stays within its memory budget, or None without one.
        meta, rounds, rows: what was run, and counts per round and per (round, row); the columns are
            those of `Trace`.
        prompts, budgets: token ids of each prompt, and how many new tokens it may have.
    """

    tokens: list[list[int]]
    texts: list[str]
    meta: dict[str, Any]
    rounds: dict[str, np.ndarray] = field(repr=False)
    rows: dict[str, np.ndarray] = field(repr=False)
    trace: Trace | None = field(default=None, repr=False)
    plan: Plan | None = field(default=None, repr=False)
    prompts: list[list[int]] = field(repr=False, kw_only=True)
    budgets: list[int] = field(repr=False, kw_only=True)

    @property
    def status(self) -> list[str]:
        return list(self.meta["status"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row: strategy, tokens_per_s, rounds, mean_acceptance_length and more."""
        return metrics.summary(self)

    @property
    def stages(self) -> pd.DataFrame:
        """One row per round: the milliseconds of each phase, and its share of the round."""
        return metrics.stages(self)

    def __repr__(self) -> str:
        new_tokens = sum(map(len, self.tokens))
        rounds = len(self.rounds["batch"])
        counts = f"{len(self.tokens)} prompts, {new_tokens} new tokens, {rounds} rounds"
        recorded = "recorded" if self.trace else "not recorded: pass record=True"
        return f"<Result of {self.meta['strategy']}: {counts}, {recorded}>"
