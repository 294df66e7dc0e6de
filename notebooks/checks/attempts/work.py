"""The prompts that a decoder is tried on, and the texts that are right.

Contract: an `Assignment` is one call of a decoder. The texts are the embedded target's own, in
float32. Not known here: decoders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import specviz as sv
from specviz.engine.models.pair import Pair, load_pair

Tokens = list[int]
EOS = 2
NEW_TOKENS = 16
_ENDING = (10, 8)  # bundled prompts whose texts end with EOS before that


@dataclass(frozen=True)
class Assignment:
    """What a decoder is asked to do. K is None if the decoder may choose it."""

    prompts: tuple[tuple[int, ...], ...]
    K: int | None = 4
    max_new_tokens: int = NEW_TOKENS
    batch_size: int = 1

    def cut(self, max_new_tokens: int) -> "Assignment":
        return replace(self, max_new_tokens=max_new_tokens)

    def due(self) -> list[Tokens]:
        """Return the new tokens of each prompt that are right."""
        return [text[: self.max_new_tokens] for text in texts(self.prompts)]

    def __str__(self) -> str:
        lines = [f"decode(pair.target, pair.draft, {[list(prompt) for prompt in self.prompts]},"]
        choice = "" if self.K is None else f"K={self.K}, "
        lines.append(
            f"       {choice}max_new_tokens={self.max_new_tokens}, eos={EOS}, "
            f"batch_size={self.batch_size})"
        )
        return "\n".join(lines)


def one_row() -> Assignment:
    """Return three prompts, one after the other. The text of the second ends with EOS."""
    return Assignment(tuple(_bundled((5, 10, 0))))


def batch(batch_size: int = 8) -> Assignment:
    """Return eleven prompts for eight rows, so that three enter by refill.

    Two texts end with EOS. One prompt of the first batch and one that enters later contain EOS.
    """
    first = _bundled((5, 0, 10, 1, 12, 8))
    later = _bundled((3, 6, 2))
    shots = _shots()
    prompts = (*first, shots[0], *later[:2], shots[1], later[2])
    return Assignment(tuple(prompts), batch_size=batch_size)


def three_rows() -> Assignment:
    """Return six prompts for three rows. The second of the first three is the longest."""
    prompts = batch().prompts
    return Assignment(tuple(prompts[number] for number in (5, 6, 4, 7, 8, 0)), batch_size=3)


def timed(batch_size: int = 8) -> Assignment:
    """Return ten prompts for eight rows, of 10 to 29 tokens; two of the texts end with EOS."""
    return Assignment(tuple(_bundled((*range(9), 10))), None, 24, batch_size)


def small(batch_size: int) -> list[Assignment]:
    """Return small pieces of work, the smallest first: one row, two lengths, refill, EOS."""
    short = [prompt[:count] for prompt, count in zip(_bundled((1, 4, 9)), (3, 6, 2), strict=True)]
    ending = _bundled(_ENDING[:1])
    shots = _shots()
    rows = min(batch_size, 2)
    sets: list[tuple[Sequence[tuple[int, ...]], int]]
    sets = [(short[:1], 1), (ending, 1), (shots[:1], 1)]
    if rows > 1:
        sets[1:1] = [(short[:2], rows), (short, rows), (_bundled((1, 4, 9)), rows)]
        sets.append(((*ending, *short), rows))
        sets.append(((*short[:1], *shots), rows))
    return [Assignment(tuple(prompts), K, 12, size) for prompts, size in sets for K in (1, 2, 4)]


@cache
def pair() -> Pair:
    """Return the embedded pair, on the best device."""
    return load_pair(dtype="float32")


@cache
def texts(prompts: tuple[tuple[int, ...], ...], max_new_tokens: int = 32) -> list[Tokens]:
    """Return what the target writes without a draft, up to EOS."""
    result = sv.generate(
        pair(),
        [list(prompt) for prompt in prompts],
        strategy="autoregressive",
        batch_size=8,
        max_new_tokens=max_new_tokens,
        progress=False,
    )
    return result.tokens


@cache
def _all_bundled() -> list[tuple[int, ...]]:
    tokenizer = pair().tokenizer
    assert tokenizer is not None, "the embedded pair has one"
    return [tuple(tokenizer(text).input_ids) for text in sv.load_prompts(limit=16)]


def _bundled(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    return [_all_bundled()[number] for number in numbers]


@cache
def _shots() -> list[tuple[int, ...]]:
    """Return prompts that hold an example up to its EOS, and the beginning of the same again."""
    prompts = tuple(_bundled(_ENDING))
    return [(*prompt, *text, *prompt) for prompt, text in zip(prompts, texts(prompts), strict=True)]
