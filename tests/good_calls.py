"""A call that works of every public name, and which of the wrong values are right after all.

The names are those of `sv.__all__` and of their methods, with "strategy:NAME" and so on for the
options that no signature of their makers shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from bad_values import some_function as some_decoder
from bad_values import swept
from conftest import decoded, make_pair
from test_head_files import write_own
from tiny_run import TRACE

import specviz as sv
from specviz.engine.drafters import DRAFTERS
from specviz.engine.options import Options
from specviz.engine.selectors import SELECTORS
from specviz.engine.strategies import STRATEGIES

KEPT = Path(mkdtemp())  # for files that good calls read
WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"


@dataclass(frozen=True)
class Good:
    """A call that works.

    call: the callable, bound to an object where it is a method; arguments: of the call; fits: the
    kinds of values that each parameter takes besides (see `bad_values.KINDS`); also_called: what a
    sentence may say in place of the parameter's name; options: a class whose fields are the
    parameters.
    """

    call: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    fits: dict[str, str] = field(default_factory=dict)
    also_called: tuple[str, ...] = ()
    options: type | None = None

    @property
    def parameters(self) -> list[str]:
        return swept(self.call if self.options is None else self.options)


@cache
def good_calls() -> dict[str, Good]:
    """By the names of `discovered`."""
    parts = (_decoding, _records, _logs, _views, _options)
    return {name: good for part in parts for name, good in part().items()}


SETTINGS = {"logits_processor": "none []", "stop": "none []", "generation_config": "none"}
RUN = {
    "prompts": "nested",
    "num_draft_tokens": "small",
    "batch_size": "int",
    "max_new_tokens": "small tensor",
    "sampling": "none",
    "seed": "count",
    "graphs": "none",
    "num_threads": "none small",
    "levers": "none",
    **SETTINGS,
    "memory_budget": "none",
    **dict.fromkeys(("deterministic", "compile", "record", "progress"), "True"),
}


def _decoding() -> dict[str, Good]:
    pair = make_pair("llama")
    run = {"pair": pair, "prompts": [[1, 2], [3]]}
    sampling = sv.SamplingParams(1.0)
    logits = {"logits": torch.zeros(1, 5)}
    stored = {"target": WEIGHTS / "target", "draft": WEIGHTS / "draft"}
    file = {"source": "jsonl", "path": WEIGHTS / "prompts.jsonl", "field": "text"}
    return {
        "generate": Good(sv.generate, run | {"progress": False}, RUN),
        "generate:options": Good(partial(sv.generate, **run), {}, RUN, options=Options),
        "decode": Good(sv.decode, run, RUN),
        "decode:options": Good(partial(sv.decode, **run), {}, RUN, options=Options),
        "expected_acceptance": Good(sv.expected_acceptance, run | {"progress": False}, RUN),
        "ExpectedAcceptance.frame": Good(
            sv.ExpectedAcceptance("model", 1, 1.5, (1.2, 1.8), 0.5, (0.5,), 9, 2).frame,
            {},
            {"measured": "none 1.5 small"},
        ),
        "drafter": Good(sv.drafter, {"name": "lookup"}, also_called=("drafter",)),
        "selector": Good(sv.selector, {"name": "tetris"}, also_called=("selector",)),
        "strategy": Good(sv.strategy, {"name": "inplace"}, also_called=("strategy",)),
        "plan": Good(
            sv.plan,
            run | {"budget": "1GB"},
            {"prompts": "nested"},
        ),
        "chat": Good(sv.chat, {"pair": pair}, {"memory_budget": "none 1.5 small"}),
        "Levers": Good(
            sv.Levers,
            {},
            {"prefill_tokens": "none int", "keep_draft": "True"},
        ),
        "PeakMeter": Good(sv.PeakMeter, {}, {"models": "[]"}),
        "load_pair": Good(
            sv.load_pair, stored, dict.fromkeys(("device", "dtype", "device_map"), "none")
        ),
        "load_heads": Good(
            sv.load_heads, {"folder": write_own(KEPT / "head", "medusa"), "pair": pair}
        ),
        "load_prompts": Good(
            sv.load_prompts, file, {"categories": "none", "limit": "none int", "tokenizer": "none"}
        ),
        "Pair": Good(
            sv.Pair,
            {"target": pair.target, "draft": pair.draft},
            {"tokenizer": "none", "heads": "{}"},
        ),
        "SamplingParams": Good(
            sv.SamplingParams,
            {"temperature": 1.0, "coupling": "gumbel"},
            {"temperature": "1.5 small", "top_k": "none int", "top_p": "none"},
        ),
        "SamplingParams.warp": Good(sampling.warp, logits, {"logits": "tensor"}),
        "SamplingParams.distribution": Good(sampling.distribution, logits, {"logits": "tensor"}),
        "lab": Good(
            sv.lab,
            {"pair": pair, "prompts": [[1]]},
            {"pair": "none", "prompts": "none nested"},
        ),
    }


def _records() -> dict[str, Good]:
    result = decoded("eqspec")
    request = {"request": 0}, {"request": "0"}
    outputs = [[1, 2], [3]]
    return {
        "watch": Good(
            sv.watch,
            {"target": make_pair("llama").target, "draft": make_pair("llama").draft},
            {"draft": "none", "tokenizer": "none"} | SETTINGS,
        ),
        "audit": Good(
            sv.audit,
            {"reference": outputs, "candidate": outputs},
            {
                **dict.fromkeys(("reference", "candidate"), "nested"),
                **dict.fromkeys(("control", "prompts"), "none nested"),
                **dict.fromkeys(
                    ("target", "tokenizer", "device", "dtype", "generation_config"), "none"
                ),
                "batch_size": "int",
                "num_draft_tokens": "count",
            },
        ),
        "tiny_pair": Good(sv.tiny_pair, {}, {"vocabulary_size": "small", "seed": "small 0"}),
        "audit_sampling": Good(
            sv.audit_sampling,
            {"decode": some_decoder, "progress": False},
            {
                "decode": "function",
                **dict.fromkeys(("target", "draft"), "none"),
                "prompts": "none nested",
                **dict.fromkeys(("causes", "progress"), "bool"),
                "temperature": "1.5 small",
                "top_k": "none int",
                "top_p": "none",
                "max_new_tokens": "small",
                "seed": "count",
            },
        ),
        "check_invariants": Good(sv.check_invariants, {"trace": TRACE}, {"pair": "none"}),
        "compare": Good(sv.compare, {"result": result, "reference": result}, {"pair": "none"}),
        "Trace": Good(sv.Trace, {"meta": TRACE.meta, **TRACE.tables}),
        "Trace.prompt": Good(TRACE.prompt, *request),
        "Trace.output": Good(TRACE.output, *request),
        "Trace.origins": Good(TRACE.origins, *request),
        "Trace.text": Good(TRACE.text, {"token": 0}, {"token": "count"}),
        "Trace.save": Good(TRACE.save, {"path": "x"}, {"path": "file"}),
        "Trace.to_chrome_trace": Good(TRACE.to_chrome_trace, {"path": "x"}, {"path": "file"}),
        "Trace.load": Good(sv.Trace.load, {"path": "x"}),
    }


WRITER = {"prompts": [[1, 2], [1]], "vocabulary_size": 9, "num_draft_tokens": 2}


def _logging(name: str, arguments: dict[str, Any], fits: dict[str, str]) -> Good:
    """A call of a method of a new writer."""

    def call(**given: Any) -> object:
        return getattr(sv.TraceWriter(**WRITER), name)(**given)

    return Good(call, arguments, fits, options=getattr(sv.TraceWriter, name))


def _end_round(**given: Any) -> None:
    sv.TraceWriter(**WRITER).round(sv.RoundEnd(**given))


@dataclass
class About:
    """What the argument `about` of a TraceWriter takes."""

    target: Any = "t"
    draft: Any = None
    device: Any = "cpu"
    dtype: Any = "float32"
    created: Any = None
    batch_size: Any = None
    kv_bytes_per_slot: Any = None
    right_aligned: Any = False
    keep_draft: Any = True
    valid: Any = True


def _write_about(**about: Any) -> None:
    sv.TraceWriter(**WRITER, about=about)


def _logs() -> dict[str, Good]:
    log = sv.TraceWriter(**WRITER)
    row = {"rows": [0], "requests": [0]}
    log.round(sv.RoundEnd(**row, drafts=[[1]], accepted=[1], emitted=[[1, 2]]))
    log.save(KEPT / "log.jsonl")
    fed = {"model": "target", **row, "tokens": [[1]], "indices": [[0]]}
    moved = dict.fromkeys(("from_row", "from_slot", "to_row", "to_slot", "length"), 1)
    many = "0 small tensor"
    header = {
        "prompts": "nested []",
        "vocabulary_size": "small",
        "num_draft_tokens": "small 0",
        "budget": "none small tensor",
        "eos_token_ids": "[] tensor",
        "decoder": "'a' lines",
        "drafter": "'a' lines none",
        "sampling": "none {}",
        "tokenizer": "none {}",
        "path": "none file",
        "missing": "[] {}",
        "about": "none {}",
    }
    about = {
        "batch_size": "none small",
        **dict.fromkeys(("target", "device", "dtype"), "'a' lines"),
        **dict.fromkeys(("draft", "created"), "'a' lines none"),
        **dict.fromkeys(("right_aligned", "keep_draft", "valid"), "True"),
        "kv_bytes_per_slot": "none {}",
    }
    given = {
        **dict.fromkeys(("positions", "slots", "visible", "nodes", "states", "phase"), "none"),
    }
    ended = {
        **dict.fromkeys(("finished", "choices", "draft_logprobs", "target_logprobs"), "none"),
        **dict.fromkeys(("target_top", "draft_top", "verified", "discarded"), "none"),
        "slots": "none 0 small",
        **dict.fromkeys(("parents", "path", "starts", "pending"), "none"),
        **dict.fromkeys(("starts_after", "pending_after"), "none"),
        "ms": "none {}",
    }
    end = {**row, "drafts": [[1]], "accepted": [0], "emitted": [[1]]}
    return {
        "TraceWriter": Good(sv.TraceWriter, WRITER, header),
        "TraceWriter.add_request": _logging(
            "add_request", {"prompt": [1]}, {"prompt": "tensor", "budget": "none small"}
        ),
        "TraceWriter.add_texts": _logging("add_texts", {"texts": {1: "a"}}, {"texts": "{}"}),
        "TraceWriter.forward": _logging("forward", fed, given),
        "TraceWriter.move": _logging(
            "move",
            {"model": "draft", **moved},
            {**dict.fromkeys(moved, many), "length": "small tensor", "phase": "none"},
        ),
        "TraceWriter.round": Good(_end_round, end, ended, options=sv.RoundEnd),
        "TraceWriter:about": Good(_write_about, {}, about, options=About),
        "TraceWriter.save": Good(log.save, {"path": "x"}, {"path": "file"}),
        "read_log": Good(sv.read_log, {"path": KEPT / "log.jsonl"}),
    }


def _views() -> dict[str, Good]:
    fits = {"other": "none", "round": "none 0", "phase": "none", "row": "none 0", "judge": "True"}
    return {"step_through": Good(sv.step_through, {"trace": TRACE}, fits)}


def _options() -> dict[str, Good]:
    """The options of each strategy, drafter and selector."""
    flags = (
        "refill", "sort_prompts",
        "skip_unpadding", "ones_mask", "draft_bonus", "reread",
    )  # fmt: skip
    fits = {
        **dict.fromkeys(flags, "True"),
        **dict.fromkeys(("window", "max_wait", "max_ngram"), "int"),
        **dict.fromkeys(("depth", "width", "children"), "small"),
        "paths": "nested",
        "judged_by": "none",
        "valid": "True",
        "break_invariant": "none",
        "min_ngram": "small",
    }
    found = {}
    for name, kind in STRATEGIES.items():
        # Without a fault, an option of a fault has nothing to say.
        has_fault = kind().valid
        arguments = {"break_invariant": "kv"} if has_fault else {}
        of_fault = {"rows": "none [] {}", "from_round": "count"}
        of_none = {"rows": "none", "from_round": "0"}
        own = fits | (of_fault if has_fault else of_none)
        found[f"strategy:{name}"] = Good(partial(sv.strategy, name), arguments, own, options=kind)
    for name, kind in DRAFTERS.items():
        arguments = {"rates": [0.5]} if name == "synthetic" else {}
        found[f"drafter:{name}"] = Good(partial(sv.drafter, name), arguments, fits, options=kind)
    fits = {"valid": "True", "extra": "0 small", "max_wait": "none small", "at_least": "0"}
    for name, kind in SELECTORS.items():
        found[f"selector:{name}"] = Good(partial(sv.selector, name), {}, fits, options=kind)
    return found
