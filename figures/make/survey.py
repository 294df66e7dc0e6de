"""Every way to handle raggedness, valid or not: is its text right, what does it waste and cost?"""

import numpy as np
import pandas as pd
from measure import Measured, command, measured_on, speed

import specviz as sv
from specviz import metrics
from specviz.engine.strategies import STRATEGIES, changed_options, everything


def survey(limit: int, max_new_tokens: int = 64) -> Measured:
    """Run each strategy greedily: unrecorded for its speed (no benchmark), recorded for the rest.

    exact_match and partial_match compare with autoregressive decoding at batch 1; first_violation
    is a rule and a round; hole_share and padding_share are of the slots up to the rows' last
    tokens, over all rounds; realigned_mb and compacted_mb are K/V copied to realign rows, and from
    row to row.
    """
    pair = sv.load_pair()
    run = {"prompts": sv.load_prompts(limit=limit), "num_draft_tokens": 5, "progress": False}
    run["max_new_tokens"] = max_new_tokens
    alone = sv.generate(pair, strategy="autoregressive", batch_size=1, record=True, **run)
    entries = []
    for strategy in everything():
        plain = sv.generate(pair, strategy=strategy, batch_size=8, **run)
        result = sv.generate(pair, strategy=strategy, batch_size=8, record=True, **run)
        compared = sv.compare(result, alone, pair=pair).summary.iloc[0]
        summary = result.summary.iloc[0]
        rounds = metrics.rounds(result.trace)
        slots = rounds["cache_slots"] * rounds["batch_rows"]
        entry = {
            "strategy": strategy.name,
            "options": changed_options(strategy) if strategy.name in STRATEGIES else "",
            "valid": strategy.promises,
            **compared[["exact_match", "partial_match", "near_ties", "unexplained"]],
            "first_violation": compared["first_violated"],
            **summary[["mean_acceptance_length", "discarded_tokens"]],
            "hole_share": np.average(rounds["hole_share"], weights=slots),
            "padding_share": np.average(rounds["padding_share"], weights=slots),
            "realigned_mb": rounds["realigned_bytes"].sum() / 1e6,
            "compacted_mb": rounds["compacted_bytes"].sum() / 1e6,
            **summary[["grouping_rate", "rounds"]],
            "tokens_per_s": speed(plain),
        }
        entries.append(entry)
    sizes = {"batch_size": 8, "num_draft_tokens": 5, "max_new_tokens": max_new_tokens}
    return pd.DataFrame(entries), measured_on(pair, prompts=limit, **sizes)


if __name__ == "__main__":
    command(survey, {"survey": {"limit": 32}}, {"limit": 4, "max_new_tokens": 24})
