"""A run that is ready to start, and `decode`, which makes one and runs it."""

import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from specviz.engine.batch import Batch, Request
from specviz.engine.draft_length import DraftLength, Meter
from specviz.engine.drafters import Drafter, Task
from specviz.engine.events import Event
from specviz.engine.faults import STATE, WINDOW
from specviz.engine.features import FeatureStore
from specviz.engine.graphs import CudaGraphs, PhaseGraphs
from specviz.engine.heads import DraftHead, MtpHead
from specviz.engine.heads.cached import CachedHead, cached_head
from specviz.engine.kv.attention import attending
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.deterministic import FixedModel, fixed_shape
from specviz.engine.loop import run_rounds
from specviz.engine.models.compat import check_mode
from specviz.engine.models.pair import Pair
from specviz.engine.models.settings import describe_ignored
from specviz.engine.options import Options, refuse_if
from specviz.engine.processors import check_stateless
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.selectors import Everything, Selector, foresees
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.engine.threads import choose_threads, computing_with
from specviz.engine.timing import Stopwatch
from specviz.engine.trial import can_pack, check_exact, check_layers
from specviz.util.levers import NONE, Levers
from specviz.util.validate import require_kind


@dataclass(frozen=True)
class Run:
    """A run before its first round: the caller's options, and what was made of them.

    Attributes:
        options: as the caller passed them.
        strategy, drafter, selector, draft_length: the objects that the options name. Without
            drafts, the drafter proposes nothing and the draft length is 0.
        batch_size: that of the options, or less once memory has run out.
        stopwatch: times the phases.
        meter: reports the cost of each round to `draft_length`.
    """

    pair: Pair
    options: Options
    requests: list[Request]
    strategy: Strategy
    draft_length: DraftLength
    batch_size: int
    state: State
    stopwatch: Stopwatch
    meter: Meter

    @property
    def drafter(self) -> Drafter:
        return self.options.parts.drafter

    @property
    def selector(self) -> Selector:
        return self.options.parts.selector

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens that a row may draft in any round."""
        return self.state.max_draft_tokens

    @property
    def foresees(self) -> bool:
        """Whether a draft that q weighs decides itself whether it is judged."""
        return foresees(self.selector, self.drafter)

    @cached_property
    def task(self) -> Task:
        """What a drafter may know of this run."""
        options = self.options
        return Task(self.pair, self.requests, self.max_draft_tokens, options.sampling, options.seed)

    @cached_property
    def num_threads(self) -> int:
        """The CPU threads that torch computes this run with."""
        given = self.options.num_threads
        return choose_threads(self.pair.target) if given is None else given

    def try_models(self) -> None:
        """Raise ValueError if a model's logits depend on where its K/V lies; see `trial`."""
        for role, cache in self.state.caches.items():
            if isinstance(cache.model, MtpHead):
                check_layers(cache.model)
            elif not isinstance(cache.model, DraftHead):
                check_exact(role, cache.model)
        self.let_target_pack()

    def events(self) -> Iterator[Event]:
        """Run it; see `decode`."""
        with attending([cache.model for cache in self.state.caches.values()]):
            yield from self.phases(self.num_threads)

    def phases(self, num_threads: int) -> Generator[Event, None, None]:
        """Run it with so many CPU threads. The caller lets the models attend."""
        state, drafter = self.state, self.drafter
        rounds = run_rounds(state, self.strategy, drafter, self.selector, self.draft_length)
        while True:
            # The reader of the events computes with a number of threads of its own.
            with computing_with(num_threads):
                begin = self.stopwatch.mark()
                event = next(rounds, None)
                if event is not None:
                    self.stopwatch.add(begin)
            if event is None:
                return
            # The reader first, so that it sees the state as the phase left it. Between two phases
            # the stopwatch stands still.
            yield event
            if event.phase == "schedule" and state.num_draft_tokens:
                with torch.inference_mode():
                    state.prepared = drafter.prepare(self.task, state)
            if event.phase == "draft" and not state.keep_draft and not state.graphs.active:
                for name, cache in state.caches.items():
                    if name != "target":
                        cache.release()  # draft models read all text again
            # Before this, a layout does not know where the accepted drafts of a tree lie.
            if event.phase == "synchronise" and state.store is not None:
                state.store.keep_finished(state)
            self.meter.observe(event)

    def halved(self, requests: list[Request], rounds: int) -> "Run":
        """Return a run of `requests` with half the batch size and new state, from `rounds` on."""
        strategy = self.strategy.halved()
        size = self.batch_size // 2
        most = self.max_draft_tokens
        state = make_state(self.pair, self.options, requests, strategy, most, size)
        # One record covers both runs, so rounds are numbered on.
        state.round = rounds
        run = replace(
            self,
            requests=requests,
            strategy=strategy,
            batch_size=size,
            state=state,
            meter=self.meter.restarted(),
        )
        run.let_target_pack()
        speed_up(run)
        return run

    def let_target_pack(self) -> None:
        """Let the target's forwards leave filling out, which only a selector leaves in them."""
        if type(self.selector) is not Everything and can_pack(self.pair.target):
            self.state.caches["target"].packs = "worth"


