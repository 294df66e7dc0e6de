"""The options of a run: what a caller chooses besides the pair and the prompts.

They stand in `engine/`, not beside `specviz.generate`, because `specviz.decode` takes the same
ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from specviz.engine.draft_length import MOST, Auto, DraftLength
from specviz.engine.drafters import Drafter, NoDrafter
from specviz.engine.drafters import drafter as drafter_by_name
from specviz.engine.faults import TREE_FAULTS
from specviz.engine.sampling import Chooser, Greedy, SamplingParams
from specviz.engine.selectors import Everything, Selector, foresees
from specviz.engine.selectors import selector as selector_by_name
from specviz.engine.strategies import Strategy
from specviz.engine.strategies import strategy as strategy_by_name
from specviz.util.levers import Levers
from specviz.util.validate import require_bool, require_int, require_kind, short

MAX_THREADS = 1024
LANES = 2


# What other libraries, and the letters of the notation, call an option.
OTHER_NAMES = {
    "B": "batch_size",
    "K": "num_draft_tokens",
    "gamma": "num_draft_tokens",
    "num_assistant_tokens": "num_draft_tokens",
    "num_speculative_tokens": "num_draft_tokens",
    "max_tokens": "max_new_tokens",
    **dict.fromkeys(("temperature", "top_k", "top_p"), "sampling=SamplingParams(...)"),
}


def check_known(keywords: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for a keyword that is not among the known ones, and name the one meant."""
    for name in keywords:
        if name not in known:
            meant = OTHER_NAMES.get(name)
            remedy = f"pass {meant}" if meant else f"choose from {', '.join(known)}"
            raise TypeError(f"option {name!r} is unknown; {remedy}")


