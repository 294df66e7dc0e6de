"""`generate`: decode prompts in batches, collect the outcome, and record the run if asked to."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters import Drafter
from specviz.engine.kv.attention import attending
from specviz.engine.kv.cache import CachedModel
from specviz.engine.models.pair import Pair
from specviz.engine.recorder import Table
from specviz.engine.requests import Prompt
from specviz.engine.run import Run, make_run
from specviz.engine.sampling import SamplingParams
from specviz.engine.strategies import Strategy
from specviz.generation.collect import Collected, collect
from specviz.generation.interleave import TURNS, Steps, interleave
from specviz.generation.memory_check import check_memory
from specviz.generation.result import Result
from specviz.record.trace import Trace, flatten_requests
from specviz.util.validate import require_bool, short

ON_INTERRUPT = ("raise", "partial")


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
    deterministic: bool = False,
    graphs: bool | None = False,
    compile: bool = False,
    record: bool = False,
    progress: bool = True,
    on_interrupt: str = "raise",
) -> Result:
    """Decode `prompts` with batch speculative decoding: what the target alone would write, greedily or by sampling.

    Args:
        pair: from `load_pair`, or `Pair(target, draft, tokenizer)`.
        prompts: strings or lists of token ids.
        strategy: how rows are kept in step: a name, "eqspec" for instance, or an object from `strategy(name, **options)`;
            `strategies()` lists them.
        drafter: who proposes: "model", "lookup", or an object from `drafter(name, **options)`; `drafters()` lists them.
        num_draft_tokens: K, drafts a row and round; autoregressive decoding ignores it. "auto": chosen before each round, 0 to 8, by what
            this run's own rounds took and accepted (`engine/draft_length.py`); it goes by the last few hundred drafts, and once it drafts
            none it seldom tries again, since trying has to stay cheap. The text is the same whatever K is, greedily and with
            coupling="gumbel"; with coupling="rejection" it is distributed as ever, but the very sample then depends on timing.
        batch_size: rows at a time; a finished row makes room for the next prompt.
        max_new_tokens: budget of new tokens for all prompts, or one for each.
        sampling: how tokens are drawn, `SamplingParams(temperature=0.7)` for instance; None: greedy.
        seed: of all that is drawn, any whole number of at least 0; greedy decoding draws nothing, unless its drafter does. A
            prompt's text depends on the seed and its place in the list, not on its neighbours or the batch size; but where neighbours
            decide how a round goes (rollback, shrink_to_budget), coupling="rejection" draws another sample of the same distribution.
        deterministic: run every forward of the target in one fixed shape, so that a prompt's text does not depend on the batch around it,
            in any dtype; costs what the filling costs. Compare with autoregressive decoding in the same mode and with the same
            `num_draft_tokens`, which sets the shape.
        graphs: capture the phases of a round as CUDA graphs and replay them; True: or refuse to run, None: where that is possible, and
            elsewhere with a warning that says why not. A model that turns out not to be capturable runs uncaptured, with a warning. The
            text is the same, near ties apart: captured windows are rounded up. A recorded run is not captured.
        compile: let torch.compile make the models' forwards of a round (on a CPU it needs a C++ compiler); new shapes of a round, as one
            row in place of many, then take some seconds each, a minute in all.
        record: keep every step as `result.trace`.
        progress: show a bar over prompts with tokens/s and mean acceptance length.
        on_interrupt: what Ctrl-C (a kernel's interrupt) does: "raise" KeyboardInterrupt, or "partial": return what the rounds so far wrote,
            with the trace so far; `result.status` says which prompts were not finished.

    A device that runs out of memory while the models run halves the batch: a warning says so, no text changes, and rounds go on where
    they were. A row whose logits are no numbers ends there, with a status that says so.

    Raises:
        ValueError: an argument cannot be used, or the run needs more memory than the device has; nothing has run.
        MemoryError: the device ran out of memory with a single row.
    """
    if on_interrupt not in ON_INTERRUPT:
        raise ValueError(
            f"on_interrupt={short(on_interrupt)} is unknown; choose one of {', '.join(ON_INTERRUPT)}"
        )
    for name, value in (("record", record), ("progress", progress)):
        require_bool(name, value)
    _check_recorded(record, graphs)
    run = make_run(
        pair, prompts, strategy=strategy, drafter=drafter, num_draft_tokens=num_draft_tokens, batch_size=batch_size,
        max_new_tokens=max_new_tokens, sampling=sampling, seed=seed, deterministic=deterministic,
        graphs=False if record else graphs, compile=compile,
    )  # fmt: skip
    check_memory(run)
    return _result(
        run, collect(run, record=record, partial=on_interrupt == "partial", progress=progress)
    )


def generate_in_turns(
    pair: Pair, prompts: Sequence[Prompt], *, record: bool = False, **arguments: Any
) -> Steps[Result]:
    """`generate`, by a caller who does something else between rounds: yields after each how many tokens there are; its value is the Result.

    Args:
        record, arguments: those of `decode`, and `record`.

    Raises:
        ValueError: as `generate`.
        MemoryError: the device ran out of memory; the batch is not halved.
    """
    _check_recorded(record, arguments.get("graphs"))
    run = make_run(pair, prompts, **arguments | ({"graphs": False} if record else {}))
    check_memory(run)
    found, written = Collected(run, record=record), 0
    try:
        for event in run.events():
            found.see(event)
            if event.phase == "accept":
                written += sum(row.gained for row in event.state.batch.rows)
            if event.phase == "synchronise":
                yield written
    except torch.OutOfMemoryError:
        raise MemoryError(
            f"B = {run.batch_size} does not fit into the memory of {pair.device}"
        ) from None
    return _result(run, found)


def generate_side_by_side(
    pair: Pair, runs: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, Result]]:
    """Several runs, `runs` being the arguments of each, prompts among them: on a CPU side by side in `TURNS` turns, elsewhere one after
    another. Yields the place of each and its Result as it ends; times are those of its own turns.

    Raises:
        ValueError, MemoryError: as `generate_in_turns`.
    """
    running = [generate_in_turns(pair, **arguments) for arguments in runs]
    total = max(len(arguments["prompts"]) * arguments["max_new_tokens"] for arguments in runs)
    turns = (
        TURNS if pair.device.type == "cpu" else 1
    )  # a GPU's work goes on behind the host's clock
    return interleave(running, total, turns, lambda _: attending([pair.target, pair.draft]))


def _check_recorded(record: bool, graphs: object) -> None:
    if record and graphs:
        raise ValueError(
            "graphs=True replays phases without their records; pass graphs=None, or record=False"
        )


def _result(run: Run, found: Collected) -> Result:
    pair = run.pair
    meta = _describe(run, found.run.state.caches) | found.facts()
    rounds, rows = found.tally.rounds(run.stopwatch.milliseconds()), found.tally.rows()
    trace = None if found.recorder is None else _make_trace(run, found, meta, rounds, rows)
    asked, budgets = (
        [list(request.prompt) for request in run.requests],
        [request.budget for request in run.requests],
    )
    return Result(
        found.tokens,
        _decode_texts(pair, found.tokens),
        meta,
        rounds,
        rows,
        trace,
        prompts=asked,
        budgets=budgets,
    )


def _describe(run: Run, caches: dict[str, CachedModel]) -> dict[str, Any]:
    """The header of a trace: what was run, with what, on what, when."""
    pair = run.pair
    return {
        "strategy": run.strategy.name,
        "strategy_options": run.strategy.options,
        "valid": run.strategy.promises,
        "drafter": run.drafter.name,
        "drafter_options": run.drafter.options,
        "num_draft_tokens": run.num_draft_tokens,
        "num_draft_tokens_chosen": run.depth.name,
        "keep_draft": run.state.keep_draft,
        "batch_size": run.batch_size,
        "device": _device_name(pair.device),
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": model_name(pair.target),
        "draft": model_name(pair.draft),
        "vocabulary_size": pair.vocabulary_size,
        "eos_token_ids": pair.eos_token_ids,
        "sampling": None if run.sampling is None else asdict(run.sampling),
        "seed": run.seed,
        "deterministic": run.deterministic,
        "kv_bytes_per_slot": {
            name: caches[name].bytes_per_slot if name in caches else 0
            for name in ("target", "draft")
        },
        "decisions": list(run.strategy.decisions),
        "token_texts": {},
    }


def _versions() -> dict[str, str]:
    libraries = {name: version(name) for name in ("specviz", "torch", "transformers")}
    return {**libraries, "python": platform.python_version()}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def model_name(model: PreTrainedModel) -> str:
    """Class and parameters in millions, as records name a model."""
    parameters = sum(p.numel() for p in model.parameters())
    return f"{type(model).__name__} {parameters / 1e6:.1f}M"


def _decode_texts(pair: Pair, tokens: list[list[int]]) -> list[str]:
    if pair.tokenizer is None:
        return ["" for _ in tokens]
    return [pair.tokenizer.decode(row, skip_special_tokens=True) for row in tokens]


def _make_trace(
    run: Run, found: Collected, meta: dict[str, Any], rounds: Table, rows: Table
) -> Trace:
    recorder = found.recorder
    assert recorder is not None
    rows = recorder.rows(rows)
    feeds, holes = recorder.feeds()
    requests = flatten_requests(
        [r.prompt for r in run.requests], found.tokens, [r.budget for r in run.requests]
    )
    occurring = [
        requests["prompt_tokens"],
        requests["output_tokens"],
        rows["drafts"],
        rows["target_top_ids"],
        rows["draft_top_ids"],
    ]
    ids = [
        int(token)
        for token in np.unique(np.concatenate([column.ravel() for column in occurring]))
        if token >= 0
    ]
    texts = (
        {str(token): run.pair.tokenizer.decode([token]) for token in ids}
        if run.pair.tokenizer is not None
        else {}
    )
    return Trace(
        meta=meta | {"token_texts": texts}, requests=requests, rounds=rounds, rows=rows,
        feeds=feeds, holes=holes, moves=recorder.moves(), pool=found.tally.pool(),
    )  # fmt: skip