def make_run(pair: Pair, prompts: Sequence[Prompt], options: Options) -> Run:
    """Check pair and prompts, and make the state before the first round. No model runs.

    Raises:
        ValueError: an argument cannot be used; the message names it, its value and the remedy.
    """
    check_pair(pair)
    options = options.resolved(pair.target, pair.eos_token_ids)
    if options.sampling is not None and pair.device.type == "mps":
        raise ValueError(
            "pair.device must have float64 for sampling, got mps; "
            "load the pair with device='cpu', or pass sampling=None"
        )
    ignored = describe_ignored(pair.target)
    if ignored is not None and options.generation_config is None:
        warnings.warn(ignored, stacklevel=2)
    strategy, drafter, selector = options.parts
    for role, model in {"target": pair.target, **drafter.models(pair)}.items():
        name = f"heads[{model.settings.kind!r}]" if isinstance(model, DraftHead) else role
        check_mode(name, model)
    draft_length = DraftLength(0)
    if strategy.drafts:
        draft_length = options.make_draft_length(drafter.limit(pair))
    most = selector.drafted(draft_length.most) if draft_length.most else 0
    requests = make_requests(pair, prompts, options.max_new_tokens, most)
    stopwatch = Stopwatch(pair.device)
    run = Run(
        pair=pair,
        options=options,
        requests=requests,
        strategy=strategy,
        draft_length=draft_length,
        batch_size=options.batch_size,
        state=make_state(pair, options, requests, strategy, most, options.batch_size),
        stopwatch=stopwatch,
        meter=Meter(draft_length, stopwatch),
    )
    # All checks come before the first forward, so that a bad argument costs no time.
    drafter.check(run.task)
    if run.state.processors is not None:
        of_first = run.state.processors.of(requests[0])
        check_stateless(of_first, requests[0].prompt, pair.vocabulary_size, pair.device)
    _check_models(run)
    speed_up(run)
    return run


def check_pair(pair: object) -> None:
    """Raise ValueError unless `pair` is a Pair."""
    remedy = "use specviz.load_pair() or specviz.Pair(target, draft, tokenizer)"
    require_kind("pair", pair, Pair, remedy)


