"""A run that is ready to start, and `decode`, which makes one and runs it."""

import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from specviz.engine.batch import Request
from specviz.engine.draft_length import DraftLength, Meter
from specviz.engine.drafters import Drafter, Task
from specviz.engine.events import Event
from specviz.engine.graphs import CudaGraphs, PhaseGraphs, part_not_captured
from specviz.engine.head_probe import check_head
from specviz.engine.heads import DraftHead
from specviz.engine.kv.attention import attending
from specviz.engine.kv.deterministic import FixedModel
from specviz.engine.loop import run_rounds
from specviz.engine.models.compat import check_mode
from specviz.engine.models.pair import Pair
from specviz.engine.models.settings import describe_ignored
from specviz.engine.options import Options
from specviz.engine.probe import can_pack, check_exact
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.sampling import Greedy
from specviz.engine.selectors import Everything, Selector, foresees
from specviz.engine.setup import make_state
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.engine.threads import choose_threads, computing_with
from specviz.engine.timing import Stopwatch
from specviz.util.validate import require_kind


@dataclass(frozen=True)
class Run:
    """A run before its first round: the caller's options, and what was made of them.

    Attributes:
        options: as the caller passed them.
        strategy, drafter, selector, draft_length: the objects that the options name. Without
            drafts, the drafter proposes nothing and the draft length is 0.
        batch_size: that of the options, or less once memory has run out.
        stopwatch: times the events.
        meter: reports the cost of each round to `draft_length`.
    """

    pair: Pair
    options: Options
    requests: list[Request]
    strategy: Strategy
    drafter: Drafter
    selector: Selector
    draft_length: DraftLength
    batch_size: int
    state: State
    stopwatch: Stopwatch
    meter: Meter

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens that a row may draft in any round."""
        return self.selector.drafted(self.draft_length.most) if self.draft_length.most else 0

    @property
    def chain_length(self) -> int | None:
        """K, if all rounds may draft K tokens greedily; otherwise None."""
        kinds = type(self.draft_length), type(self.selector), type(self.state.chooser)
        return self.draft_length.most if kinds == (DraftLength, Everything, Greedy) else None

    @property
    def promises(self) -> bool:
        """Whether this run promises the target's own text, or its distribution when sampling."""
        biased = (self.foresees or self.drafter.biased) and self.state.chooser.weighs_drafts
        return self.strategy.promises and not (biased and self.strategy.drafts)

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
        """Raise ValueError if a model's logits depend on where its K/V lies; see `probe`."""
        for role, cache in self.state.caches.items():
            if isinstance(cache.model, DraftHead):
                check_head(cache.model)
            else:
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
            if event.phase == "draft" and not state.keep_draft:
                self._release_drafts()
            # Before this, a layout does not know where the accepted drafts of a tree lie.
            if event.phase == "synchronise" and state.store is not None:
                state.store.keep_finished(state)
            self.meter.observe(event)

    def _release_drafts(self) -> None:
        """Free the draft models' K/V: they read all text again."""
        for name, cache in self.state.caches.items():
            if name != "target" and not self.state.graphs.active:
                cache.release()

    def halved(self, requests: list[Request], rounds: int) -> "Run":
        """Return a run of `requests` with half the batch size and new state, from `rounds` on."""
        strategy = self.strategy.halved()
        batch_size = self.batch_size // 2
        state = make_state(
            self.pair,
            self.options,
            requests,
            strategy,
            self.drafter,
            self.max_draft_tokens,
            batch_size,
        )
        # One record covers both runs, so rounds are numbered on.
        state.round = rounds
        run = replace(
            self,
            requests=requests,
            strategy=strategy,
            batch_size=batch_size,
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
    if options.sampling is not None and pair.device.type == "mps":
        raise ValueError(
            "pair.device must have float64 for sampling, got mps; "
            "load the pair with device='cpu', or pass sampling=None"
        )
    ignored = describe_ignored(pair.target)
    if ignored is not None:
        warnings.warn(ignored, stacklevel=2)
    strategy = options.make_strategy()
    drafter = options.make_drafter(strategy)
    for role, model in {"target": pair.target, **drafter.models(pair)}.items():
        name = f"heads[{model.settings.kind!r}]" if isinstance(model, DraftHead) else role
        check_mode(name, model)
    # A fresh one for each run: "auto" learns.
    limit = drafter.limit(pair)
    draft_length = options.make_draft_length(limit) if strategy.drafts else DraftLength(0)
    selector = options.make_selector()
    most = selector.drafted(draft_length.most) if draft_length.most else 0
    requests = make_requests(pair, prompts, options.max_new_tokens, most)
    state = make_state(pair, options, requests, strategy, drafter, most, options.batch_size)
    stopwatch = Stopwatch(pair.device)
    run = Run(
        pair=pair,
        options=options,
        requests=requests,
        strategy=strategy,
        drafter=drafter,
        selector=selector,
        draft_length=draft_length,
        batch_size=options.batch_size,
        state=state,
        stopwatch=stopwatch,
        meter=Meter(draft_length, stopwatch),
    )
    # All checks come before the first forward, so that a bad argument costs no time.
    drafter.check(run.task)
    check_states(run)
    speed_up(run)
    return run


def check_states(run: Run) -> None:
    """Raise ValueError if a model's layers keep states and an option does not allow for them."""
    caches = run.state.caches
    keeping = {name for name, cache in caches.items() if cache.keeps_states}
    options = run.options
    reasons = {
        f"drafter={run.drafter.name!r} proposes trees, each node of which would need the state of "
        "its own parent; pass drafter='model'": run.drafter.branches,
        "compile=True compiles forwards that read all tokens of a row at once, and states are read "
        "token by token; pass compile=False": options.compile,
        "lanes=2 runs a model in two threads, and states are read through the modules that both "
        "would share; pass lanes=1": options.lanes > 1,
    }
    for name, cache in caches.items():
        if cache.masks_columns and (options.compile or options.lanes > 1):
            raise ValueError(
                f"{name}={type(cache.model).__name__} masks columns of its cache by tables of its "
                "own, which are replaced for one thread alone and never in compiled code; "
                "pass lanes=1 and compile=False"
            )
    for name in sorted(keeping):
        own = {
            "deterministic=True fills rows up with tokens that would change their states; "
            "pass deterministic=False": isinstance(caches[name], FixedModel),
        }
        for reason, applies in (reasons | own).items():
            if applies:
                model = type(caches[name].model).__name__
                raise ValueError(f"{name}={model} has layers with states, and {reason}")


def check_pair(pair: object) -> None:
    """Raise ValueError unless `pair` is a Pair."""
    remedy = "use specviz.load_pair() or specviz.Pair(target, draft, tokenizer)"
    require_kind("pair", pair, Pair, remedy)


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
        for name, cache in run.state.caches.items():
            cache.compile(run.chain_length if name == "draft" else None)


def why_not_captured(run: Run) -> str | None:
    """Return why the phases of this run cannot be captured; None if they can."""
    pair = run.pair
    # A capture records the device's work of one call. What the host decides or computes then would
    # be frozen into every replay.
    if pair.device.type != "cuda":
        return f"the pair is on {pair.device}, and only CUDA has graphs"
    for model in (pair.target, pair.draft):
        # What accelerate leaves on a model that it has spread or offloaded.
        if hasattr(model, "hf_device_map") or hasattr(model, "_hf_hook"):
            return "a model is spread by a device_map, or its weights are kept elsewhere"
    if run.options.lanes > 1:
        return "two lanes run at the same time"
    if run.options.deterministic:
        return "deterministic=True computes in pieces that the host cuts"
    if run.state.fault is not None:
        return "a fault is injected"
    if any(cache.keeps_states for cache in run.state.caches.values()):
        return "layers with states read a row's tokens one by one"
    parts = (("strategy", run.strategy), ("drafter", run.drafter), ("selector", run.selector))
    return part_not_captured(parts)


def decode(pair: Pair, prompts: Sequence[Prompt], **options: Any) -> Iterator[Event]:
    """Decode `prompts` and yield an event after each of the five phases of every round.

    The events carry the run's own tensors and its live state, for a reader who wants to look
    inside. Arguments are checked when this is called; the models run as the events are taken.

        for event in decode(pair, ["def add(a, b):"], strategy="eqspec", max_new_tokens=16):
            if event.phase == "accept":
                print(event.round, [row.accepted for row in event.state.batch.rows])

    Args:
        options: strategy, drafter, num_draft_tokens, selector, batch_size, max_new_tokens,
            sampling, seed, deterministic, graphs, compile, num_threads and levers, as in
            `specviz.generate`. With `graphs`, a later round overwrites the tensors of an event.

    Raises:
        TypeError: an option is unknown; the message lists the known ones.
        ValueError: an argument cannot be used; the message names it, its value and the remedy.
    """
    run = make_run(pair, prompts, Options.of_one_lane(options))
    run.try_models()
    return run.events()
