"""`sv.watch`: judge a decoder that knows nothing of this library.

Contract: hooks on two models for the time of a `with` block, and a report on what they saw. Nothing
is assumed of the decoder but that it calls the models. Not known here: how it works.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel

from specviz.checks.audit.target import Target
from specviz.checks.equivalence import CEILINGS, largest_gap
from specviz.checks.noise import measure_noise
from specviz.checks.watch.arguments import (
    check_followed,
    check_models,
    check_vocabulary,
    check_windows,
    checked_outputs,
    checked_prompts,
    unlike,
    window_of,
    without_filling,
)
from specviz.checks.watch.capture import (
    TOP,
    Capture,
    CapturedForward,
    ReadGenerate,
    windowed_layers,
)
from specviz.checks.watch.costs import find_costs
from specviz.checks.watch.drafter import (
    KINDS,
    CapturedDrafting,
    DrafterCapture,
    found_while_open,
)
from specviz.checks.watch.drafting import Drafting
from specviz.checks.watch.drafts import DraftFollower
from specviz.checks.watch.due import truth_of
from specviz.checks.watch.fed import fed_before, fed_behind
from specviz.checks.watch.follow import TargetFollower
from specviz.checks.watch.inputs import Inputs
from specviz.checks.watch.judge import Diagnosis, Judge, Tie
from specviz.checks.watch.masks import AttentionReader
from specviz.checks.watch.mixers import keeps_states
from specviz.checks.watch.notes import notes_on
from specviz.checks.watch.report import WatchReport
from specviz.checks.watch.requests import Part, WatchedRequest
from specviz.checks.watch.settings import Reading, Settings, make_settings
from specviz.checks.watch.states import States
from specviz.checks.watch.texts import out_of_order, without_prompts
from specviz.checks.watch.trace import to_trace
from specviz.checks.watch.windows import Windows
from specviz.engine.models.settings import describe_ignored, ignored_settings, listed
from specviz.record.trace import Trace
from specviz.util.validate import is_list, require_bool, require_int, require_ints

FLOOR = 1e-5  # of a difference of log-probabilities that is real, in float32
LEAST_TEXTS = 4  # in which noise is measured, or one batch
SAMPLED = 2  # how much larger the noise of all queries may be than that of a sample
LEAST_ULPS = 2  # one unit in the last place of a logit from 2 to 4, in any dtype
MTP = "mtp"  # in the place of a draft: the MTP layers that are made in the block
CHOSEN = ("acceptance", "bonus", "budget")  # rules of which tokens a text has


@dataclass
class Watched:
    """What was seen of a decoder.

    Attributes:
        target, draft: the models; no draft if a drafter reads the target's hidden states.
        drafter: that one, if there is one; "mtp" while it has not been found.
        tokenizer: for prompts and outputs that are texts; None if all are token ids.
        forwards: all forwards of both models, in the order of the calls.
        ignored: for each call of the target's `generate`, what it applied and specviz does not.
        settings: what the decoder applies to the target's scores, and what ends its texts.
    """

    target: PreTrainedModel = field(repr=False)
    draft: PreTrainedModel | None = field(default=None, repr=False)
    tokenizer: Any = field(default=None, repr=False)
    forwards: list[CapturedForward] = field(default_factory=list, repr=False)
    ignored: list[dict[str, Any]] = field(default_factory=list, repr=False)
    settings: Settings = field(default_factory=Settings, repr=False)
    drafter: PreTrainedModel | str | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"Watched({len(self.forwards)} forwards)"

    def audit(
        self,
        prompts: Sequence[str | Sequence[int]],
        outputs: Sequence[str | Sequence[int]] | None = None,
        *,
        greedy: bool = True,
        max_new_tokens: int | None = None,
        eos_token_ids: Sequence[int] | None = None,
    ) -> WatchReport:
        """Judge what was seen, with the models at hand.

        Each query that decided a token is compared with the target's own reading of that row. Where
        one differs by more than measured noise, the cause is the first input that is not the row's
        own, of that query or of those whose K/V it reads: a position, a slot that it sees, a token,
        or K/V.

        Args:
            prompts: what the decoder was given, texts or token ids.
            outputs: the new tokens that it returned for each prompt, or their texts. None: they
                are concluded from what was fed, which is less certain where a decoder is wrong.
            greedy: whether it takes the target's best token; False for sampling, of which only the
                forwards are judged.
            max_new_tokens: its budget, if it is to be checked.
            eos_token_ids: what ends a text; None for what the target's generation config says.

        Raises:
            ValueError: an argument cannot be used, or the forwards are not those of these prompts
                and outputs.
        """
        ids = checked_prompts(prompts, self.tokenizer)
        known = checked_outputs(outputs, ids, self.tokenizer)
        require_bool("greedy", greedy)
        if outputs is None and (self.settings.processors or self.settings.stops):
            raise ValueError(
                "outputs must be given with logits_processor, stop or generation_config, which "
                "forwards do not show, got None; pass the new tokens of each prompt"
            )
        if max_new_tokens is not None:
            require_int("max_new_tokens", max_new_tokens)
        if eos_token_ids is None:
            eos_token_ids = eos_of(self.target)
        if not is_list(eos_token_ids) or len(eos_token_ids):
            require_ints("eos_token_ids", eos_token_ids, minimum=0)
        check_followed(self.forwards)
        drafting = self.target if self.draft is None else self.draft  # with fewer layers
        check_windows({"target": self.target, "draft": drafting}, self.forwards)
        # Decoders fill short outputs up with padding, which was never fed.
        known = [without_filling(output, eos_token_ids) for output in known]
        check_vocabulary(self.target, ids, known)
        follower = self._followed(ids, known, eos_token_ids, max_new_tokens)
        try:
            report = self._judge(follower, ids, known, greedy, eos_token_ids, max_new_tokens)
            if not report.faults:
                return report
        except ValueError:
            self._check_fed(follower, known, greedy, eos_token_ids, max_new_tokens)
            raise
        self._check_fed(follower, known, greedy, eos_token_ids, max_new_tokens)
        return report

    def _judge(
        self,
        follower: TargetFollower,
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[list[int] | None],
        greedy: bool,
        eos: Sequence[int],
        budget: int | None,
    ) -> WatchReport:
        """Judge what was followed, if it is of these prompts and outputs."""
        check_followed(self.forwards, follower.requests)
        mismatch = unlike(follower.requests)
        if mismatch:
            return self._without(mismatch, prompts, outputs, greedy, budget, eos)
        return self._report(follower, greedy, eos, budget)

    def _check_fed(
        self,
        follower: TargetFollower,
        outputs: Sequence[list[int] | None],
        greedy: bool,
        eos: Sequence[int],
        budget: int | None,
    ) -> None:
        """Raise ValueError if the prompts are not what was fed, so that there is no verdict."""
        bos = getattr(self.target.generation_config, "bos_token_id", None)
        fed = fed_before(follower.requests, follower.parts, bos)
        if not any(each.how for each in fed):
            fed = fed_behind(follower.requests, follower.parts)
            if not any(each.how for each in fed):
                return
            # What stands behind a prompt may be drafts, so it counts if it makes all right.
            again = self._followed([each.tokens for each in fed], outputs, eos, budget)
            if any(not request.rounds for request in again.requests) or unlike(again.requests):
                return
            if self._report(again, greedy, eos, budget).faults:
                return
        number = next(number for number, each in enumerate(fed) if each.how)
        raise ValueError(
            f"prompts[{number}] is not what was fed: {fed[number].how}; pass the prompts as the "
            "decoder feeds them, with all special tokens"
        )

    def _followed(
        self,
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int] | None],
        eos: Sequence[int],
        budget: int | None,
    ) -> TargetFollower:
        """Follow the target's forwards, given these outputs."""
        follower = TargetFollower(prompts, outputs, eos, budget)
        for forward in self._of("target"):
            follower.read(forward)
        follower.finish()
        return follower

    def _report(
        self, follower: TargetFollower, greedy: bool, eos: Sequence[int], budget: int | None
    ) -> WatchReport:
        """Judge what was followed."""
        drafts = DraftFollower(follower.requests)
        for forward in self._of("draft"):
            drafts.read(forward)
        drafts.finish()
        borrows = drafts.borrows
        if borrows:  # what K/V they read is not known, so nothing that follows from it is
            drafts = DraftFollower(follower.requests)
        requests = follower.requests
        numbers = {verified.part.number for request in requests for verified in request.rounds}
        readings = [
            Reading(
                read_at_once(self.target, request.tokens),
                request,
                self.settings.of(number, request, budget),
            )
            for number, request in enumerate(requests)
        ]
        judge = Judge(
            inputs=Inputs(follower.origins, follower.parts, follower.labels),
            states=States(follower.parts, requests, self.target),
            windows=Windows(self._of("target"), follower.parts, requests, window_of(self.target)),
            rounds={number: i for i, number in enumerate(sorted(numbers))},
            tolerance=self._tolerance(requests),
            drafted=drafts.proposal,
            is_greedy=greedy,
            eos=frozenset(eos),
            budget=budget,
            stops=self.settings.stops,
            requests=requests,
            readings=readings,
        )
        faults, ties, wrong = _judged(judge, requests, readings)
        ignored = self._ignored() if greedy else ""
        is_known = all(request.is_known for request in requests)
        # A text that is not known was concluded from choices that may not be those taken.
        doubted = [fault for fault in faults if fault.rule in CHOSEN or not is_known]
        is_unjudged = bool(ignored and doubted)
        if is_unjudged:
            forwards_alone = replace(judge, is_greedy=False, budget=None)
            faults, ties, wrong = _judged(forwards_alone, requests, readings)
            faults = faults if is_known else []
        trace, why_none = self._trace(follower, drafts, eos)
        drafting = self._drafting(requests, {fault.request for fault in faults}, greedy)
        untold = 0 if drafting is None or drafting.faults else drafting.unseen
        is_idle = self.drafter is not None and drafting is None
        return WatchReport(
            requests=requests,
            faults=faults,
            ties=ties,
            costs=find_costs(requests, drafts.faults, judge.rounds, wrong, drafting),
            tolerance=judge.tolerance,
            rounds=judge.rounds,
            record=trace,
            why_no_record=why_none,
            greedy=greedy and not is_unjudged,
            ignored=ignored,
            notes=notes_on(self.forwards, follower.forks, borrows, untold, is_idle),
            wrong=wrong,
        )

    @torch.inference_mode()
    def _drafting(
        self, requests: Sequence[WatchedRequest], wrong: Collection[int], greedy: bool
    ) -> Drafting | None:
        """Judge a drafter that reads hidden states, where the target itself is right."""
        calls = [each for each in self.forwards if isinstance(each, CapturedDrafting)]
        if not isinstance(self.drafter, PreTrainedModel) or not calls:
            return None
        fed = torch.cat([each.tokens.flatten().cpu() for each in self._of("target")])
        ids = {*fed.tolist(), *(token for request in requests for token in request.tokens)}
        ids.add(getattr(self.drafter.config, "mask_token_id", 0))
        length = 2 * max(len(request.tokens) for request in requests) + 64
        block = max(each.block for each in calls)
        truth = truth_of(self.drafter, self.target, block, length)
        eps = torch.finfo(self.target.dtype).eps
        drafting = Drafting(truth, requests, calls, sorted(ids), eps, greedy=greedy)
        for number in set(range(len(requests))) - set(wrong):
            drafting.judge(number)
        return drafting

    def _without(
        self,
        mismatch: str,
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[list[int] | None],
        greedy: bool,
        budget: int | None,
        eos: Sequence[int],
    ) -> WatchReport:
        """Judge what was seen without the outputs, as they are not what was fed.

        Raises ValueError if nothing else is wrong, so that the outputs are; or if that cannot be
        known, because what was drawn cannot be concluded.
        """
        bare, said = without_prompts(prompts, outputs, eos)
        if said and not unlike(self._followed(prompts, bare, eos, budget).requests):
            raise ValueError(said)
        known = ""
        if greedy:
            # A greedy decoder's forwards imply its text, so they can be judged without it.
            report = self.audit(prompts, max_new_tokens=budget, eos_token_ids=eos)
            if report.faults:
                note = f"{mismatch}; the texts are concluded from the forwards instead"
                return replace(report, notes=[*report.notes, note])
            order = out_of_order(outputs, report.requests)
            if order:
                raise ValueError(order)
            known = ", and the forwards are right" if report.greedy else ""
        raise ValueError(
            f"{mismatch}{known}; pass all new tokens that this run returned, "
            "in the order of the prompts"
        )

    def _ignored(self) -> str:
        """Return in a sentence what the decoder may have applied and is not judged; "" if nothing.

        If it called `generate`, that is what it applied.
        """
        if self.settings.has_config:
            return ""
        applied = {name: value for call in self.ignored for name, value in call.items()}
        if not self.ignored or applied == ignored_settings(self.target):
            return describe_ignored(self.target) or ""
        if not applied:
            return ""
        return (
            f"target.generate() applied {listed(applied)} and specviz does not, so the text may "
            "differ; leave it out to have the tokens judged, or pass greedy=False"
        )

    def _of(self, model: str) -> list[CapturedForward]:
        return [forward for forward in self.forwards if forward.model == model]

    def _tolerance(self, requests: Sequence[WatchedRequest]) -> float:
        """Return how far log-probabilities may differ by rounding, in forwards of these shapes."""
        verified = [each for request in requests for each in request.rounds]
        rows = max(len(each.part.seen.tokens) for each in verified)
        step = max(len(each.drafts) + 1 for each in verified)
        # Noise grows with the length, so the longest rows show most of it.
        longest = sorted((each.tokens for each in requests), key=len, reverse=True)
        longest = longest[: max(rows, LEAST_TEXTS)]
        texts = [(tokens[:1], tokens[1:]) for tokens in longest if len(tokens) > 1]
        # Some classes lose their states if they read several tokens on from them.
        step = 1 if keeps_states(self.target) else step
        shapes = [(rows, step), (rows, len(longest[0]))]  # of verifications and of prompts
        noise = measure_noise(Target(self.target), texts, shapes, leading=TOP)
        # A few short texts may show no noise at all.
        noise = max(noise, LEAST_ULPS * torch.finfo(self.target.dtype).eps)
        dtype = str(self.target.dtype).removeprefix("torch.")
        # All queries of all rows are compared, and noise is measured in a few of them.
        return max(SAMPLED * largest_gap(noise, CEILINGS[dtype]), FLOOR)

    def _trace(
        self, follower: TargetFollower, drafts: DraftFollower, eos: Sequence[int]
    ) -> tuple[Trace | None, str]:
        """Return a record of the run; or None, and why there is none."""
        settings = {
            "vocabulary_size": _vocabulary_size(self.target),
            "eos_token_ids": list(eos),
            "decoder": "watched",
            "drafter": None if self.draft is None else "model",
            "tokenizer": self.tokenizer,
            "about": {
                "target": self.target.name_or_path or type(self.target).__name__,
                "draft": None if self.draft is None else type(self.draft).__name__,
                "device": str(self.target.device),
                "dtype": str(self.target.dtype).removeprefix("torch."),
            },
        }
        parts = {"target": follower.parts, "draft": drafts.parts}
        states, lacking = self._states(follower, drafts)
        try:
            has_choices = self.settings.processors is None
            trace = to_trace(follower.requests, parts, settings, states, has_choices=has_choices)
            return replace(trace, meta=trace.meta | {"unrecorded": lacking}), ""
        except ValueError as error:  # what a wrong decoder does may fit no record
            return None, str(error)

    def _states(
        self, follower: TargetFollower, drafts: DraftFollower
    ) -> tuple[dict[str, dict[tuple[int, int], tuple[int, int]]], list[str]]:
        """Return what rows went on from, see `to_trace`; and what a record cannot say of layers."""
        sides: list[tuple[str, PreTrainedModel | None, list[Part], Callable[[Part], list[int]]]] = [
            (
                "target",
                self.target,
                follower.parts,
                lambda part: follower.requests[part.request].tokens,
            ),
            (
                "draft",
                self.draft,
                drafts.parts,
                lambda part: drafts.ahead(part.request, part.number),
            ),
        ]
        known: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
        lacking = []
        for name, model, parts, text_of in sides:
            if model is not None and windowed_layers(model):
                lacking.append(f"windows.{name}")
            if model is None or not keeps_states(model):
                continue
            states = States(parts, follower.requests, model)
            own = [part for part in parts if part.request >= 0]
            found = {part.place: states.source(part, text_of(part)) for part in own}
            known[name] = {place: each for place, each in found.items() if each is not None}
            if len(known[name]) < len(found):
                del known[name]
                lacking.append(f"states.{name}")
        return known, lacking


