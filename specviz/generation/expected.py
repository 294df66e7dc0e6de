"""What a drafter reaches on given prompts, to compare the counters of a server with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from specviz import metrics
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.generation.generate import generate
from specviz.util.validate import is_finite, require_int, short


@dataclass(frozen=True)
class ExpectedAcceptance:
    """What a drafter reaches in greedy decoding, from `expected_acceptance`.

    Attributes:
        drafter, num_draft_tokens: its name, and K.
        mean_acceptance_length: 1 + accepted drafts a round, the bonus included.
        interval: in which 95 % of bootstrap samples of the prompts have that length.
        draft_acceptance_rate: accepted / drafted.
        rates: unconditional acceptance at positions 1..K.
        rounds, prompts: how many there were; rounds of all rows.
    """

    drafter: str
    num_draft_tokens: int
    mean_acceptance_length: float
    interval: tuple[float, float]
    draft_acceptance_rate: float
    rates: tuple[float, ...]
    rounds: int
    prompts: int

    def frame(self, measured: Any = None) -> pd.DataFrame:
        """Return one entry a figure: figure, expected, low and high (the interval's ends, or NaN).

        Args:
            measured: the `Counters` of a server, or a mean acceptance length with the bonus. It
                adds the columns measured and verdict: the length is "within" the interval, "below"
                or "above". That of as few other prompts is outside in one of six cases by chance.

        Raises:
            ValueError: `measured` is no such length, or was measured with another K.
        """
        names = ["mean_acceptance_length", "draft_acceptance_rate"]
        expected = [getattr(self, name) for name in names] + list(self.rates)
        figures = names + [f"acceptance at position {i + 1}" for i in range(len(self.rates))]
        low, high = self.interval
        columns = {"figure": figures, "expected": expected, "low": np.nan, "high": np.nan}
        table = pd.DataFrame(columns)
        table.loc[0, ["low", "high"]] = low, high
        if measured is None:
            return table
        length = getattr(measured, names[0], measured)
        if not is_finite(length) or length < 1:
            raise ValueError(
                f"measured must be a mean acceptance length >= 1, got {short(measured)}; pass "
                "counters, or a length with the bonus"
            )
        drafts = getattr(measured, "num_draft_tokens", None) or self.num_draft_tokens
        if drafts != self.num_draft_tokens:
            raise ValueError(
                f"measured must have K = {self.num_draft_tokens} drafts a round, got {drafts}; "
                f"call expected_acceptance with num_draft_tokens={drafts}"
            )
        if (rates := getattr(measured, "rates", None)) is None:
            rates = [np.nan] * len(self.rates)
        verdict = "below" if length < low else "above" if length > high else "within"
        table["measured"] = [length, getattr(measured, names[1], np.nan), *rates]
        return table.assign(verdict=[verdict] + [""] * (len(table) - 1))

    def __str__(self) -> str:
        head = f"drafter {self.drafter}, K = {self.num_draft_tokens}, {self.prompts} prompts"
        return f"{head}\n{self.frame().round(3).to_string(index=False, na_rep='')}"


def expected_acceptance(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    drafter: str | Drafter = "model",
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    batch_size: int = 8,
    progress: bool = True,
) -> ExpectedAcceptance:
    """Decode `prompts` greedily, and return what the drafter reaches on them.

    A server that decodes such prompts greedily with the same models and K has to reach the same,
    whatever its batch size. Arguments and errors are those of `generate`.

    Raises:
        ValueError: `num_draft_tokens` is no int >= 1, or fewer than two prompts took part.
    """
    require_int("num_draft_tokens", num_draft_tokens)
    result = generate(
        pair, prompts, drafter=drafter, num_draft_tokens=num_draft_tokens, batch_size=batch_size,
        max_new_tokens=max_new_tokens, progress=progress,
    )  # fmt: skip
    table, total = metrics.requests(result), result.summary.iloc[0]
    if len(table) < 2:
        raise ValueError(
            f"prompts must be two or more, got {len(table)} that took part; pass more prompts"
        )
    rounds = table["rounds"].to_numpy()
    accepted = np.rint(rounds * (table["mean_acceptance_length"] - 1).to_numpy())
    drawn = bootstrap(
        (accepted, rounds), lambda parts, wholes, axis: 1 + parts.sum(axis) / wholes.sum(axis),
        paired=True, n_resamples=2_000, method="percentile", rng=np.random.default_rng(0),
    )  # fmt: skip
    low, high = drawn.confidence_interval
    return ExpectedAcceptance(
        drafter=total["drafter"], num_draft_tokens=num_draft_tokens,
        interval=(float(low), float(high)), rounds=int(rounds.sum()), prompts=len(table),
        mean_acceptance_length=float(total["mean_acceptance_length"]),
        draft_acceptance_rate=float(total["draft_acceptance_rate"]),
        rates=tuple(metrics.acceptance(result)["acceptance"].tolist()),
    )  # fmt: skip