def make_state(
    pair: Pair,
    options: Options,
    requests: Sequence[Request],
    strategy: Strategy,
    max_draft_tokens: int,
    batch_size: int,
) -> State:
    """Return the state in which `requests` wait to be decoded: empty rows, empty K/V slabs.

    Strategy and batch size are passed beside `options`, because a run that is out of memory goes on
    with others. `max_draft_tokens` is 0 if the run never drafts.
    """
    drafter = options.parts.drafter
    levers = options.levers or NONE
    rows = strategy.capacity(batch_size, len(requests))
    longest = max(len(request.prompt) + request.budget for request in requests)
    budget = max(request.budget for request in requests)
    # A round writes K + 1 tokens behind n, before the host knows how many count. Where drafts
    # branch, their models may write more.
    models = drafter.models(pair)
    block = max((m.block_columns for m in models.values() if isinstance(m, DraftHead)), default=0)
    columns = 0
    if max_draft_tokens:
        columns = max(max_draft_tokens, drafter.columns(max_draft_tokens), block)
    slots = strategy.slots(longest, budget, columns)
    size = longest + columns + 1
    features = None
    wanted = drafter.features(pair)
    if wanted is not None:
        features = FeatureStore(wanted, rows, size, pair.target.dtype, pair.device)
    caches: dict[str, CachedModel] = {}
    for name, model in {"target": pair.target, **models}.items():
        if isinstance(model, DraftHead):
            assert features is not None, "a head reads features"
            caches[name] = cached_head(model, rows, slots, pair.vocabulary_size, features)
        # The draft's rounding decides the text only where acceptance weighs its probabilities.
        # Elsewhere it changes how many drafts are accepted, never which tokens are emitted.
        elif options.deterministic and (name == "target" or options.weighs_drafts):
            # Autoregressive decoding runs in the shape of K, too, so that texts can be compared.
            shape = fixed_shape(options.max_draft_tokens + 1, longest)
            caches[name] = FixedModel(model, rows, slots, pair.vocabulary_size, shape)
        else:
            # A draft model goes back by single tokens, which needs the states after them.
            kept = kept_state(strategy, drafter, levers) if name == "target" else "states"
            vocabulary = pair.vocabulary_size
            caches[name] = CachedModel(model, rows, slots, vocabulary, columns=columns, state=kept)
    return State(
        batch=Batch(rows, size, pair.device, rereads=drafter.rereads),
        layout=strategy.layout(rows, slots, columns, pair.device, pair.max_positions),
        caches=caches,
        waiting=deque(strategy.order(requests)),
        batch_size=min(batch_size, rows),
        max_draft_tokens=max_draft_tokens,
        max_columns=columns,
        block=block,
        num_draft_tokens=max_draft_tokens,
        eos_token_ids=torch.tensor(pair.eos_token_ids, dtype=torch.long, device=pair.device),
        chooser=options.make_chooser(),
        processors=options.make_processors(pair.target, pair.eos_token_ids),
        stops=options.make_stops(pair.tokenizer),
        keep_draft=levers.keep_draft and strategy.keeps_draft,
        fault=strategy.fault,
        features=features,
        levers=levers,
        fed_first=drafter.fed_first(max_draft_tokens),
    )


def kept_state(strategy: Strategy, drafter: Drafter, levers: Levers) -> str:
    """Return what the target keeps of its recurrences; see `Levers`."""
    # A token that is read alone leaves no inputs, and no state before it. Finished rows of a static
    # batch read theirs again, and so do a target that has run ahead of its own verification and a
    # row that went on from states of rejected drafts.
    reads_again = not strategy.refill or drafter.runs_target or strategy.fault is not None
    return "states" if reads_again else levers.state


def _check_models(run: Run) -> None:
    """Raise ValueError if an option asks for what a model of the run cannot do."""
    options = run.options
    caches = run.state.caches.values()
    fault = run.strategy.break_invariant
    refuse_if(
        fault == STATE and not any(cache.keeps_states for cache in caches),
        "break_invariant='state' needs a model whose layers keep states; "
        "pass load_pair('hybrid'), or another fault",
    )
    refuse_if(
        fault == WINDOW and not any(cache.windows for cache in caches),
        "break_invariant='window' needs a model whose layers attend to a window; "
        "pass load_pair('hybrid'), or another fault",
    )
    for name, cache in run.state.caches.items():
        model = f"{name}={type(cache.model).__name__}"
        refuse_if(
            isinstance(cache, CachedHead) and options.deterministic and options.weighs_drafts,
            "deterministic=True fixes the shape of the models' forwards, not of a draft head's, "
            "and with this coupling the rounding of the head would decide which drafts are "
            "accepted; pass coupling='gumbel', or drafter='model'",
        )
        refuse_if(
            cache.masks_columns and (options.compile or options.lanes > 1),
            f"{model} masks columns of its cache by tables of its own, which are replaced for one "
            "thread alone and never in compiled code; pass lanes=1 and compile=False",
        )
        if not cache.keeps_states:
            continue
        refuse_if(
            run.drafter.branches,
            f"{model} has layers with states, and drafter={run.drafter.name!r} proposes trees, "
            "each node of which would need the state of its own parent; pass drafter='model'",
        )
        refuse_if(
            options.compile,
            f"{model} has layers with states, and compile=True compiles forwards that read all "
            "tokens of a row at once, and states are read token by token; pass compile=False",
        )
        refuse_if(
            options.lanes > 1,
            f"{model} has layers with states, and lanes=2 runs a model in two threads, and states "
            "are read through the modules that both would share; pass lanes=1",
        )
        refuse_if(
            isinstance(cache, FixedModel),
            f"{model} has layers with states, and deterministic=True fills rows up with tokens "
            "that would change their states; pass deterministic=False",
        )


