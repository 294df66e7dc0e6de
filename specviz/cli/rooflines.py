"""The options that name a pair and a device by their shapes and ceilings, for costs of rounds."""

import argparse
from typing import TYPE_CHECKING

from specviz.studies.arguments import DTYPE_NAMES, SHAPES, file_path
from specviz.util.validate import require_choice, shown_path

if TYPE_CHECKING:
    from specviz.costs.roofline import Roofline


def add_roofline(parser: argparse.ArgumentParser) -> None:
    """Add --shapes, --ceilings, --dtype and --captured."""
    parser.add_argument("--shapes", metavar="NAME", help=f"a pair, for times: {SHAPES}")
    text = "a table of specviz study ceilings (that of two CPU cores, which comes with specviz)"
    parser.add_argument("--ceilings", type=file_path, metavar="CSV", help=text)
    text = "of weights and K/V (bfloat16, float32 for the table that comes with specviz)"
    parser.add_argument("--dtype", help=text)
    text = "rounds are replayed from CUDA graphs"
    parser.add_argument("--captured", action="store_true", help=text)


def check_roofline(options: argparse.Namespace) -> None:
    """Raise ValueError unless the options of `add_roofline` fit together."""
    if options.dtype is not None:
        require_choice("dtype", options.dtype, DTYPE_NAMES)
    if options.shapes is not None:
        from specviz.costs.shapes import named_pair

        named_pair(options.shapes)
        return
    given = {"--ceilings": options.ceilings, "--dtype": options.dtype}
    given["--captured"] = options.captured or None
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} {shown_path(value)} says nothing without a pair; give --shapes too"
            )


def roofline_of(options: argparse.Namespace) -> "Roofline | None":
    """Return the roofline that the options name; None without --shapes.

    Raises:
        ValueError, OSError: the ceilings cannot be read, or lack the dtype.
    """
    if options.shapes is None:
        return None

    from specviz.costs.ceilings import CPU_TABLE, Ceilings
    from specviz.costs.roofline import Roofline
    from specviz.costs.shapes import named_pair

    own = options.ceilings is not None
    ceilings = Ceilings.load(options.ceilings if own else CPU_TABLE)
    dtype = options.dtype or ("bfloat16" if own else "float32")
    return Roofline(*named_pair(options.shapes), ceilings, dtype, options.captured)
