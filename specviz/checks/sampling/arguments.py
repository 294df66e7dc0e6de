"""Check what `sv.audit_sampling` is given, before any model runs, and what a decoder returns.

Contract: each function returns what can be used, or raises a `ValueError` that names the argument,
its value and the remedy. Not known here: what is made of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from specviz.checks.sampling.evidence import smallest_distance
from specviz.checks.sampling.shares import price
from specviz.checks.sampling.texts import MOST_PREFIXES, count_prefixes
from specviz.util.validate import is_int, is_list, is_real, require_list, short

MOST_TV = 0.4  # an audit must find this distance, at the first new token
MOST_RUNS = 10_000_000
EXACT = ("float32", "float64")
SIGNATURE = "decode(target, draft, prompts, seed, max_new_tokens)"


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
        if dtype not in EXACT:
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


def checked_prompts(prompts: object, size: int, is_followed: bool) -> list[list[int]]:
    """Return the prompts as token ids.

    Args:
        size: V.
        is_followed: whether forwards are seen, which need prompts that differ.
    """
    if prompts is None:
        return make_prompts(size)
    require_list("prompts", prompts)
    assert isinstance(prompts, Sequence)
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
    different = len({tuple(prompt) for prompt in prompts})
    count = count_prefixes(different, size, length) * size
    if count > MOST_PREFIXES * size or count > 100 * MOST_PREFIXES:
        raise ValueError(
            f"max_new_tokens={length} makes {different} x {size}^{length} texts over the target's "
            f"{size} tokens, too many to enumerate; pass fewer, or the models of sv.tiny_pair()"
        )


def check_runs(runs: int, prompts: Sequence[Sequence[int]], size: int, alpha: float) -> None:
    """Raise ValueError if so few runs could find hardly any fault."""
    found = first_distance(runs, prompts, size, alpha)
    if found <= MOST_TV:
        return
    needed = runs
    while first_distance(needed, prompts, size, alpha) > MOST_TV:
        needed = int(needed * 1.2) + 1
    raise ValueError(
        f"runs={runs} of {len(prompts)} prompts would find no distance below {found:.2f} at "
        f"alpha={alpha:g}; pass runs={needed} or more"
    )


def first_distance(runs: int, prompts: Sequence[Sequence[int]], size: int, alpha: float) -> float:
    """Return the smallest distance that is found at the first new token of all rows."""
    visits: dict[tuple[int, ...], int] = {}
    for prompt in prompts:
        visits[tuple(prompt)] = visits.get(tuple(prompt), 0) + runs
    level = -float(np.log(alpha)) + price("place", 1)
    return smallest_distance(list(visits.values()), size, level)


def spread_counts(counts: Mapping[Any, Any], seed: int) -> list[list[Sequence[int]]]:
    """Return texts and their counts as runs of one row, in random order."""
    runs: list[list[Sequence[int]]] = []
    for text, count in counts.items():
        if not is_int(count) or not 0 <= count <= MOST_RUNS:
            raise ValueError(
                f"decode[{short(text)}] must be a count, got {short(count)}; pass {{tokens: count}}"
            )
        runs += [[text]] * int(count)
    if not runs:
        raise ValueError(f"decode={short(counts)} has no text; pass {{tokens: count}}")
    order = np.random.default_rng(seed).permutation(len(runs))
    return [runs[i] for i in order.tolist()]


def checked_run(
    name: str,
    given: object,
    prompts: Sequence[Sequence[int]],
    length: int,
    size: int,
    eos: Sequence[int],
) -> list[list[int]]:
    """Return the new tokens of each prompt of one run.

    Args:
        name: what the error says of the value, "decode" or "decode[3]".
        given: what a decoder returned.
        length: how many new tokens there must be.
        eos: what ends a text earlier.
    """
    verb = "must return" if name == "decode" else "must have"
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not is_list(given) or len(given) != len(prompts):
        raise ValueError(
            f"{name} {verb} the new tokens of each of the {len(prompts)} prompts, got "
            f"{short(given)}; give a list of {len(prompts)} lists"
        )
    found = []
    for row, each in enumerate(given):
        tokens = _tokens(f"{name}: row {row}", each, size)
        stop = next((i + 1 for i, token in enumerate(tokens) if token in eos), length)
        if len(tokens) != stop:
            wants = f"{length} new tokens, or fewer up to EOS" if eos else f"{length} new tokens"
            raise ValueError(
                f"{name} {verb} {wants} for row {row}, got {len(tokens)}; give the new tokens "
                "without the prompt"
            )
        found.append(tokens)
    return found


def _tokens(name: str, given: object, size: int) -> list[int]:
    if hasattr(given, "tolist"):
        given = given.tolist()
    usable = is_list(given) and all(is_int(token) and 0 <= token < size for token in given)
    if not usable:
        raise ValueError(
            f"{name} must be token ids from 0 to {size - 1}, got {short(given)}; pass a list of ids"
        )
    assert is_list(given)
    return [int(token) for token in given]


Decode = Callable[[Any, Any, list[list[int]], int, int], Any]
