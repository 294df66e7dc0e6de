"""`audit`: judge the outputs of anybody's decoder against a reference.

Contract: reads two sets of outputs and returns a report. A model runs only if a target is given,
and only where the texts part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from specviz.checks.audit.duo import EQUAL, PARTED, Duo
from specviz.checks.audit.ends import Endings
from specviz.checks.audit.notes import notes_on
from specviz.checks.audit.pairing import pair_up, with_prompts
from specviz.checks.audit.reading import OutputSet, read_outputs
from specviz.checks.audit.report import UNEXPLAINED, Audit
from specviz.checks.audit.statistics import against_control
from specviz.checks.audit.tables import make_prompts, make_totals
from specviz.checks.equivalence import CEILINGS, LOOSEST, Evidence, judge_all, largest_gap
from specviz.checks.equivalence import UNEXPLAINED as BEYOND_NOISE
from specviz.checks.evidence import force, noise_of, weigh
from specviz.util.validate import require_choice, require_int, short

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specviz.checks.audit.target import Target

PROCESSED = "the target's generation_config asks for processed scores, which are not computed here"


def audit(
    reference: Any,
    candidate: Any,
    target: Any = None,
    control: Any = None,
    *,
    prompts: Any = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
) -> Audit:
    """Judge a candidate's greedy outputs against a reference's, prompt by prompt.

    Each side is the path of a file, a list of outputs, a `Result` or a `Trace`. An output is a dict
    of a layout in docs/debug.md, a list of token ids, or a text.

    With a target, both texts of each divergence are read by plain forwards of transformers (teacher
    forcing). A divergence is a near tie if both tokens lie within twice the noise of the target's
    best one, and all later tokens of the candidate too, under its own prefix. It is not judged if
    the reference is not what the target writes, or if what the target asks of `generate` changes
    its scores. An end counts as a token, EOS, unless a stated budget explains it. The noise is the
    largest change of a log-probability that the shapes of these forwards make, or that there is
    between reference and control. Without a target, the log-probabilities that came with the
    outputs take its place, and the report says what they cannot tell.

    Args:
        reference: the outputs to trust.
        candidate: the outputs to judge, of the same prompts in the same order.
        target: a folder or hub id, a `Pair`, or a transformers model.
        control: outputs of the reference's decoder in another batch. The report says whether the
            candidate diverges from the reference more often than they do.
        prompts: texts or lists of token ids, for outputs that name none.
        tokenizer: of a target that is a model in memory, if outputs are texts.
        device, dtype: of a target that is loaded, as for `load_pair`. Without a target, the dtype
            of the runs, which decides how much noise is believed.
        batch_size, num_draft_tokens: B and K of the candidate's run, the shapes in which the noise
            is measured. A `Result` or a `Trace` brings its own.

    Raises:
        ValueError: an output cannot be read, the sides are not of the same prompts, or the target
            has another vocabulary; or as `load_pair`.
        FileNotFoundError: a file or folder does not exist.
        TypeError: the target is not a model.
    """
    require_int("batch_size", batch_size)
    require_int("num_draft_tokens", num_draft_tokens, 0)
    if dtype is not None:
        require_choice("dtype", dtype, CEILINGS)
    roles = {"reference": reference, "candidate": candidate, "control": control}
    sides = {}
    for role, source in roles.items():
        if role != "control" or source is not None:
            side = read_outputs(role, source)
            sides[role] = side if prompts is None else with_prompts(side, prompts)
    scorer = _target(target, tokenizer, device, dtype)
    reader = None if scorer is None else scorer.tokenizer
    endings = _endings(scorer, sides)
    duos = pair_up(sides["reference"], sides["candidate"], reader, endings)
    if scorer is not None and scorer.ignored is not None:
        duos = _unprocessed(duos, sides)
    controls = None
    if control is not None:
        controls = pair_up(sides["reference"], sides["control"], reader, endings)
    shapes = _shapes(sides["reference"], sides["candidate"], batch_size, num_draft_tokens)
    conditions = _conditions(sides, scorer, dtype, shapes)
    return _report(duos, controls, scorer, sides, shapes, conditions)


def _target(target: Any, tokenizer: Any, device: str | None, dtype: str | None) -> "Target | None":
    if target is not None:
        from specviz.checks.audit.target import find_target

        return find_target(target, tokenizer, device, dtype)
    for name, value in (("tokenizer", tokenizer), ("device", device)):
        if value is not None:
            raise ValueError(f"{name}={short(value)} is given, but no target; pass the target too")
    return None


def _endings(scorer: "Target | None", sides: Mapping[str, OutputSet]) -> Endings:
    eos = {token for side in sides.values() for token in side.eos_token_ids}
    if scorer is None:
        return Endings(frozenset(eos))
    return Endings(scorer.eos_token_ids | eos, scorer.padding_ids)


def _unprocessed(duos: Sequence[Duo], sides: Mapping[str, OutputSet]) -> list[Duo]:
    """Return the pairs, none of which can be judged where scores were processed.

    Runs of specviz process none.
    """
    if all(side.is_run for side in sides.values()):
        return list(duos)
    return [replace(duo, unjudged=PROCESSED) if duo.is_parted else duo for duo in duos]


def _shapes(
    reference: OutputSet, candidate: OutputSet, batch_size: int, num_draft_tokens: int
) -> list[tuple[int, int]]:
    """Return (rows, new tokens a forward) of both runs, where the reference drafts nothing unless
    it says so.
    """
    shapes = set()
    for side, K in ((reference, 0), (candidate, num_draft_tokens)):
        drafts = K if side.num_draft_tokens is None else side.num_draft_tokens
        shapes.add((side.batch_size or batch_size, drafts + 1))
    return sorted(shapes)


def _conditions(
    sides: Mapping[str, OutputSet],
    scorer: "Target | None",
    dtype: str | None,
    shapes: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    conditions: dict[str, Any] = {role: side.name for role, side in sides.items()}
    conditions["target"] = None if scorer is None else scorer.name
    names = [side.dtype for side in sides.values() if side.dtype is not None]
    conditions["dtype"] = dtype or max(names, key=lambda name: CEILINGS[name], default=None)
    libraries = ["specviz"]
    if scorer is not None:
        conditions["dtype"] = scorer.dtype
        conditions["device"] = str(scorer.device)
        conditions["noise_shapes"] = [f"{rows} x {step}" for rows, step in shapes]
        libraries += ["torch", "transformers"]
    conditions["versions"] = {name: version(name) for name in libraries}
    conditions["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    return conditions


def _report(
    duos: Sequence[Duo],
    controls: Sequence[Duo] | None,
    scorer: "Target | None",
    sides: Mapping[str, OutputSet],
    shapes: Sequence[tuple[int, int]],
    conditions: dict[str, Any],
) -> Audit:
    ceiling = CEILINGS.get(conditions["dtype"], CEILINGS[LOOSEST])
    control_noise = math.nan if controls is None else noise_of(controls)
    if scorer is None:
        noise = noise_of(duos) if math.isnan(control_noise) else control_noise
    else:
        noise = _noise_of_target(scorer, duos, sides, shapes)
        noise = noise if math.isnan(control_noise) else max(noise, control_noise)
    measured = {}
    for i, duo in enumerate(duos):
        if duo.is_parted:
            measured[i] = weigh(duo) if scorer is None else force(scorer, duo)
    known = [_known(duo, measured.get(i), scorer is not None) for i, duo in enumerate(duos)]
    verdicts = []
    for duo, (cause, reason) in zip(duos, judge_all(known, noise, ceiling), strict=True):
        verdicts.append((UNEXPLAINED if cause == BEYOND_NOISE else cause or duo.how, reason))
    limit = largest_gap(noise, ceiling)
    notes = notes_on(
        duos,
        measured,
        limit,
        has_target=scorer is not None,
        has_control_noise=not math.isnan(control_noise),
        dtype=conditions["dtype"],
        ignored=None if scorer is None else scorer.ignored,
    )
    against = None
    if controls is not None:
        against = against_control(_parted(duos), _parted(controls))
    reader = None if scorer is None else scorer.tokenizer
    prompts = make_prompts(duos, known, verdicts, controls, reader)
    totals = make_totals([verdict for verdict, _ in verdicts])
    return Audit(prompts, totals, against, noise, limit, conditions, notes)


def _known(duo: Duo, measured: Evidence | None, has_target: bool) -> Evidence | None:
    """Return what is known of a difference, the ends of both texts included."""
    if measured is None:
        if not duo.fault and not duo.unjudged:
            return None
        violated = "" if duo.at is None else duo.candidate.violated_at(duo.at)
        return Evidence(fault=duo.fault, unjudged=duo.unjudged, violated=violated)
    # Without a target it is not known whether an EOS may follow.
    return replace(measured, is_open=duo.is_open or (not has_target and bool(duo.our_ends)))


def _parted(duos: Sequence[Duo]) -> list[bool]:
    return [duo.how == PARTED or bool(duo.fault) for duo in duos]


def _noise_of_target(
    scorer: "Target",
    duos: Sequence[Duo],
    sides: Mapping[str, OutputSet],
    shapes: Sequence[tuple[int, int]],
) -> float:
    """Return the noise in the references of diverging texts and, if those are few, in equal texts.

    NaN without divergences.
    """
    from specviz.checks.audit.target import check_target
    from specviz.checks.noise import measure_noise

    check_target(scorer, duos, list(sides.values()))
    parted = [duo for duo in duos if duo.is_parted]
    equal = [duo for duo in duos if duo.how == EQUAL and duo.has_ids]
    texts = []
    for duo in (*parted, *equal):
        text = [token for token in duo.theirs or duo.ours if isinstance(token, int)]
        limit = scorer.max_positions
        fits = limit is None or len(duo.prompt_ids or ()) + len(text) <= limit
        if duo.prompt_ids and text and fits:
            texts.append((duo.prompt_ids, text))
    return measure_noise(scorer, texts, shapes, diverging=len(parted)) if parted else math.nan
