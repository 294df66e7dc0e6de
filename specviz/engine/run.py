"""`decode`: the loop with everything chosen by name and checked first. `specviz.generate` is its collecting form."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from specviz.engine.accept import Chooser, Greedy
from specviz.engine.batch import Request
from specviz.engine.draft_length import Auto, DraftLength, Meter
from specviz.engine.drafters import Drafter, NoDrafter, Task
from specviz.engine.drafters import drafter as make_drafter
from specviz.engine.events import Event
from specviz.engine.graphs import CudaGraphs, PhaseGraphs
from specviz.engine.kv.attention import attending
from specviz.engine.loop import prepare, run_rounds
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.sampling import SamplingParams
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.engine.strategies import strategy as make_strategy
from specviz.engine.timing import Stopwatch
from specviz.util.validate import require_bool, require_int, short


@dataclass(frozen=True)
class Run:
    """A run that is ready to start: what was asked for, resolved and checked, and its state before the first round.

    `num_draft_tokens` is the largest K, `depth` says how many tokens a row drafts in each round, and `stopwatch` times the events.
    `lay_out` makes a state for requests, a strategy and a batch size, and `make_fast` captures and compiles what was asked for.
    """

    pair: Pair
    requests: list[Request]
    strategy: Strategy
    drafter: Drafter
    depth: DraftLength
    batch_size: int
    sampling: SamplingParams | None
    seed: int
    deterministic: bool
    state: State
    stopwatch: Stopwatch
    meter: Meter
    lay_out: Callable[[Sequence[Request], Strategy, int], State]
    make_fast: Callable[["Run"], None]

    @property
    def num_draft_tokens(self) -> int:
        return self.depth.most

    @property
    def task(self) -> Task:
        return Task(self.pair, self.requests, self.num_draft_tokens, self.sampling, self.seed)

    def events(self) -> Iterator[Event]:
        """Run it; see `decode`."""
        with attending([cache.model for cache in self.state.caches.values()]):
            for event in self.stopwatch.watch(
                run_rounds(self.state, self.strategy, self.drafter, self.depth)
            ):
                yield event
                self._between(event)

    def halved(self, requests: list[Request], rounds: int) -> "Run":
        """The rest of this run, `requests`, with half the batch size, as the rounds from `rounds` on; nothing of its state is kept."""
        strategy, batch_size = self.strategy.halved(), self.batch_size // 2
        self.stopwatch.cut(rounds)
        state = replace(self.lay_out(requests, strategy, batch_size), round=rounds)
        run = replace(
            self,
            requests=requests,
            strategy=strategy,
            batch_size=batch_size,
            state=state,
            meter=self.meter.anew(),
        )
        self.make_fast(run)
        return run

    @torch.inference_mode()
    def _between(self, event: Event) -> None:
        """What belongs to no phase, and is not to be timed: before a round drafts, the drafter may prepare; after it, K is thought over."""
        if event.phase == "schedule" and self.state.num_draft_tokens:
            self.state.prepared = self.drafter.prepare(self.task, self.state)
        self.meter.see(event)


def make_run(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    strategy: str | Strategy = "inplace",
    drafter: str | Drafter = "model",
    num_draft_tokens: int | str | DraftLength = 5,
    batch_size: int = 8,
    max_new_tokens: int | Sequence[int] = 128,
    sampling: SamplingParams | None = None,
    seed: int = 0,
    deterministic: bool = False,
    graphs: bool | None = False,
    compile: bool = False,
) -> Run:
    """Check all arguments (those of `decode`) and lay out the state; no model runs.

    Raises:
        ValueError: an argument cannot be used; names it, its value and the remedy.
    """
    if not isinstance(pair, Pair):
        raise ValueError(
            f"pair={type(pair).__name__} is no Pair; use specviz.load_pair() or specviz.Pair(target, draft, tokenizer)"
        )
    batch_size, depth = require_int("batch_size", batch_size), _depth(num_draft_tokens)
    chosen = make_strategy(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, Strategy):
        raise ValueError(
            f"strategy={short(strategy)} is neither a name nor a Strategy; use specviz.strategy(name, **options)"
        )
    if not chosen.name:
        raise ValueError(
            f"strategy={short(strategy)} has no name; give its class a `name`, under which it is recorded"
        )
    proposer = _proposer(drafter, chosen)
    for name, value in (("deterministic", deterministic), ("compile", compile), ("graphs", graphs)):
        if (name, value) != ("graphs", None):
            require_bool(name, value)
    fixed_width = (
        depth.most + 1 if deterministic else None
    )  # autoregressive decoding, too, runs in the shape that its K gives
    if not chosen.drafts:
        proposer, depth = NoDrafter(), DraftLength(0)
    requests = make_requests(pair, prompts, max_new_tokens, depth.most)
    seed, stopwatch = require_int("seed", seed, minimum=0), Stopwatch(pair.device)
    lay_out = partial(
        prepare, pair, proposer, depth.most, _chooser(pair, sampling, seed), fixed_width
    )
    run = Run(
        pair, requests, chosen, proposer, depth, batch_size, sampling, seed, deterministic, lay_out(requests, chosen, batch_size),
        stopwatch, Meter(depth, stopwatch), lay_out, partial(_make_fast, graphs=graphs, compile=compile),
    )  # fmt: skip
    proposer.check(run.task)
    run.make_fast(run)
    return run


def _make_fast(run: Run, graphs: bool | None, compile: bool) -> None:
    """Compile the models and capture the phases, as far as that was asked for; `graphs` None: captured if it can be, or with a warning."""
    reason = why_not_captured(run)
    if graphs and reason is not None:
        raise ValueError(
            f"graphs=True, but {reason}; pass graphs=None, which captures only what can be captured"
        )
    if graphs is None and reason is not None:
        warnings.warn(f"nothing is captured, since {reason}", stacklevel=2)
    if graphs is not False and reason is None:
        run.state.graphs = PhaseGraphs(CudaGraphs(run.pair.device))
    if compile:
        for cache in run.state.caches.values():
            cache.compile()


def why_not_captured(run: Run) -> str | None:
    """Why the phases of this run cannot be captured; None if they can."""
    state, pair = run.state, run.pair
    if pair.device.type != "cuda":
        return f"the pair is on {pair.device}, and only CUDA has graphs"
    if any(
        hasattr(model, name)
        for model in (pair.target, pair.draft)
        for name in ("hf_device_map", "_hf_hook")
    ):
        return "a model is spread by a device_map, or its weights are kept elsewhere"
    if run.sampling is not None:
        return "sampling draws its noise on the host"
    if run.deterministic:
        return "deterministic=True computes in pieces that the host cuts"
    if state.fault is not None:
        return "a fault is injected"
    if state.hidden is not None:
        return f"drafter={run.drafter.name!r} reads hidden states"
    for kind, named in (("strategy", run.strategy), ("drafter", run.drafter)):
        if not vars(type(named)).get("capturable", False):
            return f"{kind}={named.name!r} needs the host within a phase"
    return None


def _proposer(drafter: str | Drafter, strategy: Strategy) -> Drafter:
    made = (
        make_drafter(drafter, **strategy.drafter_options.get(drafter, {}))
        if isinstance(drafter, str)
        else drafter
    )
    if not isinstance(made, Drafter):
        raise ValueError(
            f"drafter={short(drafter)} is neither a name nor a Drafter; use specviz.drafter(name, **options)"
        )
    return made


def _depth(value: int | str | DraftLength) -> DraftLength:
    if isinstance(value, DraftLength):
        require_int("num_draft_tokens.most", getattr(value, "most", None), minimum=0)
        return value
    if isinstance(value, str):
        if value != Auto.name:
            raise ValueError(
                f"num_draft_tokens={short(value)} is unknown; pass a number of at least 1, or {Auto.name!r}"
            )
        return Auto()
    return DraftLength(require_int("num_draft_tokens", value))


def _chooser(pair: Pair, sampling: SamplingParams | None, seed: int) -> Chooser:
    if sampling is None:
        return Greedy()
    if not isinstance(sampling, SamplingParams):
        raise ValueError(
            f"sampling={short(sampling)} is no SamplingParams; pass specviz.SamplingParams(temperature=0.7), or None for greedy"
        )
    if pair.device.type == "mps":
        raise ValueError(
            "sampling needs float64, which pair.device=mps does not have; load the pair with device='cpu', or pass sampling=None"
        )
    return sampling.chooser(seed)


def decode(pair: Pair, prompts: Sequence[Prompt], **arguments: object) -> Iterator[Event]:
    """Decode `prompts` and yield an event after each of the five phases of every round.

    Arguments are those of `specviz.generate` without `record`, `progress` and `on_interrupt`, which are the consumer's business here, and
    `graphs`, which is off unless asked for: the tensors of an event are then overwritten by a later round.

    The events carry the run's own tensors and its live state, for a reader who wants to look inside. Arguments are checked
    when this is called; the models run as the events are taken.

        for event in decode(pair, ["def add(a, b):"], strategy="eqspec", max_new_tokens=16):
            if event.phase == "accept":
                print(event.round, [row.accepted for row in event.state.batch.rows])
    """
    return make_run(pair, prompts, **arguments).events()  # type: ignore[arg-type]


decode.__signature__ = inspect.signature(make_run).replace(return_annotation=Iterator[Event])  # type: ignore[attr-defined]
