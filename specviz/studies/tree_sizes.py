"""The arguments of the study of trees, checked before anything runs."""

from collections.abc import Sequence

from specviz.engine.drafters.tree import TreeDrafter
from specviz.engine.sampling import SamplingParams
from specviz.studies.tree_tables import MOST_NODES
from specviz.util.validate import is_list, require_int, require_ints, short

GrowthSizes = tuple[int, int, int]
MAX_SAMPLES = 10_000


def sampling_at(temperature: float | None) -> SamplingParams | None:
    """Return how texts are drawn whose tokens do not depend on drafts; None for greedy ones.

    Raises ValueError as `SamplingParams`.
    """
    return None if temperature is None else SamplingParams(temperature, coupling="gumbel")


def check_sizes(nodes: Sequence[int], samples: int) -> None:
    """Raise ValueError unless trees can have so many drafts, and intervals so many samples."""
    require_ints("nodes", nodes, maximum=MOST_NODES)
    require_int("samples", samples, 2, maximum=MAX_SAMPLES)


def check_growths(growths: object) -> list[GrowthSizes]:
    """Return the growths. Raise ValueError unless they are depths, widths and numbers of children.

    The drafter checks the numbers themselves.
    """
    if not is_list(growths) or not growths:
        raise ValueError(
            f"growths must be lists (depth, width, children), got {short(growths)}; "
            "pass for instance [(6, 3, 3)]"
        )
    found = []
    for growth in growths:
        if not is_list(growth) or len(growth) != 3:
            raise ValueError(
                f"growths must be of (depth, width, children), got {short(growth)}; "
                "pass for instance [(6, 3, 3)]"
            )
        made = TreeDrafter(*growth)
        found.append((made.depth, made.width, made.children))
    return found
