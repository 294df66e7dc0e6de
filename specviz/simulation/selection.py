"""Which proposals of a simulated round are verified.

A selector sees the log-probabilities of all proposals of a batch, and says how many of each row's
the target reads. Those are always the row's first ones, since a draft counts only if all before it
are accepted.

Not known here: requests, time, what the target would accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specviz.record.schema import Array
from specviz.util.validate import is_real, require_int, short


@dataclass(frozen=True)
class Everything:
    """Verify every proposal: the same number in each row."""

    needs_log_q: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The selector and its options, for tables."""
        return "everything"

    def drafted(self, num_draft_tokens: int) -> int:
        """Return the proposals of a row, where K are verified on average."""
        return num_draft_tokens

    def choose(self, log_q: Array | None, working: Array, num_draft_tokens: int) -> Array:
        """Return how many proposals of each row are verified, int64 (L, b).

        Args:
            log_q: (L, b, D), log-probability of each proposal under the draft; None if
                `needs_log_q` is false.
            working: (L, b), the rows that propose.
            num_draft_tokens: K.
        """
        return working * num_draft_tokens


@dataclass(frozen=True)
class Tetris(Everything):
    """Draft K + extra tokens a row, and verify the K * b of the batch with the best chances.

    The chance of a proposal is the product of q of its row's proposals up to it (TETRIS,
    arXiv 2502.15197).

    Attributes:
        extra: proposals of a row beyond K.
        times: ms of a round, drafting included, and of each token that it verifies. With them, as
            many proposals are verified as write the most tokens a second, as the engine's selector
            does with capacity="best" and the times that it measures. None: K * b.

    Raises:
        ValueError: `extra` is not an int >= 0, or `times` are not two numbers >= 0.
    """

    extra: int = 2
    times: tuple[float, float] | None = None

    needs_log_q: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int("extra", self.extra, 0)
        if self.times is not None and not _are_times(self.times):
            raise ValueError(
                f"times must be two numbers of ms, the first above 0, got {short(self.times)}; "
                "pass for instance (20.0, 0.3), or None"
            )

    @property
    def name(self) -> str:
        best = "" if self.times is None else f",times={self.times[0]:g}/{self.times[1]:g}"
        return f"tetris:extra={self.extra}{best}"

    def drafted(self, num_draft_tokens: int) -> int:
        return num_draft_tokens + self.extra

    def choose(self, log_q: Array | None, working: Array, num_draft_tokens: int) -> Array:
        assert log_q is not None
        chances = np.cumsum(log_q, 2)  # never rise along a row
        capacity = num_draft_tokens * working.sum(1)
        if self.times is not None:
            capacity = best_capacity(chances, working, *self.times)
        return largest(chances, working, capacity)


@dataclass(frozen=True)
class Threshold(Everything):
    """Verify a row's proposals up to the first whose q is below `at_least`.

    Engines know it as an early exit by the draft's confidence.

    Raises:
        ValueError: `at_least` is not from 0 to 1.
    """

    at_least: float = 0.5

    needs_log_q: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_real(self.at_least) or not 0 <= self.at_least <= 1:
            raise ValueError(
                f"at_least must be a number from 0 to 1, got {short(self.at_least)}; "
                "pass the smallest q that is worth verifying"
            )

    @property
    def name(self) -> str:
        return f"threshold:at_least={self.at_least}"

    def choose(self, log_q: Array | None, working: Array, num_draft_tokens: int) -> Array:
        assert log_q is not None
        confident = np.exp(log_q) >= self.at_least
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
    by_chance = options.get("score") == "chosen" and options.get("max_wait") is None
    # Which C was the best went by times, which another run would not measure again.
    by_chance &= options.get("capacity", "fixed") == "fixed"
    if name == "tetris" and by_chance:
        return Tetris(options["extra"])
    if name == "threshold" and by_chance:
        return Threshold(options["at_least"])
    raise ValueError(
        f"selector must be simulated, got {short(name)} with {short(options)}; record a run "
        'with "everything", or with "tetris" or "threshold", score="chosen", no max_wait and '
        'capacity="fixed", or pass Tetris(extra, times=...)'
    )


def best_capacity(scores: Array, working: Array, round_ms: float, token_ms: float) -> Array:
    """Return how many proposals write the most tokens a second, int64 (L,).

    A round writes a token in each row and the sum of the chances, and takes `round_ms` and
    `token_ms` for each token that it verifies. Chances fall, so the rate rises up to the best one.

    Args:
        scores: (L, b, D), logarithms of chances.
        working: (L, b), the rows that count.
    """
    usable = np.where(working[:, :, None], scores, -np.inf)
    falling = -np.sort(-usable.reshape(len(scores), -1), axis=1)
    rows = working.sum(1)[:, None]
    tokens = rows + np.pad(np.exp(falling).cumsum(1), ((0, 0), (1, 0)))
    rate = tokens / (round_ms + token_ms * (rows + np.arange(tokens.shape[1])))
    rises = rate[:, 1:] > rate[:, :-1]
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
