"""specviz: see, check and compare batch speculative decoding.

    import specviz as sv
    pair = sv.load_pair()
    result = sv.generate(pair, ["def add(a, b):"], strategy="eqspec", record=True)

Names are imported when they are first used, so that reading a trace imports no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specviz.analysis.violations import Violation as Violation
    from specviz.checking import check_invariants as check_invariants
    from specviz.comparing import Comparison as Comparison
    from specviz.comparing import compare as compare
    from specviz.dashboard import lab as lab
    from specviz.engine.decode import decode as decode
    from specviz.engine.drafters import drafter as drafter
    from specviz.engine.drafters import drafters as drafters
    from specviz.engine.pair import Pair as Pair
    from specviz.engine.pair import load_pair as load_pair
    from specviz.engine.sampling import SamplingParams as SamplingParams
    from specviz.engine.strategies import strategies as strategies
    from specviz.engine.strategies import strategy as strategy
    from specviz.generation import generate as generate
    from specviz.prompts import load_prompts as load_prompts
    from specviz.result import Result as Result
    from specviz.trace import Trace as Trace
    from specviz.trace import TraceError as TraceError
    from specviz.views.stepper import step_through as step_through

_HOME = {
    "Comparison": "specviz.comparing",
    "compare": "specviz.comparing",
    "Pair": "specviz.engine.pair",
    "load_pair": "specviz.engine.pair",
    "SamplingParams": "specviz.engine.sampling",
    "decode": "specviz.engine.decode",
    "drafter": "specviz.engine.drafters",
    "drafters": "specviz.engine.drafters",
    "strategies": "specviz.engine.strategies",
    "strategy": "specviz.engine.strategies",
    "generate": "specviz.generation",
    "lab": "specviz.dashboard",
    "load_prompts": "specviz.prompts",
    "Result": "specviz.result",
    "Trace": "specviz.trace",
    "TraceError": "specviz.trace",
    "Violation": "specviz.analysis.violations",
    "check_invariants": "specviz.checking",
    "step_through": "specviz.views.stepper",
}

__all__ = sorted(_HOME)
__version__ = version("specviz")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specviz' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
