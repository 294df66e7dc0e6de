"""What a benchmark compares: a strategy or a baseline with its options, and a drafter, by the names under which tables show them.

exspec:window=32,fallback=wait      hf_assisted:confidence=0      inplace:graphs=true      synthetic:rates=0.8/0.6/0.5
"""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from specviz.bench.baselines import BASELINES, Baseline
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.registry import make
from specviz.engine.strategies import STRATEGIES, Strategy
from specviz.generation.generate import generate
from specviz.util.validate import short

_AXES = {"strategy", "drafter", "num_draft_tokens", "batch_size", "max_new_tokens"}
_OTHER = {
    "sampling",
    "seed",
    "record",
    "progress",
}  # greedy texts are compared, and the benchmark itself decides on the rest
ASKED = tuple(
    name
    for name, given in inspect.signature(generate).parameters.items()
    if given.kind is given.KEYWORD_ONLY and name not in _AXES | _OTHER
)
_CONSTANTS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Method:
    """A way to decode.

    Attributes:
        label: the name that tables show: "exspec:window=8", options that are the default left out.
        how: the strategy or the baseline.
        asked: arguments of `generate` that belong to this method alone: "compile", "graphs", "deterministic".
    """

    label: str
    how: Strategy | Baseline
    asked: tuple[tuple[str, object], ...] = ()


def method(entry: object) -> Method:
    """The method that an entry of a grid names: text as above, a strategy, a baseline, or a method.

    Raises:
        ValueError: no such name or option, or one that cannot be used.
    """
    if isinstance(entry, Method):
        return entry
    if isinstance(entry, Strategy | Baseline):
        return Method(label(entry), entry)
    if not isinstance(entry, str):
        raise ValueError(
            f"strategies names {short(entry)}, which is no strategy; pass a name, or an object from specviz.strategy()"
        )
    name, options = parse(entry)
    known: dict[str, type[Any]] = {**STRATEGIES, **BASELINES}
    own = {field.name for field in fields(known[name])} if name in known else set()
    asked = {
        key: value
        for key, value in options.items()
        if key in ASKED and key not in own and name in STRATEGIES
    }
    how = make(
        "strategy", known, name, {key: value for key, value in options.items() if key not in asked}
    )
    return Method(label(how, options), how, tuple(asked.items()))


def proposer(entry: object) -> Drafter:
    """The drafter that an entry of a grid names: "lookup", "synthetic:rates=0.8/0.6", or a drafter.

    Raises:
        ValueError: no such name or option, or one that cannot be used.
    """
    if isinstance(entry, Drafter):
        return entry
    if not isinstance(entry, str):
        raise ValueError(
            f"drafters names {short(entry)}, which is no drafter; pass a name, or an object from specviz.drafter()"
        )
    name, options = parse(entry)
    return make("drafter", DRAFTERS, name, options)


def parse(text: str) -> tuple[str, dict[str, object]]:
    """A name and its options from "name:option=value,option=value"; numbers, true, false and none become what they say, a/b a list.

    Raises:
        ValueError: an option without a value.
    """
    name, _, rest = text.partition(":")
    options: dict[str, object] = {}
    for part in rest.split(",") if rest else []:
        option, equals, value = part.partition("=")
        if not option or not equals or not value:
            raise ValueError(
                f"{text!r} has the option {part!r}, which is no option=value; write for instance exspec:window=32,fallback=wait"
            )
        options[option.strip()] = _value(value.strip())
    return name.strip(), options


def _value(text: str) -> object:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if "/" in text:
        return [_value(part) for part in text.split("/")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def label(how: Strategy | Baseline | Drafter, options: Mapping[str, object] | None = None) -> str:
    """The name and the options that are not the default, as `parse` reads them. options: those that were given; None: all that it has."""
    defaults = {item.name: item.default for item in fields(how) if item.default is not MISSING}
    changed = {
        name: value
        for name, value in (how.options if options is None else options).items()
        if value != defaults.get(name, MISSING)
    }
    shown = ",".join(f"{name}={_shown(value)}" for name, value in changed.items())
    return f"{how.name}:{shown}" if shown else how.name


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return (
        "/".join(map(_shown, value))
        if isinstance(value, list | tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