def speed_up(run: Run) -> None:
    """Capture the phases and compile the models, as far as the options say.

    Raises:
        ValueError: graphs=True, and the phases cannot be captured.
    """
    graphs = run.options.graphs
    if graphs is not False:
        reason = why_not_captured(run)
        if reason is None:
            run.state.graphs = PhaseGraphs(CudaGraphs(run.pair.device))
        elif graphs:
            raise ValueError(
                f"graphs=True, but {reason}; pass graphs=None to capture only what can be captured"
            )
        else:
            warnings.warn(f"nothing is captured, since {reason}", stacklevel=2)
    if run.options.compile:
        for cache in run.state.caches.values():
            cache.compile()


def why_not_captured(run: Run) -> str | None:
    """Return why the phases of a run cannot be captured; None if they can."""
    pair, state = run.pair, run.state
    marks = ("hf_device_map", "_hf_hook")  # what accelerate leaves on a model
    models = (pair.target, pair.draft)
    # A capture records the device's work of one call. What the host decides or computes then would
    # be frozen into every replay.
    reasons = [
        (pair.device.type != "cuda", f"the pair is on {pair.device}, and only CUDA has graphs"),
        (
            any(hasattr(model, mark) for model in models for mark in marks),
            "a model is spread by a device_map, or its weights are kept elsewhere",
        ),
        (run.options.lanes > 1, "two lanes run at the same time"),
        (run.options.deterministic, "deterministic=True computes in pieces that the host cuts"),
        (state.fault is not None, "a fault is injected"),
        (
            state.processors is not None or state.stops is not None,
            "logits processors and stop strings run on the host",
        ),
        (
            any(cache.keeps_states for cache in state.caches.values()),
            "layers with states read a row's tokens one by one",
        ),
    ]
    for kind in ("strategy", "drafter", "selector"):
        made = getattr(run, kind)
        # Each class must declare it for itself: a subclass may well read values on the host.
        is_capturable = vars(type(made)).get("capturable", False)
        reasons.append((not is_capturable, f"{kind}={made.name!r} needs the host within a phase"))
    return next((reason for applies, reason in reasons if applies), None)


def decode(pair: Pair, prompts: Sequence[Prompt], **options: Any) -> Iterator[Event]:
    """Decode `prompts` and yield an event after each of the five phases of every round.

    The events carry the run's own tensors and its live state, for a reader who wants to look
    inside. Arguments are checked when this is called; the models run as the events are taken.

        for event in decode(pair, ["def add(a, b):"], strategy="eqspec", max_new_tokens=16):
            if event.phase == "accept":
                print(event.round, [row.accepted for row in event.state.batch.rows])

    Args:
        options: strategy, drafter, num_draft_tokens, selector, batch_size, max_new_tokens,
            sampling, seed, deterministic, graphs, compile, num_threads, levers, logits_processor,
            stop and generation_config, as in `specviz.generate`. With `graphs`, a later round
            overwrites the tensors of an event.

    Raises:
        TypeError: an option is unknown; the message lists the known ones.
        ValueError: an argument cannot be used; the message names it, its value and the remedy.
    """
    run = make_run(pair, prompts, Options.of_one_lane(options))
    run.try_models()
    return run.events()
