"""Check what `sv.audit_sampling` is given, before any model runs, and what a decoder returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from specviz.checks.sampling.evidence import price, smallest_distance
from specviz.checks.sampling.texts import MOST_PREFIXES, count_prefixes
from specviz.util.validate import is_int, is_list, is_real, require_list, short

MOST_TV = 0.4  # an audit must find this distance, at the first new token
MOST_RUNS = 10_000_000
SIGNATURE = "decode(target, draft, prompts, seed, max_new_tokens)"

Decode = Callable[[Any, Any, list[list[int]], int, int], Any]
Run = list[list[int]]


@dataclass(frozen=True)
class DecodingTask:
    """What a decoder is asked."""

    target: PreTrainedModel
    draft: PreTrainedModel | None
    prompts: list[list[int]]  # token ids of each row
    length: int  # T, new tokens
    size: int  # V
    eos: Sequence[int]  # what ends a text earlier

    def checked_run(self, name: str, given: Any) -> Run:
        """Return the new tokens of each prompt of a run that the error calls `name`."""
        verb = "must return" if name == "decode" else "must have"
        given = given.tolist() if hasattr(given, "tolist") else given
        if not is_list(given) or len(given) != len(self.prompts):
            raise ValueError(
                f"{name} {verb} the new tokens of each of the {len(self.prompts)} prompts, got "
                f"{short(given)}; give a list of {len(self.prompts)} lists"
            )
        found = []
        for row, each in enumerate(given):
            tokens = _tokens(f"{name}: row {row}", each, self.size)
            ends = (i + 1 for i, token in enumerate(tokens) if token in self.eos)
            if len(tokens) != next(ends, self.length):
                early = ", or fewer up to EOS" if self.eos else ""
                raise ValueError(
                    f"{name} {verb} {self.length} new tokens{early} for row {row}, got "
                    f"{len(tokens)}; give the new tokens without the prompt"
                )
            found.append(tokens)
        return found


def check_source(decode: object) -> str:
    """Return "decoder", "runs" or "counts": what the first argument is."""
    if callable(decode) and not isinstance(decode, type):
        return "decoder"
    if isinstance(decode, Mapping) and decode:
        return "counts"
    if is_list(decode) and len(decode):
        return "runs"
    raise ValueError(
        f"decode must be a function, or what it drew, got {short(decode)}; pass {SIGNATURE}, a "
        "list of runs, or a dict of texts and counts"
    )


def check_alpha(alpha: object) -> float:
    if not is_real(alpha) or not 1e-300 <= alpha <= 0.1:
        raise ValueError(
            f"alpha must be a number from 1e-300 to 0.1, got {short(alpha)}; pass for instance 1e-6"
        )
    return float(alpha)


def check_dtypes(target: Any, draft: Any) -> None:
    """Raise ValueError unless rounding leaves the models' distributions as they are."""
    for name, model in (("target", target), ("draft", draft)):
        dtype = str(getattr(model, "dtype", "torch.float32")).removeprefix("torch.")
        if dtype not in ("float32", "float64"):
            raise ValueError(
                f"{name} must be in float32 or float64, got {dtype}, whose rounding changes what "
                f"is drawn; pass {name}.float()"
            )


def make_prompts(size: int) -> list[list[int]]:
    """Return prompts of which none begins another one, of two to five tokens."""
    generator = np.random.default_rng(0)
    found: list[list[int]] = []
    for length in (2, 3, 4, 5):
        for _ in range(4 if size > 3 else 1):
            while True:
                prompt = generator.integers(size, size=length).tolist()
                if not any(prompt[: len(each)] == each for each in found):
                    found.append(prompt)
                    break
    # Neighbours in a batch differ in length.
    return sorted(found, key=lambda each: (each[-1], each))


def checked_prompts(prompts: Any, size: int, is_followed: bool) -> list[list[int]]:
    """Return the prompts as token ids below `size`; if forwards are followed, they must differ."""
    if prompts is None:
        return make_prompts(size)
    require_list("prompts", prompts)
    found = [_tokens(f"prompts[{i}]", each, size) for i, each in enumerate(prompts)]
    for i, prompt in enumerate(found):
        if not prompt:
            raise ValueError(f"prompts[{i}] must have a token, got {short(prompts[i])}; pass ids")
        begun = [j for j, other in enumerate(found) if j != i and other[: len(prompt)] == prompt]
        if is_followed and begun:
            raise ValueError(
                f"prompts[{i}] must not be a prefix of prompts[{begun[0]}], got {short(prompt)}; "
                "pass others, or causes=False"
            )
    return found


def check_size(prompts: Sequence[Sequence[int]], size: int, length: int) -> None:
    """Raise ValueError if there are too many texts to enumerate."""
    prefixes = count_prefixes(prompts, size, length)
    if prefixes > MOST_PREFIXES or prefixes * size > 100 * MOST_PREFIXES:
        different = len({tuple(prompt) for prompt in prompts})
        raise ValueError(
            f"max_new_tokens={length} makes {different} x {size}^{length} texts over the target's "
            f"{size} tokens, too many to enumerate; pass fewer, or the models of sv.tiny_pair()"
        )


def check_runs(runs: int, task: DecodingTask, alpha: float) -> None:
    """Raise ValueError if so few runs could find hardly any fault."""

    def found(runs: int) -> float:
        """Return the smallest distance that is found at the first new token of all rows."""
        visits: dict[tuple[int, ...], int] = {}
        for prompt in task.prompts:
            visits[tuple(prompt)] = visits.get(tuple(prompt), 0) + runs
        level = price("place", 1) - float(np.log(alpha))
        return smallest_distance(list(visits.values()), task.size, level)

    needed = runs
    while found(needed) > MOST_TV:
        needed = int(needed * 1.2) + 1
    if needed > runs:
        raise ValueError(
            f"runs={runs} of {len(task.prompts)} prompts would find no distance below "
            f"{found(runs):.2f} at alpha={alpha:g}; pass runs={needed} or more"
        )


def spread_counts(counts: Mapping[Any, Any], seed: int) -> list[list[Any]]:
    """Return texts and their counts as runs of one row, in random order."""
    texts = []
    for text, count in counts.items():
        if not is_int(count) or not 0 <= count <= MOST_RUNS:
            raise ValueError(
                f"decode[{short(text)}] must be a count, got {short(count)}; pass {{tokens: count}}"
            )
        texts += [text] * int(count)
    if not texts:
        raise ValueError(f"decode={short(counts)} has no text; pass {{tokens: count}}")
    order = np.random.default_rng(seed).permutation(len(texts))
    return [[texts[i]] for i in order.tolist()]


def _tokens(name: str, given: Any, size: int) -> list[int]:
    given = given.tolist() if hasattr(given, "tolist") else given
    if not is_list(given) or not all(is_int(token) and 0 <= token < size for token in given):
        raise ValueError(
            f"{name} must be token ids from 0 to {size - 1}, got {short(given)}; pass a list of ids"
        )
    return [int(token) for token in given]
