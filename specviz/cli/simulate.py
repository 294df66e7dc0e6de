"""`specviz study simulate`: the schedulers on many requests, without a model.

It compares policies, sizes a cluster, or answers one of four further questions.
"""

import argparse

from specviz.studies.arguments import (
    SHAPES,
    add_lengths,
    add_models,
    add_out,
    check_counts,
    check_models,
    check_table,
    file_path,
    integer,
    number,
)
from specviz.studies.output import print_conditions, print_table, print_written
from specviz.util.files import save_measured
from specviz.util.validate import require_choice, require_positive

QUESTIONS = ("grouping", "latency", "refill", "held_out")

# The columns of a wide table that fit on a screen.
SHOWN = (
    "policy", "moves", "devices", "load", "own_load", "requests_per_s", "rounds", "tokens_per_s",
    "ratio", "latency_s", "latency_p50_s", "latency_p90_s", "latency_p99_s", "waiting_mean_s",
    "grouping_rate", "mean_rows", "busy_share", "note", "simulated_cpu_s",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "runs saved by generate --record, for costs and acceptance"
    parser.add_argument("--runs", nargs="+", type=file_path, metavar="RUN", help=text)
    text = "instead: a table of specviz study ceilings, for the floors on a device"
    parser.add_argument("--ceilings", type=file_path, metavar="CSV", help=text)
    parser.add_argument("--shapes", metavar="NAME", help=f"with --ceilings: {SHAPES}")
    text = "with --ceilings: rounds are replayed from CUDA graphs"
    parser.add_argument("--captured", action="store_true", help=text)
    add_models(parser)
    add_lengths(parser)
    parser.set_defaults(num_draft_tokens=None)
    text = "with options: exspec:window=64,fallback=wait (a standard list)"
    parser.add_argument("--policies", nargs="+", metavar="NAME", help=text)
    text = f"instead of comparing the policies: {', '.join(QUESTIONS)}"
    parser.add_argument("--question", metavar="NAME", help=text)
    text = "(%(default)s)"
    parser.add_argument("--requests", type=integer, default=10_000, metavar="N", help=text)
    text = "probability that a draft token is accepted; several: kinds of requests"
    parser.add_argument("--alpha", type=number, nargs="+", metavar="A", help=text)
    text = "from N to N (the lengths in the runs)"
    parser.add_argument("--prompt-tokens", type=integer, nargs="+", metavar="N", help=text)
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B")
    text = "of exspec (%(default)s)"
    parser.add_argument("--window", type=integer, default=32, metavar="W", help=text)
    text = "requests a second, a Poisson process (all at once)"
    parser.add_argument("--rate", type=number, metavar="R", help=text)
    text = "with --rate: find the devices that end 99 %% of requests in S seconds"
    parser.add_argument("--latency", type=number, metavar="S", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of all sampling (%(default)s)")
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    _check(options)

    from specviz.studies.simulation_inputs import DEFAULT_K, inputs_of
    from specviz.studies.simulation_plan import POLICIES, SimulationPlan, answer, check

    plan = SimulationPlan(
        options.policies or POLICIES,
        options.requests,
        options.batch_size,
        options.num_draft_tokens or DEFAULT_K,
        options.window,
        options.max_new_tokens,
        options.rate,
        options.latency,
        options.seed,
    )
    check(plan, options.question)
    table, found = answer(plan, inputs_of(options), options.question)
    wide = "window" not in table and "deviation" not in table
    print_table(table[[name for name in SHOWN if name in table]] if wide else table)
    print_conditions(found)
    if options.out is not None:
        print_written(save_measured(table, found, options.out))


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError or WriteError for what cannot be used, as far as one option shows it."""
    check_models(options)
    check_counts(
        options, "num_draft_tokens", "max_new_tokens", "requests", "prompt_tokens", "batch_size",
        "window",
    )  # fmt: skip
    check_counts(options, "seed", minimum=0)
    for name in ("rate", "latency"):
        if getattr(options, name) is not None:
            require_positive(name, getattr(options, name))
    if options.question is not None:
        require_choice("question", options.question, QUESTIONS)
    check_table(options.out)
