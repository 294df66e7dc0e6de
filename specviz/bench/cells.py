"""What is measured: methods by the names that tables show, and the cells of a grid. Runs nothing.

exspec:window=32,fallback=wait    hf_assisted:confidence=0    inplace:graphs=true
synthetic:rates=0.8/0.6/0.5       inplace:selector=tetris+extra=2
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from specviz.bench.sources import BASELINES, Baseline
from specviz.engine.drafters import DRAFTERS, Drafter
from specviz.engine.names import parse
from specviz.engine.options import Options
from specviz.engine.registry import changed, make
from specviz.engine.selectors import SELECTORS, Selector
from specviz.engine.strategies import STRATEGIES, Strategy
from specviz.util.validate import require_int

SYNTHETIC = "synthetic:rates=0.7/0.5/0.4/0.25/0.15"  # mean acceptance length 3 at K = 5
STANDARD = (
    "autoregressive",
    "autoregressive:compile=true",
    "hf_generate",
    "hf_assisted",
    "hf_assisted:confidence=0",
    "rollback",
    "masking",
    "eqspec",
    "exspec",
    "inplace",
    "inplace:compile=true",
)
DEPTHS: tuple[int | str, ...] = (3, 7, "auto")  # further K of the standard grids
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
    generate_options: dict[str, object] = field(default_factory=dict)


def method(entry: str | Strategy | Baseline) -> Method:
    """Return the method that an entry of a grid names.

    Raises:
        ValueError: the name or an option is unknown, or a value cannot be used.
    """
    if not isinstance(entry, str):
        return Method(label(entry), entry)
    name, options = parse(entry)
    known: dict[str, type[Any]] = {**STRATEGIES, **BASELINES}
    asked = GENERATE_OPTIONS & options.keys() if name in STRATEGIES else set()
    of_generate = {key: options[key] for key in sorted(asked)}
    how = make("strategy", known, name, {key: options[key] for key in options.keys() - asked})
    if "selector" in of_generate:
        of_generate["selector"] = verifier(str(of_generate["selector"]))
    return Method(label(how, options), how, of_generate)


def proposer(entry: str | Drafter) -> Drafter:
    """Return the drafter that an entry of a grid names, as `method` does."""
    return make("drafter", DRAFTERS, *parse(entry)) if isinstance(entry, str) else entry


def verifier(entry: str) -> Selector:
    """Return the selector that "tetris" or "tetris+extra=3+score=largest" names, as `method`."""
    name, *options = entry.split("+")
    return make("selector", SELECTORS, *parse(f"{name}:{','.join(options)}"))


def label(how: Strategy | Baseline | Drafter, options: Mapping[str, object] | None = None) -> str:
    """Return the name and the options that are not the default, as `parse` reads them.

    Args:
        options: those that were given; None: all that `how` has.
    """
    shown = [f"{name}={_text(value)}" for name, value in changed(how, options).items()]
    return f"{how.name}:{','.join(shown)}" if shown else how.name


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "/".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Cell:
    """One point of a grid.

    Attributes:
        pair: label of the source that the pair comes from.
        device, dtype: as they were given; None: the pair's own.
        max_new_tokens, prompt_tokens: prompts are cut to their last `prompt_tokens`; None: none is.
        batch_size: B.
        strategy, drafter: labels. The drafter of a method that does not draft is "none".
        num_draft_tokens: K, 0 for a method that does not draft, or a word that `generate` takes,
            such as "auto".
        method, proposer: what the labels stand for.
    """

    pair: str
    device: str | None
    dtype: str | None
    max_new_tokens: int
    prompt_tokens: int | None
    batch_size: int
    strategy: str
    drafter: str
    num_draft_tokens: int | str
    method: Method = field(compare=False, repr=False)
    proposer: Drafter | None = field(compare=False, repr=False)

    @property
    def key(self) -> dict[str, object]:
        """What identifies the cell, as plain values."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.compare}

    @property
    def baseline(self) -> Baseline | None:
        """The method, if it is not a strategy."""
        return self.method.how if isinstance(self.method.how, Baseline) else None

    @property
    def models(self) -> tuple[str, str | None, str | None]:
        """Cells with equal `models` run with the same models in memory."""
        return self.pair, self.device, self.dtype

    @property
    def texts(self) -> tuple[int, int | None]:
        """Cells with equal `models` and `texts` must write the same texts."""
        return self.max_new_tokens, self.prompt_tokens


