"""Every public callable of specviz, found by looking.

`discovered` has what there is. `EXEMPT` has what is not swept with wrong values, and why.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType
from typing import Any

import specviz as sv

MODULES = (
    "specviz.bench",
    "specviz.metrics",
    "specviz.servers",
    "specviz.prompts",
    "specviz.record.replay",
    "specviz.views.audit_page",
    "specviz.views.charts",
    "specviz.views.charts.capacity",
    "specviz.views.charts.drawing",
    "specviz.views.charts.plot",
    "specviz.views.charts.sliders",
    "specviz.views.stepper.replays",
    "specviz.views.stepper.widget",
    "specviz.studies.agreement",
    "specviz.studies.biases",
    "specviz.studies.calibration",
    "specviz.studies.ceilings",
    "specviz.studies.chat",
    "specviz.studies.couplings",
    "specviz.studies.figures",
    "specviz.studies.losses",
    "specviz.studies.memory",
    "specviz.studies.moves",
    "specviz.studies.overhead",
    "specviz.studies.overlap",
    "specviz.studies.packing",
    "specviz.studies.selection",
    "specviz.studies.survey",
    "specviz.studies.tables",
    "specviz.studies.tree_moves",
    "specviz.studies.trees",
    "specviz.zoo.heads",
    "specviz.zoo.ladder.study",
    "specviz.zoo.measure",
    "specviz.zoo.pipeline",
)
_FOUND = "what another function returns; users do not make one"
_STEP = "a step of another function in its module, which checks its arguments"
_LOOP = "called by the benchmark's own loop"
EXEMPT = {
    "Audit": _FOUND,
    "Chat": "made by chat",
    "biases.measure_biases": "in test_biases; each call takes seconds",
    "Chat.forget": "in test_chat",
    "Chat.say": "in test_chat",
    "Chat.text": "in test_chat",
    "Chat.tokens": "in test_chat",
    "Comparison": _FOUND,
    "Levers.prefill_shape": _STEP,
    "Plan": _FOUND,
    "Result": _FOUND,
    "SamplingReport": _FOUND,
    "TraceError": "an exception",
    "Violation": _FOUND,
    "Watched": "what sv.watch gives",
    "Watched.audit": "in test_watch",
    "WatchReport": _FOUND,
    "bench.Baseline.write": _LOOP,
    "bench.Baseline.decode": _LOOP,
    "bench.Baseline.prepare": _LOOP,
    "bench.HfAssisted.decode": _LOOP,
    "bench.HfGenerate.decode": _LOOP,
    "bench.OpenVino.decode": _LOOP,
    "bench.OpenVino.prepare": _LOOP,
    "bench.Cell": _FOUND,
    "bench.Grid.cells": _LOOP,
    "bench.Job": _FOUND,
    "bench.Job.measurement": _LOOP,
    "bench.Setting": _LOOP,
    "bench.Setting.prompt_ids": _LOOP,
    "bench.Method": _FOUND,
    "bench.MethodComparison": _FOUND,
    "bench.MethodComparison.of": _FOUND,
    "bench.LineResult": _FOUND,
    "bench.LoadedPair.check": _LOOP,
    "bench.ShapePair.check": _LOOP,
    "bench.StoredPair.check": _LOOP,
    "bench.LoadedPair.load": _LOOP,
    "bench.ShapePair.load": _LOOP,
    "bench.StoredPair.load": _LOOP,
    "bench.make_table": _LOOP,
    "packing.spread": _STEP,
    "servers.Counters": _FOUND,
    "servers.acceptance_tables": "takes what read_log checked",
    "servers.measured_acceptance": "takes what read_log checked",
    "servers.ServerLog.num_draft_tokens": _FOUND,
    "servers.Counters.positions": _FOUND,
    "servers.Counters.summary": _FOUND,
    "servers.Counters.unanswered": _FOUND,
    "servers.ServerLog": _FOUND,
    "servers.ServedRequest": _FOUND,
    "replay.Slots": _FOUND,
    "replay.Frame": _FOUND,
    "drawing.Drafts": "made by draw_tree",
    "drawing.Drafts.after": "made by draw_tree",
    "drawing.Drafts.text": "made by draw_tree",
    "drawing.TreeDrawing": "made by draw_tree",
    "drawing.TreeDrawing.draw": "made by draw_tree",
    "capacity.CapacityLine": "made by capacity_line",
    "sliders.Explore": "made by explore",
    "sliders.Slider": "made by explore",
    "sliders.Explore.draw": "made by explore",
    "widget.StepThrough": "made by step_through",
    "widget.StepThrough.leave_picture_in": "takes an output that is being shown",
    "agreement.Setup": _FOUND,
    "calibration.check_prompts": "a check itself",
    "calibration.check_ranks": "a check itself",
    "calibration.fit_curves": _STEP,
    "figures.Picture": "a table of the study itself",
    "survey.Survey": _FOUND,
    "heads.TrainedHead": _FOUND,
    "heads.greedy_texts": _STEP,
    "heads.kept_layers": _STEP,
    "heads.measure_coverage": _STEP,
    "heads.measure_head": _STEP,
    "study.Ladder": _STEP,
    "study.Ladder.rung": _STEP,
    "study.Ladder.shipped": _STEP,
    "measure.bits_per_byte": _STEP,
    "pipeline.training_folder": _STEP,
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
