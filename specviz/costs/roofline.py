"""The shortest time that each phase of a round can take on a device, from the models' sizes and the device's measured ceilings.

A forward takes at least max(bytes / bandwidth, operations / matmul rate): it reads every weight once, the K/V that its rows hold, and
writes K/V and logits (Williams et al. 2009, "Roofline"). Launching its kernels comes on top where it cannot be hidden. Activations are
not counted: they are small beside weights and K/V while few tokens are fed, and stay in caches.

Knows shapes, ceilings and records. Whether speculation pays at these costs stands in `breakeven`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specviz.costs.ceilings import Ceilings
from specviz.costs.shapes import ModelShape, Numbers, itemsize
from specviz.metrics import Run, check_recorded
from specviz.record.schema import PHASES, Array
from specviz.util.validate import require_int

CHOOSING = 2  # kernels that choose a token: argmax, and storing it
ACCEPTING = 12  # kernels of the acceptance: argmax, comparison, running product, clipping at EOS and budget, appending


@dataclass(frozen=True)
class Floor:
    """What a piece of work needs, and the least seconds it takes. Numbers, or arrays with an entry a round.

    Attributes:
        bytes, flops, launches: memory traffic, floating-point operations, kernels.
        bandwidth_s, compute_s, launch_s: what each would take alone.
        seconds: the floor. Of several forwards the sum of each one's floor, so it may exceed the largest of the three.
    """

    bytes: Numbers = 0.0
    flops: Numbers = 0.0
    launches: Numbers = 0.0
    bandwidth_s: Numbers = 0.0
    compute_s: Numbers = 0.0
    launch_s: Numbers = 0.0
    seconds: Numbers = 0.0

    def __add__(self, other: "Floor") -> "Floor":
        return Floor(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )

    def times(self, count: Numbers) -> "Floor":
        """The same piece of work `count` times."""
        return Floor(*(getattr(self, name) * count for name in self.__dataclass_fields__))

    @property
    def bound(self) -> str:
        """Which of the three takes longest, over all rounds: "bandwidth", "compute", "launch"; "nothing" where there is no work."""
        taken = {
            name: float(np.sum(getattr(self, f"{name}_s")))
            for name in ("bandwidth", "compute", "launch")
        }
        return max(taken, key=lambda name: taken[name]) if any(taken.values()) else "nothing"


@dataclass(frozen=True)
class Roofline:
    """Floors of a pair on a device.

    Attributes:
        target, draft: their shapes; draft None where proposals cost nothing (prompt lookup).
        ceilings, dtype: of the device, and what both models and their K/V are kept in.
        captured: whether rounds are replayed from CUDA graphs: then kernels follow each other at `ceilings.replay_s`. Otherwise a GPU works
            while the host launches, and whichever is slower counts; on a CPU an operation's fixed cost is always added.

    Raises:
        ValueError: the dtype is unknown or was not measured, or `captured` on a device without graphs.
    """

    target: ModelShape
    draft: ModelShape | None
    ceilings: Ceilings
    dtype: str = "float32"
    captured: bool = False

    def __post_init__(self) -> None:
        itemsize(self.dtype)
        self.ceilings.matmul_at(self.dtype, 1)
        if self.captured and self.ceilings.replay_s is None:
            raise ValueError(
                f"captured=True, but no CUDA graphs were measured on {self.ceilings.device or 'this device'}; leave it out"
            )

    def forward(
        self,
        shape: ModelShape,
        rows: Numbers,
        tokens: Numbers,
        slots: Numbers,
        *,
        logits: bool = True,
    ) -> Floor:
        """One forward of b rows, q tokens each, that attend to w slots each. Nothing where rows or tokens are 0."""
        size, busy = itemsize(self.dtype), np.sign(rows * tokens)
        kv = (
            rows * (slots + tokens) * shape.kv_bytes_per_slot(self.dtype)
        )  # read what is attended to, write what is new
        said = rows * tokens * shape.vocabulary * size * logits
        moved = (shape.read_bytes(self.dtype, rows, tokens, logits=logits) + kv + said) * busy
        flops = shape.flops(rows, tokens, slots, logits=logits)
        return self._floor(moved, shape.launches(logits=logits) * busy, flops, rows * tokens)

    def prefill(self, rows: Numbers, tokens: Numbers) -> Floor:
        """Both models read `tokens` tokens in each of `rows` new rows; a token attends to half of them on average."""
        floors = [
            self.forward(shape, rows, tokens, tokens / 2, logits=False)
            for shape in (self.target, self.draft)
            if shape is not None
        ]
        return sum(floors, Floor())

    def drafting(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Floor:
        """K forwards of the draft: the first over two tokens a row, the others over one; and the choice of a token after each."""
        if self.draft is None:
            return Floor()
        k, vocabulary = num_draft_tokens, self.draft.vocabulary
        first = self.forward(self.draft, rows, 2, np.maximum(slots - k, 0)).times(np.sign(k))
        others = self.forward(self.draft, rows, 1, np.maximum(slots - k / 2, 0)).times(
            np.maximum(k - 1, 0)
        )
        return (
            first
            + others
            + self._traffic(rows * vocabulary * itemsize(self.dtype), CHOOSING).times(k)
        )

    def verifying(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Floor:
        """One forward of the target over K + 1 tokens a row; K = 0 is a step of autoregressive decoding."""
        return self.forward(self.target, rows, num_draft_tokens + 1, slots)

    def accepting(self, rows: Numbers, num_draft_tokens: Numbers) -> Floor:
        """Reading the target's logits once, and the arithmetic of the acceptance."""
        logits = rows * (num_draft_tokens + 1) * self.target.vocabulary * itemsize(self.dtype)
        return self._traffic(logits, ACCEPTING)

    def moving(self, slots: Numbers) -> Floor:
        """Moving the K/V of so many slots, all rows together, in both models: each read and written once, one kernel a slab."""
        shapes = [shape for shape in (self.target, self.draft) if shape is not None]
        per_slot, slabs = (
            sum(shape.kv_bytes_per_slot(self.dtype) for shape in shapes),
            sum(2 * shape.layers for shape in shapes),
        )
        return self._traffic(2 * slots * per_slot, slabs * np.sign(slots))

    def phases(
        self,
        rows: Numbers,
        num_draft_tokens: Numbers,
        slots: Numbers,
        *,
        moved: Numbers = 0,
        entering: Numbers = 0,
        prompt: Numbers = 0,
    ) -> dict[str, Floor]:
        """The floor of each phase of one round, by the phases' names.

        Args:
            rows, num_draft_tokens: B and K.
            slots: T, slots that a row's verification attends to, on average: its n + K.
            moved: slots that are realigned, all rows together; see `realigned_rows`.
            entering, prompt: rows that enter, and the tokens that each of them has to read.
        """
        return {
            "schedule": self.prefill(entering, prompt),
            "draft": self.drafting(rows, num_draft_tokens, slots),
            "verify": self.verifying(rows, num_draft_tokens, slots),
            "accept": self.accepting(rows, num_draft_tokens),
            "synchronise": self.moving(moved),
        }

    def phase_seconds(
        self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers, *, moved: Numbers = 0
    ) -> dict[str, Numbers]:
        """Seconds of each phase, as `phases` has them, without prompts: a cost table for a simulation, and for `breakeven`."""
        return {
            phase: floor.seconds
            for phase, floor in self.phases(rows, num_draft_tokens, slots, moved=moved).items()
        }

    def simulated(self, num_draft_tokens: int, moved: float = 1_000.0) -> dict[str, Any]:
        """The same as arguments of `specviz.simulation.Costs`: draft, verify and accept as functions of (rows, slots), prefill of
        (rows, tokens), and move, seconds a slot where `moved` slots are moved at once.
        """
        k = require_int("num_draft_tokens", num_draft_tokens, minimum=0)
        return {
            "draft": lambda rows, slots: float(self.drafting(rows, k, slots).seconds),
            "verify": lambda rows, slots: float(self.verifying(rows, k, slots).seconds),
            "accept": lambda rows, slots: float(self.accepting(rows, k).seconds),
            "prefill": lambda rows, tokens: float(self.prefill(rows, tokens).seconds),
            "move": float(self.moving(moved).seconds) / moved,
        }

    def _traffic(self, moved: Numbers, launches: Numbers) -> Floor:
        return self._floor(moved, launches, 0.0, 1.0)

    def _floor(self, moved: Numbers, launches: Numbers, flops: Numbers, rows: Numbers) -> Floor:
        ceilings = self.ceilings
        bandwidth_s = moved / ceilings.bandwidth_at(moved)
        compute_s = flops / ceilings.matmul_at(self.dtype, rows)
        launch_s = launches * (
            ceilings.replay_s
            if self.captured and ceilings.replay_s is not None
            else ceilings.launch_s
        )
        work = np.maximum(bandwidth_s, compute_s)
        hidden = (
            ceilings.replay_s is not None and not self.captured
        )  # a GPU works while its host launches
        seconds = np.maximum(work, launch_s) if hidden else work + launch_s
        return Floor(moved, flops, launches, bandwidth_s, compute_s, launch_s, seconds)


