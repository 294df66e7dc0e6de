"""The strategies by name. A new one is a file here and an entry in STRATEGIES."""

from typing import Any

from specviz.engine.registry import make
from specviz.engine.strategies.autoregressive import Autoregressive
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.strategies.inplace import InPlace

STRATEGIES: dict[str, type[Strategy]] = {kind.name: kind for kind in (Autoregressive, EqSpec, InPlace)}


def strategy(name: str, **options: Any) -> Strategy:
    """The strategy called `name` with `options`, for instance `strategy("eqspec", refill=False)`.

    Raises:
        ValueError: unknown name or option; the message lists the known ones.
    """
    return make("strategy", STRATEGIES, name, options)
