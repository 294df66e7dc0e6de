"""The rungs of the ladder: a size of the draft, and how many tokens it was trained on.

Not known here: torch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specviz.util.validate import is_list, require_int, require_list, short

# Windows of a step: so few, that the lowest marks have some steps.
ROWS = 2
LENGTH = 512
STEP_TOKENS = ROWS * LENGTH
COOLDOWN = 0.2  # of a mark's steps: how many steps the rates take to 0

SIZES = ("1x64", "1x128", "2x128", "4x128", "1x256", "2x256")
MARKS = (16_384, 32_768, 65_536, 131_072, 262_144, 524_288)
# K of the rounds. A small K bounds the length, and what grows towards a bound looks saturated.
SMALL_K = 4
LARGE_K = 16
MOST_TOKENS = 10**9
HEAD_SIZE = 64  # as the shipped draft
LARGEST = 2048  # layers, and the hidden size


@dataclass(frozen=True)
class Size:
    """The form of a draft.

    Attributes:
        layers: L.
        width: hidden size, a multiple of HEAD_SIZE.
    """

    layers: int
    width: int

    @property
    def name(self) -> str:
        """As `--sizes` takes it."""
        return f"{self.layers}x{self.width}"

    def form(self) -> dict[str, int]:
        """Return the arguments of `build_model`, in the proportions of the shipped draft."""
        heads = max(self.width // HEAD_SIZE, 1)
        return {
            "layers": self.layers,
            "hidden_size": self.width,
            "heads": heads,
            "kv_heads": heads // 2 if heads % 2 == 0 else heads,
            "mlp": self.width * 11 // 4,
        }


@dataclass(frozen=True)
class Rung:
    """A draft of the ladder.

    Attributes:
        size: its form.
        mark: tokens at the constant rate.
    """

    size: Size
    mark: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.size.name}-{self.mark}"

    @property
    def mark_steps(self) -> int:
        """Steps at the constant rate."""
        return self.mark // STEP_TOKENS

    @property
    def steps(self) -> int:
        """Steps in all, those of the cooldown included."""
        return self.mark_steps + max(round(COOLDOWN * self.mark_steps), 1)

    @property
    def tokens(self) -> int:
        """Tokens that the finished draft has read."""
        return self.steps * STEP_TOKENS


def sizes_of(names: object) -> list[Size]:
    """Return the sizes of these names. Raise ValueError."""
    require_list("sizes", names)
    assert isinstance(names, Sequence)
    sizes = [_size(f"sizes[{i}]", name) for i, name in enumerate(names)]
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"sizes must be different, got {short(names)}; name each once")
    return sizes


def _size(place: str, name: Any) -> Size:
    found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", name) if isinstance(name, str) else None
    if found is not None:
        layers, width = map(int, found.groups())
        if max(layers, width) <= LARGEST and width % HEAD_SIZE == 0:
            return Size(layers, width)
    raise ValueError(
        f"{place} must be LAYERSxWIDTH with a width that is a multiple of {HEAD_SIZE} and both "
        f"up to {LARGEST}, got {short(name)}; pass for instance 2x128"
    )


def checked_marks(marks: object) -> list[int]:
    """Return the marks. Raise ValueError unless they are rising multiples of STEP_TOKENS."""
    if not is_list(marks) or not marks:
        raise ValueError(f"marks must be a list of ints, got {short(marks)}; pass {list(MARKS)}")
    assert isinstance(marks, Sequence)
    for i, mark in enumerate(marks):
        require_int(f"marks[{i}]", mark, maximum=MOST_TOKENS)
        if mark % STEP_TOKENS:
            below = max(mark // STEP_TOKENS, 1) * STEP_TOKENS
            raise ValueError(
                f"marks[{i}] must be a multiple of {STEP_TOKENS}, the tokens of a step, "
                f"got {mark}; pass {below}"
            )
    rising = sorted(set(marks))
    if list(marks) != rising:
        raise ValueError(f"marks must rise, got {short(marks)}; pass {rising}")
    return rising
