"""`compare`: how far two runs wrote the same, and the cause of every difference. Runs models only if it is given a pair."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from specviz.checks.check import check_invariants
from specviz.checks.equivalence import (
    CAUSES,
    CEILINGS,
    UNEXPLAINED,
    Evidence,
    Outputs,
    Read,
    divergence,
    evidence,
    noise_of_records,
    partial_match,
    settled,
)
from specviz.generation.result import Result
from specviz.record.trace import Trace

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found. Lengths in tokens; gaps and noise are differences of log-probabilities (natural), hence also of logits.

    Attributes:
        prompts: one entry per prompt:
            exact, partial (length of the common prefix / length of the reference, 1.0 for equal outputs),
            first_divergence (index into the new tokens; NA where the outputs are equal, as is what follows), result_token,
            reference_token (NA where an output has ended),
            gap: from the target's best token there to the lesser of the two,
            noise: the change of a token's log-probability that a forward's shape makes, the largest that was measured,
            deviation: how far the result's recorded log-probabilities lie from the target's, up to there,
            later_gap: how far its later tokens lie below the target's best ones, under its own prefix,
            cause: "near tie", "not explained by noise", "unknown", or "" where there is nothing to explain,
            violated: the first invariant that the result's record violates before or there ("" if none, NA without a record), in
            the whole run where the outputs are equal,
            measured_from: "pair", "records", or "" if nothing could be measured. How it is measured says `compare`.
        summary: one entry: strategy, reference, dtype, batch_size, prompts, exact_match, partial_match, divergences, near_ties,
            unexplained, unknown, largest_gap, noise, first_violated (of the whole run; NA without a record), measured_from.
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
        rates = f"{counts['exact_match']:.1%} of {counts['prompts']} prompts exact, partial match {counts['partial_match']:.1%}"
        causes = f"{counts['near_ties']} near ties, {counts['unexplained']} not explained by noise, {counts['unknown']} unknown"
        return f"Comparison of {counts['strategy']} with {counts['reference']}: {rates}; {causes}"

    def __repr__(self) -> str:
        table = self.prompts[~self.prompts["exact"]].drop(columns="exact")
        return (
            f"<{self._headline}>"
            if table.empty
            else f"<{self._headline}>\n{table.to_string(float_format='{:.3g}'.format)}"
        )

    def _repr_html_(self) -> str:
        return (
            f"<p>{escape(self._headline)}</p>{self.prompts.to_html(float_format='{:.3g}'.format)}"
        )


def compare(
    result: Result | Trace, reference: Result | Trace, *, pair: "Pair | None" = None
) -> Comparison:
    """Compare two runs over the same prompts, token by token, and tell a bug from a rounding error.

    Greedy runs are told apart by the rules of `specviz.checks.equivalence`. Where they part, the target's log-probabilities (gap) and
    the noise of its forwards come
    - from the `pair`, if it is given: plain forwards over the texts, at batch 1 for the gap, and in the shapes of both runs (batch size,
      K + 1 tokens a forward) for the noise; nothing of what the runs computed is used for it;
    - else from the records, if both runs have one: the gap from the reference's, the noise from all prefixes that both runs have, up to
      where one of them violates an invariant. A slight bug that no invariant sees would count as noise here: the pair excludes that;
    - else the gap from the reference's record, if it has one. Then the most noise that is believed of the dtype (`CEILINGS`)
      decides what is not explained, and all that lies below is "unknown".
    Two deterministic runs had their forwards in shapes of their own, so their noise is always that of the records: none, if one shape.
    Sampled runs are compared by their tokens. With coupling="gumbel" equal texts are promised, but the gap between perturbed scores is
    not recorded, so that a divergence is "unknown" at best; other sampling promises no equal texts, and no cause is named.

    Args:
        result: from `generate`, or its trace; if it is recorded (`record=True`), its invariants are checked as well.
        reference: likewise, the run to be trusted: `generate(..., strategy="autoregressive", batch_size=1)`.
        pair: the pair of both runs, in their dtype.

    Raises:
        ValueError: the runs are not of the same prompts, budgets, target and sampling, or the pair is another one; nothing has run.
    """
    ours, theirs = _outputs("result", result), _outputs("reference", reference)
    _check_same(ours, theirs)
    if pair is not None:
        _check_pair(pair, ours, theirs)
    ats = [divergence(a, b) for a, b in zip(ours.tokens, theirs.tokens, strict=True)]
    diverging = [request for request, at in enumerate(ats) if at is not None]
    ours, theirs = _checked(ours), _checked(theirs) if diverging else theirs
    read, noise = (
        _measure(ours, theirs, diverging, pair)
        if diverging and ours.meta["sampling"] is None
        else ({}, math.nan)
    )
    entries = [
        _entry(ours, theirs, request, at, read.get(request), noise)
        for request, at in enumerate(ats)
    ]
    prompts = pd.DataFrame(entries).astype(
        dict.fromkeys(("first_divergence", "result_token", "reference_token"), "Int64")
    )
    prompts["cause"] = settled(prompts["cause"], prompts["violated"].fillna(""))
    return Comparison(prompts.rename_axis("prompt"), _summary(ours, theirs, prompts))


def _outputs(name: str, run: Result | Trace) -> Outputs:
    if isinstance(run, Result):
        return Outputs(run.meta, run.prompts, run.budgets, run.tokens, run.trace)
    if not isinstance(run, Trace):
        raise ValueError(
            f"{name}={type(run).__name__} is neither a Result nor a Trace; pass what specviz.generate returned"
        )
    prompts, tokens = (
        [of(request) for request in range(run.num_requests)] for of in (run.prompt, run.output)
    )
    return Outputs(run.meta, prompts, run.requests["budget"].tolist(), tokens, run)


def _checked(run: Outputs) -> Outputs:
    return run if run.trace is None else replace(run, found=check_invariants(run.trace))


def _check_same(result: Outputs, reference: Outputs) -> None:
    """Raise ValueError for the first thing that two comparable runs share and these do not."""
    ours, theirs = len(result.prompts), len(reference.prompts)
    _require_same("the number of prompts", ours, theirs, "run both over the same list")
    for request in range(ours):
        _require_same(
            f"prompts[{request}]",
            list(result.prompts[request]),
            list(reference.prompts[request]),
            "run both over the same list",
        )
    for request in range(ours):
        _require_same(
            f"max_new_tokens of prompt {request}",
            result.budgets[request],
            reference.budgets[request],
            "give both the same",
        )
    for key in ("target", "vocabulary_size", "eos_token_ids"):
        _require_same(key, result.meta[key], reference.meta[key], "run both with one pair")
    _require_same(
        "sampling",
        result.meta["sampling"],
        reference.meta["sampling"],
        "run both with the same sampling",
    )
    if result.meta["sampling"] is not None:
        _require_same(
            "seed", result.meta["seed"], reference.meta["seed"], "run both with the same seed"
        )


def _require_same(name: str, ours: object, theirs: object, remedy: str) -> None:
    if ours != theirs:
        raise ValueError(
            f"{name} differs: {_short(ours)} in result, {_short(theirs)} in reference; {remedy}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _check_pair(pair: "Pair", result: Outputs, reference: Outputs) -> None:
    from specviz.engine.models.pair import Pair
    from specviz.generation.generate import model_name

    if not isinstance(pair, Pair):
        raise ValueError(
            f"pair={type(pair).__name__} is no Pair; pass the pair that both runs used, or None"
        )
    given = {
        "target": model_name(pair.target),
        "vocabulary_size": pair.vocabulary_size,
        "dtype": str(pair.target.dtype).removeprefix("torch."),
    }
    for name, run in (("result", result), ("reference", reference)):
        for key, value in given.items():
            if run.meta[key] != value:
                raise ValueError(
                    f"pair has {key} {value}, {name} was run with {run.meta[key]}; pass the pair that both runs used, or None"
                )


def _measure(
    result: Outputs, reference: Outputs, diverging: Sequence[int], pair: "Pair | None"
) -> tuple[Mapping[int, Read], float]:
    """What the target says of the diverging prompts' results, if there is a pair, and the noise of its forwards."""
    if pair is None:
        return {}, noise_of_records(result, reference)
    from specviz.checks.noise import measure_noise, read

    exact = sorted(set(range(len(reference.tokens))) - set(diverging))
    texts = [
        (reference.prompts[request], reference.tokens[request]) for request in (*diverging, *exact)
    ]
    shapes = sorted(
        {(run.meta["batch_size"], run.meta["num_draft_tokens"] + 1) for run in (result, reference)}
    )
    said = {
        request: read(pair, (result.prompts[request], result.tokens[request]))
        for request in diverging
    }
    fixed = all(run.meta.get("deterministic") for run in (result, reference))
    return said, noise_of_records(result, reference) if fixed else measure_noise(
        pair, texts, shapes
    )


