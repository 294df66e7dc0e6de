"""What is simulated: a strategy and its options, and which drafts are verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record.schema import FALLBACKS, Array
from specviz.scheduling.selection import largest
from specviz.util.validate import require_bool, require_choice, require_int, short

STRATEGIES = ("autoregressive", "inplace", "eqspec", "exspec")
# What changes the rounds of a recorded run, or chose them by times that nobody measures again.
_NOT_SIMULATED = {
    "drafter": ("tree", "static_tree"),
    "bonus": (False,),
    "shrink_to_budget": (True,),
    "drop_cache": (True,),
    "group_by": ("padded",),
    "capacity": ("best",),
}


@dataclass(frozen=True)
class Tetris:
    """Draft K + extra tokens a row, and verify the K * b of the batch that score highest.

    It is the engine's selector of this name on chains (TETRIS, arXiv 2502.15197).

    Attributes:
        extra: proposals of a row beyond K.
        score: "chosen": the product of q of the row's proposals up to this one. "largest": the
            same in a table, since its drafts are greedy. "entropy": minus the sum of the entropies
            of q.
        max_wait: rounds after which a row's first draft is verified whatever its score; None: a row
            may wait for good.
    """

    extra: int = 2
    score: str = "chosen"
    max_wait: int | None = None

    @property
    def name(self) -> str:
        """The selector and its options, for tables."""
        options = [f"extra={self.extra}"]
        if self.score != "chosen":
            options.append(f"score={self.score}")
        if self.max_wait is not None:
            options.append(f"max_wait={self.max_wait}")
        return "tetris:" + ",".join(options)

    @property
    def reads(self) -> str:
        """The column of a workload that `choose` reads."""
        return "entropy" if self.score == "entropy" else "log_q"

    def choose(self, column: Array, working: Array, num_draft_tokens: int, waited: Array) -> Array:
        """Return how many proposals of each row are verified (b,).

        Args:
            column: (b, D), the column `reads` of the rows' proposals.
            working: bool (b,), the rows that propose.
            num_draft_tokens: K.
            waited: (b,), rounds since a draft of the row was last verified.
        """
        scores = np.cumsum(-column if self.score == "entropy" else column, 1)
        if self.max_wait is not None:
            scores[waited >= self.max_wait, 0] = np.inf
        # A draft without a chance still comes before the rows that do not propose.
        scores = np.maximum(scores, np.finfo(scores.dtype).min)
        scores[~working] = -np.inf
        chosen: Array = largest(scores, working[:, None], num_draft_tokens * int(working.sum()))
        return chosen


@dataclass(frozen=True)
class Threshold:
    """Verify a row's proposals up to the first whose q is below `at_least`."""

    at_least: float = 0.5
    extra = 0
    reads = "log_q"

    @property
    def name(self) -> str:
        """The selector and its options, for tables."""
        return f"threshold:at_least={self.at_least}"

    def choose(self, column: Array, working: Array, num_draft_tokens: int, waited: Array) -> Array:
        """Return how many proposals of each row are verified (b,); see `Tetris.choose`."""
        confident = np.exp(column) >= self.at_least
        leading: Array = np.logical_and.accumulate(confident, axis=1).sum(1)
        return working * leading


@dataclass(frozen=True)
class Policy:
    """A strategy and its options, by their names in `specviz.strategy`.

    window, fallback and max_wait belong to exspec alone. selector says which proposals are
    verified, None: all of them; it needs a workload from an acceptance table. overlap divides the
    rows into two lanes, of which one drafts while the other verifies; batch_size and window are
    those of both together.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    strategy: str = "inplace"
    batch_size: int = 8
    num_draft_tokens: int = 5
    refill: bool = True
    window: int = 32
    fallback: str = "realign"
    max_wait: int = 8
    selector: Tetris | Threshold | None = None
    overlap: bool = False

    def __post_init__(self) -> None:
        require_choice("strategy", self.strategy, STRATEGIES)
        require_choice("fallback", self.fallback, FALLBACKS)
        for name in ("batch_size", "num_draft_tokens", "window", "max_wait"):
            require_int(name, getattr(self, name))
        require_bool("refill", self.refill)
        require_bool("overlap", self.overlap)
        if self.overlap and self.batch_size % 2:
            raise ValueError(
                "batch_size must be even for overlap=True, which gives each lane half of the rows,"
                f" got {short(self.batch_size)}; pass {self.batch_size + 1}"
            )
        if self.pooled and not self.refill:
            raise ValueError(
                "refill must be True for exspec, got False: without it there is no pool to choose"
                " from; leave it out"
            )
        if self.pooled and self.window < self.batch_size:
            raise ValueError(
                f"window must be at least batch_size={self.batch_size}, got {self.window}; pass a"
                " larger window"
            )

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Policy:
        """Return the policy of a recorded run, from its meta data.

        Raises:
            ValueError: the run had a drafter, a selector or an option that is not simulated.
        """
        options = meta.get("selector_options", {})
        given = meta["strategy_options"]
        asked = {**given, **options, "drafter": meta.get("drafter")}
        for name, refused in _NOT_SIMULATED.items():
            if asked.get(name) in refused:
                raise ValueError(
                    f"{name}={asked[name]!r} is not simulated; pass a run that was recorded"
                    " without it"
                )
        selector: Tetris | Threshold | None = None
        if meta.get("selector") == "tetris":
            selector = Tetris(options["extra"], options["score"], options["max_wait"])
        elif meta.get("selector") == "threshold":
            selector = Threshold(options["at_least"])
        elif meta.get("selector", "everything") != "everything":
            raise ValueError(
                f"selector={short(meta['selector'])} is not simulated; pass a run with"
                ' "everything", "tetris" or "threshold"'
            )
        extra = 0 if selector is None else selector.extra
        names = ("refill", "window", "fallback", "max_wait")
        return cls(
            meta["strategy"],
            meta["batch_size"],
            max(meta["num_draft_tokens"] - extra, 1),
            selector=selector,
            # The record of a lane is that of a run with half of the rows.
            overlap=meta.get("lanes", 1) > 1 and "lane" not in meta,
            **{name: given[name] for name in names if name in given},
        )

    @property
    def pooled(self) -> bool:
        """Whether a round takes some of the live rows, rather than all."""
        return self.strategy == "exspec"

    @property
    def drafted(self) -> int:
        """Drafts a row and round: K, or what the selector asks for; 0 without speculation."""
        if self.strategy == "autoregressive":
            return 0
        return self.num_draft_tokens + (0 if self.selector is None else self.selector.extra)

    @property
    def name(self) -> str:
        """The strategy and those of its options that are not the default, for tables."""
        options = []
        if not self.refill:
            options.append("refill=false")
        if self.pooled:
            for name in ("window", "fallback", "max_wait"):
                value = getattr(self, name)
                if value != getattr(Policy, name):
                    options.append(f"{name}={value}")
        if self.overlap:
            options.append("overlap=true")
        name = f"{self.strategy}:{','.join(options)}" if options else self.strategy
        return name if self.selector is None else f"{name}+{self.selector.name}"
