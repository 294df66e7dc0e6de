"""What a benchmark compares, by the names that its tables show.

exspec:window=32,fallback=wait    hf_assisted:confidence=0    inplace:graphs=true
synthetic:rates=0.8/0.6/0.5       inplace:selector=tetris+extra=2
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz.bench.baselines import BASELINES, Baseline
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.names import parse
from specviz.engine.registry import changed, make
from specviz.engine.selectors import SELECTORS, Selector
from specviz.engine.strategies import STRATEGIES, Strategy
from specviz.util.validate import require_str, short

# The arguments of `generate` that neither an axis of the grid nor the benchmark itself decides on.
GENERATE_OPTIONS = {"compile", "deterministic", "graphs", "selector"}


@dataclass(frozen=True)
class Method:
    """A way to decode.

    Attributes:
        label: the name in tables, "exspec:window=8", without the options that are the default.
        how: the strategy or the baseline.
        generate_options: arguments of `generate`, some of GENERATE_OPTIONS.
    """

    label: str
    how: Strategy | Baseline
    generate_options: tuple[tuple[str, object], ...] = ()


def method(entry: object) -> Method:
    """Return the method that an entry of a grid names: text, a strategy or a baseline.

    Raises:
        ValueError: the name or an option is unknown, or a value cannot be used.
    """
    if isinstance(entry, Strategy | Baseline):
        return Method(label(entry), entry)
    name, options = parse(_text_of("strategies", entry))
    known: dict[str, type[Any]] = {**STRATEGIES, **BASELINES}
    of_generate = {}
    for option in GENERATE_OPTIONS & options.keys() if name in STRATEGIES else ():
        of_generate[option] = options[option]
    how = make("strategy", known, name, {k: v for k, v in options.items() if k not in of_generate})
    shown = label(how, options)
    if "selector" in of_generate:
        of_generate["selector"] = verifier(of_generate["selector"])
    return Method(shown, how, tuple(sorted(of_generate.items())))


def proposer(entry: object) -> Drafter:
    """Return the drafter that an entry of a grid names: "synthetic:rates=0.8/0.6", or a drafter.

    Raises:
        ValueError: the name or an option is unknown, or a value cannot be used.
    """
    if isinstance(entry, Drafter):
        return entry
    return make("drafter", DRAFTERS, *parse(_text_of("drafters", entry)))


def verifier(entry: object) -> Selector:
    """Return the selector that an option names: "tetris", "tetris+extra=3+score=largest".

    Raises:
        ValueError: the name or an option is unknown, or a value cannot be used.
    """
    remedy = "write for instance tetris+extra=2"
    name, *options = require_str("selector", entry, remedy).split("+")
    return make("selector", SELECTORS, *parse(f"{name}:{','.join(options)}"))


def label(how: Strategy | Baseline | Drafter, options: Mapping[str, object] | None = None) -> str:
    """Return the name and the options that are not the default, as `parse` reads them.

    Args:
        options: those that were given; None: all that `how` has.
    """
    shown = [f"{name}={_text(value)}" for name, value in changed(how, options).items()]
    return f"{how.name}:{','.join(shown)}" if shown else how.name


def _text_of(axis: str, entry: object) -> str:
    if isinstance(entry, str):
        return entry
    raise ValueError(
        f"{axis} must hold {axis}, got {short(entry)}; pass a name, or an object made by specviz"
    )


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "/".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
