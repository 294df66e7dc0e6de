"""Memory: plan a run within a budget, and refuse one that its device has no room for.

No model runs. What a plan chooses changes a run's speed, never its text.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

from specviz.costs.memory import RunMemory, as_size, peak_of, weight_bytes
from specviz.costs.shapes import ITEMSIZE, HeadShape, ModelShape, read_config
from specviz.engine.heads import DraftHead
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import Run, check_pair, kept_state
from specviz.engine.selectors import Everything
from specviz.generation.measure import measure_model
from specviz.util.levers import NONE
from specviz.util.validate import is_real, short

UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MARGIN = 0.02  # of what a run takes beside the weights
CHUNKS = (None, 2048, 512, 128, 32)  # tokens that one forward of a prefill may read
DRAFTERS = ("none", "model", "lookup", "synthetic", "eagle3")  # whose memory is known
CERTAIN = 0.95  # share of a prediction that a run surely needs; what might fit is not refused
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Plan:
    """Options that keep a run within a budget.

    Attributes:
        budget_bytes: for weights and all that a run takes.
        peak_bytes: what it takes at most by the memory model, with the margin.
        weight_bytes: of the models that take part.
        least_bytes: the smallest budget that could be planned for.
        options: of `generate`: batch_size, num_draft_tokens and levers.
        parts: the memory, part by part: part, when it is held, bytes.
    """

    budget_bytes: int
    peak_bytes: int
    weight_bytes: int
    least_bytes: int
    options: dict[str, Any]
    parts: pd.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        levers = self.options["levers"]
        words = [f"B = {self.options['batch_size']}, K = {self.options['num_draft_tokens']}"]
        if levers.prefill_tokens is not None:
            words.append(f"prompts in chunks of {levers.prefill_tokens} tokens")
        if not levers.keep_draft:
            words.append("no K/V of the draft kept")
        words.append(
            f"{as_size(self.peak_bytes)} at most, {as_size(self.weight_bytes)} of it weights"
        )
        least = f"the least budget is {as_size(self.least_bytes)}"
        return f"<Plan for {as_size(self.budget_bytes)}: {', '.join(words)}; {least}>"


def plan(budget: int | str, pair: Pair, prompts: Sequence[Prompt], **options: Any) -> Plan:
    """Plan a run of `prompts` that never takes more memory than `budget`. No model runs.

    The plan has the largest batch that fits, where need be with prompts read in chunks. Only where
    not even one row fits, it lowers K, and then keeps no K/V of the draft between rounds.

    Args:
        budget: bytes, or text such as "400MB" or "1.5GiB", for the weights of the models that take
            part and for everything that the run holds, on all devices together.
        options: those of `generate`. `batch_size` and `num_draft_tokens` are the largest that the
            plan may choose. `levers` that are set stay. Nothing else changes.

    Not counted: the trial of a model before its first run, which reads a dozen tokens in two rows;
    what kernels need within themselves, and what an allocator keeps.

    Raises:
        TypeError: an option is unknown.
        ValueError: an argument cannot be used, the run cannot be planned, or the budget is too
            small; the message says how much would do.
    """
    return plan_run("budget", budget, pair, prompts, Options.from_keywords(options))


def plan_run(
    name: str, budget: object, pair: Pair, prompts: Sequence[Prompt], options: Options
) -> Plan:
    """Plan a run with these options; see `plan`. `name` is what the caller calls the budget."""
    check_pair(pair)
    budget_bytes = parse_bytes(name, budget)
    need = _need(pair, prompts, options)
    given = need.levers
    ks = range(options.max_draft_tokens, 0, -1) if need.k else range(1)
    chunks: Sequence[int | None] = [given.prefill_tokens]
    if given.prefill_tokens is None:
        most = options.batch_size * need.prompt_tokens
        chunks = [chunk for chunk in CHUNKS if chunk is None or chunk < most]
    keeping = [True, False] if need.draft is not None and given.keep_draft else [given.keep_draft]
    rows = min(options.batch_size, need.requests)
    best, batch_size, least = need, 0, need.peak()
    for keep, k, chunk in product(keeping, ks, chunks):
        levers = replace(given, prefill_tokens=chunk, keep_draft=keep)
        each = replace(need, num_draft_tokens=k, levers=levers)
        least = min(least, each.peak())
        other = (keep, k) != (best.levers.keep_draft, best.num_draft_tokens)
        if batch_size and other:
            continue  # K and the draft's K/V are given up for the only row
        fitting = each.largest_batch(budget_bytes, rows)
        if fitting > batch_size:
            best, batch_size = each, fitting
    if not batch_size:
        raise ValueError(
            f"{name} must be at least {as_size(least)} ({least} bytes) for these prompts, got "
            f"{short(budget)}; pass that, lower max_new_tokens, or shorten the prompts"
        )
    parts = replace(best, batch_size=batch_size).parts()
    chosen: dict[str, Any] = {"batch_size": batch_size, "levers": best.levers}
    chosen["num_draft_tokens"] = best.k or options.num_draft_tokens
    return Plan(
        budget_bytes=budget_bytes,
        peak_bytes=peak_of(parts),
        weight_bytes=weight_bytes(parts),
        least_bytes=least,
        options=chosen,
        parts=pd.DataFrame(parts, columns=["part", "when", "bytes"]),
    )


def _need(pair: Pair, prompts: Sequence[Prompt], options: Options) -> RunMemory:
    """Return what a run of one row needs. Raise ValueError if it cannot be planned."""
    strategy, drafter, selector = options.parts
    uncounted = {
        "sampling": options.sampling is not None,
        "deterministic": options.deterministic,
        "compile": options.compile,
        "graphs": options.graphs is not False,
        "lanes": options.lanes > 1,
        "selector": type(selector) is not Everything,
        # A block of masks may be longer than what is drafted.
        "drafter": drafter.name not in DRAFTERS or drafter.name == "dflash",
        "num_draft_tokens": isinstance(options.num_draft_tokens, str),
    }
    for name, applies in uncounted.items():
        if applies:
            raise ValueError(
                f"{name}={short(getattr(options, name))} needs memory that no plan counts; leave "
                "it out, or pass no budget"
            )
    most = options.max_draft_tokens if strategy.drafts else 0
    requests = make_requests(pair, prompts, options.max_new_tokens, most)
    levers = options.levers or NONE
    state = kept_state(strategy, drafter, levers)
    state = "states" if state == "auto" else state
    levers = replace(levers, state=state, keep_draft=levers.keep_draft and strategy.keeps_draft)
    models = {"target": pair.target, **drafter.models(pair)}
    shapes: dict[str, ModelShape] = {}
    for role, model in models.items():
        try:
            shapes[role] = shape_of(model)
        except ValueError:
            if isinstance(model, DraftHead):
                raise
            shapes[role] = measure_model(role, model, state if role == "target" else "states")
    return RunMemory(
        target=shapes["target"],
        draft=shapes.get("draft"),
        strategy=strategy,
        dtype=max(map(_dtype, models.values()), key=lambda name: ITEMSIZE.get(name, 8)),
        prompt_tokens=max(len(request.prompt) for request in requests),
        max_new_tokens=max(request.budget for request in requests),
        num_draft_tokens=most,
        requests=len(requests),
        levers=levers,
        margin=MARGIN,
    )


def parse_bytes(name: str, size: object) -> int:
    """Return a number of bytes, given as such or as text with a unit. Raise ValueError if none."""
    number: object = size
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{0,30})?)\s*([a-zA-Z]*)\s*", size, re.ASCII)
        known = found is not None and found[2] in UNITS
        number = float(found[1]) * UNITS[found[2]] if found is not None and known else None
    if not is_real(number) or not 1 <= number < 2**63:
        raise ValueError(
            f"{name} must be a size of 1 byte or more, got {short(size)}; pass bytes, or text such "
            "as '400MB' or '1.5GiB'"
        )
    return int(number)


def shape_of(model: PreTrainedModel) -> ModelShape:
    """Return the shape of a model, or of a draft head. Raise ValueError if its type is unknown."""
    sizes = model.config.to_dict()
    if not isinstance(model, DraftHead):
        return ModelShape.from_config(sizes)
    settings = model.settings
    return HeadShape(
        **read_config(sizes),
        own_parameters=sum(parameter.numel() for parameter in model.parameters()),
        read=len(settings.layers) * settings.hidden_size,
        # MTP layers keep what each of them made of a token for the next one.
        features=settings.hidden_size * (settings.num_layers if settings.kind == "mtp" else 1),
        entry=settings.hidden_size * (1 if settings.is_residual else 2),
        attends=settings.has_cache,
    )


def _dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def check_memory(run: Run) -> None:
    """Raise ValueError if the run needs more memory than its device has; name the largest batch.

    Nothing is refused where the need cannot be computed: for model types that `ModelShape` does not
    know, for models spread over devices, and on MPS.
    """
    pair = run.pair
    models = [pair.target, *run.drafter.models(pair).values()]
    available = available_bytes(pair.device)
    if available is None or any(hasattr(model, "hf_device_map") for model in models):
        return
    dtypes = [_dtype(model) for model in models]
    if any(dtype not in ITEMSIZE for dtype in dtypes):
        return
    try:
        target, draft, *_ = [*map(shape_of, models), None]
    except ValueError:
        return
    assert target is not None
    run_memory = RunMemory(
        target=target,
        draft=draft,
        strategy=run.strategy,
        dtype=min(dtypes, key=ITEMSIZE.__getitem__),
        prompt_tokens=max(len(request.prompt) for request in run.requests),
        max_new_tokens=max(request.budget for request in run.requests),
        batch_size=run.batch_size,
        # Where drafts branch, their model may read more of them than are verified.
        num_draft_tokens=run.state.max_columns,
        requests=len(run.requests),
        levers=replace(run.state.levers, keep_draft=run.state.keep_draft),
    )
    need = run_memory.peak()
    # In doubt the run may try: if memory runs out after all, the batch is halved.
    if need * CERTAIN <= available:
        return
    largest = run_memory.largest_batch(available / CERTAIN)
    remedy = "not even one row fits: lower max_new_tokens, or shorten the prompts"
    if largest:
        remedy = f"pass batch_size={largest} or less"
    raise ValueError(
        f"batch_size={run.batch_size} needs {need / 1e9:.3g} GB, "
        f"and {pair.device} has {available / 1e9:.3g} GB; {remedy}"
    )


def available_bytes(device: torch.device) -> int | None:
    """Return the bytes that models and a run may take together; None if that is unknown.

    On CUDA they are what is free and what this process holds, on a CPU all the memory there is.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return None
    total = None
    # A container's limit file holds "max" where there is no limit.
    with suppress(ValueError, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        total = min(total, int(_CONTAINER_LIMIT.read_text()))
    return total
