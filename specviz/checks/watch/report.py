"""What watching a decoder found, first line first."""

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.checks.watch.costs import Cost
from specviz.checks.watch.diagnose import Fault, Tie
from specviz.checks.watch.follow import Request


@dataclass(frozen=True)
class WatchReport:
    """The judgement of a decoder."""

    requests: Sequence[Request]
    faults: Sequence[Fault]
    ties: Sequence[Tie]
    costs: Sequence[Cost]
    tolerance: float
    rounds: dict[int, int]

    @property
    def verdict(self) -> str:
        if self.faults:
            first = self.faults[0]
            return (
                f"wrong: request {first.request}, row {first.row}, since round {first.round} "
                f"(forward {first.forward}): {first.rule}: {first.cause}"
            )
        if self.ties:
            largest = max(tie.gap for tie in self.ties)
            return (
                f"near ties only: {len(self.ties)} places, gaps up to {largest:.2g}, "
                f"noise up to {self.tolerance:.2g}"
            )
        return f"right: {len(self.requests)} texts"

    def __str__(self) -> str:
        lines = [self.verdict]
        if self.faults and self.faults[0].advice:
            lines.append(self.faults[0].advice)
        lines += [cost.sentence for cost in self.costs]
        return "\n".join(lines)
