"""`compare`: how far two runs wrote the same, and the cause of every difference.

Contract: takes results or records and returns tables. It runs models only if it is given a pair.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from specviz.checks.check import check_invariants, check_pair_made_record
from specviz.checks.equivalence import (
    CAUSES,
    CEILINGS,
    UNEXPLAINED,
    Evidence,
    Outputs,
    divergence,
    doubt_near_ties,
    evidence,
    noise_of_records,
    partial_match,
)
from specviz.checks.scores import TextScores
from specviz.generation.result import Result
from specviz.record.trace import Trace
from specviz.util.text import count
from specviz.util.validate import short

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair

_SAME_PROMPTS = "run both over the same list"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found.

    Lengths are in tokens. Gaps and noise are differences of log-probabilities in natural units, and
    hence also of logits.

    Attributes:
        prompts: one entry per prompt. NA where the outputs are equal, unless said otherwise:
            exact: whether the outputs are equal.
            partial: length of the common prefix / length of the reference, 1.0 for equal outputs.
            first_divergence: index into the new tokens.
            result_token, reference_token: the tokens there; NA where that output has ended.
            gap: from the target's best token there to the lesser of the two.
            noise: the largest measured change of a token's log-probability that a forward's shape
                makes.
            deviation: how far the result's recorded log-probabilities lie from the target's, up to
                there.
            later_gap: how far its later tokens lie below the target's best ones, under its own
                prefix.
            cause: "near tie", "not explained by noise" or "unknown"; "" where there is nothing to
                explain.
            violated: the first invariant that the result's record violates before or there, in the
                whole run where the outputs are equal; "" if none, NA without a record.
            measured_from: "pair" or "records", see `compare`; "" if nothing could be measured.
        summary: one entry: strategy, reference, dtype, batch_size, prompts, exact_match,
            partial_match, divergences, near_ties, unexplained, unknown, largest_gap, noise,
            first_violated (of the whole run; NA without a record), measured_from.
    """

    prompts: pd.DataFrame
    summary: pd.DataFrame

    @property
    def unexplained(self) -> list[int]:
        """The prompts whose divergence noise does not explain: what to look at."""
        return self.prompts.index[self.prompts["cause"] == UNEXPLAINED].tolist()

    @property
    def _headline(self) -> str:
        counts = self.summary.iloc[0]
        return (
            f"Comparison of {counts['strategy']} with {counts['reference']}: "
            f"{counts['exact_match']:.1%} of {count(counts['prompts'], 'prompt')} exact, "
            f"partial match {counts['partial_match']:.1%}; {counts['near_ties']} near ties, "
            f"{counts['unexplained']} not explained by noise, {counts['unknown']} unknown"
        )

    def __repr__(self) -> str:
        table = self.prompts[~self.prompts["exact"]].drop(columns="exact")
        if table.empty:
            return f"<{self._headline}>"
        return f"<{self._headline}>\n{table.to_string(float_format='{:.3g}'.format)}"

    def _repr_html_(self) -> str:
        table = self.prompts.to_html(float_format="{:.3g}".format)
        return f"<p>{escape(self._headline)}</p>{table}"


