"""Where a simulation gets costs, acceptance and prompt lengths: recorded runs, or a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from specviz.costs.roofline import Roofline
from specviz.costs.rounds import Costs, RoundCosts
from specviz.record.trace import Trace
from specviz.simulation.acceptance import Acceptance
from specviz.util.files import conditions


@dataclass(frozen=True)
class Inputs:
    """What a simulation needs.

    Attributes:
        costs: what a round costs.
        acceptance: of the requests.
        prompt_tokens: lengths to draw from.
        conditions: what costs and acceptance were taken from.
    """

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
        acceptance = Acceptance.measured(drafting)
        first = drafting[0]
        lengths = [len(first.prompt(request)) for request in range(first.num_requests)]
        sizes = sorted({run.meta["batch_size"] for run in runs})
        taken_from = conditions(first.meta, costs="measured", runs=len(runs), batch_sizes=sizes)
        return cls(Costs.measured(runs), acceptance, lengths, taken_from)

    @classmethod
    def of_roofline(
        cls,
        roofline: Roofline,
        acceptance: Acceptance,
        prompt_tokens: Sequence[int],
        **named: object,
    ) -> Inputs:
        """Take the floors of a device as costs; `named` joins the conditions."""
        taken_from = {
            "device": roofline.ceilings.device,
            "dtype": roofline.dtype,
            "captured": roofline.captured,
            "versions": {name: version(name) for name in ("specviz", "numpy")},
            "costs": "roofline",
            **named,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return cls(roofline.phase_seconds, acceptance, prompt_tokens, taken_from)
