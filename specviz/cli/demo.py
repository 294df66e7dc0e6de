"""`specviz demo`: three strategies on the embedded pair, one of them recorded."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import specviz as sv
from specviz.cli.generate import save_trace
from specviz.studies.arguments import file_path, integer
from specviz.studies.output import print_table
from specviz.util.files import check_writable
from specviz.util.text import count, harmless

if TYPE_CHECKING:
    import pandas as pd

STRATEGIES = ("autoregressive", "eqspec", "inplace")
COLUMNS = [
    "strategy", "same_text", "new_tokens", "rounds", "mean_acceptance_length",
    "draft_acceptance_rate", "tokens_per_s",
]  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    out = Path("runs/demo.safetensors")
    parser.add_argument("--out", type=file_path, default=out, help="the recorded run (%(default)s)")
    parser.add_argument("--limit", type=integer, default=16, help="bundled prompts (%(default)s)")


def run(options: argparse.Namespace) -> None:
    check_writable(options.out)
    prompts = sv.load_prompts(limit=options.limit)

    import pandas as pd

    pair = sv.load_pair()
    results = {}
    for name in STRATEGIES:
        record = name == "eqspec"
        results[name] = sv.generate(pair, prompts, strategy=name, max_new_tokens=64, record=record)
    reference = results["autoregressive"]
    table = pd.concat([result.summary for result in results.values()])
    same = [result.tokens == reference.tokens for result in results.values()]
    table.insert(1, "same_text", same)
    where = f"on {reference.meta['device']} in {reference.meta['dtype']}"
    threads = [int(result.meta["num_threads"]) for result in results.values()]
    if reference.meta["device"] == "cpu":
        where += f", threads: {', '.join(map(str, threads))}"
    print(f"\n{count(len(prompts), 'prompt')}, B = 8, K = 5, {where}\n")
    print_table(table[COLUMNS])
    print(_verdict(table))
    text = f"{prompts[-1][-240:]}▸{reference.texts[-1]}"
    print(harmless(f"\nOne of the texts (▸ marks the end of the prompt):\n\n{text}\n"))
    save_trace(results["eqspec"].trace, options.out)
    print(
        f"To step through it, run `specviz replay {options.out}` and open the page in a browser; "
        "`make lab` opens the quickstart.\n"
        "There are faster drafters than the draft model: try `specviz generate --drafter eagle3`."
    )


def _verdict(table: "pd.DataFrame") -> str:
    """Say in one sentence how much speculation gained, and why not more."""
    speed = table.set_index("strategy")["tokens_per_s"]
    ratio = speed["inplace"] / speed["autoregressive"]
    return (
        f"\ninplace ran at {ratio:.2f} times the speed of autoregressive decoding in the same "
        "batch: it needs fewer rounds, but each one costs K draft forwards and a verification of "
        "K + 1 tokens a row."
    )
