"""The strategies by name.

A new one is a file here and an entry in `STRATEGIES`.
"""

from typing import Any

import pandas as pd

from specviz.engine.registry import changed, make
from specviz.engine.strategies.autoregressive import Autoregressive
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.strategies.exspec import ExSpec
from specviz.engine.strategies.inplace import InPlace
from specviz.engine.strategies.masking import Masking
from specviz.engine.strategies.repadding import Repadding
from specviz.engine.strategies.rollback import Rollback
from specviz.record.schema import FALLBACKS

STRATEGIES: dict[str, type[Strategy]] = {
    "autoregressive": Autoregressive,
    "rollback": Rollback,
    "masking": Masking,
    "repadding": Repadding,
    "eqspec": EqSpec,
    "exspec": ExSpec,
    "inplace": InPlace,
}
# Where the defaults alone do not show what a strategy does: the options to show it with.
_SHOWN: dict[str, tuple[dict[str, Any], ...]] = {
    "masking": ({}, {"positions": "column"}),
    "exspec": tuple({"fallback": each} for each in FALLBACKS),
}


def strategy(name: str, **options: Any) -> Strategy:
    """Return the strategy called `name`, for instance `strategy("eqspec", refill=False)`.

    Raises:
        ValueError: the name or an option is unknown; the message lists the known ones.
    """
    return make("strategy", STRATEGIES, name, options)


def strategies() -> pd.DataFrame:
    """Return the registered strategies as a frame.

    Columns: strategy, valid (with its default options), description, cost, options (with their
    defaults). Every valid strategy also takes the options that inject a fault: break_invariant,
    rows and from_round (see `Strategy`).
    """
    entries = []
    for kind in STRATEGIES.values():
        default = kind()
        options = [f"{name}={value!r}" for name, value in default.options.items()]
        entries.append(
            {
                "strategy": default.name,
                "valid": default.valid,
                "description": default.description,
                "cost": default.cost,
                "options": ", ".join(options),
            }
        )
    return pd.DataFrame(entries)


def everything() -> list[Strategy]:
    """Return all strategies, with the failing ones and each fallback of exspec."""
    return [strategy(name, **options) for name in STRATEGIES for options in _SHOWN.get(name, ({},))]


def changed_options(chosen: Strategy) -> str:
    """Return the options of a strategy that are not the default, as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in changed(chosen).items())
