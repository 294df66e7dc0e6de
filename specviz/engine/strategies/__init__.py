"""The strategies by name. A new one is a file here and an entry in STRATEGIES."""

from typing import Any

import pandas as pd

from specviz.engine.registry import make
from specviz.engine.strategies.autoregressive import Autoregressive
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.strategies.exspec import ExSpec
from specviz.engine.strategies.inplace import InPlace
from specviz.engine.strategies.masking import Masking
from specviz.engine.strategies.repadding import Repadding
from specviz.engine.strategies.rollback import Rollback

_KINDS: tuple[type[Strategy], ...] = (
    Autoregressive,
    Rollback,
    Masking,
    Repadding,
    EqSpec,
    ExSpec,
    InPlace,
)
STRATEGIES: dict[str, type[Strategy]] = {kind.name: kind for kind in _KINDS}


def strategy(name: str, **options: Any) -> Strategy:
    """The strategy called `name` with `options`, for instance `strategy("eqspec", refill=False)`.

    Raises:
        ValueError: unknown name or option; the message lists the known ones.
    """
    return make("strategy", STRATEGIES, name, options)


def strategies() -> pd.DataFrame:
    """The registered strategies as a frame: strategy, valid (with its default options), description, cost, options (with defaults).

    Beside its own options every valid strategy takes those that inject a fault: break_invariant, rows, from_round (see `Strategy`).
    """
    made = [kind() for kind in STRATEGIES.values()]
    return pd.DataFrame(
        {
            "strategy": [each.name for each in made],
            "valid": [each.valid for each in made],
            "description": [each.description for each in made],
            "cost": [each.cost for each in made],
            "options": [
                ", ".join(f"{name}={value!r}" for name, value in each.options.items())
                for each in made
            ],
        }
    )


def everything() -> list[Strategy]:
    """All strategies, the failing ones and the fallbacks of exspec among them."""
    return [
        strategy("autoregressive"),
        strategy("rollback"),
        strategy("masking"),
        strategy("masking", positions="column"),
        strategy("repadding"),
        strategy("eqspec"),
        *(strategy("exspec", fallback=fallback) for fallback in ("realign", "partial", "wait")),
        strategy("inplace"),
    ]


def changed_options(chosen: Strategy) -> str:
    """The options of a strategy that are not the default, as they are written in a call."""
    default = type(chosen)().options
    return ", ".join(
        f"{name}={value!r}" for name, value in chosen.options.items() if value != default.get(name)
    )
