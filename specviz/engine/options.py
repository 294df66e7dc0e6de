"""The options of a run: what a caller chooses besides the pair and the prompts.

They stand in `engine/`, not beside `specviz.generate`, because `specviz.decode` takes the same
ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specviz.engine.draft_length import MOST, Auto, DraftLength
from specviz.engine.drafters import Drafter, NoDrafter
from specviz.engine.drafters import drafter as drafter_by_name
from specviz.engine.faults import TREE_FAULTS
from specviz.engine.processors import (
    Processors,
    Stops,
    check_config,
    configured,
    full_config,
    listed,
    sampled,
)
from specviz.engine.sampling import Chooser, Greedy, SamplingParams
from specviz.engine.selectors import Everything, Selector, foresees
from specviz.engine.selectors import selector as selector_by_name
from specviz.engine.strategies import Strategy
from specviz.engine.strategies import strategy as strategy_by_name
from specviz.util.levers import Levers
from specviz.util.validate import is_list, is_one_of, require_bool, require_int, require_kind, short

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


class Parts(NamedTuple):
    """What the names among the options stand for. Of a strategy that never drafts, the drafter
    proposes nothing.
    """

    strategy: Strategy
    drafter: Drafter
    selector: Selector


@dataclass(frozen=True)
class Options:
    """How to decode: the keyword arguments of `specviz.generate`, which documents them.

    The fields keep what the caller passed, `parts` what was made of it. `max_new_tokens` is checked
    with the prompts, since it may hold one budget for each of them.

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
    logits_processor: Any = None
    stop: str | Sequence[str] | None = None
    generation_config: str | GenerationConfig | None = None

    def __post_init__(self) -> None:
        # Plain ints, also where numpy's were passed: records keep both numbers. `__setattr__` of
        # object, because the dataclass is frozen for everybody else.
        object.__setattr__(self, "batch_size", require_int("batch_size", self.batch_size))
        object.__setattr__(self, "seed", require_int("seed", self.seed, minimum=0))
        if self.num_threads is not None:
            threads = require_int("num_threads", self.num_threads, maximum=MAX_THREADS)
            object.__setattr__(self, "num_threads", threads)
        self.make_draft_length()  # only to be checked; every run makes its own
        refuse_if(
            not isinstance(self.sampling, SamplingParams | None),
            f"sampling must be a SamplingParams or None, got {short(self.sampling)}; "
            "pass specviz.SamplingParams(temperature=0.7), or None for greedy decoding",
        )
        require_bool("deterministic", self.deterministic)
        require_bool("compile", self.compile)
        if self.graphs is not None:
            require_bool("graphs", self.graphs)
        require_int("lanes", self.lanes, maximum=LANES)
        if self.levers is not None:
            require_kind("levers", self.levers, Levers, "pass specviz.Levers(...), or None")
        if self.logits_processor is not None:
            object.__setattr__(self, "logits_processor", listed(self.logits_processor))
        if self.stop is not None:
            object.__setattr__(self, "stop", _stop_strings(self.stop))
        refuse_if(
            not isinstance(self.generation_config, GenerationConfig | None)
            and not is_one_of(self.generation_config, ("target",)),
            "generation_config must be 'target' or a GenerationConfig, got "
            f"{short(self.generation_config)}; pass 'target' for what the checkpoint ships",
        )
        self._check_parts()

    def resolved(self, target: PreTrainedModel, eos_token_ids: Sequence[int]) -> "Options":
        """Return the options with what the generation config says where the caller says nothing.

        Raises ValueError for a setting that is not supported.
        """
        if self.generation_config is None:
            return self
        given = None if self.generation_config == "target" else self.generation_config
        config = full_config(target, given, eos_token_ids)
        check_config(config)
        return replace(
            self,
            generation_config=config,
            sampling=self.sampling or sampled(config),
            stop=config.stop_strings if self.stop is None else self.stop,
        )

    def make_processors(
        self, target: PreTrainedModel, eos_token_ids: Sequence[int]
    ) -> Processors | None:
        """Return what processes the logits of `resolved` options; None for nothing."""
        own = self.logits_processor or LogitsProcessorList()
        config = self.generation_config
        if isinstance(config, GenerationConfig):
            return Processors(configured(target, config, own), eos_token_ids)
        return Processors(lambda _: own, eos_token_ids) if own else None

    def make_stops(self, tokenizer: PreTrainedTokenizerBase | None) -> Stops | None:
        """Return what ends rows by their text; None without stop strings.

        Raises ValueError without a tokenizer.
        """
        if not self.stop:
            return None
        if tokenizer is None:
            raise ValueError(
                f"stop={short(self.stop)} needs text, but there is no tokenizer; pass one too"
            )
        return Stops(self.stop, tokenizer)

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

    @cached_property
    def parts(self) -> Parts:
        """The strategy, drafter and selector, made by name unless objects were passed."""
        strategy = self.strategy
        if isinstance(strategy, str):
            strategy = strategy_by_name(strategy)
        _require("strategy", strategy, Strategy)
        drafter = self.drafter
        if isinstance(drafter, str):
            drafter = drafter_by_name(drafter)
        _require("drafter", drafter, Drafter)
        selector = self.selector
        if isinstance(selector, str):
            selector = selector_by_name(selector)
        _require("selector", selector, Selector)
        return Parts(strategy, drafter if strategy.drafts else NoDrafter(), selector)

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens that a row may draft, whether or not the strategy drafts at all."""
        # Shapes that are compared across strategies go by this.
        return int(self.parts.selector.drafted(self.make_draft_length().most))

    @property
    def weighs_drafts(self) -> bool:
        """Whether the text depends on the drafts, as with coupling="rejection"."""
        return self.sampling is not None and self.sampling.coupling == "rejection"

    @property
    def promises(self) -> bool:
        """Whether the run promises the target's own text, or its distribution when sampling."""
        biased = self.weighs_drafts and any(found for found, _, _ in self.biases())
        return self.parts.strategy.promises and not biased

    def biases(self) -> list[tuple[bool, bool, str]]:
        """Return what changes the distribution of the text under coupling="rejection".

        Each is whether it applies, whether the caller has asked for it by valid=False, and a
        sentence.
        """
        strategy, drafter, selector = self.parts
        judged = (
            f"drafter={drafter.name!r} is judged in a way that changes the distribution of the "
            'text under coupling="rejection"; leave judged_by out, or pass valid=False to see '
            "the bias"
        )
        selected = (
            f"selector={selector.name!r} leaves drafts out by what others of their tree are, "
            'which under coupling="rejection" changes the distribution of the text unless '
            "drawn trees stand level by level; put shorter paths first, or pass "
            'siblings="likeliest"'
        )
        if selector.foresees:
            selected = (
                f"selector={selector.name!r} decides by a draft whether that draft is judged, "
                'which under coupling="rejection" changes the distribution of the text; '
                f'{selector.unbiased}, or pass coupling="gumbel", or valid=False to see the bias'
            )
        asked = not getattr(drafter, "valid", True)
        return [
            (strategy.drafts and drafter.biased, asked, judged),
            (strategy.drafts and foresees(selector, drafter), not selector.valid, selected),
        ]

    def _check_parts(self) -> None:
        """Raise ValueError for what cannot be combined."""
        strategy, drafter, selector = self.parts
        fault = strategy.break_invariant
        refuse_if(
            not strategy.name,
            f"strategy must have a name to be recorded under, got {short(strategy)}; "
            "set `name` on its class",
        )
        refuse_if(
            fault in TREE_FAULTS and not drafter.branches,
            f"break_invariant={fault!r} needs drafts that branch, and drafter="
            f"{drafter.name!r} proposes chains; pass drafter='tree'",
        )
        refuse_if(
            strategy.drafts and selector.needs_logits and not drafter.gives_logits,
            f"selector={selector.name!r} needs the draft's logits, and drafter="
            f"{drafter.name!r} gives none; use drafter='model', or selector='everything'",
        )
        for applies, asked, sentence in self.biases():
            refuse_if(self.weighs_drafts and applies and not asked, sentence)
        refuse_if(
            getattr(strategy, "draft_bonus", False) and type(selector) is not Everything,
            f"selector={selector.name!r} leaves drafts unverified, and strategy="
            f"{strategy.name!r} keeps the first draft that is not accepted; "
            "pass draft_bonus=False, or selector='everything'",
        )
        refuse_if(
            drafter.branches and not strategy.takes_trees,
            f"drafter={drafter.name!r} proposes trees, and strategy={strategy.name!r} with "
            "these options takes chains only; pass strategy='inplace'",
        )
        refuse_if(
            drafter.branches and self.deterministic,
            f"deterministic=True fixes the order of every sum for chains only, and drafter="
            f"{drafter.name!r} proposes trees; pass drafter='model', or deterministic=False",
        )
        refuse_if(
            self.lanes > 1 and self.batch_size % LANES > 0,
            f"batch_size must be even for lanes={LANES}, each of which takes half of the rows, "
            f"got {self.batch_size}; pass {self.batch_size + 1}, or lanes=1",
        )
        refuse_if(
            self.lanes > 1 and isinstance(self.num_draft_tokens, DraftLength),
            f"num_draft_tokens must be an int or {Auto.name!r} for lanes={LANES}, because both "
            f"lanes would share one object, got {short(self.num_draft_tokens)}; pass for "
            "instance 5, or lanes=1",
        )

    def make_draft_length(self, limit: int | None = None) -> DraftLength:
        """Return what decides K in each round; "auto" learns, so each run has its own.

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
            drafted = self.parts.selector.drafted
            fitting = [k for k in range(1, MOST + 1) if limit is None or drafted(k) <= limit]
            # Where not even one token fits, the drafter says so.
            return Auto(max(fitting, default=1))
        return DraftLength(require_int("num_draft_tokens", value))

    def make_chooser(self) -> Chooser:
        """Return what chooses tokens from logits: greedily, or by sampling."""
        return Greedy() if self.sampling is None else self.sampling.chooser(self.seed)


def _stop_strings(given: object) -> tuple[str, ...]:
    strings = (given,) if isinstance(given, str) else given
    if not is_list(strings) or not all(isinstance(each, str) and each for each in strings):
        raise ValueError(
            f"stop must be a str or a list of them, none of them empty, got {short(given)}; "
            "pass for instance ['\\n\\n']"
        )
    return tuple(strings)


def refuse_if(applies: bool, sentence: str) -> None:
    """Raise ValueError with the sentence if it applies."""
    if applies:
        raise ValueError(sentence)


def _require(kind: str, made: object, base: type) -> None:
    if not isinstance(made, base):
        raise ValueError(
            f"{kind} must be a name or a {base.__name__}, got {short(made)}; "
            f"use specviz.{kind}(name, **options)"
        )