def realigned_rows(rows: Numbers, rates: Array | list[float]) -> Numbers:
    """Rows that EQSPEC moves in a round, on average: those that gain another number of tokens than the longest row.

    Args:
        rates: unconditional acceptance at positions 1..K, none above the one before. Rows accept independently of each other.
    """
    rates = check_rates(rates)
    gains = -np.diff(np.concatenate([[1.0], rates, [0.0]]))  # probability of 0..K accepted drafts
    return np.maximum(rows - 1, 0) * (1 - float((gains**2).sum()))


def check_rates(rates: Any, name: str = "rates") -> Array:
    """Acceptance by position as an array (K,). Raises ValueError unless they are shares, none above the one before."""
    try:
        found = np.asarray(rates, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={rates!r} is no list of shares; pass numbers from 0 to 1, for instance [0.8, 0.6, 0.5]"
        ) from None
    if found.ndim != 1 or not found.size or not ((found >= 0) & (found <= 1)).all():
        raise ValueError(
            f"{name}={rates!r} is no list of shares; pass numbers from 0 to 1, for instance [0.8, 0.6, 0.5]"
        )
    if (np.diff(found) > 0).any():
        raise ValueError(
            f"{name}={rates!r} rise, but a draft is accepted only with all before it; pass unconditional rates"
        )
    return found