@dataclass(frozen=True)
class Grid:
    """Every strategy with every drafter at every B, K, length, dtype and device.

    K and drafter concern methods that draft. Baselines draft with the pair's draft model and a K
    that is a number, and HF assisted generation runs at B = 1 only.

    Attributes:
        strategies: names with options ("exspec:window=8", "hf_generate", "hf_assisted"),
            strategies, or objects of a `Baseline` of your own.
        num_draft_tokens: K; words go to `generate` as they are.
        prompt_tokens: prompts are cut to so many of their last tokens; None: none is cut.
        drafters: names with options ("synthetic:rates=0.8/0.6") or drafters.
        dtypes, devices: as in `load_pair`; None: the pair's own.

    Raises:
        ValueError: a number, a name or an option cannot be used.
    """

    strategies: Sequence[str | Strategy | Baseline] = ("autoregressive", "eqspec", "inplace")
    batch_sizes: Sequence[int] = (1, 4, 8, 16)
    num_draft_tokens: Sequence[int | str] = (5,)
    max_new_tokens: Sequence[int] = (64,)
    prompt_tokens: Sequence[int | None] = (None,)
    drafters: Sequence[str | Drafter] = ("model",)
    dtypes: Sequence[str | None] = (None,)
    devices: Sequence[str | None] = (None,)
    repetitions: int = 3

    def __post_init__(self) -> None:
        require_int("repetitions", self.repetitions)
        for name in ("batch_sizes", "max_new_tokens", "prompt_tokens", "num_draft_tokens"):
            for value in getattr(self, name):
                if isinstance(value, str):
                    Options(num_draft_tokens=value)  # refuses a word that generate does not take
                elif value is not None:
                    require_int(name, value)
        if not list(self.cells("")):  # unknown names and options are refused here
            raise ValueError(
                "strategies must leave a cell, got none: baselines draft with the model drafter "
                "and numbers as K, and hf_assisted at B = 1 only; add another strategy, or B = 1"
            )

    def cells(self, pair: str) -> Iterator[Cell]:
        """Return the cells for one pair, those that share models and texts next to each other."""
        methods = [method(entry) for entry in self.strategies]
        proposers = [proposer(entry) for entry in self.drafters]
        axes: list[Sequence[Any]] = [
            self.devices, self.dtypes, self.max_new_tokens, self.prompt_tokens, self.batch_sizes,
        ]  # fmt: skip
        for device, dtype, new_tokens, prompt_tokens, size, way in product(*axes, methods):
            shared = (pair, device, dtype, new_tokens, prompt_tokens, size, way.label)
            if not way.how.drafts:
                yield Cell(*shared, "none", 0, way, None)
                continue
            is_baseline = isinstance(way.how, Baseline)
            if is_baseline and way.how.alone and size > 1:
                continue
            for drafter, k in product(proposers, self.num_draft_tokens):
                if not is_baseline or (drafter.name == "model" and not isinstance(k, str)):
                    yield Cell(*shared, label(drafter), k, way, drafter)


def standard(synthetic: str | Drafter = SYNTHETIC, **axes: Any) -> list[Grid]:
    """Return the grids of `specviz bench` without options; `axes` as `Grid` takes them.

    They hold all strategies that promise the text, the baselines of transformers, `inplace` with
    other K and with a K chosen in each round, and `inplace` with drafts that are accepted at given
    rates.
    """
    grids = [Grid(STANDARD, **axes)]
    depths = [k for k in DEPTHS if k not in grids[0].num_draft_tokens]
    if depths:
        grids.append(Grid(("inplace",), **axes | {"num_draft_tokens": depths}))
    grids.append(Grid(("inplace",), **axes, drafters=(synthetic,)))
    return grids
