"""Refuse a run that cannot fit into its device's memory, by the memory model, before it starts."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from specviz.costs.memory import largest_batch, memory, peak_bytes
from specviz.costs.shapes import ITEMSIZE, HeadShape, ModelShape, read_config
from specviz.engine.heads import DraftHead
from specviz.engine.run import Run

CERTAIN = 0.95  # share of a prediction that a run surely needs; what might fit is not refused
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


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
    dtypes = [str(model.dtype).removeprefix("torch.") for model in models]
    if any(dtype not in ITEMSIZE for dtype in dtypes):
        return
    try:
        shapes = [shape_of(model) for model in models]
    except ValueError:
        return
    target = shapes[0]
    draft = shapes[1] if len(shapes) > 1 else None

    sizes: dict[str, Any] = {
        "dtype": min(dtypes, key=ITEMSIZE.__getitem__),
        # Where drafts branch, their model may read more of them than are verified.
        "num_draft_tokens": run.state.max_columns,
        "requests": len(run.requests),
        "prompt_tokens": max(len(request.prompt) for request in run.requests),
        "max_new_tokens": max(request.budget for request in run.requests),
        "levers": replace(run.state.levers, keep_draft=run.state.keep_draft),
    }
    table = memory(target, draft, run.strategy, batch_size=run.batch_size, **sizes)
    need = peak_bytes(table)
    # In doubt the run may try: if memory runs out after all, the batch is halved.
    if need * CERTAIN <= available:
        return
    largest = largest_batch(available / CERTAIN, target, draft, run.strategy, **sizes)
    remedy = "not even one row fits: lower max_new_tokens, or shorten the prompts"
    if largest:
        remedy = f"pass batch_size={largest} or less"
    raise ValueError(
        f"batch_size={run.batch_size} needs {need / 1e9:.3g} GB, "
        f"and {pair.device} has {available / 1e9:.3g} GB; {remedy}"
    )


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
        features=model.kept_width,
        entry=settings.hidden_size * (1 if settings.is_residual else 2),
        attends=settings.has_cache,
        parallel=settings.kind == "parallel",
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
