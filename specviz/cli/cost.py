"""`specviz cost`: what a pair would cost on a device. Runs no model and loads no weights."""

import argparse
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from specviz.costs.acceptance import check_rates
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.shapes import named_pair
from specviz.engine.names import STRATEGY_NAMES, parse, require_known
from specviz.studies.arguments import (
    DTYPE_NAMES,
    SHAPES,
    add_target_and_draft,
    check_model,
    file_path,
    integer,
    number,
)
from specviz.studies.output import print_table
from specviz.util.validate import require_choice, require_int, require_ints, require_positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target_and_draft(parser)
    parser.add_argument("--shapes", metavar="NAME", help=f"instead of two models: {SHAPES}")
    text = "a table of measured ceilings (that of two CPU cores, which comes with specviz)"
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
    names = (
        "target", "draft", "shapes", "ceilings", "dtype", "captured", "strategy", "batch_sizes",
        "num_draft_tokens", "prompt_tokens", "max_new_tokens", "rates", "memory_gb",
    )  # fmt: skip
    print_cost(**{name: getattr(options, name) for name in names})


def print_cost(
    *,
    target: str | None = None,
    draft: str | None = None,
    shapes: str | None = None,
    ceilings: Path = CPU_TABLE,
    dtype: str = "float32",
    captured: bool = False,
    strategy: str = "inplace",
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32),
    num_draft_tokens: int = 5,
    prompt_tokens: int = 512,
    max_new_tokens: int = 128,
    rates: Sequence[float] | None = None,
    memory_gb: float | None = None,
) -> None:
    """Print the floors of a round, from where on speculation pays, and the memory of a run.

    Raises:
        ValueError, FileNotFoundError: an argument or a file cannot be used.
    """
    _check_pair(target, draft, shapes)
    require_ints("batch_sizes", batch_sizes)
    lengths = {"num_draft_tokens": num_draft_tokens, "prompt_tokens": prompt_tokens}
    for name, count in {**lengths, "max_new_tokens": max_new_tokens}.items():
        require_int(name, count)
    if rates is not None:
        check_rates(rates)
    require_choice("dtype", dtype, DTYPE_NAMES)
    if memory_gb is not None:
        require_positive("memory_gb", memory_gb)
    strategy_name, strategy_options = parse(strategy)
    require_known("strategy", STRATEGY_NAMES, strategy_name)
    named = None if shapes is None else named_pair(shapes)
    device = Ceilings.load(ceilings)

    from specviz.costs.roofline import Roofline
    from specviz.engine.registry import make
    from specviz.engine.strategies import STRATEGIES
    from specviz.generation.cost import Case, shapes_of

    embedded = Path(str(resources.files("specviz") / "zoo" / "weights"))
    pair = named or shapes_of(target or embedded / "target", draft or embedded / "draft", dtype)
    case = Case(
        Roofline(*pair, device, dtype, captured),
        batch_sizes,
        num_draft_tokens,
        prompt_tokens,
        max_new_tokens,
        make("strategy", STRATEGIES, strategy_name, strategy_options),
        rates,
    )
    # Compute everything first: an error should leave no half output.
    floors = case.floors()
    paying = case.paying()
    memory = case.memory()
    largest = None if memory_gb is None else case.largest_batch(memory_gb)
    sizes = f"K = {num_draft_tokens}, T = {case.slots:g}"
    where = f"on {device.device} in {dtype}"
    print(f"\nThe least time of each phase: {case.how.name}, {sizes}, {where}\n")
    print_table(floors)
    print("\nBreak-even: the mean acceptance length, or the acceptance rate of each draft token\n")
    print_table(paying)
    print(f"\nMemory for {prompt_tokens} + {max_new_tokens} tokens a row\n")
    print_table(memory)
    if largest is not None:
        print(f"\nThe largest B in {memory_gb:g} GB: {largest}")


def _check_pair(target: str | None, draft: str | None, shapes: str | None) -> None:
    """Raise ValueError or FileNotFoundError unless these name one pair, or none."""
    if shapes is not None and (target is not None or draft is not None):
        raise ValueError(
            f"--shapes {shapes} and --target or --draft exclude each other; give one of them"
        )
    if (target is None) != (draft is None):
        raise ValueError(
            "--target and --draft belong together; give both, or neither for the embedded pair"
        )
    check_model("target", target)
    check_model("draft", draft)
