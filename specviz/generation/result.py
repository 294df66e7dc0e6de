"""What `generate` returns: tokens and texts, counts as tables, and the trace if one was recorded.

It runs no model.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specviz import metrics
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.text import count

if TYPE_CHECKING:  # reading a result needs no torch
    from specviz.generation.memory import Plan


@dataclass(frozen=True)
class Result:
    """The outcome of one run.

    Attributes:
        tokens: new tokens of each prompt, in the caller's order. EOS is kept, nothing follows it,
            and no row exceeds its budget.
        texts: the same as text, without special tokens; empty strings if the pair has no tokenizer.
        status: how each prompt ended: "eos", "budget", "stop" (its text has a stop string),
            "not_finite" (the target's logits for its next token were non-finite) or "interrupted".
            With the last two, the tokens so far are kept.
        trace: the recorded run, or None without record=True. With lanes=2 it is None, too, because
            each lane has a record of its own: `lanes[0].trace` and `lanes[1].trace`.
        plan: how the run stays within its memory budget, or None without one.
        lanes: with lanes=2, each lane as a result of its own, for all tables, checks and charts;
            else empty. Its prompts are the whole list; those that the other lane decoded have the
            status "elsewhere".
        meta, rounds, rows: what was run, and counts per round and per (round, row); the columns are
            those of `Trace`. With lanes=2, the rounds of both lanes by their beginnings.
        prompts, budgets: token ids of each prompt, and how many new tokens it may have.
        spans_ms: (rounds, 5, 2), when each phase of each round began and ended.
    """

    tokens: list[list[int]]
    texts: list[str]
    meta: dict[str, Any]
    rounds: dict[str, np.ndarray] = field(repr=False)
    rows: dict[str, np.ndarray] = field(repr=False)
    trace: Trace | None = field(default=None, repr=False)
    plan: "Plan | None" = field(default=None, repr=False)
    prompts: list[list[int]] = field(repr=False, kw_only=True)
    budgets: list[int] = field(repr=False, kw_only=True)
    spans_ms: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 5, 2)), repr=False, kw_only=True
    )
    lanes: tuple["Result", ...] = field(default=(), repr=False, kw_only=True)

    @property
    def status(self) -> list[str]:
        return list(self.meta["status"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row: strategy, tokens_per_s, rounds, mean_acceptance_length and more."""
        # The phases of two lanes overlap, so their sum is not the time that passed.
        return metrics.summary(self, total_s=self.elapsed_ms / 1e3 if self.lanes else None)

    @property
    def stages(self) -> pd.DataFrame:
        """One row per round: the milliseconds of each phase, and its share of the round."""
        return metrics.stages(self)

    @property
    def timeline(self) -> pd.DataFrame:
        """One row per lane, round and phase: start_ms and stop_ms on one clock, by start.

        A lane's rounds are numbered on their own. Without lanes, all is lane 0.
        """
        parts = []
        for lane, part in enumerate(self.lanes or (self,)):
            rounds = np.repeat(np.arange(len(part.spans_ms)), len(PHASES))
            columns = {"lane": lane, "round": rounds, "phase": np.resize(PHASES, len(rounds))}
            columns |= {"start_ms": part.spans_ms[..., 0].ravel()}
            parts.append(pd.DataFrame(columns | {"stop_ms": part.spans_ms[..., 1].ravel()}))
        return pd.concat(parts).sort_values("start_ms", kind="stable", ignore_index=True)

    @property
    def elapsed_ms(self) -> float:
        """From the first phase's start to the last one's end, pauses between phases included."""
        spans = [part.spans_ms for part in self.lanes or (self,) if part.spans_ms.size]
        if not spans:
            return 0.0
        return float(max(each.max() for each in spans) - min(each.min() for each in spans))

    def __repr__(self) -> str:
        new_tokens = sum(map(len, self.tokens))
        rounds = count(len(self.rounds["batch"]), "round")
        counts = f"{count(len(self.tokens), 'prompt')}, {count(new_tokens, 'new token')}"
        traces = [part.trace for part in self.lanes or (self,)]
        recorded = "recorded" if any(traces) else "not recorded: pass record=True"
        return f"<Result of {self.meta['strategy']}: {counts}, {rounds}, {recorded}>"
