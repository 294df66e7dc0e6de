"""`check_invariants`: was a recorded run in step in every round?

Contract: judges the record alone, or also runs the record's forwards once more with its pair. Not
known here: the rules themselves.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specviz.checks import invariants
from specviz.checks.ledger import ExpectedKV
from specviz.checks.table import RoundTable
from specviz.checks.unchecked import unchecked
from specviz.checks.violations import Findings, Violations
from specviz.record.schema import MISSING, MODELS, PHASES, Array, missing_in
from specviz.record.trace import Trace
from specviz.util.validate import require_bool, require_kind

if TYPE_CHECKING:
    from torch import Tensor

    from specviz.engine.models.pair import Pair


def check_invariants(trace: Trace, *, deep: bool = False, pair: "Pair | None" = None) -> Violations:
    """Find what was out of step in a recorded run.

    The rules (`specviz.checks.violations.RULES`) are checked on the record alone, for your own
    strategies as for the built-in ones. Padding and waste are not violations.

    What the target would have drawn in a sampled run follows from the header's seed, as far as the
    recorded candidates decide it. Where they do not, "acceptance" only says that accepted drafts
    are emitted as they are, and "bonus" that a rejected draft is not emitted. docs/debug.md
    says what no record shows.

    Args:
        trace: `result.trace` of a run with `record=True`, or a loaded one.
        deep: also feed the recorded tokens through the models again, moves included. The K/V in
            the slots after each round is compared with a fresh prefill of the request's text, and
            the candidates, choices and draws with the logits. This takes about as long as the run,
            and memory for a second cache.
        pair: the pair of that run, for `deep`.

    Returns:
        A list of `Violation`s, empty when all invariants hold. It is sorted by round, phase and
        rule, so the first phase that it names holds the cause; a rule occurs once for each phase,
        row and model. `print` shows a sentence for each, and what a log of another engine lacks to
        check the rest, which is `.unchecked`. `.frame()` is a table of them, and
        `.first_per_request()` is what went wrong first for each request.

    Raises:
        ValueError: an argument cannot be used; names it, its value and the remedy.
    """
    _check_trace(trace)
    require_bool("deep", deep)
    if pair is not None:
        _check_pair(pair)
    if deep and pair is None:
        raise ValueError(
            "deep=True runs the models again, so it needs a pair; pass that run's pair"
        )
    if pair is not None and not deep:
        raise ValueError("pair is used with deep=True only; pass deep=True too, or leave pair out")
    if deep:
        _check_complete(trace)
    if pair is not None:
        has_draft_model = bool(trace.meta["kv_bytes_per_slot"]["draft"])
        check_pair_made_record(pair, trace.meta, "the record", with_draft=has_draft_model)
    findings, forwards = invariants.check(trace)
    if pair is not None:
        _check_kv(trace, pair, forwards.expected_kv(), findings)
    left_open = unchecked(trace.meta)
    if pair is not None and trace.meta.get("logits_processor"):
        left_open.append(
            "acceptance, bonus, drafts, scores (against the models): logits were processed"
        )
    return findings.sorted(left_open)


def _check_trace(trace: object) -> None:
    if trace is None:
        raise ValueError(
            "trace=None: the run was not recorded; run it again with record=True and pass "
            "result.trace, or that of each of result.lanes"
        )
    remedy = "pass result.trace of a run with record=True, or Trace.load(path)"
    require_kind("trace", trace, Trace, remedy)


def _check_complete(trace: Trace) -> None:
    """Raise ValueError unless the record says all that forwards are computed from."""
    parts = ("feeds.target", "positions", "slots", "visible", "moves")
    lacking = [
        name for name in MISSING if name.startswith(parts) and name in missing_in(trace.meta)
    ]
    if lacking:
        raise ValueError(
            "deep=True feeds the record through the models again, but trace is of a log without "
            f"{MISSING[lacking[0]]}; leave deep out"
        )


def _check_pair(pair: object) -> None:
    from specviz.engine.models.pair import Pair

    require_kind("pair", pair, Pair, "pass that run's pair")


def check_pair_made_record(
    pair: "Pair", meta: Mapping[str, Any], name: str, *, with_draft: bool = False
) -> None:
    """Raise ValueError unless `pair` is the one that a run was made with.

    Args:
        pair: any object that a caller passed as a pair.
        meta: of the run's record or result.
        name: what the error calls that run.
        with_draft: whether the draft model has to be the same one, too.
    """
    from specviz.generation.assemble import draft_name, model_name

    _check_pair(pair)
    given = {
        "target": model_name(pair.target),
        "vocabulary_size": pair.vocabulary_size,
        "dtype": str(pair.target.dtype).removeprefix("torch."),
    }
    if with_draft:
        given["draft"] = draft_name(pair, meta)
    for key, value in given.items():
        if meta[key] != value:
            raise ValueError(
                f"pair has {key} {value}, but {name} was made with {meta[key]}; "
                "pass that run's pair"
            )


def _check_kv(
    trace: Trace, pair: "Pair", expected_kv: Sequence[ExpectedKV], findings: Findings
) -> None:
    """Check rule "kv" by the numbers: compare with K/V that the models compute again."""
    import torch

    from specviz.checks.rerun import rerun, tolerance
    from specviz.checks.rescore import Rescored

    # Tokens are chosen from float32, also those of float64 models.
    slack = max(tolerance(pair.target.dtype), tolerance(torch.float32))
    rescored = Rescored(RoundTable(trace, findings))

    is_processed = bool(trace.meta.get("logits_processor"))

    def listen(model: int, feeds: Array, logits: "Tensor") -> None:
        if not is_processed:
            rescored.add(model, feeds, logits, slack)

    for deviation in rerun(trace, pair, expected_kv, listen):
        place, j = deviation.place, deviation.which[0]
        dtype = pair.target.dtype if MODELS[place.model] == "target" else pair.draft.dtype
        expected = (
            f"slot {place.slots[j]} should hold the K/V of index {place.indices[j]} as a fresh "
            f"prefill computes it, to {tolerance(dtype):.1g} of its norm "
            f"({str(dtype).removeprefix('torch.')})"
        )
        found = (
            f"it differs from a fresh prefill by up to {deviation.difference:.2g}, "
            f"{deviation.error:.2g} of its norm"
        )
        findings.add(
            "kv",
            place.round * len(PHASES) + PHASES.index("synchronise"),
            place.row,
            place.request,
            expected,
            found,
            model=place.model,
            slots=place.slots[deviation.which],
            evidence=True,
        )
    rescored.finish(slack)