@dataclass(frozen=True)
class Options:
    """How to decode: the keyword arguments of `specviz.generate`, which documents them.

    The fields keep what the caller passed. The `make_` methods turn names into objects.

    `max_new_tokens` is checked with the prompts, since it may hold one budget for each of them.

    Raises:
        ValueError: an option cannot be used; the message names it, its value and the remedy.
    """

    strategy: str | Strategy = "inplace"
    drafter: str | Drafter = "model"
    num_draft_tokens: int | str | DraftLength = 5
    selector: str | Selector = "everything"
    batch_size: int = 8
    max_new_tokens: int | Sequence[int] = 128
    sampling: SamplingParams | None = None
    seed: int = 0
    deterministic: bool = False
    graphs: bool | None = False
    compile: bool = False
    num_threads: int | None = None
    lanes: int = 1
    levers: Levers | None = None

    def __post_init__(self) -> None:
        # Plain ints, also where numpy's were passed: records keep both numbers. `__setattr__` of
        # object, because the dataclass is frozen for everybody else.
        object.__setattr__(self, "batch_size", require_int("batch_size", self.batch_size))
        object.__setattr__(self, "seed", require_int("seed", self.seed, minimum=0))
        # Made only to be checked; every run makes its own.
        self.make_draft_length()
        self.make_drafter(self.make_strategy())
        if self.sampling is not None and not isinstance(self.sampling, SamplingParams):
            raise ValueError(
                f"sampling must be a SamplingParams or None, got {short(self.sampling)}; "
                "pass specviz.SamplingParams(temperature=0.7), or None for greedy decoding"
            )
        self._check_selector()
        self._check_trees()
        require_bool("deterministic", self.deterministic)
        require_bool("compile", self.compile)
        if self.num_threads is not None:
            threads = require_int("num_threads", self.num_threads, maximum=MAX_THREADS)
            object.__setattr__(self, "num_threads", threads)
        if self.graphs is not None:
            require_bool("graphs", self.graphs)
        self._check_lanes()
        if self.levers is not None:
            require_kind("levers", self.levers, Levers, "pass specviz.Levers(...), or None")

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> "Options":
        """Return the options that `keywords` names. Raise TypeError at an unknown name."""
        check_known(keywords, [field.name for field in fields(cls)])
        return cls(**keywords)

    @classmethod
    def of_one_lane(
        cls, keywords: Mapping[str, Any], where: str = "where a run's events are read one by one"
    ) -> "Options":
        """Return `from_keywords` for a caller that can run one lane only; `where` says why."""
        options = cls.from_keywords(keywords)
        if options.lanes > 1:
            raise ValueError(
                f"lanes must be 1 {where}, got {options.lanes}; "
                "call specviz.generate with it, or leave it out"
            )
        return options

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens that a row may draft, whether or not the strategy drafts at all."""
        # Shapes that are compared across strategies go by this.
        return int(self.make_selector().drafted(self.make_draft_length().most))

    def make_strategy(self) -> Strategy:
        """Return the strategy, made by name unless an object was passed."""
        made = self.strategy
        if isinstance(made, str):
            made = strategy_by_name(made)
        if not isinstance(made, Strategy):
            raise ValueError(
                f"strategy must be a name or a Strategy, got {short(made)}; "
                "use specviz.strategy(name, **options)"
            )
        if not made.name:
            raise ValueError(
                f"strategy must have a name to be recorded under, got {short(made)}; "
                "set `name` on its class"
            )
        return made

    def make_drafter(self, strategy: Strategy) -> Drafter:
        """Return the drafter. For a strategy that never drafts, it is one that proposes nothing."""
        made = self.drafter
        if isinstance(made, str):
            made = drafter_by_name(made)
        if not isinstance(made, Drafter):
            raise ValueError(
                f"drafter must be a name or a Drafter, got {short(made)}; "
                "use specviz.drafter(name, **options)"
            )
        return made if strategy.drafts else NoDrafter()

    def make_selector(self) -> Selector:
        """Return what says which drafts are verified."""
        made = self.selector
        if isinstance(made, str):
            made = selector_by_name(made)
        if not isinstance(made, Selector):
            raise ValueError(
                f"selector must be a name or a Selector, got {short(made)}; "
                "use specviz.selector(name, **options)"
            )
        return made

    def _check_selector(self) -> None:
        """Raise ValueError if the selector cannot serve the strategy, drafter and sampling."""
        selector = self.make_selector()
        strategy = self.make_strategy()
        drafter = self.make_drafter(strategy)
        if not strategy.drafts:
            return
        if selector.needs_logits and not drafter.gives_logits:
            raise ValueError(
                f"selector={selector.name!r} needs the draft's logits, and drafter="
                f"{drafter.name!r} gives none; use drafter='model', or selector='everything'"
            )
        biased = self.weighs_drafts and foresees(selector, drafter)
        if biased and selector.valid and not selector.foresees:
            raise ValueError(
                f"selector={selector.name!r} leaves drafts out by what others of their tree are, "
                'which under coupling="rejection" changes the distribution of the text unless '
                "drawn trees stand level by level; put shorter paths first, or pass "
                'siblings="likeliest"'
            )
        if biased and selector.valid:
            raise ValueError(
                f"selector={selector.name!r} decides by a draft whether that draft is judged, "
                'which under coupling="rejection" changes the distribution of the text; '
                f'{selector.unbiased}, or pass coupling="gumbel", or valid=False to see the bias'
            )
        if getattr(strategy, "draft_bonus", False) and type(selector) is not Everything:
            raise ValueError(
                f"selector={selector.name!r} leaves drafts unverified, and strategy="
                f"{strategy.name!r} keeps the first draft that is not accepted; "
                "pass draft_bonus=False, or selector='everything'"
            )

    def _check_trees(self) -> None:
        """Raise ValueError if the strategy or sampling cannot serve drafts that branch."""
        strategy = self.make_strategy()
        drafter = self.make_drafter(strategy)
        fault = strategy.break_invariant
        if fault in TREE_FAULTS and not drafter.branches:
            raise ValueError(
                f"break_invariant={fault!r} needs drafts that branch, and drafter="
                f"{drafter.name!r} proposes chains; pass drafter='tree'"
            )
        if not drafter.branches:
            return
        if not strategy.takes_trees:
            raise ValueError(
                f"drafter={drafter.name!r} proposes trees, and strategy={strategy.name!r} with "
                "these options takes chains only; pass strategy='inplace'"
            )
        if self.deterministic:
            raise ValueError(
                f"deterministic=True fixes the order of every sum for chains only, and drafter="
                f"{drafter.name!r} proposes trees; pass drafter='model', or deterministic=False"
            )
        if drafter.biased and getattr(drafter, "valid", True) and self.weighs_drafts:
            raise ValueError(
                f"drafter={drafter.name!r} is judged in a way that changes the distribution of the "
                'text under coupling="rejection"; leave judged_by out, or pass valid=False to see '
                "the bias"
            )

    def _check_lanes(self) -> None:
        """Raise ValueError if the run cannot be divided into lanes as the options say."""
        if require_int("lanes", self.lanes, maximum=LANES) == 1:
            return
        if self.batch_size % LANES:
            raise ValueError(
                f"batch_size must be even for lanes={LANES}, each of which takes half of the rows, "
                f"got {self.batch_size}; pass {self.batch_size + 1}, or lanes=1"
            )
        if isinstance(self.num_draft_tokens, DraftLength):
            raise ValueError(
                f"num_draft_tokens must be an int or {Auto.name!r} for lanes={LANES}, because both "
                f"lanes would share one object, got {short(self.num_draft_tokens)}; pass for "
                "instance 5, or lanes=1"
            )

    @property
    def weighs_drafts(self) -> bool:
        """Whether how drafts are judged may bias the text, as with coupling="rejection"."""
        return self.make_chooser().weighs_drafts

    def make_draft_length(self, limit: int | None = None) -> DraftLength:
        """Return what decides K in each round.

        limit: how many tokens a row can draft, which "auto" keeps to; None for any number.
        """
        value = self.num_draft_tokens
        if isinstance(value, DraftLength):
            require_int("num_draft_tokens.most", getattr(value, "most", None), minimum=0)
            return value
        if isinstance(value, str):
            if value != Auto.name:
                raise ValueError(
                    f"num_draft_tokens must be an int >= 1 or {Auto.name!r}, got {short(value)}; "
                    f"pass for instance 5, or {Auto.name!r}"
                )
            drafted = self.make_selector().drafted
            fitting = [k for k in range(1, MOST + 1) if limit is None or drafted(k) <= limit]
            # Where not even one token fits, the drafter says so.
            return Auto(max(fitting, default=1))
        return DraftLength(require_int("num_draft_tokens", value))

    def make_chooser(self) -> Chooser:
        """Return what chooses tokens from logits: greedily, or by sampling."""
        return Greedy() if self.sampling is None else self.sampling.chooser(self.seed)