def _judged(
    judge: Judge, requests: Sequence[WatchedRequest], readings: Sequence[Reading]
) -> tuple[list[Diagnosis], list[Tie], list[int]]:
    """Judge all requests and their texts; faults come in the order of the forwards.

    readings: what the target gives for each row, read at once.
    """
    faults: list[Diagnosis] = []
    ties: list[Tie] = []
    wrong: list[int] = []
    for number, (request, reading) in enumerate(zip(requests, readings, strict=True)):
        fault, near = judge.judge(request, reading)
        ties += near
        if fault is not None:
            faults.append(fault)
        if judge.is_greedy and not judge.is_own(request, reading):
            wrong.append(number)
    faults.sort(key=lambda fault: (fault.forward, fault.row))
    return faults, ties, wrong


def _vocabulary_size(model: PreTrainedModel) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


@torch.inference_mode()
def read_at_once(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits (n, V) float32 of a row that is read in one forward."""
    ids = torch.tensor([list(tokens)], device=model.device)
    return model(ids, use_cache=False).logits[0].float()


def eos_of(model: PreTrainedModel) -> list[int]:
    """Return the ids that end a text: those of the generation config, as in `generate()`."""
    if model.generation_config is not None:
        found = model.generation_config.eos_token_id  # None is the user's choice
    else:
        found = getattr(model.config.get_text_config(), "eos_token_id", None)
    if found is None:
        return []
    return [found] if isinstance(found, int) else list(found)


def watch(
    target: PreTrainedModel,
    draft: PreTrainedModel | str | None = None,
    *,
    tokenizer: Any = None,
    logits_processor: LogitsProcessor | Sequence[LogitsProcessor] | None = None,
    stop: str | Sequence[str] | None = None,
    generation_config: str | GenerationConfig | None = None,
) -> AbstractContextManager[Watched]:
    """See every forward of these models inside the block, whatever code calls them.

    ```python
    with sv.watch(target, draft) as watched:
        outputs = my_decode(target, draft, prompts)
    print(watched.audit(prompts, outputs))
    ```

    The decoder computes what it would have computed. Each forward keeps its inputs and a
    fingerprint of all K/V that it read, so memory grows with the tokens that are fed.
    A block that ends with an error keeps what was seen.

    Args:
        target: the model that verifies, a causal LM of transformers.
        draft: the model that drafts: a causal LM, an `MtpModel` or a `MuseGlimmerAssistantModel`.
            "mtp" for the MTP layers that `generate(use_mtp=True)` loads; None if there is none.
        tokenizer: for prompts and outputs that are texts, and for stop strings.
        logits_processor, stop, generation_config: what the decoder applies, as in
            `specviz.generate`. Its tokens are judged by the processed scores of their own rows.

    Raises:
        ValueError: a model cannot be watched, for instance because it is compiled; or a setting
            cannot be used.
    """
    is_drafter = isinstance(draft, KINDS)
    check_models(target, None if is_drafter or draft == MTP else draft, tokenizer)
    settings = make_settings(
        target,
        tokenizer,
        eos_of(target),
        logits_processor=logits_processor,
        stop=stop,
        generation_config=generation_config,
    )
    causal = None if is_drafter or isinstance(draft, str) else draft
    watched = Watched(target, causal, tokenizer, settings=settings)
    watched.drafter = draft if is_drafter or isinstance(draft, str) else None
    return _watching(watched)


@contextmanager
def _watching(watched: Watched) -> Iterator[Watched]:
    finds = watched.drafter == MTP
    lock = Lock()
    captures = [Capture(watched.target, "target", watched.forwards, lock)]
    if watched.draft is not None:
        captures.append(Capture(watched.draft, "draft", watched.forwards, lock))
    if isinstance(watched.drafter, PreTrainedModel):
        captures.append(DrafterCapture(watched.drafter, watched.forwards, lock))
    reader = AttentionReader(captures)

    def found(model: PreTrainedModel) -> None:
        watched.drafter = model
        captures.append(DrafterCapture(model, watched.forwards, lock))
        captures[-1].open(before=reader.renew)

    reader.open()
    let_go = ReadGenerate.share(watched.target, "generate", watched.ignored.append)
    try:
        for capture in captures:
            # A decoder may register an attention function of its own at any time.
            capture.open(before=reader.renew)
        with found_while_open(watched.target, found) if finds else ExitStack():
            yield watched
    finally:
        let_go()
        for capture in captures:
            capture.close()
        reader.close()
