"""Whether a run can fit into its device's memory, by the memory model, before it starts."""

import os
from contextlib import suppress
from pathlib import Path

import torch

from specviz.costs.memory import largest_batch, memory, peak_bytes
from specviz.costs.shapes import ITEMSIZE, ModelShape
from specviz.engine.run import Run

EXACT = 0.95  # the model of memory is right within 5 per cent; what might fit is not refused
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def check_memory(run: Run) -> None:
    """Raise ValueError that says the largest batch if the run needs more than the whole memory that its device can give it.

    Nothing is refused where that cannot be reckoned: models of another type than `ModelShape` knows, spread over devices, on MPS.
    """
    pair, device = run.pair, run.pair.device
    models = [pair.target, *run.drafter.models(pair).values()]
    room = available_bytes(device)
    if room is None or any(hasattr(model, "hf_device_map") for model in models):
        return
    try:
        target, *others = (ModelShape.from_config(model.config.to_dict()) for model in models)
    except ValueError:
        return
    dtype = min(
        (str(model.dtype).removeprefix("torch.") for model in models),
        key=lambda name: ITEMSIZE.get(name, 0),
    )
    if dtype not in ITEMSIZE:
        return
    draft, k = others[0] if others else None, run.num_draft_tokens
    sizes = {"dtype": dtype, "num_draft_tokens": k, "requests": len(run.requests)}
    sizes |= {
        "prompt_tokens": max(len(r.prompt) for r in run.requests),
        "max_new_tokens": max(r.budget for r in run.requests),
    }
    need = peak_bytes(memory(target, draft, run.strategy, batch_size=run.batch_size, **sizes))  # type: ignore[arg-type]
    if need * EXACT > room:
        most = largest_batch(room / EXACT, target, draft, run.strategy, **sizes)  # type: ignore[arg-type]
        remedy = (
            f"pass batch_size={most} or less"
            if most
            else "not even one row fits: lower max_new_tokens, or shorten the prompts"
        )
        raise ValueError(
            f"batch_size={run.batch_size} needs {need / 1e9:.3g} GB, and {device} has {room / 1e9:.3g} GB; {remedy}"
        )


def available_bytes(device: torch.device) -> int | None:
    """What models and a run may take together: on CUDA what is free and what this process holds, on a CPU all there is. None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return None
    total = None
    with suppress(ValueError, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        total = min(total, int(_LIMIT.read_text()))  # of a container; "max" where there is none
    return total
