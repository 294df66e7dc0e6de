"""From a run and what it wrote to its `Result`: texts, tables, header and trace."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from specviz.engine.kv.cache import CachedModel
from specviz.engine.models.pair import Pair
from specviz.engine.run import Run
from specviz.generation.collect import Collected
from specviz.generation.memory import Plan
from specviz.generation.result import Result
from specviz.record.replay import head_of
from specviz.record.schema import MODELS
from specviz.record.trace import Trace


def make_result(
    run: Run, collected: Collected, *, plan: Plan | None = None, origin: Any = None
) -> Result:
    """Return the result of `run`, collected from it and from the runs that continued it.

    Args:
        plan: how it was kept within a memory budget.
        origin: of its times, see `Stopwatch.spans_ms`.
    """
    tokens = collected.tokens
    result = Result(
        tokens=tokens,
        texts=decode_texts(run.pair, tokens),
        # From the caches of the last run: those of a run that was halved are gone.
        meta=header(run, collected.run.state.caches) | collected.facts(),
        rounds=collected.recorder.facts(run.stopwatch.milliseconds()),
        rows=collected.recorder.rows(),
        prompts=[list(request.prompt) for request in collected.requests],
        budgets=[request.budget for request in collected.requests],
        plan=plan,
        spans_ms=run.stopwatch.spans_ms(origin),
    )
    if not collected.recorder.keeps:
        return result
    tables = collected.recorder.tables(result.prompts, result.budgets)
    meta = result.meta
    tokenizer = run.pair.tokenizer
    if tokenizer is not None:  # the text of every token that a view may show, by id as JSON has it
        columns = [tables["requests"][name] for name in ("prompt_tokens", "output_tokens")]
        columns += [tables["rows"][name] for name in ("drafts", "target_top_ids", "draft_top_ids")]
        ids = np.unique(np.concatenate([column.ravel() for column in columns])).tolist()
        texts = {str(token): tokenizer.decode([token]) for token in ids if token >= 0}
        meta = meta | {"token_texts": texts}
    return replace(result, trace=Trace(meta, **tables))


def header(run: Run, caches: dict[str, CachedModel]) -> dict[str, Any]:
    """Return a trace's header: what was run, with what, on what, and when."""
    pair = run.pair
    device = pair.device
    sampling = run.options.sampling
    kv_bytes = {name: caches[name].bytes_per_slot if name in caches else 0 for name in MODELS}
    drafter = {
        "drafter": run.drafter.name,
        "drafter_options": run.drafter.options,
        "draft_kv": run.drafter.draft_kv,
        **({"block": run.state.block} if run.state.block else {}),
        "branches": run.drafter.branches,
    }
    unrecorded = [f"{kind}.{name}" for name, cache in caches.items() for kind in cache.unrecorded]
    own = {name: caches[name] for name in MODELS if name in caches}
    return drafter | {
        "unrecorded": unrecorded,
        "layers": {name: cache.layer_counts for name, cache in own.items() if cache.layer_counts},
        "windows": {name: cache.windows for name, cache in own.items() if cache.windows},
        "bytes_per_state": {
            name: cache.bytes_per_state for name, cache in own.items() if cache.keeps_states
        },
        "strategy": run.strategy.name,
        "strategy_options": run.strategy.options,
        "valid": run.options.promises,
        "right_aligned": run.strategy.right_aligned,
        "selector": run.selector.name,
        "selector_options": run.selector.options,
        "foresees": run.foresees,
        "num_draft_tokens": run.max_draft_tokens,
        "num_draft_tokens_chosen": run.draft_length.name,
        "keep_draft": run.state.keep_draft,
        "batch_size": run.batch_size,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "versions": dict(_versions()),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": model_name(pair.target),
        "draft": draft_name(pair, drafter),
        "vocabulary_size": pair.vocabulary_size,
        "eos_token_ids": pair.eos_token_ids,
        "sampling": None if sampling is None else asdict(sampling),
        **_by_text(run),
        "seed": run.options.seed,
        "deterministic": run.options.deterministic,
        "num_threads": run.num_threads,
        "kv_bytes_per_slot": kv_bytes,
        "decisions": list(run.strategy.decisions),
        "token_texts": {},
    }


def _by_text(run: Run) -> dict[str, Any]:
    """Return the names of the first request's processors, and the stop strings; if any."""
    found: dict[str, Any] = {}
    processors = run.state.processors
    if processors is not None:
        of_first = processors.of(run.requests[0])
        found["logits_processor"] = [type(each).__name__ for each in of_first]
    if run.options.stop:
        found["stop"] = list(run.options.stop)
    return found


@cache  # finding a distribution takes as long as a short round
def _versions() -> Mapping[str, str]:
    versions = {name: version(name) for name in ("specviz", "torch", "transformers")}
    return versions | {"python": platform.python_version()}


def draft_name(pair: Pair, meta: Mapping[str, Any]) -> str:
    """Return the name of what drafts in a run: the pair's draft model, or one of its heads."""
    head = head_of(meta)
    return f"{head} head" if head in pair.heads else model_name(pair.draft)


def model_name(model: PreTrainedModel) -> str:
    """Return class and parameters in millions, as records name a model."""
    parameters = sum(p.numel() for p in model.parameters())
    return f"{type(model).__name__} {parameters / 1e6:.1f}M"


def decode_texts(pair: Pair, tokens: list[list[int]]) -> list[str]:
    """Return the texts of the tokens; empty ones without a tokenizer."""
    if pair.tokenizer is None:
        return ["" for _ in tokens]
    return [pair.tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
