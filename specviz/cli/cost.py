"""`specviz cost`: what a pair would cost on a device. Runs no model and loads no weights."""

from importlib import resources
from pathlib import Path

from specviz.cli.shared import DtypeName, print_table
from specviz.costs.breakeven import check_rates
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.shapes import named_pair
from specviz.engine.names import parse
from specviz.util.validate import require_int, require_ints, require_positive


def cost(
    *,
    target: str | None = None,
    draft: str | None = None,
    shapes: str | None = None,
    ceilings: Path = CPU_TABLE,
    dtype: DtypeName = "float32",
    captured: bool = False,
    strategy: str = "inplace",
    batch_sizes: tuple[int, ...] = (1, 4, 8, 16, 32),
    num_draft_tokens: int = 5,
    prompt_tokens: int = 512,
    max_new_tokens: int = 128,
    rates: tuple[float, ...] = (),
    memory_gb: float | None = None,
) -> None:
    """Compute what a pair costs on a measured device, without weights.

    Args:
        target: hub id or folder of the target (the embedded pair).
        draft: hub id or folder of the draft.
        shapes: instead of two models: qwen3-8b/0.6b, vicuna-7b/68m or glm4-9b/0.6b.
        ceilings: a CSV file of measured ceilings (that of two CPU cores, which comes with specviz).
        dtype: of weights and K/V.
        captured: rounds are replayed from CUDA graphs.
        strategy: with options: exspec:window=64.
        batch_sizes: each B.
        num_draft_tokens: K.
        prompt_tokens: of every request.
        max_new_tokens: of every request.
        rates: acceptance at positions 1..K, for the speedup and the best K.
        memory_gb: also print the largest B that fits into so many gigabytes.
    """
    _check_pair(target, draft, shapes)
    require_ints("batch_sizes", batch_sizes)
    lengths = {"num_draft_tokens": num_draft_tokens, "prompt_tokens": prompt_tokens}
    for name, count in {**lengths, "max_new_tokens": max_new_tokens}.items():
        require_int(name, count)
    if rates:
        check_rates(rates)
    if memory_gb is not None:
        require_positive("memory_gb", memory_gb)
    strategy_name, strategy_options = parse(strategy)
    named = None if shapes is None else named_pair(shapes)
    device = Ceilings.load(ceilings)

    from specviz.costs.roofline import Roofline
    from specviz.engine.registry import make
    from specviz.engine.strategies import STRATEGIES
    from specviz.generation.cost import Case, shapes_of

    how = make("strategy", STRATEGIES, strategy_name, strategy_options)
    embedded = Path(str(resources.files("specviz") / "zoo" / "weights"))
    pair = named or shapes_of(target or embedded / "target", draft or embedded / "draft", dtype)
    case = Case(
        Roofline(*pair, device, dtype, captured),
        batch_sizes,
        num_draft_tokens,
        prompt_tokens,
        max_new_tokens,
        how,
        rates or None,
    )
    # Compute everything first: an error should leave no half output.
    floors = case.floors()
    paying = case.paying()
    memory = case.memory()
    largest = None if memory_gb is None else case.largest_batch(memory_gb)
    sizes = f"K = {num_draft_tokens}, T = {case.slots:g} slots a row (half-way through the output)"
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

    from specviz.engine.models.hub import check_name

    for role, name in (("target", target), ("draft", draft)):
        if name is not None:
            check_name(role, name)