def _entry(
    result: Outputs,
    reference: Outputs,
    request: int,
    at: int | None,
    read: Read | None,
    noise: float,
) -> dict[str, Any]:
    """One prompt's entry of `Comparison.prompts`."""
    ours, theirs = result.tokens[request], reference.tokens[request]
    entry = {
        "exact": at is None,
        "partial": partial_match(ours, theirs),
        "first_divergence": pd.NA if at is None else at,
    }
    for name, tokens in (("result_token", ours), ("reference_token", theirs)):
        entry[name] = pd.NA if at is None or at >= len(tokens) else tokens[at]
    found = None if at is None else evidence(result, reference, request, read)
    gap, deviation, later_gap = (
        (math.nan,) * 3 if found is None else (found.gap, found.deviation, found.later_gap)
    )
    entry |= {
        "gap": gap,
        "noise": math.nan if found is None else noise,
        "deviation": deviation,
        "later_gap": later_gap,
    }
    entry["cause"] = "" if found is None else _cause(found, noise, result, reference)
    entry["violated"] = pd.NA if result.trace is None else result.violated(request, at)
    entry["measured_from"] = "" if math.isnan(gap) else "records" if read is None else "pair"
    return entry


def _cause(found: Evidence, noise: float, result: Outputs, reference: Outputs) -> str:
    sampling = result.meta["sampling"]
    if sampling is not None and sampling["coupling"] != "gumbel":
        return ""
    return found.cause(
        noise, max(CEILINGS.get(run.meta["dtype"], math.nan) for run in (result, reference))
    )


def _summary(result: Outputs, reference: Outputs, prompts: pd.DataFrame) -> pd.DataFrame:
    counts = prompts["cause"].value_counts()
    entry: dict[str, Any] = {
        "strategy": result.meta["strategy"],
        "reference": reference.meta["strategy"],
    }
    entry |= {
        "dtype": result.meta["dtype"],
        "batch_size": result.meta["batch_size"],
        "prompts": len(prompts),
    }
    entry |= {"exact_match": prompts["exact"].mean(), "partial_match": prompts["partial"].mean()}
    entry["divergences"] = int((~prompts["exact"]).sum())
    entry |= {
        name: int(counts.get(cause, 0))
        for name, cause in zip(("near_ties", "unexplained", "unknown"), CAUSES, strict=True)
    }
    entry |= {"largest_gap": prompts["gap"].max(), "noise": prompts["noise"].max()}
    entry["first_violated"] = pd.NA if result.trace is None else result.first_violated
    entry["measured_from"] = prompts["measured_from"].max()
    return pd.DataFrame([entry])
