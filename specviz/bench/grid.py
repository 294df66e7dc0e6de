"""What is measured: the axes of a grid and the cells that they span. Runs nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import Any

from specviz.bench.baselines import Baseline
from specviz.bench.methods import Method, label, method, proposer
from specviz.engine.drafters import Drafter
from specviz.engine.models.pair import DTYPES
from specviz.engine.options import Options
from specviz.engine.strategies import Strategy
from specviz.util.validate import require_choice, require_int, require_list, require_str

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
    "eqspec:as_published=true",
    "exspec",
    "exspec:as_published=true",
    "inplace",
    "inplace:compile=true",
)
DEPTHS: tuple[int | str, ...] = (3, 7, "auto")  # further K of the standard grids
MAX_REPETITIONS = 10_000


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
        ValueError: an axis is empty, or a value cannot be used.
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
        for item in fields(self):
            if item.name != "repetitions":
                require_list(item.name, getattr(self, item.name), "pass a list of one")
        require_int("repetitions", self.repetitions, maximum=MAX_REPETITIONS)
        self._check_values()
        labels = [each.label for each in self.methods]
        for name in labels:
            if labels.count(name) > 1:
                raise ValueError(f"strategies names {name!r} twice; name it once")
        if not list(self.cells("")):
            raise ValueError(
                "strategies must leave a cell, got none: baselines draft with the model drafter "
                "and numbers as K, and hf_assisted at B = 1 only; add another strategy, or B = 1"
            )

    def _check_values(self) -> None:
        for name in ("batch_sizes", "max_new_tokens", "prompt_tokens", "num_draft_tokens"):
            for i, value in enumerate(getattr(self, name)):
                if name == "num_draft_tokens" and isinstance(value, str):
                    Options(num_draft_tokens=value)  # refuses a word that generate does not take
                elif name != "prompt_tokens" or value is not None:
                    require_int(f"{name}[{i}]", value)
        for i, dtype in enumerate(self.dtypes):
            if dtype is not None:
                require_choice(f"dtypes[{i}]", dtype, DTYPES)
        for i, device in enumerate(self.devices):
            if device is not None:
                require_str(f"devices[{i}]", device, "pass for instance 'cpu'")

    @cached_property
    def methods(self) -> list[Method]:
        """The strategies and baselines."""
        return [method(entry) for entry in self.strategies]

    @cached_property
    def _proposers(self) -> list[Drafter]:
        return [proposer(entry) for entry in self.drafters]

    def cells(self, pair: str) -> Iterator[Cell]:
        """Return the cells for one pair, those that share models and texts next to each other."""
        shared = product(
            self.devices, self.dtypes, self.max_new_tokens, self.prompt_tokens, self.batch_sizes
        )
        for device, dtype, new_tokens, prompt_tokens, size in shared:
            for how, drafter, k in self._ways(size):
                yield Cell(
                    pair=pair,
                    device=device,
                    dtype=dtype,
                    max_new_tokens=new_tokens,
                    prompt_tokens=prompt_tokens,
                    batch_size=size,
                    strategy=how.label,
                    drafter="none" if drafter is None else label(drafter),
                    num_draft_tokens=k,
                    method=how,
                    proposer=drafter,
                )

    def _ways(self, batch_size: int) -> Iterator[tuple[Method, Drafter | None, int | str]]:
        """Return (method, drafter, K): one of each method that does not draft."""
        for each in self.methods:
            if not each.how.drafts:
                yield each, None, 0
                continue
            baseline = isinstance(each.how, Baseline)
            if isinstance(each.how, Baseline) and each.how.alone and batch_size > 1:
                continue
            for drafter, k in product(self._proposers, self.num_draft_tokens):
                if not baseline or (drafter.name == "model" and not isinstance(k, str)):
                    yield each, drafter, k


def standard(synthetic: str | Drafter = SYNTHETIC, **axes: Any) -> list[Grid]:
    """Return the grids of `make bench`.

    They hold all strategies that promise the text, the baselines of transformers, `inplace` with
    other K and with a K chosen in each round, and `inplace` with drafts that are accepted at given
    rates.

    Args:
        axes: as `Grid` takes them.

    Raises:
        ValueError: as `Grid`.
    """
    grids = [Grid(STANDARD, **axes)]
    depths = [k for k in DEPTHS if k not in grids[0].num_draft_tokens]
    if depths:
        grids.append(Grid(("inplace",), **axes | {"num_draft_tokens": depths}))
    grids.append(Grid(("inplace",), **axes, drafters=(synthetic,)))
    return grids
