"""`specviz study survey`: every way to handle raggedness, valid or not, on the same prompts.

For each strategy: is its text right, which invariant breaks first, what does it waste, what does
it cost? Each strategy runs twice: unrecorded for its speed, recorded for the rest.
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
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import check_pair
from specviz.engine.strategies import STRATEGIES, Strategy, changed_options, everything, strategy
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.util.files import conditions, save_measured
from specviz.util.validate import (
    is_list,
    require_bool,
    require_int,
    require_list,
    require_path,
    require_str,
)


@dataclass(frozen=True)
class Survey:
    """What `survey` found.

    Attributes:
        table: one entry per strategy. strategy; options (those that are not the default); valid
            (what it promises); exact_match and partial_match (against autoregressive decoding at
            batch 1); near_ties; unexplained; first_violation (rule and round, "" if none);
            mean_acceptance_length; discarded_tokens (verified and thrown away); hole_share and
            padding_share (of the slots up to the rows' last tokens, over all rounds);
            realigned_mb and compacted_mb (K/V copied to realign rows, and from row to row);
            grouping_rate; rounds; tokens_per_s (of one unrecorded run, so no benchmark).
        results: the recorded runs, in the same order.
        reference: the recorded run that they are compared with.
    """

    table: pd.DataFrame
    results: list[Result]
    reference: Result

    def save(self, path: str | Path) -> list[Path]:
        """Write the table to `path` and its conditions to .json next to it; return both paths.

        Raises WriteError.
        """
        path = require_path("path", path)
        settings = {
            "prompts": len(self.reference.tokens),
            "max_new_tokens": max(self.reference.budgets),
            "batch_size": self.results[0].meta["batch_size"],
            "num_draft_tokens": max(result.meta["num_draft_tokens"] for result in self.results),
        }
        return save_measured(self.table, conditions(self.reference.meta, **settings), path)

    @property
    def names(self) -> list[str]:
        """The strategies as they are shown: name(options)."""
        options = self.table["options"].map(lambda options: f"({options})" if options else "")
        return list(self.table["strategy"] + options)

    @property
    def telling_prompt(self) -> int:
        """The prompt on which all invalid strategies diverge from the reference earliest.

        A prompt whose reference ends before its budget is preferred, since small models repeat
        themselves where they find no end.
        """
        failing = []
        for result, valid in zip(self.results, self.table["valid"], strict=True):
            if not valid:
                failing.append(result)

        def rank(prompt: int) -> tuple[bool, bool, float]:
            reference = self.reference
            left = [_left_at(result, reference, prompt) for result in failing]
            last = max(left, default=0)
            full = len(reference.tokens[prompt]) == reference.budgets[prompt]
            return last == math.inf, full, last

        return min(range(len(self.reference.tokens)), key=rank)

    def texts(self, prompt: int) -> dict[str, str]:
        """Return what the reference and every strategy wrote after a prompt, as `marked` shows it.

        Raises ValueError if there is no such prompt.
        """
        require_int("prompt", prompt, 0, maximum=len(self.reference.texts) - 1)
        expected = self.reference.texts[prompt]
        shown = {"autoregressive, alone": marked(expected, expected)}
        for name, result in zip(self.names, self.results, strict=True):
            shown[name] = marked(result.texts[prompt], expected)
        return shown


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
    """Run `strategies` greedily on `prompts`. None stands for all strategies and their variants.

    Raises:
        ValueError: as `generate`; nothing has run.
    """
    require_bool("progress", progress)
    chosen = _chosen(strategies)
    check_pair(pair)
    require_int("batch_size", batch_size)
    make_requests(pair, prompts, max_new_tokens, require_int("num_draft_tokens", num_draft_tokens))

    def run(each: Strategy, record: bool, size: int = batch_size) -> Result:
        return generate(
            pair,
            prompts,
            strategy=each,
            batch_size=size,
            num_draft_tokens=num_draft_tokens,
            max_new_tokens=max_new_tokens,
            record=record,
            progress=False,
        )

    reference = run(strategy("autoregressive"), record=True, size=1)
    entries = []
    results = []
    for each in tqdm(chosen, desc="survey", unit="strategy", disable=not progress):
        speed = run(each, record=False).summary["tokens_per_s"].item()
        result = run(each, record=True)
        results.append(result)
        entries.append(_entry(each, result, reference, pair, speed))
    return Survey(pd.DataFrame(entries), results, reference)


def _chosen(strategies: Sequence[str | Strategy] | None) -> list[Strategy]:
    if strategies is None:
        return everything()
    if is_list(strategies) and not strategies:
        raise ValueError("strategies must name at least one, got []; pass names, or None for all")
    require_list("strategies", strategies)
    return [Options(strategy=each).make_strategy() for each in strategies]


def marked(text: str, expected: str, characters: int = 200) -> str:
    """Return the beginning of `text` as a literal, with ‖ where it leaves `expected`.

    A … at the end says that there is more of it.
    """
    require_str("text", text)
    require_str("expected", expected)
    require_int("characters", characters)
    at = divergence([*map(ord, text)], [*map(ord, expected)])
    shown = text if at is None else f"{text[:at]}‖{text[at:]}"
    return repr(shown[:characters]) + ("…" if len(shown) > characters else "")


def _left_at(result: Result, reference: Result, prompt: int) -> float:
    """Return the first token at which a result differs from the reference, infinity without one."""
    at = divergence(result.tokens[prompt], reference.tokens[prompt])
    return math.inf if at is None else at


def _entry(
    chosen: Strategy, result: Result, reference: Result, pair: Pair, speed: float
) -> dict[str, object]:
    assert result.trace is not None
    compared = compare(result, reference, pair=pair).summary.iloc[0]
    summary = result.summary.iloc[0]
    rounds = metrics.rounds(result.trace)
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
