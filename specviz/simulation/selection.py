"""Which proposals of a simulated round are verified.

A selector sees what an acceptance table says of the proposals of a batch, and decides how many of
each row's the target reads. Those are always the row's first ones, since a draft counts only if all
before it are accepted.

Not known here: requests, time, what the target would accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record.schema import Array
from specviz.util.validate import is_real, require_choice, require_int, short

SCORES = ("chosen", "largest", "entropy")
MAX_WAIT = 2**16 - 1  # rounds, as in the engine


@dataclass(frozen=True)
class Everything:
    """Verify every proposal: the same number in each row."""

    @property
    def name(self) -> str:
        """The selector and its options, for tables."""
        return "everything"

    @property
    def reads(self) -> str | None:
        """The column of the table that `choose` reads, "log_q" or "entropy"; None: none."""
        return None

    @property
    def rounds_to_wait(self) -> int | None:
        """After how many rounds without a verified draft a row comes first; None: never."""
        return None

    def drafted(self, num_draft_tokens: int) -> int:
        """Return the proposals of a row, where K are verified on average."""
        return num_draft_tokens

    def choose(
        self,
        column: Array | None,
        working: Array,
        num_draft_tokens: int,
        waited: Array | None = None,
    ) -> Array:
        """Return how many proposals of each row are verified, int64 (L, b).

        Args:
            column: (L, b, D), the column `reads` of the rows' proposals; None if it is None.
            working: (L, b), the rows that propose.
            num_draft_tokens: K.
            waited: (L, b), rounds since a draft of the row was last verified; None if
                `rounds_to_wait` is None.
        """
        return working * num_draft_tokens


@dataclass(frozen=True)
class Tetris(Everything):
    """Draft K + extra tokens a row, and verify the K * b of the batch that score highest.

    It is the engine's selector of this name on chains (TETRIS, arXiv 2502.15197).

    Attributes:
        extra: proposals of a row beyond K.
        times: ms of a round, drafting included, and of each token that it verifies. With them, as
            many proposals are verified as write the most tokens a second, as the engine's selector
            does with capacity="best" and the times that it measures. None: K * b.
        score: "chosen": the product of q of the row's proposals up to this one. "largest": with the
            largest q in place of the last factor, which is the same in a table, since its drafts
            are greedy. "entropy": minus the sum of the entropies of q.
        max_wait: rounds after which a row's first draft is verified whatever its score; None: a row
            may wait for good.

    Raises:
        ValueError: an option cannot be used.
    """

    extra: int = 2
    times: tuple[float, float] | None = None
    score: str = "chosen"
    max_wait: int | None = None

    def __post_init__(self) -> None:
        require_int("extra", self.extra, 0)
        require_choice("score", self.score, SCORES)
        if self.max_wait is not None:
            remedy = "pass for instance 4, or None for no limit"
            require_int("max_wait", self.max_wait, maximum=MAX_WAIT, remedy=remedy)
        if self.times is None:
            return
        if not _are_times(self.times):
            raise ValueError(
                f"times must be two numbers of ms, the first above 0, got {short(self.times)}; "
                "pass for instance (20.0, 0.3), or None"
            )
        if self.score == "entropy":
            raise ValueError(
                "times need scores that are chances of acceptance, and score='entropy' gives none; "
                "pass score='chosen'"
            )

    @property
    def name(self) -> str:
        options = [f"extra={self.extra}"]
        if self.score != "chosen":
            options.append(f"score={self.score}")
        if self.max_wait is not None:
            options.append(f"max_wait={self.max_wait}")
        if self.times is not None:
            options.append(f"times={self.times[0]:g}/{self.times[1]:g}")
        return "tetris:" + ",".join(options)

    @property
    def reads(self) -> str:
        return "entropy" if self.score == "entropy" else "log_q"

    @property
    def rounds_to_wait(self) -> int | None:
        return self.max_wait

    def drafted(self, num_draft_tokens: int) -> int:
        return num_draft_tokens + self.extra

    def choose(
        self,
        column: Array | None,
        working: Array,
        num_draft_tokens: int,
        waited: Array | None = None,
    ) -> Array:
        assert column is not None
        scores = np.cumsum(column, 2)  # never rise along a row
        if self.score == "entropy":
            scores = -scores
        ranked = scores
        if self.max_wait is not None:
            assert waited is not None
            ranked = scores.copy()
            ranked[:, :, 0] = np.where(waited >= self.max_wait, np.inf, scores[:, :, 0])
        capacity = num_draft_tokens * working.sum(1)
        if self.times is not None:
            capacity = best_capacity(scores, working, *self.times, ranked)
        return largest(ranked, working, capacity)


@dataclass(frozen=True)
class Threshold(Everything):
    """Verify a row's proposals up to the first whose q is below `at_least`.

    Engines know it as an early exit by the draft's confidence.

    Raises:
        ValueError: `at_least` is not from 0 to 1.
    """

    at_least: float = 0.5

    def __post_init__(self) -> None:
        if not is_real(self.at_least) or not 0 <= self.at_least <= 1:
            raise ValueError(
                f"at_least must be a number from 0 to 1, got {short(self.at_least)}; "
                "pass the smallest q that is worth verifying"
            )

    @property
    def name(self) -> str:
        return f"threshold:at_least={self.at_least}"

    @property
    def reads(self) -> str:
        return "log_q"

    def choose(
        self,
        column: Array | None,
        working: Array,
        num_draft_tokens: int,
        waited: Array | None = None,
    ) -> Array:
        assert column is not None
        confident = np.exp(column) >= self.at_least
        leading = np.logical_and.accumulate(confident, axis=2).sum(2)
        return working * leading


def selector_of(meta: Mapping[str, Any]) -> Everything:
    """Return the selector of a recorded run, from its meta data.

    Raises:
        ValueError: the run had a selector that is not simulated.
    """
    name = meta.get("selector", Everything().name)
    options = meta.get("selector_options", {})
    if name == "everything":
        return Everything()
    # Which C was the best went by times, which another run would not measure again.
    is_fixed = options.get("capacity", "fixed") == "fixed"
    if name == "tetris" and is_fixed:
        return Tetris(options["extra"], score=options["score"], max_wait=options["max_wait"])
    if name == "threshold":
        return Threshold(options["at_least"])
    raise ValueError(
        f"selector must be simulated, got {short(name)} with {short(options)}; record a run "
        'with "everything", "threshold", or "tetris" with capacity="fixed", or pass '
        "Tetris(extra, times=...)"
    )


def best_capacity(
    scores: Array, working: Array, round_ms: float, token_ms: float, ranked: Array
) -> Array:
    """Return how many proposals write the most tokens a second, int64 (L,).

    A round writes a token in each row and the sum of the chances, and takes `round_ms` and
    `token_ms` for each token that it verifies. Chances fall, so the rate rises up to the best one.

    Args:
        scores: (L, b, D), logarithms of chances.
        working: (L, b), the rows that count.
        ranked: (L, b, D), the scores by which proposals are chosen, infinite for those that are
            due: they are verified in any case.
    """
    lanes = len(scores)
    usable = np.where(working[:, :, None], ranked, -np.inf).reshape(lanes, -1)
    order = np.argsort(-usable, axis=1, kind="stable")
    is_due = np.take_along_axis(usable, order, 1) == np.inf
    chances = np.exp(np.where(working[:, :, None], scores, -np.inf)).reshape(lanes, -1)
    rows = working.sum(1)[:, None]
    gained = np.take_along_axis(chances, order, 1).cumsum(1)
    tokens = rows + np.pad(gained, ((0, 0), (1, 0)))
    rate = tokens / (round_ms + token_ms * (rows + np.arange(tokens.shape[1])))
    rises = (rate[:, 1:] > rate[:, :-1]) | is_due
    counts: Array = np.logical_and.accumulate(rises, axis=1).sum(1)
    return counts


def _are_times(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(is_real(number) and 0 <= number < np.inf for number in value) and value[0] > 0


def largest(scores: Array, working: Array, capacity: Array) -> Array:
    """Return how many scores of each row are among the largest of its batch, int64 (L, b).

    Where scores are equal, the earlier position comes first, and then the earlier row. So scores
    that never rise along a row give its first ones.

    Args:
        scores: (L, b, D).
        working: (L, b), the rows that count.
        capacity: (L,), how many scores are chosen in each batch, or all if there are fewer.
    """
    lanes, rows, depth = scores.shape
    # A draft without a chance still comes before the rows that do not count.
    lowest = np.finfo(scores.dtype).min
    usable = np.where(working[:, :, None], np.maximum(scores, lowest), -np.inf)
    # Position by position, all rows of one before the next: a stable sort keeps that order.
    by_position = usable.transpose(0, 2, 1).reshape(lanes, depth * rows)
    order = np.argsort(-by_position, axis=1, kind="stable")
    chosen = np.zeros_like(order, dtype=bool)
    chosen[np.arange(lanes)[:, None], order] = np.arange(depth * rows) < capacity[:, None]
    return chosen.reshape(lanes, depth, rows).sum(1) * working
