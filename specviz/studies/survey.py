"""`survey`: every way to handle raggedness on the same prompts: is its text right, what breaks first, what does it waste and cost.

Runs models through `generate` alone. Each strategy runs twice: unrecorded, which gives its speed, and recorded, which gives the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from specviz import metrics
from specviz.checks.compare import compare
from specviz.checks.equivalence import divergence
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.strategies import STRATEGIES, Strategy, changed_options, everything, strategy
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.util.files import conditions, save_measured


@dataclass(frozen=True)
class Survey:
    """What `survey` found.

    Attributes:
        table: one entry per strategy: strategy, options (those that are not the default), valid (what it promises), exact_match and
            partial_match (against autoregressive decoding at batch 1), near_ties, unexplained, first_violation (rule and round, "" if
            none), mean_acceptance_length, discarded_tokens (verified and thrown away), hole_share and padding_share (of the slots
            up to the rows' last tokens, over all rounds), realigned_mb and compacted_mb (K/V copied to bring rows into step, and from
            row to row), grouping_rate, rounds, tokens_per_s (one unrecorded run: for an impression, not a benchmark).
        results: the recorded runs, in the same order.
        reference: the recorded run that they are compared with.
    """

    table: pd.DataFrame
    results: list[Result]
    reference: Result

    def save(self, path: Path) -> list[Path]:
        """Write the table as CSV to `path` and, beside it, what it was measured on as JSON; returns both paths."""
        asked = {
            "prompts": len(self.reference.tokens),
            "max_new_tokens": max(self.reference.budgets),
        }
        asked |= {"batch_size": self.results[0].meta["batch_size"]}
        asked |= {
            "num_draft_tokens": max(result.meta["num_draft_tokens"] for result in self.results)
        }
        return save_measured(self.table, conditions(self.reference.meta, **asked), path)

    @property
    def names(self) -> list[str]:
        """The strategies as they are shown: name(options)."""
        options = self.table["options"].map(lambda options: f"({options})" if options else "")
        return list(self.table["strategy"] + options)

    @property
    def telling_prompt(self) -> int:
        """Where the strategies that promise nothing show it: the prompt at which they have soonest all left the reference.

        As far as there is one, a prompt whose reference ends before its budget: small models repeat themselves where they find no end.
        """
        failing = [
            result
            for result, valid in zip(self.results, self.table["valid"], strict=True)
            if not valid
        ]

        def rank(i: int) -> tuple[float, ...]:
            left = max((_leaves(result, self.reference, i) for result in failing), default=0)
            return (
                left == math.inf,
                len(self.reference.tokens[i]) == self.reference.budgets[i],
                left,
            )

        return min(range(len(self.reference.tokens)), key=rank)

    def texts(self, prompt: int) -> dict[str, str]:
        """What the reference and every strategy wrote after a prompt, as `marked` shows it, by name."""
        expected = self.reference.texts[prompt]
        written = {
            name: result.texts[prompt]
            for name, result in zip(self.names, self.results, strict=True)
        }
        return {
            name: marked(text, expected)
            for name, text in {"autoregressive, alone": expected, **written}.items()
        }


def survey(
    pair: Pair,
    prompts: Sequence[Prompt],
    strategies: Sequence[str | Strategy] | None = None,
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    progress: bool = True,
) -> Survey:
    """Run `strategies` (None: all that specviz has, with their variants) on `prompts`, greedily, and say what is right, wasted and wrong.

    Raises:
        ValueError: as `generate`; nothing has run.
    """
    chosen = [
        strategy(each) if isinstance(each, str) else each
        for each in (everything() if strategies is None else strategies)
    ]
    if not chosen:
        raise ValueError("strategies=[] names none; pass at least one, or None for all")

    def run(each: Strategy, record: bool, size: int = batch_size) -> Result:
        return generate(
            pair, prompts, strategy=each, batch_size=size, num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens,
            record=record, progress=False,
        )  # fmt: skip

    reference = run(strategy("autoregressive"), record=True, size=1)
    rows, results = [], []
    for each in tqdm(chosen, desc="survey", unit="strategy", disable=not progress):
        speed = run(each, record=False).summary["tokens_per_s"].item()
        results.append(run(each, record=True))
        rows.append(_row(each, results[-1], reference, pair, speed))
    return Survey(pd.DataFrame(rows), results, reference)


def marked(text: str, expected: str, characters: int = 200) -> str:
    """The text's beginning as a literal, with ‖ where it first departs from the expected one, and … if there is more of it."""
    at = divergence([*map(ord, text)], [*map(ord, expected)])
    shown = text if at is None else f"{text[:at]}‖{text[at:]}"
    return repr(shown[:characters]) + ("…" if len(shown) > characters else "")


def _leaves(result: Result, reference: Result, prompt: int) -> float:
    at = divergence(result.tokens[prompt], reference.tokens[prompt])
    return math.inf if at is None else at


def _row(
    chosen: Strategy, result: Result, reference: Result, pair: Pair, speed: float
) -> dict[str, object]:
    compared = compare(result, reference, pair=pair).summary.iloc[0]
    assert result.trace is not None
    rounds, summary = metrics.rounds(result.trace), result.summary.iloc[0]
    slots = rounds["cache_slots"] * rounds["batch_rows"]
    return {
        "strategy": chosen.name,
        "options": changed_options(chosen) if chosen.name in STRATEGIES else "",
        "valid": chosen.promises,
        "exact_match": compared["exact_match"],
        "partial_match": compared["partial_match"],
        "near_ties": compared["near_ties"],
        "unexplained": compared["unexplained"],
        "first_violation": compared["first_violated"],
        "mean_acceptance_length": summary["mean_acceptance_length"],
        "discarded_tokens": summary["discarded_tokens"],
        "hole_share": np.average(rounds["hole_share"], weights=slots),
        "padding_share": np.average(rounds["padding_share"], weights=slots),
        "realigned_mb": rounds["realigned_bytes"].sum() / 1e6,
        "compacted_mb": rounds["compacted_bytes"].sum() / 1e6,
        "grouping_rate": summary["grouping_rate"],
        "rounds": summary["rounds"],
        "tokens_per_s": speed,
    }
