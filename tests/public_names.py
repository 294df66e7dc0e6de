"""Every public callable of specviz, found by looking, and a call of each that works.

`discovered` has what there is. `GOOD` has the arguments of a good call and, where some of the
wrong values are right after all, which (see `bad_values.KINDS`). `EXEMPT` has what is not swept,
and why.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import FunctionType
from typing import Any

import pandas as pd
import torch
from bad_values import swept
from conftest import decoded, make_pair
from tiny_run import TRACE

import specviz as sv
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.engine.drafters import DRAFTERS
from specviz.engine.strategies import STRATEGIES
from specviz.record.replay import Replay
from specviz.simulation import Acceptance, Workload

MODULES = (
    "specviz.bench",
    "specviz.simulation",
    "specviz.metrics",
    "specviz.prompts",
    "specviz.record.replay",
    "specviz.costs.acceptance",
    "specviz.costs.against_floor",
    "specviz.costs.breakeven",
    "specviz.costs.ceilings",
    "specviz.costs.fit",
    "specviz.costs.floor",
    "specviz.costs.growth",
    "specviz.costs.memory",
    "specviz.costs.roofline",
    "specviz.costs.shapes",
    "specviz.views.charts",
    "specviz.views.charts.plot",
    "specviz.views.charts.sliders",
    "specviz.views.stepper.widget",
    "specviz.studies.agreement",
    "specviz.studies.ceilings",
    "specviz.studies.cost",
    "specviz.studies.couplings",
    "specviz.studies.figures",
    "specviz.studies.losses",
    "specviz.studies.moves",
    "specviz.studies.overhead",
    "specviz.studies.survey",
    "specviz.zoo.measure",
    "specviz.zoo.pipeline",
)
_FOUND = "what another function returns; nobody else makes one"
_STEP = "a step of another function in its module, which checks its arguments"
_LOOP = "called by the benchmark's own loop"
_FORMULA = "a formula, with whatever numbers and arrays it is given"
EXEMPT = {
    "Comparison": _FOUND,
    "Result": _FOUND,
    "TraceError": "an exception",
    "Violation": _FOUND,
    "bench.Baseline.write": _LOOP,
    "bench.Baseline.decode": _LOOP,
    "bench.HfAssisted.decode": _LOOP,
    "bench.HfGenerate.decode": _LOOP,
    "bench.Cell": _FOUND,
    "bench.Job": _FOUND,
    "bench.Job.measurement": _LOOP,
    "bench.Setting": _LOOP,
    "bench.Setting.prompt_ids": _LOOP,
    "bench.Method": _FOUND,
    "bench.LoadedPair.check": _LOOP,
    "bench.ShapePair.check": _LOOP,
    "bench.StoredPair.check": _LOOP,
    "bench.LoadedPair.load": _LOOP,
    "bench.ShapePair.load": _LOOP,
    "bench.StoredPair.load": _LOOP,
    "bench.make_table": _LOOP,
    "simulation.Simulation": _FOUND,
    "simulation.Sizing": _FOUND,
    "simulation.Workload": "drawn, given, joined or replayed",
    "simulation.Costs.table": _STEP,
    "metrics.Run": "a protocol",
    "metrics.check_recorded": "a check itself",
    "replay.Slots": _FOUND,
    "replay.Frame": _FOUND,
    "acceptance.check_rates": "a check itself",
    "ceilings.Ceilings.bandwidth_at": _FORMULA,
    "ceilings.Ceilings.matmul_at": _FORMULA,
    "fit.CostFit": _FOUND,
    "floor.Floor": _FOUND,
    "floor.Floor.times": _FORMULA,
    "floor.Floor.total": _FORMULA,
    "growth.Growth": _FOUND,
    "growth.Growth.at_all": _FORMULA,
    "growth.Growth.at": _FORMULA,
    "growth.check_options": "a check itself",
    "growth.group_by_size": _STEP,
    "growth.resampled_means": _STEP,
    "growth.fit_means": _STEP,
    "growth.interval": _STEP,
    "memory.Slabs": "a protocol",
    "memory.Slabs.capacity": "a protocol",
    "memory.Slabs.slots": "a protocol",
    "roofline.Roofline.forward": _FORMULA,
    "roofline.Roofline.prefill": _FORMULA,
    "roofline.Roofline.drafting": _FORMULA,
    "roofline.Roofline.verifying": _FORMULA,
    "roofline.Roofline.accepting": _FORMULA,
    "roofline.Roofline.moving": _FORMULA,
    "roofline.Roofline.phases": _FORMULA,
    "roofline.Roofline.phase_seconds": _FORMULA,
    "shapes.ModelShape.read_bytes": _FORMULA,
    "shapes.ModelShape.flops": _FORMULA,
    "shapes.ModelShape.launches": _FORMULA,
    "sliders.Explore": "made by explore",
    "widget.StepThrough": "made by step_through",
    "agreement.Setup": _FOUND,
    "cost.Case.moved": _FORMULA,
    "figures.Picture": "a table of the study itself",
    "survey.Survey": _FOUND,
    "measure.bits_per_byte": _STEP,
}


def discovered() -> dict[str, Any]:
    """Functions, classes and methods by name: "generate", "Trace", "Trace.save"."""
    found: dict[str, Any] = {}
    for name in sv.__all__:
        found |= dict(_callables(name, getattr(sv, name)))
    for module_name in MODULES:
        module = import_module(module_name)
        short_name = module_name.rpartition(".")[2]
        for name in getattr(module, "__all__", vars(module)):
            each = getattr(module, name)
            own = getattr(each, "__module__", "").startswith(module_name)
            if own and not name.startswith("_") and each not in list(found.values()):
                found |= dict(_callables(f"{short_name}.{name}", each))
    return found


def _callables(name: str, each: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(each):
        yield name, each
        for method, value in vars(each).items():
            plain = isinstance(value, FunctionType | classmethod | staticmethod)
            if plain and not method.startswith("_"):
                yield f"{name}.{method}", value
    elif inspect.isfunction(each):
        yield name, each


# ---- good calls ----


@dataclass(frozen=True)
class Good:
    """A call that works.

    call: the callable, bound to an object where it is a method; arguments: of the call; fits: the
    kinds of values that each parameter takes besides; also_called: what a sentence may say in place
    of the parameter's name; options: a class whose fields are parameters, too.
    """

    call: Callable[..., Any]
    arguments: dict[str, Any]
    fits: dict[str, str] = field(default_factory=dict)
    also_called: tuple[str, ...] = ()
    options: type | None = None

    @property
    def parameters(self) -> list[str]:
        return swept(self.call if self.options is None else self.options)


@cache
def roofline() -> Roofline:
    return Roofline(*named_pair("qwen3-8b/0.6b"), Ceilings.load(CPU_TABLE))


@cache
def workload() -> Workload:
    return Workload.drawn(20, 5, 4, Acceptance.geometric(0.5))


def view() -> Any:
    return sv.step_through(TRACE)


def round_costs(rows: float, num_draft_tokens: float, slots: float) -> dict[str, float]:
    return {"verify": 1.0 + num_draft_tokens}


def good_calls() -> dict[str, Good]:
    """By the names of `discovered`."""
    found = {}
    for part in (public(), benchmarks(), simulations(), tables(), costs(), studies(), options()):
        found |= part
    return found


RUN = {
    "strategy": "object_strategy",
    "num_draft_tokens": "int",
    "batch_size": "int",
    "max_new_tokens": "small tensor",
    "sampling": "none",
    "seed": "count",
    "deterministic": "bool",
    "graphs": "none",
    "compile": "bool",
    "record": "bool",
    "progress": "bool",
}


KEPT = Path(mkdtemp())  # for files that good calls read
WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"


def public() -> dict[str, Good]:
    pair = make_pair("llama")
    result = decoded("eqspec")
    sampling = sv.SamplingParams(1.0)
    run = {"pair": pair, "prompts": [[1, 2], [3]], "progress": False}
    opened = view()
    TRACE.save(KEPT / "run.safetensors")
    figure = {"path": "x.png", "theme": "light"}
    figure_fits = {
        "path": "file",
        "step": "none small 0",
        "row": "none count",
        "scale": "1.5 small",
    }
    tables = TRACE.tables
    logits = torch.zeros(1, 5)
    return {
        "generate": Good(sv.generate, run, {**RUN, "prompts": "nested"}),
        "decode": Good(sv.decode, {"pair": pair, "prompts": [[1, 2]]}, {"prompts": "nested"}),
        "check_invariants": Good(sv.check_invariants, {"trace": TRACE}, {"pair": "none"}),
        "compare": Good(sv.compare, {"result": result, "reference": result}, {"pair": "none"}),
        "drafter": Good(sv.drafter, {"name": "lookup"}, also_called=("drafter",)),
        "strategy": Good(sv.strategy, {"name": "inplace"}, also_called=("strategy",)),
        "lab": Good(
            sv.lab, {"pair": pair, "prompts": [[1]]}, {"pair": "none", "prompts": "none nested"}
        ),
        "load_pair": Good(
            sv.load_pair,
            {"target": None, "draft": None},
            dict.fromkeys(("target", "draft", "device", "dtype", "device_map"), "none"),
        ),
        "load_prompts": Good(
            sv.load_prompts,
            {},
            {"path": "none", "categories": "none", "limit": "none int", "tokenizer": "none"},
        ),
        "step_through": Good(
            sv.step_through,
            {"trace": TRACE},
            {"other": "none", "round": "0", "row": "count", "judge": "bool"},
        ),
        "Pair": Good(sv.Pair, {"target": pair.target, "draft": pair.draft}, {"tokenizer": "none"}),
        "SamplingParams": Good(
            sv.SamplingParams,
            {"temperature": 1.0},
            {"temperature": "positive", "top_k": "none int", "top_p": "none"},
        ),
        "SamplingParams.warp": Good(sampling.warp, {"logits": logits}, {"logits": "tensor"}),
        "SamplingParams.distribution": Good(
            sampling.distribution, {"logits": logits}, {"logits": "tensor"}
        ),
        "SamplingParams.chooser": Good(sampling.chooser, {"seed": 0}, {"seed": "count"}),
        "Trace": Good(sv.Trace, {"meta": TRACE.meta, **tables}, {}),
        "Trace.prompt": Good(TRACE.prompt, {"request": 0}, {"request": "0"}),
        "Trace.output": Good(TRACE.output, {"request": 0}, {"request": "0"}),
        "Trace.origins": Good(TRACE.origins, {"request": 0}, {"request": "0"}),
        "Trace.text": Good(TRACE.text, {"token": 0}, {"token": "count"}),
        "Trace.save": Good(TRACE.save, {"path": "x"}, {"path": "file"}),
        "Trace.load": Good(sv.Trace.load, {"path": "x"}, {}),
        "replay.Replay": Good(Replay, {"trace": TRACE}, {}),
        "replay.Replay.frame": Good(
            Replay(TRACE).frame, {"round": 0, "phase": "draft"}, {"round": "0"}
        ),
        "prompts.spread": Good(
            import_module("specviz.prompts").spread,
            {"items": [1], "limit": 1},
            {"items": "nested []", "limit": "none int"},
        ),
        "widget.StepThrough.export_html": Good(opened.export_html, {"path": "x"}, {"path": "file"}),
        "widget.StepThrough.export_png": Good(opened.export_png, figure, figure_fits),
        "widget.StepThrough.export_svg": Good(opened.export_svg, figure, figure_fits),
        "widget.save_replay": Good(
            import_module("specviz.views.stepper.widget").save_replay,
            {"path": "x", "out": "x.html"},
            {},
        ),
    }


def benchmarks() -> dict[str, Good]:
    bench = import_module("specviz.bench")
    pair = make_pair("llama")
    table = pd.DataFrame()
    return {}


def simulations() -> dict[str, Good]:
    return {}


def tables() -> dict[str, Good]:
    return {}


def costs() -> dict[str, Good]:
    return {}


def studies() -> dict[str, Good]:
    return {}


def options() -> dict[str, Good]:
    """The options of each strategy and drafter, which stand in no signature of their makers."""
    found = {}
    for name, kind in STRATEGIES.items():
        fault = {} if name in ("autoregressive", "repadding") else {"break_invariant": "kv"}
        fits = {
            "refill": "bool",
            "break_invariant": "none",
            "rows": "none [] {}" if fault else "none",
            "from_round": "count" if fault else "0",
            "window": "int",
            "max_wait": "int",
            **dict.fromkeys(FLAGS, "bool"),
        }
        make = partial(sv.strategy, name)
        found[f"strategy:{name}"] = Good(make, fault, fits, options=kind)
    fits = {"keep_cache": "bool", "max_ngram": "int", "min_ngram": "int"}
    for name, kind in DRAFTERS.items():
        arguments = {"rates": [0.5]} if name == "synthetic" else {}
        make = partial(sv.drafter, name)
        found[f"drafter:{name}"] = Good(make, arguments, fits, options=kind)
    return found


FLAGS = (
    "bonus", "shrink_to_budget", "as_published", "drop_cache", "sort_prompts", "skip_unpadding",
    "ones_mask", "draft_bonus",
)  # fmt: skip
