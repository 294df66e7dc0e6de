"""`specviz study losses`: what each habit of the published EQSPEC and EXSPEC costs.

Each habit is measured alone and together with all others. A setup runs once recorded, to count its
wasted work, and several times unrecorded, for its speed; all setups of a batch size run
interleaved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.drafters import Drafter, drafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.run import check_pair
from specviz.engine.strategies import Strategy, strategy
from specviz.generation.generate import generate, generate_interleaved
from specviz.generation.result import Result
from specviz.metrics import waste
from specviz.util.files import conditions
from specviz.util.validate import require_bool, require_int, require_ints

NOTHING_LOST = "none"
LOSSES: dict[str, tuple[dict[str, Any], ...]] = {
    "eqspec": (
        {"refill": False},
        {"bonus": False},
        {"shrink_to_budget": True},
        {"keep_cache": False},
        {"as_published": True},
    ),
    "exspec": (
        {"bonus": False},
        {"shrink_to_budget": True},
        {"keep_cache": False},
        {"drop_cache": True},
        {"group_by": "padded"},
        {"as_published": True},
    ),
}


@dataclass
class _Setup:
    """One entry of the table.

    Attributes:
        loss: the options in which it differs from its strategy without a loss.
        speeds: tokens/s of each repetition, NaN for texts other than the recorded ones.
        texts: the tokens of the recorded run.
    """

    batch_size: int
    strategy: Strategy
    drafter: str | Drafter = "model"
    loss: str = NOTHING_LOST
    speeds: list[float] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `generate`."""
        return {
            "strategy": self.strategy,
            "drafter": self.drafter,
            "batch_size": self.batch_size,
        }


def measure_losses(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int] = (1, 4, 8, 16),
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    window: int = 32,
    repetitions: int = 3,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Run EQSPEC and EXSPEC greedily with no loss, with each one alone, and as published.

    On a CPU the setups of a batch size take turns in each repetition, a sixtieth of their texts at
    a time. On a GPU they follow one another.

    Returns:
        (table, conditions). One entry per batch size, strategy and loss: exact_match (share of
        prompts whose tokens equal autoregressive decoding at batch 1), the columns of
        `specviz.metrics.waste`, grouping_rate, tokens_per_s (median over repetitions),
        tokens_per_s_low and _high (their range), ratio_to_none (to the same strategy without a
        loss) and ratio_to_autoregressive: medians of the ratios within a repetition. A setup whose
        texts differ from the recorded ones in any repetition has no speed.

    Raises:
        ValueError: as `generate`, or a list is empty; nothing has run.
        MemoryError: a batch size does not fit. It is not halved, since that would measure another.
    """
    require_ints("batch_sizes", batch_sizes)
    require_int("repetitions", repetitions)
    require_int("window", window)
    require_bool("progress", progress)
    check_pair(pair)
    make_requests(pair, prompts, max_new_tokens, require_int("num_draft_tokens", num_draft_tokens))
    sizes = {"num_draft_tokens": num_draft_tokens, "max_new_tokens": max_new_tokens}
    given: dict[str, Any] = {"prompts": prompts, **sizes}
    alone = _Setup(1, strategy("autoregressive"))
    reference = generate(pair, progress=False, **alone.options, **given)  # also warms up

    setups = []
    for size in dict.fromkeys(batch_sizes):
        setups += _setups(size, window)
    total = len(setups) * (repetitions + 1)
    entries = []
    with tqdm(desc="losses", total=total, unit="run", disable=not progress) as bar:
        for setup in setups:  # recording takes time, so speeds come from other runs
            recorded = generate(pair, record=True, progress=False, **setup.options, **given)
            entries.append(_entry(setup, recorded, reference))
            setup.texts = recorded.tokens
            bar.update()
        for _ in range(repetitions):
            _measure_speeds(pair, setups, given, bar)
    table = pd.DataFrame(entries).join(pd.DataFrame(_speeds(setups)))
    settings = {**sizes, "window": window, "repetitions": repetitions}
    return table, conditions(reference.meta, prompts=len(prompts), **settings)


def _measure_speeds(
    pair: Pair, setups: Sequence[_Setup], given: dict[str, Any], bar: "tqdm[Any]"
) -> None:
    """Run every setup once, those of a batch size side by side, and note its speed."""
    for size in dict.fromkeys(setup.batch_size for setup in setups):
        group = [setup for setup in setups if setup.batch_size == size]
        runs = [{**setup.options, **given} for setup in group]
        for place, result in generate_interleaved(pair, runs):
            same = result.tokens == group[place].texts
            speed = result.summary["tokens_per_s"].item()
            group[place].speeds.append(speed if same else float("nan"))
            bar.update()


def _setups(batch_size: int, window: int) -> list[_Setup]:
    setups = [_Setup(batch_size, strategy("autoregressive"))]
    for name, losses in LOSSES.items():
        # A window below B is refused.
        given = {"window": max(window, batch_size)} if name == "exspec" else {}
        setups.append(_Setup(batch_size, strategy(name, **given)))
        for loss in losses:
            label = ", ".join(f"{option}={value!r}" for option, value in loss.items())
            proposer: str | Drafter = "model"
            options = given | loss
            if "keep_cache" in loss:  # an option of the drafter
                proposer = drafter("model", **loss)
                options = given
            setups.append(_Setup(batch_size, strategy(name, **options), proposer, label))
    return setups


def _entry(setup: _Setup, result: Result, reference: Result) -> dict[str, object]:
    assert result.trace is not None
    same = [ours == theirs for ours, theirs in zip(result.tokens, reference.tokens, strict=True)]
    entry: dict[str, object] = {
        "batch_size": setup.batch_size,
        "strategy": setup.strategy.name,
        "loss": setup.loss,
        "exact_match": sum(same) / len(same),
    }
    wasted = waste(result.trace).iloc[0].to_dict()
    for name in ("rounds", "verified_rows", "idle_rows", "discarded_tokens"):
        wasted[name] = int(wasted[name])
    return entry | wasted | {"grouping_rate": result.summary["grouping_rate"].item()}


def _speeds(setups: Sequence[_Setup]) -> Iterator[dict[str, float]]:
    """Yield median and range of each setup's speeds, and its ratios to those without a loss."""
    lossless = {}
    for setup in setups:
        if setup.loss == NOTHING_LOST:
            lossless[setup.batch_size, setup.strategy.name] = pd.Series(setup.speeds)
    for setup in setups:
        speeds = pd.Series(setup.speeds)
        to_none = speeds / lossless[setup.batch_size, setup.strategy.name]
        to_autoregressive = speeds / lossless[setup.batch_size, "autoregressive"]
        yield {
            "tokens_per_s": speeds.median(skipna=False),
            "tokens_per_s_low": speeds.min(skipna=False),
            "tokens_per_s_high": speeds.max(skipna=False),
            "ratio_to_none": to_none.median(skipna=False),
            "ratio_to_autoregressive": to_autoregressive.median(skipna=False),
        }
