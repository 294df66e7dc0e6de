"""What `specviz bench` measures, and where: the pairs, grids and runner that its options name.

Apart from `bench`, because it imports torch.
"""

import argparse
from typing import Any

from specviz.bench.grid import SYNTHETIC, Grid, standard
from specviz.bench.on_ray import OnRay
from specviz.bench.sources import PairSource, ShapePair, StoredPair
from specviz.engine.drafters import drafter
from specviz.studies.arguments import check_target_and_draft

# A draft with random weights assists nothing, so hf_assisted is left out.
FOR_SHAPES = ("autoregressive", "hf_generate", "rollback", "eqspec", "exspec", "inplace")
AXES = (
    "batch_sizes", "num_draft_tokens", "max_new_tokens", "prompt_tokens", "dtypes", "devices",
    "repetitions",
)  # fmt: skip


def pairs_of(options: argparse.Namespace) -> list[PairSource]:
    """Return where the pairs come from.

    Raises:
        ValueError: only one model is named, or models, heads or a device map come with shapes, or
            a shape is unknown.
    """
    check_target_and_draft(options)
    if not options.shapes:
        heads = None if options.heads is None else str(options.heads)
        return [StoredPair(options.target, options.draft, options.device_map, heads)]
    if options.heads is not None:
        raise ValueError(
            f"--heads {options.heads} are trained for one target, and --shapes makes another; "
            "leave one of them out"
        )
    if options.device_map is not None:
        raise ValueError(
            f"--device-map {options.device_map} is for stored models, and --shapes makes models "
            "on one device; leave it out"
        )
    if options.target is not None:
        raise ValueError(
            f"--target {options.target} and --shapes exclude each other; give one of them"
        )
    return [ShapePair(name) for name in options.shapes]


def grids_of(options: argparse.Namespace) -> list[Grid]:
    """Return the standard grids, unless strategies, drafters or shapes are named.

    Raises:
        ValueError: as `Grid`, or there are rates without a synthetic drafter.
    """
    axes: dict[str, Any] = {name: getattr(options, name) for name in AXES}
    synthetic = SYNTHETIC if options.rates is None else drafter("synthetic", rates=options.rates)
    if not options.strategies and not options.drafters and not options.shapes:
        return standard(synthetic, **axes)
    names = options.drafters or (["synthetic"] if options.shapes else ["model"])
    if options.rates is not None and "synthetic" not in names:
        rates = " ".join(map(str, options.rates))
        raise ValueError(
            f"--rates {rates} needs a synthetic drafter; give --drafters synthetic, too"
        )
    drafters = [synthetic if name == "synthetic" else name for name in names]
    default = FOR_SHAPES if options.shapes else Grid.strategies
    return [Grid(options.strategies or default, drafters=drafters, **axes)]


def runner_of(options: argparse.Namespace) -> OnRay | None:
    """Return what runs the cells; None: this process.

    Raises:
        ImportError: Ray is asked for and not installed.
        ValueError: GPUs or CPUs of a task are given without Ray.
    """
    if options.ray is None:
        for name in ("gpus", "cpus"):
            number = getattr(options, name)
            if number is not None:
                raise ValueError(f"--{name} {number} needs Ray; give --ray too")
        return None
    gpus = 1 if options.gpus is None else options.gpus
    return OnRay(options.ray or None, gpus, options.cpus)