def floors(phases: Mapping[str, Floor]) -> pd.DataFrame:
    """One entry a phase: phase, megabytes, gflops, launches, bandwidth_ms, compute_ms, launch_ms, floor_ms, bound; over all rounds."""
    entries = []
    for phase, floor in phases.items():
        sums = {name: float(np.sum(getattr(floor, name))) for name in floor.__dataclass_fields__}
        entry = {
            "phase": phase,
            "megabytes": sums["bytes"] / 1e6,
            "gflops": sums["flops"] / 1e9,
            "launches": sums["launches"],
        }
        entry |= {
            f"{name}_ms": 1e3 * sums[f"{name}_s"] for name in ("bandwidth", "compute", "launch")
        }
        entries.append(entry | {"floor_ms": 1e3 * sums["seconds"], "bound": floor.bound})
    return pd.DataFrame(entries)


def against_floor(run: Run, roofline: Roofline) -> pd.DataFrame:
    """Where a run stands: one entry a phase over all its rounds, and a last one, "round", for their sum.

    Columns: phase, measured_ms, floor_ms, ratio (measured / floor; NaN where there was nothing to do), bound. The floors are those of the
    rows, drafts and lengths that the run had, round by round; prompts and moved K/V are counted when a row's next round shows them.

    Raises:
        ValueError: the run was not recorded and is None, or ran in another dtype than the roofline's.
    """
    check_recorded(run)
    if run.meta["dtype"] != roofline.dtype:
        raise ValueError(
            f"dtype={roofline.dtype!r} of the roofline is not the run's, {run.meta['dtype']!r}; make one for that dtype"
        )
    table = floors(_floors_of(run, roofline))
    measured = [float(run.rounds[f"{phase}_ms"].astype(np.float64).sum()) for phase in PHASES]
    found = pd.DataFrame(
        {
            "phase": PHASES,
            "measured_ms": measured,
            "floor_ms": table["floor_ms"],
            "bound": table["bound"],
        }
    )
    longest = found["bound"][found["floor_ms"].idxmax()]
    found.loc[len(found)] = ["round", found["measured_ms"].sum(), found["floor_ms"].sum(), longest]
    found.insert(3, "ratio", found["measured_ms"] / found["floor_ms"].where(found["floor_ms"] > 0))
    return found


def _floors_of(run: Run, roofline: Roofline) -> dict[str, Floor]:
    """Each phase's floors, arrays over the run's rounds."""
    rows = pd.DataFrame({name: values for name, values in run.rows.items() if values.ndim == 1})
    rows["order"] = np.arange(len(rows))
    before = rows.groupby("request")[["row", "start_after"]].shift()
    new = before["row"].isna()
    carried = ~new & ((before["row"] != rows["row"]) | (before["start_after"] != rows["start"]))
    rows = rows.assign(
        entering=new,
        prompt=(rows["length"] - 1).where(new, 0),
        traded=(rows["pending"] - rows["start"]).where(carried, 0),
        moved=(rows["pending_after"] - rows["start_after"]).where(
            rows["start_after"] != rows["start"], 0
        ),
    )
    per_round = rows.groupby("round").agg(
        drafted=("drafted", "max"), length=("length", "mean"), entering=("entering", "sum"), prompt=("prompt", "sum"),
        traded=("traded", "sum"), moved=("moved", "sum"),
    )  # fmt: skip
    found = {
        name: per_round[name]
        .reindex(range(len(run.rounds["batch"])), fill_value=0)
        .to_numpy(np.float64)
        for name in per_round
    }
    k, prompt = found["drafted"], found["prompt"] / np.maximum(found["entering"], 1)
    phases = roofline.phases(
        run.rounds["batch"].astype(np.float64),
        k,
        found["length"] + k,
        moved=found["moved"],
        entering=found["entering"],
        prompt=prompt,
    )
    return phases | {"schedule": phases["schedule"] + roofline.moving(found["traded"])}
