"""The options that name a pair and a device by their shapes and ceilings, for costs of rounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from specviz.cli.shared import DtypeName
from specviz.util.validate import shown_path

if TYPE_CHECKING:
    from specviz.costs.roofline import Roofline


@dataclass(frozen=True)
class NamedRoofline:
    """A pair on a device.

    Attributes:
        shapes: a pair, for times: qwen3-8b/0.6b, vicuna-7b/68m or glm4-9b/0.6b.
        ceilings: a CSV file of measured ceilings (that of two CPU cores, which comes with specviz).
        dtype: of weights and K/V (bfloat16; float32 for the table that comes with specviz).
        captured: rounds are replayed from CUDA graphs.
    """

    shapes: str | None = None
    ceilings: Path | None = None
    dtype: DtypeName | None = None
    captured: bool = False

    def load(self) -> "Roofline | None":
        """Return the roofline; None without shapes.

        Raises:
            ValueError, OSError: the ceilings cannot be read, or lack the dtype, or options say
                nothing without shapes.
        """
        if self.shapes is None:
            given: dict[str, object] = {"ceilings": self.ceilings, "dtype": self.dtype}
            given["captured"] = self.captured or None
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"--{name} {shown_path(value)} says nothing without a pair; give --shapes"
                        " too"
                    )
            return None

        from specviz.costs.ceilings import CPU_TABLE, Ceilings
        from specviz.costs.roofline import Roofline
        from specviz.costs.shapes import named_pair

        pair = named_pair(self.shapes)
        dtype = self.dtype or ("bfloat16" if self.ceilings else "float32")
        return Roofline(*pair, Ceilings.load(self.ceilings or CPU_TABLE), dtype, self.captured)


Device = Annotated[NamedRoofline, arg(name="")]
NOWHERE = NamedRoofline()
