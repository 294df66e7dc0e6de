"""`generate`: decode prompts in batches, collect what is written, and record the run on request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

import torch

from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters import Drafter
from specviz.engine.kv.attention import attending
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options, check_known
from specviz.engine.requests import Prompt
from specviz.engine.run import Run, make_run
from specviz.engine.sampling import SamplingParams
from specviz.engine.selectors import Selector
from specviz.engine.strategies import Strategy
from specviz.generation.assemble import make_result
from specviz.generation.collect import Collected, collect
from specviz.generation.interleave import TURNS, Steps, interleave
from specviz.generation.lanes import collect_lanes, make_lanes_result, with_own_threads
from specviz.generation.memory_check import check_memory
from specviz.generation.plan import plan_run
from specviz.generation.planned import Plan
from specviz.generation.result import Result
from specviz.util.levers import Levers
from specviz.util.validate import require_bool, require_choice

ON_INTERRUPT = ("raise", "partial")
P = ParamSpec("P")


def _names_unknown_options(function: Callable[P, Result]) -> Callable[P, Result]:
    """Let a keyword that `function` does not take end in an error that names the right one."""
    known = list(signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> Result:
        check_known(keywords, known)
        return function(*args, **keywords)

    return checked


@_names_unknown_options
def generate(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    strategy: str | Strategy = "inplace",
    drafter: str | Drafter = "model",
    num_draft_tokens: int | str | DraftLength = 5,
    selector: str | Selector = "everything",
    batch_size: int = 8,
    max_new_tokens: int | Sequence[int] = 128,
    sampling: SamplingParams | None = None,
    seed: int = 0,
    deterministic: bool = False,
    graphs: bool | None = False,
    compile: bool = False,
    num_threads: int | None = None,
    lanes: int = 1,
    levers: Levers | None = None,
    memory_budget: int | str | None = None,
    record: bool = False,
    progress: bool = True,
    on_interrupt: str = "raise",
) -> Result:
    """Decode `prompts` with batch speculative decoding: what the target alone would write.

    Args:
        pair: from `load_pair`, or `Pair(target, draft, tokenizer)`.
        prompts: strings or lists of token ids.
        strategy: how rows are kept in step: a name such as "eqspec", or an object from
            `strategy(name, **options)`; `strategies()` lists them.
        drafter: how tokens are proposed: "model", "lookup", or an object from
            `drafter(name, **options)`; `drafters()` lists them.
        num_draft_tokens: K, drafts per row and round; autoregressive decoding ignores it. "auto"
            chooses 0 to 8 before each round, or fewer where the drafter has a limit, by what this
            run's own rounds took and accepted (see `engine/auto.py`). It adapts to the last few
            hundred drafts. Once it drafts none, it seldom tries again, since trying has to stay
            cheap. Greedily and with
            coupling="gumbel", the text is the same whatever K is. With coupling="rejection" its
            distribution is the same, but the sample itself then depends on timing.
        selector: which drafts the target verifies: "everything", "tetris", "threshold", or an
            object from `selector(name, **options)`; `selectors()` lists them. K is then what a row
            verifies on average.
        batch_size: rows at a time; a finished row makes room for the next prompt.
        max_new_tokens: budget of new tokens for all prompts, or one for each.
        sampling: how tokens are drawn, for instance `SamplingParams(temperature=0.7)`; None:
            greedily.
        seed: of all random numbers, any int >= 0. Greedy decoding draws none, unless its drafter
            does. A prompt's text depends on the seed and its place in the list, not on the batch
            size or the other prompts. An exception is coupling="rejection" where the other rows
            influence how a round goes (rollback, shrink_to_budget): the sample then differs, its
            distribution does not.
        deterministic: run every forward of the target in one fixed shape, so that a prompt's text
            does not depend on the batch around it, in any dtype. It costs what the padding costs.
            Compare with autoregressive decoding in the same mode and with the same
            `num_draft_tokens`, which sets the shape.
        graphs: capture the phases of a round as CUDA graphs and replay them. True: or refuse to
            run. None: where that is possible, and elsewhere with a warning that gives the reason. A
            model that turns out not to be capturable runs uncaptured, with a warning. The text is
            the same, near ties apart: captured windows are rounded up. A recorded run is not
            captured.
        compile: compile the models' forwards of a round with torch.compile, on a GPU layer by layer
            (on a CPU it needs a C++ compiler). New kinds of forwards, one row in place of many for
            instance, then take 10 to 90 s each. Torch keeps what is compiled on disk. On a CPU, a
            run with one row reads all prompts but the first with compiled code, too, and a small
            draft model's K greedy forwards are one function where K is the same in every round.
        num_threads: CPU threads that torch computes with during the run. None: 1 if the target has
            fewer than 50 million parameters, else torch's own number. `result.summary` says which
            it was.
        lanes: 2: divide the rows into two lanes, of which one drafts while the other verifies
            (MineDraft's overlap). They run on a thread each where two can run at the same time: on
            CUDA, or a CPU with two cores or more. Elsewhere they take turns. Batch size and pools
            are halved, so that as many rows are decoded at a time as in one lane. The text is the
            same. `result.lanes` has both lanes, and `result.timeline` their phases on one clock.
            Without `num_threads` each lane computes with half of torch's number.
            docs/usage.md says what cannot be combined with lanes.
        levers: what the run does to take less memory, from `Levers(...)`. It does not change the
            text.
        memory_budget: bytes, or text such as "400MB": the run, weights included, takes no more.
            `plan` says what is chosen for that: `batch_size` and `num_draft_tokens` are then the
            largest that it may choose, the draft model may keep K/V in a window or none, and
            levers that are not set may be. The text stays the same. `result.plan` has the plan.
        record: keep every step as `result.trace`, or those of each lane.
        progress: show a bar over prompts with tokens/s and mean acceptance length.
        on_interrupt: what Ctrl-C (a kernel's interrupt) does: "raise" KeyboardInterrupt, or
            "partial": return what the complete rounds wrote, with the trace so far; `result.status`
            says which prompts were not finished.

    If the device runs out of memory while the models run, the batch is halved, with a warning.
    Rounds go on where they were and no text changes; two lanes are not halved. A row with
    non-finite logits ends there, and its status says so; the other rows go on.

    Raises:
        ValueError: an argument cannot be used, or the run needs more memory than the device has; no
            model has run.
        MemoryError: the device ran out of memory with a single row, or in two lanes.
    """
    options = Options(
        strategy=strategy,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        selector=selector,
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        seed=seed,
        deterministic=deterministic,
        graphs=graphs,
        compile=compile,
        num_threads=num_threads,
        lanes=lanes,
        levers=levers,
    )
    return _generate(pair, prompts, options, memory_budget, record, progress, on_interrupt)


def _generate(
    pair: Pair,
    prompts: Sequence[Prompt],
    options: Options,
    memory_budget: int | str | None,
    record: bool,
    progress: bool,
    on_interrupt: str,
) -> Result:
    """Run within a budget if there is one, in one lane or in two; see `generate`."""
    require_choice("on_interrupt", on_interrupt, ON_INTERRUPT)
    require_bool("record", record)
    require_bool("progress", progress)
    planned = _plan(memory_budget, pair, prompts, options, record)
    if planned is not None:
        options = replace(options, **planned.options)
    partial = on_interrupt == "partial"
    if options.lanes == 1:
        run = _make_checked_run(pair, prompts, options, record)
        collected = collect(run, record=record, partial=partial, progress=progress)
        return make_result(run, collected, plan=planned)
    run = _make_checked_run(pair, prompts, with_own_threads(options), record)
    found = collect_lanes(run, record=record, partial=partial, progress=progress)
    return make_lanes_result(run, found)


def generate_stepwise(
    pair: Pair, prompts: Sequence[Prompt], *, record: bool = False, **options: Any
) -> Steps[Result]:
    """Generate like `generate`, and give the caller control after each round.

    Yields the number of tokens written so far; the generator's value is the Result. Without
    `num_threads`, it computes with torch's own number.

    Args:
        options: those of `decode`.

    Raises:
        TypeError, ValueError: as `decode` and `generate`.
        MemoryError: the device ran out of memory; the batch is not halved.
    """
    # Interleaved runs and the baselines between them compute with the same number of threads.
    options = {"num_threads": torch.get_num_threads()} | options
    run = _make_checked_run(pair, prompts, Options.of_one_lane(options), record)
    collected = Collected(run, record=record)
    written = 0
    try:
        for event in run.events():
            collected.observe(event)
            if event.phase == "accept":
                written += sum(row.gained for row in event.state.batch.rows)
            if event.phase == "synchronise":
                yield written
    except torch.OutOfMemoryError:
        message = f"B = {run.batch_size} does not fit into the memory of {pair.device}"
        raise MemoryError(message) from None
    return make_result(run, collected)


def generate_interleaved(
    pair: Pair, runs: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, Result]]:
    """Generate several runs, interleaved on a CPU and one after another elsewhere.

    Yields the place of each run in `runs`, and its Result, as it ends. Times are those of its own
    turns.

    Args:
        runs: the arguments of each run besides the pair, `prompts` and an int `max_new_tokens`
            among them.

    Raises:
        TypeError, ValueError, MemoryError: as `generate_stepwise`.
    """
    jobs = [generate_stepwise(pair, **arguments) for arguments in runs]
    total = max(len(arguments["prompts"]) * arguments["max_new_tokens"] for arguments in runs)
    # A GPU still works on one run's round when the host turns to the next run.
    turns = TURNS if pair.device.type == "cpu" else 1
    return interleave(jobs, total, turns, lambda _: attending([pair.target, pair.draft]))


def _plan(
    budget: object, pair: Pair, prompts: Sequence[Prompt], options: Options, record: bool
) -> Plan | None:
    if budget is None:
        return None
    if record:
        raise ValueError(
            "record=True keeps copies of every step, which no memory budget counts; "
            "pass record=False, or memory_budget=None"
        )
    return plan_run("memory_budget", budget, pair, prompts, options)


def _make_checked_run(pair: Pair, prompts: Sequence[Prompt], options: Options, record: bool) -> Run:
    if record:
        if options.graphs:
            raise ValueError(
                "graphs=True replays phases without their records; "
                "pass graphs=None, or record=False"
            )
        # A replay runs no Python, so nothing would note what it feeds and moves.
        options = replace(options, graphs=False)
    run = make_run(pair, prompts, options)
    check_memory(run)
    run.try_models()
    return run
