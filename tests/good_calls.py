"""A call that works of every public callable, and which of the wrong values are right after all.

The names are those of `public_names.discovered`, with "strategy:NAME" and "drafter:NAME" and so
on for the options that no signature of their makers shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from bad_values import some_function as some_decoder
from bad_values import swept
from bench_rows import sample
from conftest import decoded, make_pair
from test_head_files import write_own
from tiny_run import TRACE

import specviz as sv
from specviz import bench, metrics, prompts, servers, simulation
from specviz.engine.drafters import DRAFTERS
from specviz.engine.options import Options
from specviz.engine.selectors import SELECTORS
from specviz.engine.strategies import STRATEGIES
from specviz.record.replay import Replay
from specviz.studies import (
    agreement,
    couplings,
    figures,
    losses,
    moves,
    overhead,
    overlap,
    packing,
    selection,
    tables,
    tree_moves,
    trees,
)
from specviz.studies import calibration as calibration_study
from specviz.studies import ceilings as ceiling_study
from specviz.studies import chat as chat_study
from specviz.studies import memory as memory_study
from specviz.studies import survey as survey_study
from specviz.util.files import save_measured
from specviz.views import audit_page, charts
from specviz.views.charts import capacity, drawing, plot, sliders
from specviz.views.stepper import replays
from specviz.zoo import heads, measure, pipeline
from specviz.zoo.ladder import study as ladder_study

KEPT = Path(mkdtemp())  # for files that good calls read
WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"


# Of an acceptance table with two drafts at one position.
COLUMNS: dict[str, Any] = {
    "prompt_tokens": np.array([4], np.int32),
    "offsets": np.array([0, 1]),
    "drafts": np.zeros((1, 2), np.int32),
    "log_q": np.zeros((1, 2), np.float32),
    "entropy": np.zeros((1, 2), np.float32),
    "accepted": np.array([1], np.int8),
}


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
    parts = (
        _decoding, _records, _logs, _views, _options, _benchmarks, _servers, _tables, _studies,
    )  # fmt: skip
    return {name: good for part in parts for name, good in part().items()}


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
        "decode": Good(sv.decode, run, RUN),
        "decode:options": Good(partial(sv.decode, **run), {}, RUN, options=Options),
        "drafter": Good(sv.drafter, {"name": "lookup"}, also_called=("drafter",)),
        "selector": Good(sv.selector, {"name": "tetris"}, also_called=("selector",)),
        "strategy": Good(sv.strategy, {"name": "inplace"}, also_called=("strategy",)),
        "plan": Good(
            sv.plan,
            run | {"budget": "1GB"},
            {"prompts": "nested", "rates": "none", "ceilings": "none"},
        ),
        "chat": Good(sv.chat, {"pair": pair}, {"memory_budget": "none 1.5 small"}),
        "Levers": Good(
            sv.Levers,
            {},
            {"draft_logits": "True"}
            | dict.fromkeys(
                ("prefill_tokens", "draft_window", "accept_rows", "slab_block"), "none int"
            ),
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
        "prompts.spread": Good(
            prompts.spread,
            {"items": [1], "limit": 1},
            {"items": "nested [] text bytes", "limit": "none int"},
        ),
        "Pair": Good(
            sv.Pair,
            {"target": pair.target, "draft": pair.draft},
            {"tokenizer": "none", "heads": "{}"},
        ),
        "SamplingParams": Good(
            sv.SamplingParams,
            {"temperature": 1.0, "coupling": "typical"},
            {"temperature": "1.5 small", "top_k": "none int", "top_p": "none"}
            | dict.fromkeys(("epsilon", "delta"), "none 0"),
        ),
        "SamplingParams.warp": Good(sampling.warp, logits, {"logits": "tensor"}),
        "SamplingParams.distribution": Good(sampling.distribution, logits, {"logits": "tensor"}),
        "SamplingParams.chooser": Good(sampling.chooser, {"seed": 0}, {"seed": "count"}),
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
            {"draft": "none", "tokenizer": "none"},
        ),
        "audit": Good(
            sv.audit,
            {"reference": outputs, "candidate": outputs},
            {
                **dict.fromkeys(("reference", "candidate"), "nested"),
                **dict.fromkeys(("control", "prompts"), "none nested"),
                **dict.fromkeys(("target", "tokenizer", "device", "dtype"), "none"),
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
        "Result.to_chrome_trace": Good(
            decoded("inplace").to_chrome_trace, {"path": "x"}, {"path": "file"}
        ),
        "Trace.save": Good(TRACE.save, {"path": "x"}, {"path": "file"}),
        "Trace.to_chrome_trace": Good(TRACE.to_chrome_trace, {"path": "x"}, {"path": "file"}),
        "Trace.load": Good(sv.Trace.load, {"path": "x"}),
        "replay.Replay": Good(Replay, {"trace": TRACE}),
        "replay.Replay.frame": Good(
            Replay(TRACE).frame, {"round": 0, "phase": "draft"}, {"round": "0"}
        ),
    }


WRITER = {"prompts": [[1, 2], [1]], "vocabulary_size": 9, "num_draft_tokens": 2}


def _logging(name: str, arguments: dict[str, Any], fits: dict[str, str]) -> Good:
    """A call of a method of a new writer."""

    def call(**given: Any) -> object:
        return getattr(sv.TraceWriter(**WRITER), name)(**given)

    return Good(call, arguments, fits, options=getattr(sv.TraceWriter, name))


def _logs() -> dict[str, Good]:
    log = sv.TraceWriter(**WRITER)
    log.round(rows=[0], requests=[0], drafts=[[1]], accepted=[1], emitted=[[1, 2]])
    log.save(KEPT / "log.jsonl")
    row = {"rows": [0], "requests": [0]}
    fed = {"model": "target", **row, "tokens": [[1]], "indices": [[0]]}
    moved = dict.fromkeys(("from_row", "from_slot", "to_row", "to_slot", "length"), 1)
    many = "0 small tensor"
    header = {
        "prompts": "nested []",
        "vocabulary_size": "small",
        "num_draft_tokens": "small 0",
        "budget": "none small tensor",
        "eos_token_ids": "[] tensor",
        "batch_size": "none small",
        **dict.fromkeys(("decoder", "target", "device", "dtype"), "'a' lines"),
        **dict.fromkeys(("draft", "drafter", "created"), "'a' lines none"),
        **dict.fromkeys(("right_aligned", "keep_draft", "valid"), "True"),
        **dict.fromkeys(("sampling", "kv_bytes_per_slot", "token_texts"), "none {}"),
        "tokenizer": "none",
        "path": "none file",
        "missing": "[] {}",
    }
    given = {
        **dict.fromkeys(("positions", "slots", "visible", "valid", "nodes", "phase"), "none"),
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
        "TraceWriter.round": _logging("round", end, ended),
        "TraceWriter.save": Good(log.save, {"path": "x"}, {"path": "file"}),
        "read_log": Good(sv.read_log, {"path": KEPT / "log.jsonl"}),
    }


def _views() -> dict[str, Good]:
    opened = sv.step_through(TRACE)
    saved = KEPT / "run.safetensors"
    TRACE.save(saved)
    fits = {
        "path": "file", "step": "none 0 small", "row": "none 0", "scale": "1.5 small",
    }  # fmt: skip
    run = {"run": TRACE}
    line = {"series": {"a": ([1, 2], [3, 4])}, "title": "t", "x": "x", "y": "y"}
    words = dict.fromkeys(("title", "x", "y", "words"), "text")
    return {
        "step_through": Good(
            sv.step_through,
            {"trace": TRACE},
            {
                "other": "none",
                "round": "none 0",
                "phase": "none",
                "row": "none 0",
                "judge": "True",
            },
        ),
        "widget.StepThrough.export_html": Good(opened.export_html, {"path": "x"}, {"path": "file"}),
        "widget.StepThrough.embed": Good(opened.embed, {}, {"limit_mb": "1.5 int inf"}),
        "widget.StepThrough.export_png": Good(opened.export_png, {"path": "x"}, fits),
        "widget.StepThrough.export_svg": Good(opened.export_svg, {"path": "x"}, fits),
        "audit_page.audit_page": Good(audit_page.audit_page, {"audit": sv.audit([[1]], [[1]])}),
        "audit_page.save_audit": Good(
            audit_page.save_audit,
            {"audit": sv.audit([[1]], [[1]]), "path": "x"},
            {"path": "file"},
        ),
        "replays.save_replay": Good(
            replays.save_replay,
            {"path": saved, "out": "x.html"},
            {"other": "none", "step": "0 small none"},
            also_called=("a\\nb",),
        ),
        "charts.acceptance_map": Good(charts.acceptance_map, run),
        "charts.acceptance_by_position": Good(charts.acceptance_by_position, run),
        "charts.pick_ragged_round": Good(charts.pick_ragged_round, run),
        "charts.stage_bars": Good(charts.stage_bars, {"runs": {"a": TRACE}}),
        "charts.gantt": Good(
            charts.gantt,
            {"table": decoded("eqspec").timeline},
            {"heading": "text", "start_ms": "none 0 1.5 small", "stop_ms": "none 1.5 small"},
        ),
        "charts.memory_bars": Good(
            charts.memory_bars,
            {
                "tables": {
                    "a": pd.DataFrame([("K/V", "always", 8)], columns=["part", "when", "bytes"])
                }
            },
            {"heading": "text", "budget_bytes": "none 1.5 small", "weights": "True"},
        ),
        "charts.token_tree": Good(
            charts.token_tree,
            {"parents": [-1, 0]},
            {
                "parents": "[]",
                "tokens": "none",
                "position": "0 small",
                "slot": "0 small",
                "path": "none []",
                "mask": "bool",
            },
        ),
        "drawing.draw_tree": Good(
            drawing.draw_tree,
            {"trace": TRACE},
            {"round": "0", "row": "0", "most": "small", "start": "[]"},
        ),
        "charts.score_map": Good(charts.score_map, {"scores": [[0.9, 0.5]], "verified": [1]}),
        "capacity.capacity_line": Good(
            capacity.capacity_line, {"scores": [[0.9, 0.5]], "capacity": 1}
        ),
        "sliders.explore": Good(
            _explore, {"draw": _figure, "alt": "a"}, {"draw": "function", "alt": "text"}
        ),
        "plot.line_chart": Good(plot.line_chart, line, {**words, "log": "''", "dashed": "[] {}"}),
    }


def _figure(a: object) -> go.Figure:
    return go.Figure()


def _options() -> dict[str, Good]:
    """The options of each strategy, drafter and selector."""
    flags = (
        "refill", "bonus", "shrink_to_budget", "as_published", "drop_cache", "sort_prompts",
        "skip_unpadding", "ones_mask", "draft_bonus", "keep_cache", "reread",
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
        "calibration": "none",
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


def _benchmarks() -> dict[str, Good]:
    pair = make_pair("llama")
    grid = bench.Grid(("inplace",), (1,))
    axes = {
        "strategies": "", "batch_sizes": "", "num_draft_tokens": "", "max_new_tokens": "",
        "prompt_tokens": "", "drafters": "", "dtypes": "", "devices": "", "repetitions": "small",
    }  # fmt: skip
    table = bench.make_table(sample())
    stored = str(save_measured(table, {}, KEPT / "bench.csv")[0])
    return {
        "bench.Grid": Good(bench.Grid, {}, axes),
        "bench.HfAssisted": Good(bench.HfAssisted, {}, {"confidence": "0"}),
        "bench.LoadedPair": Good(bench.LoadedPair, {"pair": pair}, {"label": "text"}),
        "bench.OnRay": Good(
            bench.OnRay, {}, {"address": "none text", "gpus": "int", "cpus": "none int"}
        ),
        "bench.ShapePair": Good(
            bench.ShapePair, {"name": "qwen3-8b/0.6b"}, also_called=("shapes",)
        ),
        "bench.StoredPair": Good(
            bench.StoredPair,
            {"target": "a", "draft": "b"},
            {
                "target": "word path none",
                "draft": "word path none",
                "device_map": "none word path",
                "heads": "none word path",
            },
        ),
        "bench.build_shape_pair": Good(
            bench.build_shape_pair,
            {"name": "qwen3-8b/0.6b"},
            {"device": "none", "dtype": "none"},
            also_called=("shapes",),
        ),
        "bench.comparisons": Good(bench.comparisons, {"table": table, "lines": ["memory"]}),
        "bench.read_table": Good(bench.read_table, {"path": stored}),
        "bench.failures": Good(bench.failures, {"table": table}),
        "bench.sections": Good(bench.sections, {"table": table}),
        "bench.readable": Good(bench.readable, {"section": table}),
        "bench.method": Good(
            bench.method, {"entry": "inplace"}, also_called=("strategy", "strategies")
        ),
        "bench.standard": Good(bench.standard, {}, also_called=("drafter",)),
        "bench.pays": Good(
            bench.pays,
            {"pair": pair, "prompts": [[1]] * 4, "batch_sizes": [1]},
            {
                "prompts": "nested",
                "num_draft_tokens": "small",
                "max_new_tokens": "small",
                "repetitions": "small",
            },
            also_called=("strategies", "drafters", "batch_size"),
        ),
        "bench.run_bench": Good(
            bench.run_bench,
            {"pairs": pair, "prompts": [[1]], "grids": grid},
            {
                "prompts": "nested",
                "path": "none file",
                "limit": "none small",
                "turns": "small",
                "recording": "True",
                "fresh": "True",
                "progress": "True",
                "runner": "none function",
            },
        ),
    }


def _servers() -> dict[str, Good]:
    pages = Path(__file__).parent / "data" / "servers"
    asked = {"url": "http://127.0.0.1:9/v1", "prompts": ["a"], "progress": False}
    asked["out"] = "x.jsonl"
    fits = {
        "prompts": "nested", "model": "none word", "max_new_tokens": "small",
        "concurrency": "small", "timeout_s": "positive", "logprobs": "none small",
        "extra": "none {}", "progress": "True",
    }  # fmt: skip
    return {
        "servers.fetch_outputs": Good(servers.fetch_outputs, asked, fits),
        "servers.read_page": Good(
            servers.read_page,
            {"source": str(pages / "vllm.prom")},
            {"since": "none", "timeout_s": "positive"},
        ),
        "servers.read_log": Good(servers.read_log, {"path": pages / "vllm.jsonl"}),
    }


def _tables() -> dict[str, Good]:
    run = {"run": TRACE}
    names = (
        "rounds", "rows", "stages", "stage_totals", "acceptance", "requests", "smallest_gap",
    )  # fmt: skip
    found = {f"metrics.{name}": Good(getattr(metrics, name), run) for name in names}
    found["metrics.summary"] = Good(metrics.summary, run, {"total_s": "none 1.5 small"})
    found["metrics.waste"] = Good(metrics.waste, {"trace": TRACE})
    return found


def _explore(draw: Any, alt: Any) -> object:
    """`explore`, whose arguments have no names."""
    return sliders.explore(draw, alt, a=[1])


def _studies() -> dict[str, Good]:
    pair = make_pair("llama")
    table = simulation.AcceptanceTable(**COLUMNS)
    run = {"pair": pair, "prompts": [[1, 2]]}
    several = {"pair": pair, "prompts": [[1, 2], [3]]}
    halved = {"pair": pair, "prompts": [[1, 2], [3, 4]], "max_new_tokens": 2}
    fits = RUN | {"repetitions": "int", "window": "int", "max_new_tokens": "small"}
    result = decoded("eqspec")
    row = {"strategy": ["eqspec"], "options": [""], "valid": [True]}
    found = survey_study.Survey(pd.DataFrame(row), [result], result)
    sizes = {"buffers": (1,), "rows": (1,), "inner": 1, "seconds": 1.0}
    lengths = dict.fromkeys(("num_draft_tokens", "max_new_tokens", "prompt_tokens"), "int")
    steps = dict.fromkeys(("target_steps", "draft_steps", "continuations"), "int")
    return {
        "tables.make_table": Good(
            tables.make_table,
            run | {"progress": False},
            RUN | {"depth": "small", "max_new_tokens": "small"},
        ),
        "tables.summarise": Good(tables.summarise, {"table": table}),
        "selection.compare_selectors": Good(
            selection.compare_selectors,
            {
                "table": table,
                "batch_sizes": [1],
                "num_draft_tokens": [1],
                "extras": [1],
                "samples": 2,
                "progress": False,
            },
            {"max_waits": "none", "samples": "small", "seed": "count", "progress": "True"},
        ),
        "calibration.measure_calibration": Good(
            calibration_study.measure_calibration,
            halved,
            RUN | {"ranks": "small", "max_new_tokens": "small"},
        ),
        "trees.compare_trees": Good(
            trees.compare_trees,
            halved | {"nodes": [1], "growths": [[1, 1, 1]], "samples": 2, "progress": False},
            RUN
            | {"samples": "small", "seed": "count", "temperature": "none 1.5 small"}
            | {"max_new_tokens": "small", "progress": "True"},
        ),
        "tree_moves.count_moves": Good(
            tree_moves.count_moves,
            run | {"progress": False},
            RUN | {"max_new_tokens": "small", "progress": "True"},
        ),
        "agreement.Setups": Good(
            agreement.Setups, {}, lengths | {"max_prompt_tokens": "none int"}, ("strategy",)
        ),
        "agreement.measure_agreement": Good(
            agreement.measure_agreement,
            run | {"setups": agreement.Setups(("inplace",), (2,)), "progress": False},
            {"path": "none file", "source": "text", "prompts": "nested"}
            | {"fresh": "True", "progress": "True"},
        ),
        "agreement.cut": Good(
            agreement.cut,
            run | {"max_prompt_tokens": 1},
            {"max_prompt_tokens": "int", "prompts": "nested"},
        ),
        "ceilings.CeilingSizes": Good(
            ceiling_study.CeilingSizes, sizes, {"inner": "int", "seconds": "1.5 small"}
        ),
        "ceilings.measure_ceilings": Good(
            ceiling_study.measure_ceilings,
            {"device": torch.device("cpu"), "progress": False},
            {"sizes": "none", "progress": "True"},
        ),
        "couplings.couplings_of": Good(
            couplings.couplings_of, {"temperatures": [1.0]}, also_called=("temperature",)
        ),
        "couplings.measure_bias": Good(
            couplings.measure_bias,
            run | {"sampling": sv.SamplingParams(1.0, coupling="typical"), "seed": 0},
            {"prompts": "nested", "seed": "count"},
        ),
        "couplings.measure_couplings": Good(
            couplings.measure_couplings, run | {"progress": False}, fits, ("temperature",)
        ),
        "figures.make_figures": Good(figures.make_figures, {"out": "x"}, {"out": "file"}),
        "losses.measure_losses": Good(losses.measure_losses, run | {"progress": False}, fits),
        "moves.measure_moves": Good(
            moves.measure_moves,
            {"rows": [2], "slots": [16], "layers": 1},
            {
                **dict.fromkeys(("layers", "heads", "depth"), "small"),
                "repetitions": "small",
                "device": "none",
            },
        ),
        "memory.compare_budgets": Good(
            memory_study.compare_budgets,
            run | {"progress": False},
            fits | {"num_draft_tokens": "small", "percents": "", "repetitions": "small"},
        ),
        "chat.compare_chats": Good(
            chat_study.compare_chats,
            {"pair": pair, "messages": [[1, 2], [3]] * 8, "conversations": 1, "progress": False},
            fits
            | {"messages": "nested", "percents": "", "conversations": "small"}
            | {"num_draft_tokens": "small", "repetitions": "small"},
        ),
        "overlap.measure_overlap": Good(
            overlap.measure_overlap,
            several | {"batch_sizes": [2], "progress": False},
            fits | {"path": "none file", "fresh": "True", "progress": "True", "compile": "True"},
            ("strategy", "num_draft_tokens"),
        ),
        "overlap.latency_s": Good(overlap.latency_s, {"result": decoded("inplace")}),
        "packing.measure_packing": Good(
            packing.measure_packing,
            {"pair": make_pair("llama")},
            {"length": "small", "repetitions": "small"},
        ),
        "overhead.measure_overhead": Good(overhead.measure_overhead, run, fits, ("strategy",)),
        "survey.survey": Good(
            survey_study.survey,
            run | {"progress": False},
            fits | {"strategies": "none"},
            ("strategy",),
        ),
        "survey.marked": Good(
            survey_study.marked,
            {"text": "a", "expected": "b"},
            {"text": "text", "expected": "text", "characters": "int"},
        ),
        "survey.Survey.save": Good(found.save, {"path": "x"}, {"path": "file"}),
        "survey.Survey.texts": Good(found.texts, {"prompt": 0}, {"prompt": "0 small"}),
        "heads.HeadPlan": Good(
            heads.HeadPlan,
            {},
            dict.fromkeys(("steps", "rows", "checkpoint_every", "warmup"), "int")
            | {"unroll": "none int", "seed": "count", "starts": ""},
        ),
        "heads.train_head": Good(
            heads.train_head,
            {
                "kind": "medusa",
                "target": pair.target,
                "tokens": np.zeros((4, 24), dtype=int),
                "folder": "x",
                "progress": False,
            },
            {"folder": "file", "plan": "none", "texts": "[]", "progress": "True"},
        ),
        "heads.train_heads": Good(
            heads.train_heads,
            {"kinds": ["medusa"], "out": "x", "progress": False},
            {
                "out": "file",
                "steps": "none",
                "continuations": "int",
                "device": "none",
                "progress": "True",
            },
        ),
        "heads.study_heads": Good(
            heads.study_heads,
            {"out": "x", "progress": False},
            {
                "out": "file",
                "budget": "1.5 small",
                "continuations": "int",
                "limit": "none int",
                "samples": "small",
                "seed": "count",
                "progress": "True",
            },
        ),
        "study.study_laws": Good(
            ladder_study.study_laws,
            {"out": "x", "progress": False},
            {
                "out": "file",
                "continuations": "int",
                "limit": "none int",
                "samples": "small",
                "seed": "count",
                "progress": "True",
            },
        ),
        "measure.measure_pair": Good(
            measure.measure_pair, run | {"progress": False}, fits | {"progress": "True"}
        ),
        "pipeline.Budget": Good(pipeline.Budget, {}, steps),
        "pipeline.train_pair": Good(
            pipeline.train_pair,
            {"out": "x", "budget": pipeline.Budget(), "progress": False},
            {"out": "file", "device": "none", "compile": "True", "progress": "True"},
        ),
    }
