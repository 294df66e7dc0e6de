"""From the arguments of `specviz bench` to sources, prompts, grids and a runner."""

from argparse import Namespace
from importlib.util import find_spec
from typing import Any

from specviz.bench.grid import SYNTHETIC, Grid, standard
from specviz.bench.on_ray import OnRay
from specviz.bench.sources import Shape, Source, Stored
from specviz.engine.drafters import drafter
from specviz.prompts import load_prompts, spread

FOR_SHAPES = (
    "autoregressive",
    "hf_generate",
    "rollback",
    "eqspec",
    "exspec",
    "inplace",
)  # a random draft assists nobody


def sources(options: Namespace) -> list[Source]:
    """Where the pairs come from.

    Raises:
        ValueError: only one model is named, models and shapes, shapes and a device map, or a shape is unknown.
    """
    for missing, given in (("draft", "target"), ("target", "draft")):
        if getattr(options, missing) is None and getattr(options, given) is not None:
            raise ValueError(
                f"--{given} {getattr(options, given)} comes without a {missing}; give --{missing} too"
            )
    if options.shapes and options.device_map is not None:
        raise ValueError(
            f"--device-map {options.device_map} spreads stored models, and --shapes makes models on one device; leave it out"
        )
    if options.shapes and options.target is not None:
        raise ValueError(
            f"--target {options.target} and --shapes exclude each other; give one of them"
        )
    if options.shapes:
        return [Shape(name) for name in options.shapes]
    return [Stored(options.target, options.draft, options.device_map)]


def prompts(options: Namespace) -> list[str]:
    """The bundled prompts, or some of SpecBench's; [] for shapes, which draw their own.

    Raises:
        ValueError, OSError: the file cannot be used, or comes with shapes.
    """
    if options.shapes:
        if options.spec_bench is not None:
            raise ValueError(
                f"--spec-bench {options.spec_bench} and --shapes exclude each other: shapes draw their prompts; leave it out"
            )
        return []
    return (
        load_prompts()
        if options.spec_bench is None
        else spread(load_prompts("spec_bench", options.spec_bench), options.limit)
    )


def grids(options: Namespace) -> list[Grid]:
    """What is measured: the standard grids, unless strategies or drafters are named or it is about shapes.

    Raises:
        ValueError: as `Grid`, or there are rates and nothing that drafts by them.
    """
    names = (
        "batch_sizes",
        "num_draft_tokens",
        "max_new_tokens",
        "prompt_tokens",
        "dtypes",
        "devices",
        "repetitions",
    )
    axes: dict[str, Any] = {name: getattr(options, name) for name in names}
    synthetic = SYNTHETIC if options.rates is None else drafter("synthetic", rates=options.rates)
    if not options.strategies and not options.drafters and not options.shapes:
        return standard(synthetic, **axes)
    named = options.drafters or (["synthetic"] if options.shapes else ["model"])
    if options.rates is not None and "synthetic" not in named:
        raise ValueError(
            f"--rates {' '.join(map(str, options.rates))} comes without a synthetic drafter; give --drafters synthetic, too"
        )
    drafters = [synthetic if name == "synthetic" else name for name in named]
    return [
        Grid(
            options.strategies or (FOR_SHAPES if options.shapes else Grid.strategies),
            drafters=drafters,
            **axes,
        )
    ]


def runner(options: Namespace) -> OnRay | None:
    """Where it runs; None: here.

    Raises:
        ImportError: Ray was asked for and is not installed.
        ValueError: GPUs or CPUs of a task are named, and Ray is not asked for.
    """
    for name in ("gpus", "cpus"):
        if options.ray is None and getattr(options, name) is not None:
            raise ValueError(
                f"--{name} {getattr(options, name)} comes without Ray, which shares them out; give --ray too"
            )
    return (
        None
        if options.ray is None
        else OnRay(options.ray or None, 1 if options.gpus is None else options.gpus, options.cpus)
    )


def check_pyarrow() -> None:
    """Raise ImportError if there is none."""
    if find_spec("pyarrow") is None:
        raise ImportError(
            '--parquet needs pyarrow, which is not installed; run: pip install "specviz[parquet]"'
        )
