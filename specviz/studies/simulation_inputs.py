"""Where a simulation gets its costs, acceptance and prompt lengths.

They come from recorded runs, which are made here if none are given, or from a roofline and a
stated acceptance.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from specviz.costs.ceilings import Ceilings
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.prompts import load_prompts
from specviz.record.trace import Trace
from specviz.simulation import Acceptance, Costs
from specviz.studies.arguments import load_models
from specviz.util.files import conditions
from specviz.util.validate import require_int

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair
    from specviz.engine.requests import Prompt

DEFAULT_K = 5
RECORDED = ("autoregressive", "inplace", "eqspec", "exspec")


@dataclass(frozen=True)
class Inputs:
    """What a simulation needs.

    Attributes:
        costs: by draft tokens a round.
        prompt_tokens: lengths to draw from.
        conditions: what costs and acceptance were taken from.
        runs: the recorded runs, if they were taken from runs.
    """

    costs: Mapping[int, Costs]
    acceptance: Acceptance
    prompt_tokens: Sequence[int]
    conditions: Mapping[str, object]
    runs: Sequence[Trace] = ()


def record_runs(
    pair: "Pair",
    prompts: "Sequence[Prompt]",
    *,
    batch_size: int = 8,
    num_draft_tokens: int = DEFAULT_K,
    max_new_tokens: int = 32,
    halves: bool = False,
    progress: bool = True,
) -> list[Trace]:
    """Record runs that costs can be fitted to, after one that warms up.

    Four strategies run at B = 1, at half of `batch_size` and at all of it. On a CPU they run side
    by side, so that a machine that slows down slows all of them alike.

    Args:
        halves: run everything on each half of the prompts, and at B = 2 too.
    """
    # Here, because simulating needs no torch.
    from specviz.engine.strategies import strategy
    from specviz.generation.generate import generate, generate_interleaved

    sizes = {1, max(1, require_int("batch_size", batch_size) // 2), batch_size}
    if halves:
        sizes.add(min(2, batch_size))
    parts = [prompts[::2], prompts[1::2]] if halves else [prompts]
    shared: dict[str, Any] = {
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "record": True,
    }
    generate(pair, prompts, strategy="eqspec", batch_size=batch_size, progress=False, **shared)
    runs = []
    for part in parts:
        for name in RECORDED:
            for size in sorted(sizes):
                how = strategy(name, window=2 * size) if name == "exspec" else name
                runs.append({"prompts": part, "strategy": how, "batch_size": size, **shared})
    traces: dict[int, Trace] = {}
    results = generate_interleaved(pair, runs)
    for place, result in tqdm(
        results, desc="record", total=len(runs), unit="run", disable=not progress
    ):
        assert result.trace is not None
        traces[place] = result.trace
    return [traces[place] for place in sorted(traces)]


def from_runs(traces: Sequence[Trace]) -> Inputs:
    """Take costs, acceptance by request and prompt lengths from recorded runs.

    Raises:
        ValueError: no run drafts, or those that do have several K.
    """
    drafting = [trace for trace in traces if trace.meta["num_draft_tokens"]]
    plain = [trace for trace in traces if not trace.meta["num_draft_tokens"]]
    acceptance = Acceptance.measured(drafting)
    costs = {}
    for runs in (plain, drafting):
        if runs:
            costs[int(runs[0].meta["num_draft_tokens"])] = Costs.measured(runs)
    first = drafting[0]
    lengths = [len(first.prompt(request)) for request in range(first.num_requests)]
    sizes = sorted({trace.meta["batch_size"] for trace in traces})
    taken_from = conditions(first.meta, costs="measured", runs=len(traces), batch_sizes=sizes)
    return Inputs(costs, acceptance, lengths, taken_from, traces)


def from_roofline(
    roofline: Roofline,
    num_draft_tokens: int,
    acceptance: Acceptance,
    prompt_tokens: Sequence[int],
    **settings: object,
) -> Inputs:
    """Take the floors of a device as costs, with and without speculation."""
    costs = {k: Costs(**roofline.simulated(k)) for k in (0, num_draft_tokens)}
    taken_from = {
        "device": roofline.ceilings.device,
        "dtype": roofline.dtype,
        "versions": {name: version(name) for name in ("specviz", "numpy")},
        "costs": "roofline",
        **settings,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Inputs(costs, acceptance, prompt_tokens, taken_from)


def inputs_of(options: Namespace) -> Inputs:
    """Take the inputs from what the command's arguments name.

    That is recorded runs, ceilings, or a pair, which is loaded and recorded first.

    Raises:
        ValueError, OSError: a file cannot be used, or arguments that belong together do not come
            together.
    """
    k = DEFAULT_K if options.num_draft_tokens is None else options.num_draft_tokens
    acceptance = None if options.alpha is None else Acceptance.geometric(options.alpha, k)
    lengths = None
    if options.prompt_tokens is not None:
        lengths = range(min(options.prompt_tokens), max(options.prompt_tokens) + 1)
    if options.captured and options.ceilings is None:
        raise ValueError(
            "--captured needs --ceilings, since recorded runs have their own costs; leave it out"
        )
    if (options.ceilings is None) != (options.shapes is None):
        raise ValueError(
            "--ceilings and --shapes belong together; "
            "give both, or neither for costs from recorded runs"
        )
    if options.ceilings is not None:
        if acceptance is None or lengths is None:
            raise ValueError(
                f"--ceilings {options.ceilings} says nothing of acceptance and prompts; "
                "give --alpha and --prompt-tokens, too"
            )
        return _named_roofline(options, k, acceptance, lengths)
    traces = [Trace.load(path) for path in options.runs] if options.runs else _recorded(options, k)
    found = from_runs(traces)
    k = max(found.costs)
    if options.num_draft_tokens not in (None, k):
        raise ValueError(
            f"--num-draft-tokens {options.num_draft_tokens} is not that of --runs, {k}; "
            "leave it out"
        )
    return replace(
        found,
        acceptance=acceptance or found.acceptance,
        prompt_tokens=lengths or found.prompt_tokens,
    )


def _named_roofline(
    options: Namespace, k: int, acceptance: Acceptance, lengths: Sequence[int]
) -> Inputs:
    target, draft = named_pair(options.shapes)
    ceilings = Ceilings.load(options.ceilings)
    roofline = Roofline(target, draft, ceilings, options.dtype or "bfloat16", options.captured)
    named = {"shapes": options.shapes, "captured": options.captured}
    return from_roofline(roofline, k, acceptance, lengths, **named)


def _recorded(options: Namespace, k: int) -> list[Trace]:
    held_out = options.question == "held_out"
    return record_runs(
        load_models(options),
        load_prompts(limit=32 if held_out else 8),
        batch_size=options.batch_size,
        num_draft_tokens=k,
        max_new_tokens=64 if held_out else 32,
        halves=held_out,
    )
