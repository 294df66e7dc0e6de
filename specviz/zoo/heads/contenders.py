"""The trainings of `specviz study heads`: which heads, and what differs between them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specviz.engine.heads.settings import HeadSettings
from specviz.util.validate import require_choice, require_list, short
from specviz.zoo.heads.training import HeadPlan

SHARES = (0.25, 0.5, 1.0)  # of the budget, where heads are compared by training tokens
CURVES = ("eagle3", "clover", "medusa")
PARTS = ("blocks", "unrolling", "tokens", "gates")
WARMUP = 0.2  # of the steps, and 100 at most


@dataclass(frozen=True)
class Contender:
    """A head and how it is trained.

    Attributes:
        name: of the head in tables.
        kind: one of KINDS.
        changes: settings of the head that differ from the kind's own.
        unroll: steps of a chain in training; None for the kind's own.
        starts: chains in a window, as a share of its tokens.
        share: of the study's budget.
    """

    name: str
    kind: str
    changes: dict[str, Any] = field(default_factory=dict)
    unroll: int | None = None
    starts: float = 0.25
    share: float = 1.0

    @property
    def label(self) -> str:
        """The name of its files."""
        return self.name if self.share == 1 else f"{self.name}-{self.share:g}"

    def plan(self, steps: int) -> HeadPlan:
        """Return the plan of a training of so many steps."""
        warmup = min(max(round(WARMUP * steps), 1), HeadPlan.warmup)
        return HeadPlan(steps, unroll=self.unroll, starts=self.starts, warmup=warmup)

    def facts(self) -> dict[str, Any]:
        """Return what tells it from other contenders, as JSON holds it."""
        return asdict(self)

    def describe(self, settings: HeadSettings) -> dict[str, object]:
        """Return the columns of a table that say what it is."""
        return {
            "head": self.name,
            "kind": self.kind,
            "block": settings.block,
            "gate": settings.gate,
            "depth": settings.depth,
            "unroll": self.unroll,
            "starts": self.starts,
            "share": self.share,
        }


_CLOVER = Contender("clover", "clover")
_NO_GATE = replace(_CLOVER, name="clover-block", changes={"gate": "none"})
_EACH: dict[str, tuple[Contender, ...]] = {
    "blocks": (
        _CLOVER,
        _NO_GATE,
        replace(_CLOVER, name="clover-gate", changes={"block": False}),
        replace(_CLOVER, name="clover-neither", changes={"block": False, "gate": "none"}),
    ),
    "unrolling": (
        Contender("eagle3", "eagle3"),
        # From every entry, so that a step has about as many predictions as one with chains.
        Contender("eagle3-alone", "eagle3", unroll=1, starts=1.0),
        Contender("eagle1", "eagle1"),
    ),
    "tokens": tuple(Contender(kind, kind, share=share) for kind in CURVES for share in SHARES),
    "gates": (
        _CLOVER,
        replace(_CLOVER, name="clover-silu", changes={"gate": "silu"}),
        _NO_GATE,
    ),
}


def contenders_of(parts: object) -> list[Contender]:
    """Return the contenders of these parts, each once.

    Raises:
        ValueError: a name is not in PARTS, or one is named twice.
    """
    require_list("parts", parts)
    assert isinstance(parts, Sequence)
    for i, part in enumerate(parts):
        require_choice(f"parts[{i}]", part, PARTS)
    if len(set(parts)) < len(parts):
        raise ValueError(f"parts must be different, got {short(parts)}; name each once")
    found: list[Contender] = []
    for part in parts:
        found += [each for each in _EACH[part] if each not in found]
    return found