def compare(
    result: Result | Trace, reference: Result | Trace, *, pair: "Pair | None" = None
) -> Comparison:
    """Compare two runs over the same prompts, token by token, and tell a bug from a rounding error.

    Divergences of greedy runs are explained by the rules of `specviz.checks.equivalence`. These
    need the target's log-probabilities there (gap) and the noise of its forwards. They come
    - from the `pair`, if it is given: plain forwards over the texts, at batch 1 for the gap, and in
      the shapes of both runs (batch size, K + 1 tokens a forward) for the noise. Nothing that the
      runs computed is used for it.
    - else from the records, if both runs have one: the gap from the reference's, the noise from all
      prefixes that both runs have, up to where one of them violates an invariant. A slight bug that
      no invariant sees would count as noise here; with the pair it cannot.
    - else the gap from the reference's record, if it has one. Then the most noise that is believed
      of the dtype (`CEILINGS`) decides what is not explained, and all that lies below is "unknown".

    The forwards of a deterministic run have a fixed shape. The noise between two such runs is
    always taken from the records, and is zero if both have the same shape.

    Sampled runs are compared by their tokens. With coupling="gumbel" equal texts are promised, but
    the gap between perturbed scores is not recorded, so a divergence is "unknown" at best. Other
    sampling promises no equal texts, and no cause is named.

    Args:
        result: from `generate`, or its trace. If it is recorded (`record=True`), its invariants are
            checked as well.
        reference: likewise, the run to trust, such as
            `generate(..., strategy="autoregressive", batch_size=1)`.
        pair: the pair of both runs, in their dtype.

    Raises:
        ValueError: the runs are not of the same prompts, budgets, target and sampling, or the pair
            is another one. Nothing has run then.
    """
    ours, theirs = _outputs("result", result), _outputs("reference", reference)
    _check_same(ours, theirs)
    if pair is not None:
        check_pair_made_record(pair, ours.meta, "result")
        check_pair_made_record(pair, theirs.meta, "reference")
    ats = [divergence(a, b) for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
    diverging = [request for request, at in enumerate(ats) if at is not None]
    ours = _with_violations(ours)
    scores: Mapping[int, TextScores] = {}
    noise = math.nan
    if diverging:
        theirs = _with_violations(theirs)
    # Only greedy choices follow from log-probabilities alone, so only these are measured.
    if diverging and ours.meta["sampling"] is None:
        scores, noise = _measure(ours, theirs, diverging, pair)
    entries = [
        _entry(ours, theirs, request, at, scores.get(request), noise)
        for request, at in enumerate(ats)
    ]
    integers = ("first_divergence", "result_token", "reference_token")
    prompts = pd.DataFrame(entries).astype(dict.fromkeys(integers, "Int64"))
    prompts["cause"] = doubt_near_ties(prompts["cause"], prompts["violated"].fillna(""))
    return Comparison(prompts.rename_axis("prompt"), _summary(ours, theirs, prompts))


def _outputs(name: str, run: Result | Trace) -> Outputs:
    if isinstance(run, Result):
        return Outputs(run.meta, run.prompts, run.budgets, run.tokens, run.trace)
    if not isinstance(run, Trace):
        raise ValueError(
            f"{name} must be a Result or a Trace, got {type(run).__name__}; pass what "
            "specviz.generate returned"
        )
    requests = range(run.num_requests)
    prompts = [run.prompt(request) for request in requests]
    tokens = [run.output(request) for request in requests]
    return Outputs(run.meta, prompts, run.requests["budget"].tolist(), tokens, run)


def _with_violations(run: Outputs) -> Outputs:
    return run if run.trace is None else replace(run, found=check_invariants(run.trace))


def _check_same(result: Outputs, reference: Outputs) -> None:
    """Raise ValueError for the first thing that two comparable runs share and these do not."""
    ours, theirs = len(result.prompts), len(reference.prompts)
    _require_same("the number of prompts", ours, theirs, _SAME_PROMPTS)
    for request in range(ours):
        prompt, other = list(result.prompts[request]), list(reference.prompts[request])
        _require_same(f"prompts[{request}]", prompt, other, _SAME_PROMPTS)
    for request in range(ours):
        name = f"max_new_tokens of prompt {request}"
        budget, other_budget = result.budgets[request], reference.budgets[request]
        _require_same(name, budget, other_budget, "give both the same")
    of_pair = ("target", "vocabulary_size", "eos_token_ids")
    remedies = dict.fromkeys(of_pair, "run both with one pair")
    remedies["sampling"] = "run both with the same sampling"
    if result.meta["sampling"] is not None:
        remedies["seed"] = "run both with the same seed"
    for key, remedy in remedies.items():
        _require_same(key, result.meta[key], reference.meta[key], remedy)


def _require_same(name: str, ours: object, theirs: object, remedy: str) -> None:
    if ours != theirs:
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            same = [key for key in ours if (key, ours[key]) in theirs.items()]
            ours = {key: ours[key] for key in ours if key not in same}
            theirs = {key: theirs[key] for key in theirs if key not in same}
        raise ValueError(
            f"{name} differs: {short(ours)} in result, {short(theirs)} in reference; {remedy}"
        )


def _measure(
    result: Outputs, reference: Outputs, diverging: Sequence[int], pair: "Pair | None"
) -> tuple[Mapping[int, TextScores], float]:
    """Score the diverging prompts' results, if there is a pair, and measure the target's noise."""
    if pair is None:
        return {}, noise_of_records(result, reference)
    # Imported here, so that records can be compared without torch.
    from specviz.checks.noise import measure_noise, score_text

    scores = {}
    for request in diverging:
        text = result.prompts[request], result.tokens[request]
        scores[request] = score_text(pair, text)
    runs = (result, reference)
    if all(run.meta.get("deterministic") for run in runs):
        return scores, noise_of_records(result, reference)
    # Texts that diverge come first, since the sample is taken from the front.
    exact = sorted(set(range(len(reference.tokens))) - set(diverging))
    texts = []
    for request in (*diverging, *exact):
        texts.append((reference.prompts[request], reference.tokens[request]))
    shapes = {(run.meta["batch_size"], run.meta["num_draft_tokens"] + 1) for run in runs}
    return scores, measure_noise(pair, texts, sorted(shapes), diverging=len(diverging))


def _entry(
    result: Outputs,
    reference: Outputs,
    request: int,
    at: int | None,
    scores: TextScores | None,
    noise: float,
) -> dict[str, Any]:
    """Return one prompt's entry of `Comparison.prompts`."""
    ours, theirs = result.tokens[request], reference.tokens[request]
    entry: dict[str, Any] = {
        "exact": at is None,
        "partial": partial_match(ours, theirs),
        "first_divergence": pd.NA,
        "result_token": pd.NA,
        "reference_token": pd.NA,
        "gap": math.nan,
        "noise": math.nan,
        "deviation": math.nan,
        "later_gap": math.nan,
        "cause": "",
        "violated": pd.NA if result.trace is None else result.violated(request, at),
        "measured_from": "",
    }
    if at is None:
        return entry
    entry["first_divergence"] = at
    for name, tokens in (("result_token", ours), ("reference_token", theirs)):
        if at < len(tokens):
            entry[name] = tokens[at]
    found = evidence(result, reference, request, scores)
    entry |= {"gap": found.gap, "deviation": found.deviation, "later_gap": found.later_gap}
    entry |= {"noise": noise, "cause": _cause(found, noise, result, reference)}
    if not math.isnan(found.gap):
        entry["measured_from"] = "records" if scores is None else "pair"
    return entry


def _cause(found: Evidence, noise: float, result: Outputs, reference: Outputs) -> str:
    sampling = result.meta["sampling"]
    if sampling is not None and sampling["coupling"] != "gumbel":
        return ""
    # The coarser of the two dtypes decides how much noise is possible.
    ceilings = [CEILINGS.get(run.meta["dtype"], math.nan) for run in (result, reference)]
    return found.cause(noise, max(ceilings))


def _summary(result: Outputs, reference: Outputs, prompts: pd.DataFrame) -> pd.DataFrame:
    counts = prompts["cause"].value_counts()
    near_ties, unexplained, unknown = (int(counts.get(cause, 0)) for cause in CAUSES)
    entry: dict[str, Any] = {
        "strategy": result.meta["strategy"],
        "reference": reference.meta["strategy"],
        "dtype": result.meta["dtype"],
        "batch_size": result.meta["batch_size"],
        "prompts": len(prompts),
        "exact_match": prompts["exact"].mean(),
        "partial_match": prompts["partial"].mean(),
        "divergences": int((~prompts["exact"]).sum()),
        "near_ties": near_ties,
        "unexplained": unexplained,
        "unknown": unknown,
        "largest_gap": prompts["gap"].max(),
        "noise": prompts["noise"].max(),
        "first_violated": pd.NA if result.trace is None else result.first_violated,
        "measured_from": prompts["measured_from"].max(),
    }
    return pd.DataFrame([entry])
