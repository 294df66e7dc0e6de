"""`check_invariants`: was a recorded run in step in every round? From the record alone, or by running its forwards once more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specviz.checks import invariants
from specviz.checks.ledger import Holding
from specviz.checks.violations import Findings, Violations
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair


def check_invariants(trace: Trace, *, deep: bool = False, pair: "Pair | None" = None) -> Violations:
    """What was out of step in a recorded run: a list of `Violation`s, empty when all invariants hold.

    The first phase that is named holds the cause: they are sorted by round, phase and rule, a rule once for each phase, row and model.
    `print` shows a sentence for each; `.frame()` is a table of them, `.first_per_request()` what went wrong first for each request.

    The rules (`specviz.checks.violations.RULES`) are checked on the record alone, for strategies of your own as for the built-in ones.
    Of sampled runs the record does not hold what the target would have drawn; there "acceptance" says only that accepted drafts are
    emitted as they are, and "bonus" that a rejected draft is not emitted after all. Padding and waste are no violations.

    Args:
        trace: `result.trace` of a run with `record=True`, or a loaded one.
        deep: also feed the recorded tokens through the models again, moves included, and compare the K/V in the slots after each round
            with a fresh prefill of the request's text. Takes about as long as the run, and memory for a second cache.
        pair: the pair of that run, for `deep`.

    Raises:
        ValueError: an argument cannot be used; names it, its value and the remedy.
    """
    if trace is None:
        raise ValueError(
            "trace=None: the run was not recorded; run it again with record=True and pass result.trace"
        )
    if not isinstance(trace, Trace):
        raise ValueError(
            f"trace={type(trace).__name__} is no Trace; pass result.trace of a run with record=True, or Trace.load(path)"
        )
    if deep and pair is None:
        raise ValueError(
            "deep=True runs the models again, and pair=None; pass the pair of that run"
        )
    if pair is not None:
        _check_pair(trace, deep, pair)
    findings, holdings = invariants.check(trace)
    if pair is not None:
        _rerun(trace, pair, holdings, findings)
    return findings.sorted()


def _check_pair(trace: Trace, deep: bool, pair: "Pair") -> None:
    from specviz.engine.models.pair import Pair
    from specviz.generation.generate import model_name

    if not isinstance(pair, Pair):
        raise ValueError(f"pair={type(pair).__name__} is no Pair; pass the pair of that run")
    if not deep:
        raise ValueError(
            "pair is only used to run the models again; pass deep=True with it, or leave it out"
        )
    given = {"target": model_name(pair.target), "vocabulary_size": pair.vocabulary_size}
    given["dtype"] = str(pair.target.dtype).removeprefix("torch.")
    if trace.meta["kv_bytes_per_slot"]["draft"]:
        given["draft"] = model_name(pair.draft)
    for key, value in given.items():
        if trace.meta[key] != value:
            raise ValueError(
                f"pair has {key} {value}, and the record {trace.meta[key]}; pass the pair of that run"
            )


def _rerun(trace: Trace, pair: "Pair", holdings: Sequence[Holding], findings: Findings) -> None:
    """Rule "kv" once more, by the numbers."""
    from specviz.checks.rerun import replay, tolerance

    for deviation in replay(trace, pair, holdings):
        place, j = deviation.place, deviation.which[0]
        dtype = pair.target.dtype if MODELS[place.model] == "target" else pair.draft.dtype
        bound = f"to {tolerance(dtype):.1g} of its norm ({str(dtype).removeprefix('torch.')})"
        words = f"in slot {place.slots[j]} the K/V of index {place.indices[j]} as in a fresh prefill, {bound}"
        found = f"K/V that differs from a fresh prefill by up to {deviation.difference:.2g}, {deviation.error:.2g} of its norm"
        stage = place.round * len(PHASES) + PHASES.index("synchronise")
        slots = place.slots[deviation.which]
        findings.add(
            "kv",
            stage,
            place.row,
            place.request,
            words,
            found,
            model=place.model,
            slots=slots,
            evidence=True,
        )
