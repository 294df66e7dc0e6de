"""What is measured: the axes of a grid and the cells that they span. Runs nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from specviz.bench.baselines import Baseline
from specviz.bench.methods import Method, label, method, proposer
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import DTYPES
from specviz.engine.strategies import Strategy
from specviz.util.validate import require_int, short

SYNTHETIC = "synthetic:rates=0.7/0.5/0.4/0.25/0.15"  # mean acceptance length 3 at K = 5
STANDARD = (
    "autoregressive", "autoregressive:compile=true", "hf_generate", "hf_assisted", "hf_assisted:confidence=0", "rollback", "masking",
    "eqspec", "eqspec:as_published=true", "exspec", "exspec:as_published=true", "inplace", "inplace:compile=true",
)  # fmt: skip
DEPTHS: tuple[int | str, ...] = (3, 7, "auto")
AXES = (
    "strategies",
    "batch_sizes",
    "num_draft_tokens",
    "max_new_tokens",
    "prompt_tokens",
    "drafters",
    "dtypes",
    "devices",
)


@dataclass(frozen=True)
class Cell:
    """One point of a grid.

    Attributes:
        pair: label of the source that the pair comes from.
        device, dtype: as they were asked for; None: as the pair comes.
        max_new_tokens, prompt_tokens: T; prompts are cut to their last `prompt_tokens`, None: none is cut.
        batch_size: B.
        strategy, drafter: labels; the drafter of what does not draft is "none".
        num_draft_tokens: K, 0 for what does not draft, or what else `generate` takes, "auto" for instance.
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
        """What tells it from other cells, as plain values."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.compare}

    @property
    def models(self) -> tuple[str, str | None, str | None]:
        """Cells with the same run with the same models in memory."""
        return self.pair, self.device, self.dtype

    @property
    def texts(self) -> tuple[int, int | None]:
        """Cells of the same models with the same have to write the same."""
        return self.max_new_tokens, self.prompt_tokens


@dataclass(frozen=True)
class Grid:
    """Every strategy with every drafter at every B, K, T, dtype and device, `repetitions` times.

    K and drafter concern what drafts; HF assisted generation runs at B = 1 alone, with the pair's draft and a K that is a number.

    Attributes:
        strategies: names with options ("exspec:window=8"), strategies, or baselines ("hf_generate", "hf_assisted").
        num_draft_tokens: K; what is no number goes to `generate` as it is.
        prompt_tokens: prompts are cut to so many of their last tokens; None: none is cut.
        drafters: names with options ("synthetic:rates=0.8/0.6") or drafters.
        dtypes, devices: as in `load_pair`; None: the pair's own.

    Raises:
        ValueError: an axis is empty, or a value cannot be used.
    """

    strategies: Sequence[str | Strategy | Baseline | Method] = (
        "autoregressive",
        "eqspec",
        "inplace",
    )
    batch_sizes: Sequence[int] = (1, 4, 8, 16)
    num_draft_tokens: Sequence[int | str] = (5,)
    max_new_tokens: Sequence[int] = (64,)
    prompt_tokens: Sequence[int | None] = (None,)
    drafters: Sequence[str | Drafter] = ("model",)
    dtypes: Sequence[str | None] = (None,)
    devices: Sequence[str | None] = (None,)
    repetitions: int = 3

    def __post_init__(self) -> None:
        for name in AXES:
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise ValueError(f"{name}={short(values)} is no list; pass a list, even for one")
            if not values:
                raise ValueError(f"{name} is empty; name at least one")
        for name in ("batch_sizes", "max_new_tokens", "prompt_tokens", "num_draft_tokens"):
            for i, value in enumerate(getattr(self, name)):
                if not (isinstance(value, str) and name == "num_draft_tokens") and not (
                    value is None and name == "prompt_tokens"
                ):
                    require_int(f"{name}[{i}]", value)
        for dtype in self.dtypes:
            if dtype is not None and dtype not in DTYPES:
                raise ValueError(
                    f"dtypes names {short(dtype)}, which is unknown; choose of {', '.join(DTYPES)}"
                )
        require_int("repetitions", self.repetitions)
        labels = [each.label for each in self.methods]
        if twice := sorted({name for name in labels if labels.count(name) > 1}):
            raise ValueError(f"strategies names {twice[0]!r} twice; name it once")
        if not list(self.cells("")):
            raise ValueError(
                "no cell is left: hf_assisted knows B = 1, its own draft and numbers as K alone; add another strategy, or B = 1"
            )

    @cached_property
    def methods(self) -> list[Method]:
        """The strategies and baselines."""
        return [method(entry) for entry in self.strategies]

    @cached_property
    def _proposers(self) -> list[Drafter]:
        return [proposer(entry) for entry in self.drafters]

    def cells(self, pair: str) -> Iterator[Cell]:
        """The cells for one pair, those that share models and texts next to each other."""
        for device in self.devices:
            for dtype in self.dtypes:
                for new in self.max_new_tokens:
                    for prompt in self.prompt_tokens:
                        for size in self.batch_sizes:
                            for kind, drafter, k in self._ways(size):
                                name = "none" if drafter is None else label(drafter)
                                yield Cell(
                                    pair,
                                    device,
                                    dtype,
                                    new,
                                    prompt,
                                    size,
                                    kind.label,
                                    name,
                                    k,
                                    kind,
                                    drafter,
                                )

    def _ways(self, batch_size: int) -> Iterator[tuple[Method, Drafter | None, int | str]]:
        """(method, drafter, K): one of each for what does not draft."""
        for kind in self.methods:
            foreign = isinstance(kind.how, Baseline)
            if not kind.how.drafts:
                yield kind, None, 0
                continue
            if isinstance(kind.how, Baseline) and kind.how.alone and batch_size > 1:
                continue
            for drafter in self._proposers:
                for k in self.num_draft_tokens:
                    if not foreign or (drafter.name == "model" and not isinstance(k, str)):
                        yield kind, drafter, k


def standard(synthetic: str | Drafter = SYNTHETIC, **axes: Any) -> list[Grid]:
    """The grids of `make bench`: all strategies that promise the text and all baselines, `inplace` with other K and with K chosen anew in
    each round, and with drafts that are accepted at given rates.

    Args:
        axes: as `Grid` takes them.

    Raises:
        ValueError: as `Grid`.
    """
    everywhere = Grid(STANDARD, **axes)
    depths = [k for k in DEPTHS if k not in everywhere.num_draft_tokens]
    others = [Grid(("inplace",), **axes | {"num_draft_tokens": depths})] if depths else []
    return [everywhere, *others, Grid(("inplace",), **axes, drafters=(synthetic,))]
