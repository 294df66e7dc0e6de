"""`compare`: how far two runs wrote the same, and the cause of every difference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from specviz.checks.audit.duo import EQUAL, PARTED, Duo
from specviz.checks.audit.output import Output
from specviz.checks.audit.reading import read_run, texts_of
from specviz.checks.check import check_pair_made_record
from specviz.checks.equivalence import (
    CAUSES,
    CEILINGS,
    TARGET,
    UNEXPLAINED,
    Evidence,
    divergence,
    judge_all,
    partial_match,
)
from specviz.checks.evidence import examine, noise_of, noise_of_target
from specviz.generation.result import Result
from specviz.record.trace import Trace
from specviz.util.text import count
from specviz.util.validate import short

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair

_JUST_ENDS = "one text ends where the other goes on"
_CUT = "a run was interrupted there"
_DRAWN = "the records do not show what was drawn"


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
    - else from the records, if both runs have one: the gap is the larger of both, the noise that of
      all prefixes that both runs have, up to where one of them violates an invariant, if these are
      16 tokens or more. A slight bug that no invariant sees would count as noise here; with the
      pair it cannot.
    - else the gap from the only record, if there is one. Then the most noise that is believed of
      the dtype (`CEILINGS`) decides what is not explained, and all that lies below is "unknown".

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
    for name, run in (("result", result), ("reference", reference)):
        if not isinstance(run, Result | Trace):
            raise ValueError(
                f"{name} must be a Result or a Trace, got {type(run).__name__}; pass what "
                "specviz.generate returned"
            )
    _check_same(result, reference)
    if pair is not None:
        if result.meta.get("logits_processor"):
            raise ValueError(
                "pair reads scores that are not processed, and the runs have logits_processor="
                f"{short(result.meta['logits_processor'])}; leave pair out"
            )
        check_pair_made_record(pair, result.meta, "result")
        check_pair_made_record(pair, reference.meta, "reference")
    judged = judge_runs(result, reference, pair)
    is_recorded = isinstance(result, Trace) or result.trace is not None
    entries = []
    for duo, known, cause in zip(judged.duos, judged.known, judged.causes, strict=True):
        found, output, at = known or Evidence(), duo.candidate, duo.at
        is_of_pair = found.measured_from == TARGET
        violated = output.violated if at is None else output.violated_at(at)
        entry = {
            "exact": at is None,
            "partial": partial_match(duo.ours, duo.theirs),
            "first_divergence": at,
            "result_token": duo.parting[0],
            "reference_token": duo.parting[1],
            "gap": found.gap,
            "noise": math.nan if known is None else judged.noise,
            "deviation": found.deviation,
            "later_gap": found.later_gap if is_of_pair else math.nan,
            "cause": cause,
            "violated": violated if is_recorded else pd.NA,
            "measured_from": "pair" if is_of_pair else found.measured_from and "records",
        }
        entries.append(entry)
    integers = ("first_divergence", "result_token", "reference_token")
    prompts = pd.DataFrame(entries).astype(dict.fromkeys(integers, "Int64"))
    first_violated = judged.first_violated if is_recorded else pd.NA
    summary = _summary(result.meta, reference.meta, prompts, first_violated)
    return Comparison(prompts.rename_axis("prompt"), summary)


class Judged(NamedTuple):
    """What is known of a run against another, by prompt; `known` is None where texts are equal.

    causes: "" for equal texts, and where sampling promises no equal texts.
    first_violated: the first invariant that the run violates, "" if none.
    """

    duos: list[Duo]
    known: list[Evidence | None]
    causes: list[str]
    noise: float
    first_violated: str


def judge_runs(
    result: Result | Trace, reference: Result | Trace, pair: "Pair | None" = None
) -> Judged:
    """Judge the divergences of a run from another one of the same prompts; see `compare`."""
    ours = theirs = read_run("result", result)
    if any(a[1] != b[1] for a, b in zip(texts_of(result), texts_of(reference), strict=True)):
        theirs = read_run("reference", reference)
    sampling, noise = result.meta["sampling"], math.nan
    pairs = zip(theirs.outputs, ours.outputs, strict=True)
    duos = [_duo(*each, is_greedy=sampling is None) for each in pairs]
    known = [examine(duo, pair, trusts_reference=True) for duo in duos]
    # Only greedy choices follow from log-probabilities alone, so only these are measured.
    if sampling is None and any(known):
        is_fixed = all(run.meta.get("deterministic") for run in (result, reference))
        if pair is None or is_fixed:
            noise = noise_of(duos)
        else:
            noise = noise_of_target(pair, duos, (ours.shape(), theirs.shape()))
    # The coarser of the two dtypes decides how much noise is possible.
    ceiling = max(CEILINGS.get(run.meta["dtype"], math.nan) for run in (result, reference))
    causes = [cause for cause, _ in judge_all(known, noise, ceiling)]
    if sampling is not None and sampling["coupling"] != "gumbel":
        causes = [""] * len(causes)
    return Judged(duos, known, causes, noise, ours.first_violated)


def _duo(reference: Output, result: Output, is_greedy: bool) -> Duo:
    ours, theirs = result.token_ids or (), reference.token_ids or ()
    at = divergence(ours, theirs)
    known = Evidence()
    if at == min(len(ours), len(theirs)):
        shorter = result if at == len(ours) else reference
        known = Evidence(unjudged=_CUT) if shorter.is_cut else Evidence(fault=_JUST_ENDS)
    elif at is not None and not is_greedy:
        known = Evidence(unjudged=_DRAWN)
    how = EQUAL if at is None else PARTED
    return Duo(reference, result, result.prompt_ids, ours, theirs, how, at, known=known)


def _check_same(result: Result | Trace, reference: Result | Trace) -> None:
    """Raise ValueError for the first thing that two comparable runs share and these do not."""
    ours, theirs = texts_of(result), texts_of(reference)
    same_list = "run both over the same list"
    _require_same("the number of prompts", len(ours), len(theirs), same_list)
    for i in range(len(ours)):
        _require_same(f"prompts[{i}]", list(ours[i][0]), list(theirs[i][0]), same_list)
    for i in range(len(ours)):
        name = f"max_new_tokens of prompt {i}"
        _require_same(name, ours[i][2], theirs[i][2], "give both the same")
    remedies = dict.fromkeys(
        ("target", "vocabulary_size", "eos_token_ids"), "run both with one pair"
    )
    remedies["sampling"] = "run both with the same sampling"
    if result.meta["sampling"] is not None:
        remedies["seed"] = "run both with the same seed"
    for key, remedy in remedies.items():
        _require_same(key, result.meta[key], reference.meta[key], remedy)
    for key in ("logits_processor", "stop"):
        remedy = f"run both with the same {key}"
        _require_same(key, result.meta.get(key), reference.meta.get(key), remedy)


def _require_same(name: str, ours: object, theirs: object, remedy: str) -> None:
    if ours != theirs:
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            same = [key for key in ours if (key, ours[key]) in theirs.items()]
            ours = {key: ours[key] for key in ours if key not in same}
            theirs = {key: theirs[key] for key in theirs if key not in same}
        raise ValueError(
            f"{name} differs: {short(ours)} in result, {short(theirs)} in reference; {remedy}"
        )


def _summary(
    result: Mapping[str, Any], reference: Mapping[str, Any], prompts: pd.DataFrame, violated: object
) -> pd.DataFrame:
    counts = prompts["cause"].value_counts()
    near_ties, unexplained, unknown = (int(counts.get(cause, 0)) for cause in CAUSES)
    entry: dict[str, Any] = {
        "strategy": result["strategy"],
        "reference": reference["strategy"],
        "dtype": result["dtype"],
        "batch_size": result["batch_size"],
        "prompts": len(prompts),
        "exact_match": prompts["exact"].mean(),
        "partial_match": prompts["partial"].mean(),
        "divergences": int((~prompts["exact"]).sum()),
        "near_ties": near_ties,
        "unexplained": unexplained,
        "unknown": unknown,
        "largest_gap": prompts["gap"].max(),
        "noise": prompts["noise"].max(),
        "first_violated": violated,
        "measured_from": prompts["measured_from"].max(),
    }
    return pd.DataFrame([entry])
