"""`specviz demo`: three strategies on the embedded pair, one of them recorded."""

from pathlib import Path

import specviz as sv
from specviz.cli.generate import save_trace
from specviz.cli.shared import print_table
from specviz.util.files import check_writable
from specviz.util.text import count, harmless

COLUMNS = [
    "strategy", "same_text", "new_tokens", "rounds", "mean_acceptance_length",
    "draft_acceptance_rate", "tokens_per_s",
]  # fmt: skip


def demo(*, out: Path = Path("runs/demo.safetensors"), limit: int = 16) -> None:
    """Compare autoregressive decoding, eqspec and inplace on the embedded pair; record a run.

    Args:
        out: the recorded run.
        limit: how many of the bundled prompts.
    """
    import pandas as pd

    check_writable(out)
    prompts = sv.load_prompts(limit=limit)
    pair = sv.load_pair()
    results = {}
    for name in ("autoregressive", "eqspec", "inplace"):
        record = name == "eqspec"
        results[name] = sv.generate(pair, prompts, strategy=name, max_new_tokens=64, record=record)
    reference = results["autoregressive"]
    table = pd.concat([result.summary for result in results.values()])
    same = [result.tokens == reference.tokens for result in results.values()]
    table.insert(1, "same_text", same)
    where = f"on {reference.meta['device']} in {reference.meta['dtype']}"
    if reference.meta["device"] == "cpu":
        threads = [str(result.meta["num_threads"]) for result in results.values()]
        where += f", threads: {', '.join(threads)}"
    print(f"\n{count(len(prompts), 'prompt')}, B = 8, K = 5, {where}\n")
    print_table(table[COLUMNS])
    speed = table.set_index("strategy")["tokens_per_s"]
    ratio = speed["inplace"] / speed["autoregressive"]
    print(
        f"\ninplace ran at {ratio:.2f} times the speed of autoregressive decoding in the same "
        "batch: it needs fewer rounds, but each one costs K draft forwards and a verification of "
        "K + 1 tokens a row."
    )
    text = f"{prompts[-1][-240:]}▸{reference.texts[-1]}"
    print(harmless(f"\nOne of the texts (▸ marks the end of the prompt):\n\n{text}\n"))
    save_trace(results["eqspec"].trace, out)
    print(
        f"To step through it, run `specviz replay {out}` and open the page in a browser; "
        "`make lab` opens the quickstart.\n"
        "There are faster drafters than the draft model: try `specviz generate --drafter eagle3`."
    )
