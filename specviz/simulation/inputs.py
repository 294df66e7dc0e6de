"""Where a simulation gets costs, acceptance and prompt lengths: recorded runs, or a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from specviz.costs.roofline import Roofline
from specviz.costs.rounds import Costs, RoundCosts
from specviz.record.trace import Trace
from specviz.simulation.workload import Acceptance
from specviz.util.files import conditions


@dataclass(frozen=True)
class Inputs:
    """What a round costs, what is accepted, prompt lengths to draw from, and their source."""

    costs: RoundCosts
    acceptance: Acceptance
    prompt_tokens: Sequence[int]
    conditions: Mapping[str, object]

    @classmethod
    def of_runs(cls, runs: Sequence[Trace]) -> Inputs:
        """Take costs, acceptance by request and prompt lengths from recorded runs.

        Raises:
            ValueError: no run drafts, or those that do have several K.
        """
        drafting = [run for run in runs if run.meta["num_draft_tokens"]] or runs[:1]
        first = drafting[0]
        lengths = [len(first.prompt(request)) for request in range(first.num_requests)]
        sizes = sorted({run.meta["batch_size"] for run in runs})
        source = conditions(first.meta, costs="measured", runs=len(runs), batch_sizes=sizes)
        return cls(Costs.measured(runs), Acceptance.measured(drafting), lengths, source)

    @classmethod
    def of_roofline(
        cls, roofline: Roofline, acceptance: Acceptance, prompt_tokens: Sequence[int]
    ) -> Inputs:
        """Take the floors of a device as costs."""
        source = {
            "device": roofline.ceilings.device,
            "dtype": roofline.dtype,
            "captured": roofline.captured,
            "versions": {name: version(name) for name in ("specviz", "numpy")},
            "costs": "roofline",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return cls(roofline.phase_seconds, acceptance, prompt_tokens, source)
