"""`generate`: decode prompts in batches, collect what is written, and record the run on request."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, TypedDict, Unpack

import torch
from transformers import GenerationConfig, LogitsProcessor

from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import Pair
from specviz.engine.options import LANES, Options, check_known
from specviz.engine.requests import Prompt
from specviz.engine.run import Run, make_run
from specviz.engine.sampling import SamplingParams
from specviz.engine.selectors import Selector
from specviz.engine.strategies import Strategy
from specviz.generation.assemble import make_result
from specviz.generation.collect import Collected, collect
from specviz.generation.lanes import run_lanes
from specviz.generation.memory import check_memory, plan_run
from specviz.generation.result import Result
from specviz.util.levers import Levers
from specviz.util.validate import require_bool, require_choice


class RareOptions(TypedDict, total=False):
    """Keyword arguments of `generate` that few runs need.

    Their defaults are selector="everything", deterministic=False, graphs=False, compile=False,
    num_threads=None, lanes=1, levers=None, memory_budget=None, on_interrupt="raise",
    logits_processor=None, stop=None and generation_config=None.

    Attributes:
        selector: which drafts the target verifies: "everything", "tetris", "threshold", or an
            object from `selector(name, **options)`; `selectors()` lists them. K is then what a row
            verifies on average.
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
            run with one row reads all prompts but the first with compiled code, too.
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
            largest that it may choose, and levers that are not set may be pulled. The text stays
            the same. `result.plan` has the plan.
        on_interrupt: what Ctrl-C (a kernel's interrupt) does: "raise" KeyboardInterrupt, or
            "partial": return what the complete rounds wrote, with the trace so far; `result.status`
            says which prompts were not finished.
        logits_processor: processors of transformers, one or a list. Each score is processed with
            its own row's text, so a prompt's text is what `generate` writes for it alone. One whose
            scores depend on earlier calls is refused.
        stop: a text, or several. A row ends at the first new token that completes one; that token
            is kept. Its status is "stop".
        generation_config: "target" applies what the checkpoint ships, or a `GenerationConfig`: its
            processors, its stop strings where `stop` is None, and if it samples its temperature,
            top_k and top_p where `sampling` is None. Its lengths and budgets of new tokens at most
            are not applied.
    """

    selector: str | Selector
    deterministic: bool
    graphs: bool | None
    compile: bool
    num_threads: int | None
    lanes: int
    levers: Levers | None
    memory_budget: int | str | None
    on_interrupt: str
    logits_processor: LogitsProcessor | Sequence[LogitsProcessor] | None
    stop: str | Sequence[str] | None
    generation_config: str | GenerationConfig | None


def generate(
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
    record: bool = False,
    progress: bool = True,
    **rare: Unpack[RareOptions],
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
            run's own rounds took and accepted (see `engine/draft_length.py`). It adapts to the last
            few hundred drafts. Once it drafts none, it seldom tries again, since trying has to stay
            cheap. Greedily and with coupling="gumbel", the text is the same whatever K is. With
            coupling="rejection" its distribution is the same, but the sample itself then depends on
            timing.
        batch_size: rows at a time; a finished row makes room for the next prompt.
        max_new_tokens: budget of new tokens for all prompts, or one for each.
        sampling: how tokens are drawn, for instance `SamplingParams(temperature=0.7)`; None:
            greedily.
        seed: of all random numbers, any int >= 0. Greedy decoding draws none, unless its drafter
            does. A prompt's text depends on the seed and its place in the list, not on the batch
            size or the other prompts. An exception is coupling="rejection" where the other rows
            influence how a round goes (rollback): the sample then differs, its
            distribution does not.
        record: keep every step as `result.trace`, or those of each lane.
        progress: show a bar over prompts with tokens/s and mean acceptance length.
        rare: see `RareOptions`.

    If the device runs out of memory while the models run, the batch is halved, with a warning.
    Rounds go on where they were and no text changes; two lanes are not halved. A row with
    non-finite logits ends there, and its status says so; the other rows go on.

    Raises:
        ValueError: an argument cannot be used, or the run needs more memory than the device has; no
            model has run.
        MemoryError: the device ran out of memory with a single row, or in two lanes.
    """
    common = [name for name in signature(generate).parameters if name != "rare"]
    check_known(rare, [*common, *RareOptions.__annotations__])
    given: dict[str, Any] = dict(rare)
    budget = given.pop("memory_budget", None)
    on_interrupt = given.pop("on_interrupt", "raise")
    options = Options(
        strategy=strategy,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        seed=seed,
        **given,
    )
    require_choice("on_interrupt", on_interrupt, ("raise", "partial"))
    require_bool("record", record)
    require_bool("progress", progress)
    planned = None
    if budget is not None:
        if record:
            raise ValueError(
                "record=True keeps copies of every step, which no memory budget counts; "
                "pass record=False, or memory_budget=None"
            )
        planned = plan_run("memory_budget", budget, pair, prompts, options)
        options = replace(options, **planned.options)
    if options.lanes > 1 and options.num_threads is None and not options.deterministic:
        # With another number, sums are rounded otherwise, which `deterministic` rules out.
        options = replace(options, num_threads=max(1, torch.get_num_threads() // LANES))
    run = _make_checked_run(pair, prompts, options, record)
    partial = on_interrupt == "partial"
    if options.lanes > 1:
        return run_lanes(run, record=record, partial=partial, progress=progress)
    collected = collect(run, record=record, partial=partial, progress=progress)
    return make_result(run, collected, plan=planned)


def generate_stepwise(
    pair: Pair, prompts: Sequence[Prompt], *, record: bool = False, **options: Any
) -> Generator[int, None, Result]:
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
            collected.recorder.observe(event)
            if event.phase == "accept":
                written += sum(row.gained for row in event.state.batch.rows)
            if event.phase == "synchronise":
                yield written
    except torch.OutOfMemoryError:
        message = f"B = {run.batch_size} does not fit into the memory of {pair.device}"
        raise MemoryError(message) from None
    return make_result(run, collected)


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
