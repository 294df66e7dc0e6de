"""Do the valid strategies write what the target writes alone? Each difference gets its cause.

The prompts are SpecBench's, where the variable SPECVIZ_SPEC_BENCH names its question.jsonl, and
else the bundled ones. An interrupted run goes on where it stopped.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd
from measure import Kept, Measured, command, measured_on, speed

import specviz as sv
from specviz.prompts import spread

VALID = ("autoregressive", "rollback", "masking", "eqspec", "exspec", "inplace")
COMPARED = [
    "exact_match", "partial_match", "divergences", "near_ties", "unexplained", "unknown",
    "largest_gap", "noise",
]  # fmt: skip


def agreement(
    dtype: str,
    limit: int | None = None,
    deterministic: Sequence[bool] = (False,),
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32),
    max_new_tokens: int = 64,
) -> Measured:
    """Decode greedily with every setup, and compare with decoding alone in the same mode.

    largest_gap and noise are log-probabilities, and tokens_per_s is that of one run.
    """
    pair = sv.load_pair(dtype=dtype)
    file = os.environ.get("SPECVIZ_SPEC_BENCH")
    texts = sv.load_prompts() if file is None else sv.load_prompts("spec_bench", file)
    prompts = [pair.tokenizer(text)["input_ids"][-256:] for text in spread(texts, limit)]
    run = {"num_draft_tokens": 5, "max_new_tokens": max_new_tokens, "progress": False}
    about = measured_on(
        pair,
        source="bundled" if file is None else "spec_bench",
        prompts=len(prompts),
        prompts_digest=hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16],
        prompt_tokens=sum(map(len, prompts)),
        num_draft_tokens=5,
        max_new_tokens=max_new_tokens,
        max_prompt_tokens=256,
    )
    kept = Kept(f"agreement-{dtype}", about)
    alone: dict[bool, sv.Result] = {}

    def entry(mode: bool, batch_size: int, strategy: str) -> dict[str, object]:
        if mode not in alone:
            one = {"strategy": "autoregressive", "batch_size": 1, "deterministic": mode}
            alone[mode] = sv.generate(pair, prompts, **one, **run)
        here = {"strategy": strategy, "batch_size": batch_size, "deterministic": mode}
        result = sv.generate(pair, prompts, **here, **run)
        compared = sv.compare(result, alone[mode], pair=pair).summary.iloc[0]
        return {**compared[COMPARED].to_dict(), "tokens_per_s": speed(result)}

    entries = []
    for mode, size, name in product(deterministic, batch_sizes, VALID):
        if (size, name) != (1, "autoregressive"):
            setup = {"deterministic": mode, "batch_size": size, "strategy": name}
            found = kept.get(setup, lambda setup=setup: entry(*setup.values()))
            entries.append(setup | found)
    kept.done()
    return pd.DataFrame(entries), about


TABLES: dict[str, dict[str, Any]] = {
    "agreement-float32": {"dtype": "float32"},
    "agreement-float64": {"dtype": "float64"},
    "agreement-bfloat16": {
        "dtype": "bfloat16",
        "limit": 96,
        "deterministic": (False, True),
        "batch_sizes": (1, 8, 32),
    },
}

if __name__ == "__main__":
    command(agreement, TABLES, {"limit": 4, "batch_sizes": (1, 2), "max_new_tokens": 8})
