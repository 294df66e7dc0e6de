"""`specviz study agreement`: do the valid strategies write what the target writes alone?

Every strategy runs at several batch sizes and is compared with autoregressive decoding at batch
1; each difference gets its cause. Each result is saved as its run ends, so that an interrupted
study goes on where it stopped.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from tqdm.auto import tqdm

from specviz.checks.compare import compare
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import check_pair
from specviz.engine.strategies import STRATEGIES, strategy
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.studies.resume import kept_entries, prompts_digest
from specviz.util.files import check_writable, conditions, save_measured
from specviz.util.validate import (
    require_bool,
    require_int,
    require_ints,
    require_kind,
    require_list,
    require_path,
    require_str,
    short,
)

# Columns of the table that come from the comparison.
COMPARED = (
    "exact_match", "partial_match", "divergences", "near_ties", "unexplained", "unknown",
    "largest_gap", "noise",
)  # fmt: skip
VALID = ("autoregressive", "rollback", "masking", "eqspec", "exspec", "inplace")


class Setup(NamedTuple):
    """What one run differs in from the others."""

    deterministic: bool
    batch_size: int
    strategy: str


@dataclass(frozen=True)
class Setups:
    """All runs of a study: every strategy at every batch size, in one mode or in both.

    Attributes:
        strategies: names of strategies that promise the target's own text.
        batch_sizes: B. Autoregressive decoding at batch 1 is the reference and is left out.
        deterministic: (False,), (True,), or both; each mode has its own reference.
        max_prompt_tokens: longer prompts are cut to their last tokens; None cuts none.

    Raises:
        ValueError: a value cannot be used, or no run is left.
    """

    strategies: Sequence[str] = VALID
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32)
    deterministic: Sequence[bool] = (False,)
    num_draft_tokens: int = 5
    max_new_tokens: int = 64
    max_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("strategies", "deterministic"):
            require_list(name, getattr(self, name))
        require_ints("batch_sizes", self.batch_sizes)
        for name, value in self.settings.items():
            if name != "max_prompt_tokens" or value is not None:
                require_int(name, value)
        for i, mode in enumerate(self.deterministic):
            require_bool(f"deterministic[{i}]", mode)
        for name in self.strategies:
            if not strategy(name).promises:
                raise ValueError(
                    f"strategies names {name!r}, which does not promise the target's text; "
                    "leave it out, survey() shows its texts"
                )
        if not list(self):
            raise ValueError(
                "strategies must differ from the reference, autoregressive decoding at batch 1, "
                f"got {short(self.strategies)} at {short(self.batch_sizes)}; "
                "add a strategy or a batch size"
            )

    def __iter__(self) -> Iterator[Setup]:
        for mode in self.deterministic:
            for size in self.batch_sizes:
                for name in self.strategies:
                    if (size, name) != (1, "autoregressive"):
                        yield Setup(mode, size, name)

    @property
    def settings(self) -> dict[str, int | None]:
        """What all runs share. Results measured with other settings are not kept."""
        return {
            "num_draft_tokens": self.num_draft_tokens,
            "max_new_tokens": self.max_new_tokens,
            "max_prompt_tokens": self.max_prompt_tokens,
        }


def measure_agreement(
    pair: Pair,
    prompts: Sequence[Prompt],
    setups: Setups,
    path: str | Path | None = None,
    *,
    source: str = "own",
    fresh: bool = False,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Decode `prompts` greedily with every setup and compare with decoding alone in the same mode.

    Args:
        path: CSV file that each result is added to as its run ends; the conditions go next to it,
            to .json. Results that the file already holds, measured under the same conditions (the
            date aside), are not measured again.
        source: where the prompts come from; a condition.
        fresh: discard what the file holds.

    Returns:
        (table, conditions). The table has one entry a setup, those already in the file included:
        deterministic, batch_size, strategy, exact_match, partial_match, divergences, near_ties,
        unexplained, unknown (causes, see `compare`), largest_gap and noise (log-probabilities, NaN
        if nothing differs) and tokens_per_s (of one run).

    Raises:
        ValueError: the file holds results under other conditions; or as `generate`.
    """
    check_pair(pair)
    require_kind("setups", setups, Setups, "pass Setups()")
    require_bool("fresh", fresh)
    require_bool("progress", progress)
    require_str("source", source)
    path = None if path is None else require_path("path", path)
    if path is not None:
        check_writable(path)
    if setups.max_prompt_tokens is not None:
        prompts = cut(pair, prompts, setups.max_prompt_tokens)
    found = _conditions(pair, prompts, setups, source)
    entries = kept_entries(path, found, fresh=fresh)
    done = {tuple(entry[name] for name in Setup._fields) for entry in entries}
    # The two modes of a setup run one right after the other, so that their speeds compare.
    missing = sorted(set(setups) - done, key=lambda setup: (*setup[1:], setup[0]))
    if not missing:
        warnings.warn(
            f"{path} already holds all of these results, so nothing was measured; "
            "name another file to measure again",
            stacklevel=2,
        )
    references = {}
    for mode in sorted({setup.deterministic for setup in missing}):
        alone = Setup(mode, 1, "autoregressive")
        references[mode] = _run(pair, prompts, setups, alone, progress)
    for setup in tqdm(missing, desc="agreement", unit="run", disable=not progress):
        result = _run(pair, prompts, setups, setup, progress=False)
        entries.append(_entry(setup, result, references[setup.deterministic], pair))
        entries.sort(key=_place)
        if path is not None:
            save_measured(pd.DataFrame(entries), found, path)
    return pd.DataFrame(entries), found


