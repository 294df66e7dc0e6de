"""`plan`: options with which a run stays within a memory budget, the fastest first.

No model runs. What is chosen changes the run's speed, never its text.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

from specviz.costs.breakeven import check_rates
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.memory import peak_of
from specviz.costs.predict import DecodingJob
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape
from specviz.engine.drafters import Drafter
from specviz.engine.drafters.heads import ChainHeadDrafter
from specviz.engine.drafters.lookup import LookupDrafter
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.heads import DraftHead
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import check_pair
from specviz.engine.selectors import Everything
from specviz.engine.setup import kept_state
from specviz.generation.devices import by_device
from specviz.generation.measure import measure_model
from specviz.generation.memory_check import shape_of
from specviz.generation.plan_search import Candidate, Search, fitting, least_bytes, weight_bytes
from specviz.generation.planned import Plan, as_size
from specviz.util.levers import NONE
from specviz.util.validate import is_real, require_kind, short

UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RATE = 0.8  # the chance of a draft whose predecessors were accepted, where nothing else is known


def plan(
    budget: int | str,
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    rates: Sequence[float] | None = None,
    ceilings: Ceilings | None = None,
    **options: Any,
) -> Plan:
    """Plan a run of `prompts` that never takes more memory than `budget`. No model runs.

    It tries what leaves the text unchanged, drops what does not fit, and ranks the rest by the
    tokens a second that the roofline predicts.

    Args:
        budget: bytes, or text such as "400MB" or "1.5GiB", for the weights of the models that take
            part and for everything that the run holds.
        rates: unconditional acceptance at positions 1..K, as `metrics.acceptance` measures it, by
            which K is chosen. None: K is lowered only where it does not fit otherwise, and a draft
            behind accepted ones is taken to be accepted with a probability of 0.8.
        ceilings: of the device, from `Ceilings.load`; None takes those of two CPU cores, which
            specviz brings. They decide the order, not what fits.
        options: those of `generate`. `batch_size` and `num_draft_tokens` are the largest that the
            plan may choose. A draft model may keep no K/V. `levers` that are set stay. Nothing else
            changes.

    Not counted: the trial of a model before its first run, which reads a dozen tokens in two rows;
    what kernels need within themselves, and what an allocator keeps.

    Raises:
        TypeError: an option is unknown.
        ValueError: an argument cannot be used, the run cannot be planned, or the budget is too
            small; the message says how much would do.
    """
    return plan_run(
        "budget", budget, pair, prompts, Options.from_keywords(options), rates, ceilings
    )


def plan_run(
    name: str,
    budget: object,
    pair: Pair,
    prompts: Sequence[Prompt],
    options: Options,
    rates: Sequence[float] | None = None,
    ceilings: Ceilings | None = None,
) -> Plan:
    """Plan a run with these options; see `plan`. `name` is what the caller calls the budget."""
    check_pair(pair)
    budget_bytes = parse_bytes(name, budget)
    search = make_search(pair, prompts, options)
    roofline, job = _ranked_by(search, rates, ceilings)
    least = least_bytes(search)
    table = fitting(search, budget_bytes, roofline, job, any_k=rates is not None)
    if table.empty:
        raise ValueError(
            f"{name} must be at least {as_size(least)} ({least} bytes) for these prompts, got "
            f"{short(budget)}; pass that, lower max_new_tokens, or shorten the prompts"
        )
    best: Candidate = table["candidate"][0]
    parts = search.parts(best)
    return Plan(
        budget_bytes=budget_bytes,
        peak_bytes=peak_of(parts),
        weight_bytes=weight_bytes(parts),
        tokens_per_s=float(table["tokens_per_s"][0]),
        least_bytes=least,
        options=_options(best, options, search),
        parts=pd.DataFrame(parts, columns=["part", "when", "bytes"]),
        table=table.drop(columns="candidate"),
        devices=by_device(_models(pair, options), parts),
    )


def _ranked_by(
    search: Search, rates: Sequence[float] | None, ceilings: Ceilings | None
) -> tuple[Roofline, DecodingJob]:
    """Return what predicts the speed of a candidate."""
    if rates is None:
        checked = tuple(RATE ** (place + 1) for place in range(search.num_draft_tokens))
    else:
        checked = tuple(check_rates(rates))
    if ceilings is None:
        ceilings = Ceilings.load(CPU_TABLE)
    require_kind("ceilings", ceilings, Ceilings, "use Ceilings.load(path)")
    sizes = search.sizes
    dtype = _timed_dtype(sizes["dtype"], ceilings)
    job = DecodingJob(sizes["requests"], search.mean_prompt, sizes["max_new_tokens"], checked)
    return Roofline(search.target, search.draft, ceilings, dtype), job


def parse_bytes(name: str, size: object) -> int:
    """Return a number of bytes, given as such or as text with a unit. Raise ValueError if none."""
    remedy = "pass bytes, or text such as '400MB' or '1.5GiB'"
    number: object = size
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-zA-Z]*)\s*", size, re.ASCII)
        if found is None or found[2] not in UNITS or len(found[1]) > 30:
            raise ValueError(f"{name} must be a size, got {short(size)}; {remedy}")
        number = float(found[1]) * UNITS[found[2]]
    if not is_real(number) or not 1 <= number < 2**63:
        raise ValueError(f"{name} must be a size of 1 byte or more, got {short(size)}; {remedy}")
    return int(number)


def make_search(pair: Pair, prompts: Sequence[Prompt], options: Options) -> Search:
    """Return what there is to choose from. Raise ValueError if the run cannot be planned."""
    strategy = options.make_strategy()
    drafter = options.make_drafter(strategy)
    most = _check_plannable(options, drafter, strategy.drafts)
    requests = make_requests(pair, prompts, options.max_new_tokens, most)
    models = _models(pair, options)
    lengths = [len(request.prompt) for request in requests]
    levers = options.levers or NONE
    state = kept_state(strategy, drafter, levers)
    state = "states" if state == "auto" else state
    levers = replace(levers, state=state, keep_draft=levers.keep_draft and strategy.keeps_draft)
    shapes = []
    for role, model in zip(("target", "draft"), models, strict=False):
        shapes.append(_shape(role, model, levers.state if role == "target" else "states"))
    dtypes = [str(model.dtype).removeprefix("torch.") for model in models]
    return Search(
        target=shapes[0],
        draft=shapes[1] if len(shapes) > 1 else None,
        strategy=strategy,
        sizes={
            "dtype": max(dtypes, key=_itemsize),
            "prompt_tokens": max(lengths),
            "max_new_tokens": max(request.budget for request in requests),
            "requests": len(requests),
        },
        mean_prompt=sum(lengths) / len(lengths),
        batch_size=min(options.batch_size, len(requests)),
        num_draft_tokens=most,
        levers=levers,
    )


def _shape(role: str, model: PreTrainedModel, state: str) -> ModelShape:
    """Return the shape of a model, measured where no formula knows its type."""
    try:
        return shape_of(model)
    except ValueError:
        if isinstance(model, DraftHead):
            raise
        return measure_model(role, model, state)


def _models(pair: Pair, options: Options) -> list[PreTrainedModel]:
    """Return the target and, where a model drafts, the draft."""
    drafter = options.make_drafter(options.make_strategy())
    return [pair.target, *drafter.models(pair).values()]


def _check_plannable(options: Options, drafter: Drafter, drafts: bool) -> int:
    """Return the largest K. Raise ValueError for a run whose memory the model does not know."""
    if options.sampling is not None:
        raise ValueError(
            "sampling must be None for a memory budget, since the memory of sampling is not "
            f"modelled, got {short(options.sampling)}; decode greedily, or pass no budget"
        )
    if options.deterministic or options.compile or options.graphs is not False:
        raise ValueError(
            "deterministic, compile and graphs must be False for a memory budget, since what they "
            "keep is not modelled; leave them out, or pass no budget"
        )
    if options.lanes > 1:
        raise ValueError(
            f"lanes must be 1 for a memory budget, since what two lanes hold at the same time is "
            f"not modelled, got {options.lanes}; pass lanes=1, or no budget"
        )
    if type(options.make_selector()) is not Everything:
        raise ValueError(
            f"selector must be 'everything' for a memory budget, got {short(options.selector)}; "
            "leave it out, or pass no budget"
        )
    known = type(drafter) in (ModelDrafter, SyntheticDrafter, LookupDrafter)
    known = known or isinstance(drafter, ChainHeadDrafter)
    if drafts and not known:
        raise ValueError(
            "drafter must be 'model', 'lookup', 'eagle1' or 'eagle3' for a memory budget, got "
            f"{short(options.drafter)}; choose one of them, or pass no budget"
        )
    if isinstance(options.num_draft_tokens, str):
        raise ValueError(
            f"num_draft_tokens must be an int for a memory budget, got "
            f"{short(options.num_draft_tokens)}; pass the largest K that the plan may choose"
        )
    return options.max_draft_tokens if drafts else 0


def _options(best: Candidate, given: Options, search: Search) -> dict[str, Any]:
    """Return the options of `generate` that the plan decides."""
    k = best.num_draft_tokens or given.num_draft_tokens
    chosen = {"batch_size": best.batch_size, "num_draft_tokens": k}
    return chosen | {"levers": best.levers}


def _timed_dtype(dtype: str, ceilings: Ceilings) -> str:
    """Return the dtype to rank by: that of the models, where the ceilings have it."""
    try:
        ceilings.matmul_at(dtype, 1)
    except ValueError:
        return "float32"
    return dtype


def _itemsize(dtype: str) -> int:
    return torch.empty((), dtype=getattr(torch, dtype)).element_size()
