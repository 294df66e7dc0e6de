"""How many K/V slots each strategy moves, with trees and with chains of as many drafts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.drafters import Drafter
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.drafters.tree import TreeDrafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.record.schema import MODELS
from specviz.util.files import conditions
from specviz.util.validate import require_bool

STRATEGIES = ("inplace", "masking", "eqspec", "exspec", "rollback")


def count_moves(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    num_draft_tokens: int = 6,
    batch_size: int = 8,
    max_new_tokens: int = 64,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Decode greedily with every valid strategy, and count the slots whose K/V it copies.

    Returns:
        (table, conditions). One entry for each strategy and kind of draft: tokens_per_round of a
        row, and the slots moved within their row for each token that is written, in the target's
        cache and in the draft model's (target_slots_per_token, draft_slots_per_token);
        target_slots, the slots of the target's cache that a row comes to use.

    Raises:
        ValueError: as `generate`.
    """
    check_pair(pair)
    require_bool("progress", progress)
    run: dict[str, Any] = {
        "num_draft_tokens": num_draft_tokens,
        "batch_size": batch_size,
        "max_new_tokens": max_new_tokens,
    }
    drafters: dict[str, Drafter] = {"chain": ModelDrafter(), "tree": TreeDrafter(6, 3, 3)}
    entries = []
    for strategy in tqdm(STRATEGIES, unit="strategy", disable=not progress):
        for drafts, drafter in drafters.items():
            given = run | {"strategy": strategy, "drafter": drafter}
            result = generate(pair, prompts, record=True, progress=False, **given)
            entries.append({"strategy": strategy, "drafts": drafts} | _counts(result))
    return pd.DataFrame(entries), conditions(result.meta, prompts=len(prompts), **run)


def _counts(result: Result) -> dict[str, float]:
    """Return the counts of a recorded run."""
    assert result.trace is not None
    moves, rows, feeds = result.trace.moves, result.trace.rows, result.trace.feeds
    # Between rows, K/V moves because some leave, which has to do with no tree.
    length = moves["length"] * (moves["from_row"] == moves["to_row"])
    slots = np.bincount(moves["model"], weights=length, minlength=len(MODELS))
    written = rows["gained"].sum()
    is_target = feeds["model"] == MODELS.index("target")
    found = {
        "tokens_per_round": written / (rows["gained"] > 0).sum(),
        "target_slots": feeds["slot"][is_target].max() + 1,
    }
    for name, moved in zip(MODELS, slots, strict=True):
        found[f"{name}_slots_per_token"] = moved / written
    return found