def cut(pair: Pair, prompts: Sequence[Prompt], max_prompt_tokens: int) -> list[list[int]]:
    """Return the prompts as token ids, each cut to its last `max_prompt_tokens`.

    Raises:
        ValueError: the number is below 1, or a prompt is text and the pair has no tokenizer.
    """
    check_pair(pair)
    require_list("prompts", prompts)
    last = require_int("max_prompt_tokens", max_prompt_tokens)
    tokenizer: Any = pair.tokenizer
    found = []
    for prompt in prompts:
        if isinstance(prompt, str) and tokenizer is None:
            raise ValueError(
                "prompts are text, but the pair has no tokenizer; "
                "pass token ids, or a Pair with a tokenizer"
            )
        ids = tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt
        found.append(list(ids)[-last:])
    return found


def _conditions(
    pair: Pair, prompts: Sequence[Prompt], setups: Setups, source: str
) -> dict[str, object]:
    """Check all prompts and decode one token of the first, which also warms up."""
    requests = make_requests(pair, prompts, setups.max_new_tokens, setups.num_draft_tokens)
    first = generate(
        pair, [requests[0].prompt], strategy="autoregressive", max_new_tokens=1, progress=False
    )
    prompt_tokens = sum(len(request.prompt) for request in requests)
    return conditions(
        first.meta,
        source=source,
        prompts=len(requests),
        prompts_digest=prompts_digest(pair, prompts),
        prompt_tokens=prompt_tokens,
        **setups.settings,
    )


def _run(
    pair: Pair, prompts: Sequence[Prompt], setups: Setups, setup: Setup, progress: bool
) -> Result:
    return generate(
        pair,
        prompts,
        strategy=setup.strategy,
        batch_size=setup.batch_size,
        deterministic=setup.deterministic,
        num_draft_tokens=setups.num_draft_tokens,
        max_new_tokens=setups.max_new_tokens,
        progress=progress,
    )


def _entry(setup: Setup, result: Result, reference: Result, pair: Pair) -> dict[str, Any]:
    compared = compare(result, reference, pair=pair).summary.iloc[0]
    speed = result.summary["tokens_per_s"].item()
    return setup._asdict() | {name: compared[name] for name in COMPARED} | {"tokens_per_s": speed}


def _place(entry: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Return where an entry stands in the table."""
    return entry["deterministic"], entry["batch_size"], list(STRATEGIES).index(entry["strategy"])
