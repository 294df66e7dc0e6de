"""`decode`: the loop with everything chosen by name and checked first. `specviz.generate` is its collecting form."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from specviz.engine.accept import Chooser, Greedy
from specviz.engine.batch import Request
from specviz.engine.drafters import Drafter, NoDrafter
from specviz.engine.drafters import drafter as make_drafter
from specviz.engine.events import Event
from specviz.engine.loop import prepare, run_rounds
from specviz.engine.pair import Pair
from specviz.engine.requests import Prompt, make_requests, short, whole
from specviz.engine.sampling import SamplingParams
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.engine.strategies import strategy as make_strategy


@dataclass(frozen=True)
class Run:
    """A run that is ready to start: what was asked for, resolved and checked, and its state before the first round."""

    pair: Pair
    requests: list[Request]
    strategy: Strategy
    drafter: Drafter
    num_draft_tokens: int
    batch_size: int
    sampling: SamplingParams | None
    seed: int
    deterministic: bool
    state: State

    def events(self) -> Iterator[Event]:
        """Run it; see `decode`. Whoever takes the events calls `between` after each."""
        return run_rounds(self.state, self.strategy, self.drafter, self.num_draft_tokens)

    @torch.inference_mode()
    def between(self, event: Event) -> None:
        """What belongs to no phase, and is not to be timed: before a round drafts, the drafter may prepare."""
        if event.phase == "schedule":
            self.state.prepared = self.drafter.prepare(self)


def make_run(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    strategy: str | Strategy = "inplace",
    drafter: str | Drafter = "model",
    num_draft_tokens: int = 5,
    batch_size: int = 8,
    max_new_tokens: int | Sequence[int] = 128,
    sampling: SamplingParams | None = None,
    seed: int = 0,
    deterministic: bool = False,
) -> Run:
    """Check all arguments (those of `decode`) and lay out the state; no model runs.

    Raises:
        ValueError: an argument cannot be used; names it, its value and the remedy.
    """
    if not isinstance(pair, Pair):
        raise ValueError(f"pair={type(pair).__name__} is no Pair; use specviz.load_pair() or specviz.Pair(target, draft, tokenizer)")
    batch_size, k = whole("batch_size", batch_size), whole("num_draft_tokens", num_draft_tokens)
    chosen = make_strategy(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, Strategy):
        raise ValueError(f"strategy={short(strategy)} is neither a name nor a Strategy; use specviz.strategy(name, **options)")
    if not chosen.name:
        raise ValueError(f"strategy={short(strategy)} has no name; give its class a `name`, under which it is recorded")
    proposer = make_drafter(drafter) if isinstance(drafter, str) else drafter
    if not isinstance(proposer, Drafter):
        raise ValueError(f"drafter={short(drafter)} is neither a name nor a Drafter; use specviz.drafter(name, **options)")
    if not isinstance(deterministic, bool):
        raise ValueError(f"deterministic={short(deterministic)} is no bool; pass True or False")
    fixed_width = k + 1 if deterministic else None  # autoregressive decoding, too, runs in the shape that its K gives
    if not chosen.drafts:
        proposer, k = NoDrafter(), 0
    requests = make_requests(pair, prompts, max_new_tokens, k)
    seed = whole("seed", seed, least=0)
    state = prepare(pair, requests, chosen, proposer, k, batch_size, _chooser(pair, sampling, seed), fixed_width)
    run = Run(pair, requests, chosen, proposer, k, batch_size, sampling, seed, deterministic, state)
    proposer.check(run)
    return run


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

    Arguments are those of `specviz.generate` without `record` and `progress`, which are the consumer's business here.

    The events carry the run's own tensors and its live state, for a reader who wants to look inside. Arguments are checked
    when this is called; the models run as the events are taken.

        for event in decode(pair, ["def add(a, b):"], strategy="eqspec", max_new_tokens=16):
            if event.phase == "accept":
                print(event.round, [row.accepted for row in event.state.batch.rows])
    """
    return _taken(make_run(pair, prompts, **arguments))  # type: ignore[arg-type]


def _taken(run: Run) -> Iterator[Event]:
    for event in run.events():
        yield event
        run.between(event)


decode.__signature__ = inspect.signature(make_run).replace(return_annotation=Iterator[Event])  # type: ignore[attr-defined]
