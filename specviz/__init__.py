"""specviz: see, check and compare batch speculative decoding.

    import specviz as sv
    pair = sv.load_pair()
    result = sv.generate(pair, ["def add(a, b):"], strategy="eqspec", record=True)

Names are imported when they are first used, so that reading a trace imports no torch.
"""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specviz.checks.audit.audit import audit as audit
    from specviz.checks.audit.report import Audit as Audit
    from specviz.checks.check import check_invariants as check_invariants
    from specviz.checks.compare import Comparison as Comparison
    from specviz.checks.compare import compare as compare
    from specviz.checks.sampling.audit import audit_sampling as audit_sampling
    from specviz.checks.sampling.pair import tiny_pair as tiny_pair
    from specviz.checks.sampling.report import SamplingReport as SamplingReport
    from specviz.checks.violations import Violation as Violation
    from specviz.checks.watch.report import WatchReport as WatchReport
    from specviz.checks.watch.watched import Watched as Watched
    from specviz.checks.watch.watched import watch as watch
    from specviz.engine.drafters import drafter as drafter
    from specviz.engine.drafters import drafters as drafters
    from specviz.engine.heads.load import load_heads as load_heads
    from specviz.engine.models.pair import Pair as Pair
    from specviz.engine.models.pair import load_pair as load_pair
    from specviz.engine.peak import PeakMeter as PeakMeter
    from specviz.engine.run import decode as decode
    from specviz.engine.sampling import SamplingParams as SamplingParams
    from specviz.engine.selectors import selector as selector
    from specviz.engine.selectors import selectors as selectors
    from specviz.engine.strategies import strategies as strategies
    from specviz.engine.strategies import strategy as strategy
    from specviz.generation.chat import Chat as Chat
    from specviz.generation.chat import chat as chat
    from specviz.generation.generate import generate as generate
    from specviz.generation.memory import Plan as Plan
    from specviz.generation.memory import plan as plan
    from specviz.generation.result import Result as Result
    from specviz.prompts import load_prompts as load_prompts
    from specviz.record.given import RoundEnd as RoundEnd
    from specviz.record.log import read_log as read_log
    from specviz.record.schema import TraceError as TraceError
    from specviz.record.trace import Trace as Trace
    from specviz.record.writer import TraceWriter as TraceWriter
    from specviz.util.levers import Levers as Levers
    from specviz.views.lab import lab as lab
    from specviz.views.stepper.widget import step_through as step_through

_HOME = {
    "Audit": "specviz.checks.audit.report",
    "audit": "specviz.checks.audit.audit",
    "audit_sampling": "specviz.checks.sampling.audit",
    "SamplingReport": "specviz.checks.sampling.report",
    "tiny_pair": "specviz.checks.sampling.pair",
    "Comparison": "specviz.checks.compare",
    "compare": "specviz.checks.compare",
    "Pair": "specviz.engine.models.pair",
    "Plan": "specviz.generation.memory",
    "plan": "specviz.generation.memory",
    "PeakMeter": "specviz.engine.peak",
    "load_heads": "specviz.engine.heads.load",
    "load_pair": "specviz.engine.models.pair",
    "SamplingParams": "specviz.engine.sampling",
    "decode": "specviz.engine.run",
    "drafter": "specviz.engine.drafters",
    "drafters": "specviz.engine.drafters",
    "selector": "specviz.engine.selectors",
    "selectors": "specviz.engine.selectors",
    "strategies": "specviz.engine.strategies",
    "strategy": "specviz.engine.strategies",
    "generate": "specviz.generation.generate",
    "lab": "specviz.views.lab",
    "Levers": "specviz.util.levers",
    "load_prompts": "specviz.prompts",
    "read_log": "specviz.record.log",
    "Result": "specviz.generation.result",
    "Trace": "specviz.record.trace",
    "TraceError": "specviz.record.trace",
    "RoundEnd": "specviz.record.given",
    "TraceWriter": "specviz.record.writer",
    "watch": "specviz.checks.watch.watched",
    "Watched": "specviz.checks.watch.watched",
    "WatchReport": "specviz.checks.watch.report",
    "Violation": "specviz.checks.violations",
    "Chat": "specviz.generation.chat",
    "chat": "specviz.generation.chat",
    "check_invariants": "specviz.checks.check",
    "step_through": "specviz.views.stepper.widget",
}

__all__ = sorted(_HOME)
__version__ = version("specviz")


# torch's threads wait for one another after each operation. By default they spin, which costs a
# busy machine many times the work itself. OpenMP reads this once, when torch is imported.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'specviz' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
