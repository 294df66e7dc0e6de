"""`specviz cost`: what a pair would cost on a device. Runs no model and loads no weights."""

import argparse
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.costs.acceptance import check_rates
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.shapes import ModelShape, named_pair
from specviz.engine.names import STRATEGY_NAMES, parse, require_known
from specviz.studies.arguments import (
    DTYPE_NAMES,
    SHAPES,
    add_target_and_draft,
    check_counts,
    check_model,
    file_path,
    integer,
    number,
)
from specviz.studies.output import print_table
from specviz.util.validate import require_choice, require_positive

if TYPE_CHECKING:
    from specviz.studies.cost import Case

Shapes = tuple[ModelShape, ModelShape]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target_and_draft(parser)
    parser.add_argument("--shapes", metavar="NAME", help=f"instead of two models: {SHAPES}")
    text = "a table of specviz study ceilings (that of two CPU cores, which comes with specviz)"
    parser.add_argument("--ceilings", type=file_path, default=CPU_TABLE, metavar="CSV", help=text)
    parser.add_argument("--dtype", default="float32", help="of weights and K/V (%(default)s)")
    text = "rounds are replayed from CUDA graphs"
    parser.add_argument("--captured", action="store_true", help=text)
    text = "with options: exspec:window=64 (%(default)s)"
    parser.add_argument("--strategy", default="inplace", help=text)
    sizes = [1, 4, 8, 16, 32]
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B")
    text = "(%(default)s)"
    parser.add_argument("--num-draft-tokens", type=integer, default=5, metavar="K", help=text)
    parser.add_argument("--prompt-tokens", type=integer, default=512, metavar="N", help=text)
    parser.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)
    text = "acceptance at positions 1..K, for the speedup and the best K"
    parser.add_argument("--rates", type=number, nargs="+", metavar="R", help=text)
    text = "also print the largest B that fits into G gigabytes"
    parser.add_argument("--memory-gb", type=number, metavar="G", help=text)


def run(options: argparse.Namespace) -> None:
    named = _named_shapes(options)
    for role in ("target", "draft"):
        check_model(role, getattr(options, role))
    check_counts(options, "batch_sizes", "num_draft_tokens", "prompt_tokens", "max_new_tokens")
    require_choice("dtype", options.dtype, DTYPE_NAMES)
    if options.memory_gb is not None:
        require_positive("memory_gb", options.memory_gb)
    case = _case(options, named)
    # Compute everything first: an error should leave no half output.
    floors = case.floors()
    paying = case.paying()
    memory = case.memory()
    largest = None if options.memory_gb is None else case.largest_batch(options.memory_gb)
    where = f"on {case.roofline.ceilings.device} in {case.roofline.dtype}"
    sizes = f"K = {case.num_draft_tokens}, T = {case.slots:g}"
    print(f"\nThe least time of each phase: {case.how.name}, {sizes}, {where}\n")
    print_table(floors)
    print("\nBreak-even: the mean acceptance length, or the acceptance rate of each draft token\n")
    print_table(paying)
    print(f"\nMemory for {case.prompt_tokens} + {case.max_new_tokens} tokens a row\n")
    print_table(memory)
    if largest is not None:
        print(f"\nThe largest B in {options.memory_gb:g} GB: {largest}")


def _case(options: argparse.Namespace, named: Shapes | None) -> "Case":
    """Make the case of the options. Raise ValueError or FileNotFoundError if it cannot be."""
    ceilings = Ceilings.load(options.ceilings)
    if options.rates is not None:
        check_rates(options.rates)
    name, strategy_options = parse(options.strategy)
    require_known("strategy", STRATEGY_NAMES, name)

    from specviz.costs.roofline import Roofline
    from specviz.engine.registry import make
    from specviz.engine.strategies import STRATEGIES
    from specviz.studies.cost import Case, shapes_of

    how = make("strategy", STRATEGIES, name, strategy_options)
    embedded = Path(str(resources.files("specviz") / "zoo" / "weights"))
    target = embedded / "target" if options.target is None else options.target
    draft = embedded / "draft" if options.draft is None else options.draft
    shapes = named or shapes_of(target, draft, options.dtype)
    return Case(
        Roofline(*shapes, ceilings, options.dtype, options.captured),
        options.batch_sizes,
        options.num_draft_tokens,
        options.prompt_tokens,
        options.max_new_tokens,
        how,
        options.rates,
    )


def _named_shapes(options: argparse.Namespace) -> Shapes | None:
    """Return the published pair that --shapes names, None without it.

    Raises ValueError if it is unknown, if models are named as well, or if only one model is.
    """
    if options.shapes is not None:
        if options.target is not None or options.draft is not None:
            raise ValueError(
                f"--shapes {options.shapes} and --target or --draft exclude each other; "
                "give one of them"
            )
        return named_pair(options.shapes)
    if (options.target is None) != (options.draft is None):
        raise ValueError(
            "--target and --draft belong together; give both, or neither for the embedded pair"
        )
    return None
