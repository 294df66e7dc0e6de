"""`audit`: judge the outputs of anybody's decoder against a reference. A model runs only if a
target is given, and only where the texts part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from specviz.checks.audit.duo import PARTED, Duo, Endings, pair_up, with_prompts
from specviz.checks.audit.logprobs import (
    believed_noise,
    can_compare,
    compare_logprobs,
    sentence_on,
)
from specviz.checks.audit.notes import notes_on
from specviz.checks.audit.reading import OutputSet, read_outputs
from specviz.checks.audit.report import (
    UNEXPLAINED,
    Audit,
    against_control,
    make_prompts,
    make_totals,
)
from specviz.checks.equivalence import CEILINGS, LOOSEST, Evidence, judge_all, largest_gap
from specviz.checks.equivalence import UNEXPLAINED as BEYOND_NOISE
from specviz.checks.evidence import examine, noise_of_target
from specviz.util.validate import require_choice, require_int, short

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

    from specviz.checks.audit.target import Target

PROCESSED = "scores were processed, or the target asks for it; pass generation_config to judge them"


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
    generation_config: "str | GenerationConfig | None" = None,
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

    If the candidate brings log-probabilities of its tokens' ids, a target reads all its texts, and
    the report says where they differ by more than noise, and what they are instead. This does not
    change the verdict, which is about the texts.

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
        generation_config: "target", or a `GenerationConfig`: the texts were chosen from scores that
            it processes, by a repetition penalty for instance, and are judged by such scores.

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
    sides = {}
    for role, source in (("reference", reference), ("candidate", candidate), ("control", control)):
        if role != "control" or source is not None:
            side = read_outputs(role, source)
            sides[role] = side if prompts is None else with_prompts(side, prompts)
    scorer = _target(target, tokenizer, device, dtype, generation_config)
    reader = None if scorer is None else scorer.tokenizer
    endings = Endings(frozenset(eos for side in sides.values() for eos in side.eos_token_ids))
    if scorer is not None:
        endings = Endings(endings.eos | scorer.eos_token_ids, scorer.padding_ids)
    duos = pair_up(sides["reference"], sides["candidate"], reader, endings)
    controls = None
    if control is not None:
        controls = pair_up(sides["reference"], sides["control"], reader, endings)
    # The reference drafts nothing unless it says so.
    shapes = {sides["reference"].shape(batch_size)}
    shapes.add(sides["candidate"].shape(batch_size, num_draft_tokens))
    conditions = _conditions(sides, scorer, dtype, sorted(shapes))
    if scorer is not None:
        # Runs of specviz that process scores say so.
        are_raw = all(side.is_run and not side.is_processed for side in sides.values())
        is_asked = scorer.ignored is not None or any(side.is_processed for side in sides.values())
        if scorer.processors is None and is_asked and not are_raw:
            duos = [
                replace(duo, known=Evidence(unjudged=PROCESSED)) if duo.is_parted else duo
                for duo in duos
            ]
        scorer.check(duos, sides.values())
    return _report(duos, controls, scorer, sorted(shapes), conditions)


def _target(
    target: Any, tokenizer: Any, device: str | None, dtype: str | None, config: Any
) -> "Target | None":
    if target is not None:
        from specviz.checks.audit.target import find_target

        return find_target(target, tokenizer, device, dtype, config)
    given = (("tokenizer", tokenizer), ("device", device), ("generation_config", config))
    for name, value in given:
        if value is not None:
            raise ValueError(f"{name}={short(value)} is given, but no target; pass the target too")
    return None


def _report(
    duos: Sequence[Duo],
    controls: Sequence[Duo] | None,
    scorer: "Target | None",
    shapes: Sequence[tuple[int, int]],
    conditions: dict[str, Any],
) -> Audit:
    against, control_noise, doubts = None, math.nan, list[str]()
    if controls is not None:
        flags = (
            [duo.how == PARTED or bool(duo.known.fault) for duo in each]
            for each in (duos, controls)
        )
        against = against_control(*flags)
        _, control_noise, doubt = believed_noise("control", controls)
        doubts.append(doubt)
    if scorer is None:
        duos, noise, doubt = believed_noise("candidate", duos)
        noise = noise if math.isnan(control_noise) else control_noise
        doubts.append(doubt)
    elif any(duo.is_parted or can_compare(scorer, duo) for duo in duos):
        noise = noise_of_target(scorer, duos, shapes)
        noise = noise if math.isnan(control_noise) else max(noise, control_noise)
    else:
        noise = math.nan
    known = [examine(duo, scorer) for duo in duos]
    ceiling = CEILINGS.get(conditions["dtype"], CEILINGS[LOOSEST])
    verdicts = []
    for duo, (cause, reason) in zip(duos, judge_all(known, noise, ceiling), strict=True):
        verdicts.append((UNEXPLAINED if cause == BEYOND_NOISE else cause or duo.how, reason))
    limit = largest_gap(noise, ceiling)
    logprobs = compare_logprobs(scorer, duos, limit)
    doubts.append(sentence_on(logprobs, limit))
    notes = notes_on(
        duos,
        known,
        limit,
        has_target=scorer is not None,
        doubts=tuple(filter(None, doubts)),
        is_own_noise=math.isnan(control_noise) and not math.isnan(noise),
        dtype=conditions["dtype"],
        ignored=None if scorer is None else scorer.ignored,
    )
    reader = None if scorer is None else scorer.tokenizer
    table = make_prompts(duos, known, verdicts, controls, reader)
    totals = make_totals([verdict for verdict, _ in verdicts])
    return Audit(table, totals, against, noise, limit, conditions, notes, logprobs)


def _conditions(
    sides: Mapping[str, OutputSet],
    scorer: "Target | None",
    dtype: str | None,
    shapes: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    conditions: dict[str, Any] = {role: side.name for role, side in sides.items()}
    conditions["target"] = None if scorer is None else scorer.name
    libraries = ["specviz"]
    if scorer is None:
        names = [side.dtype for side in sides.values() if side.dtype is not None]
        conditions["dtype"] = dtype or max(names, key=lambda name: CEILINGS[name], default=None)
    else:
        conditions |= {"dtype": scorer.dtype, "device": str(scorer.device)}
        conditions["noise_shapes"] = [f"{rows} x {step}" for rows, step in shapes]
        libraries += ["torch", "transformers"]
    conditions["versions"] = {name: version(name) for name in libraries}
    conditions["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    return conditions
