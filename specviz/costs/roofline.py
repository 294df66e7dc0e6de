"""The shortest time of each phase of a round, from the models' sizes and the device's ceilings.

A forward takes at least max(bytes / bandwidth, operations / matmul rate). It reads every weight
once, the K/V that its rows hold and a state of each, and writes K/V, states and logits (Williams et
al. 2009, "Roofline"). Kernel launches come on top where they cannot be hidden. Activations are not
counted: with few tokens they are small beside weights and K/V, and stay in caches.

A recorded run is compared with its floor by `against_floor`. Whether speculation pays at these
costs is computed in `breakeven`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from specviz.costs.ceilings import Ceilings
from specviz.costs.shapes import ITEMSIZE, ModelShape, Numbers
from specviz.metrics import RecordedRun, check_recorded
from specviz.record.schema import PHASES

CHOOSING = 2  # kernels that choose a token: argmax, and storing it
ACCEPTING = 12  # argmax, comparison, running product, clipping at EOS and budget, appending
BOUNDS = ("bandwidth", "compute", "launch")
_COLUMNS = {
    "megabytes": ("bytes", 1e-6),
    "gflops": ("flops", 1e-9),
    "launches": ("launches", 1.0),
    "bandwidth_ms": ("bandwidth_s", 1e3),
    "compute_ms": ("compute_s", 1e3),
    "launch_ms": ("launch_s", 1e3),
    "floor_ms": ("seconds", 1e3),
}


@dataclass(frozen=True)
class Floor:
    """What a piece of work needs, and the least seconds it takes.

    Each attribute is a number, or an array with an entry a round.

    Attributes:
        bytes, flops, launches: memory traffic, floating-point operations, kernels.
        bandwidth_s, compute_s, launch_s: what each of them alone would take.
        seconds: the floor. The floor of several forwards is the sum of their floors, so it may
            exceed the largest of the three.
    """

    bytes: Numbers = 0.0
    flops: Numbers = 0.0
    launches: Numbers = 0.0
    bandwidth_s: Numbers = 0.0
    compute_s: Numbers = 0.0
    launch_s: Numbers = 0.0
    seconds: Numbers = 0.0

    def __add__(self, other: "Floor") -> "Floor":
        return Floor(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: Numbers) -> "Floor":
        """Return the floor of the same work done `count` times."""
        return Floor(*(getattr(self, f.name) * count for f in fields(self)))

    @property
    def bound(self) -> str:
        """What takes longest over all rounds: one of BOUNDS, or "nothing" without work."""
        seconds = [self.total(f"{name}_s") for name in BOUNDS]
        return BOUNDS[int(np.argmax(seconds))] if any(seconds) else "nothing"

    def total(self, name: str) -> float:
        """Return the sum of an attribute over all rounds."""
        return float(np.sum(getattr(self, name)))


@dataclass(frozen=True)
class Roofline:
    """Floors of a pair on a device.

    Attributes:
        target, draft: their shapes; draft is None where proposals need no model (prompt lookup).
        ceilings: those of the device.
        dtype: of both models and their K/V.
        captured: whether rounds are replayed from CUDA graphs, so that kernels follow each other
            at `ceilings.replay_s`. Otherwise a GPU works while the host launches, and the slower
            of the two counts. On a CPU the fixed cost of an operation is always added.

    Raises:
        ValueError: the dtype is unknown or was not measured, or `captured` on a device without
            graphs.
    """

    target: ModelShape
    draft: ModelShape | None
    ceilings: Ceilings
    dtype: str = "float32"
    captured: bool = False

    def __post_init__(self) -> None:
        self.ceilings.matmul_at(self.dtype, 1)
        if self.captured and self.ceilings.replay_s is None:
            device = self.ceilings.device or "this device"
            raise ValueError(
                f"captured must be False, got True: CUDA graphs were not measured on {device};"
                " leave it out"
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
        """Return the floor of one forward: B rows of q tokens that attend to T slots each.

        It is zero where rows or tokens are 0.
        """
        # Rounds go through as arrays, where an `if` is not possible: a round without rows or tokens
        # reads no weights and launches nothing.
        busy = np.sign(rows * tokens)
        moved = shape.read_bytes(self.dtype, rows, tokens, logits=logits)
        # K/V: what is attended to is read, what is new is written.
        moved = moved + rows * (slots + tokens) * shape.kv_bytes_per_slot(self.dtype)
        moved = moved + shape.state_traffic(rows, tokens, logits=logits)
        if logits:
            moved = moved + rows * tokens * shape.vocabulary * ITEMSIZE[self.dtype]
        flops = shape.flops(rows, tokens, slots, logits=logits)
        launches = shape.launches(logits=logits)
        return self._floor(moved * busy, launches * busy, flops, rows * tokens)

    def prefill(self, rows: Numbers, tokens: Numbers) -> Floor:
        """Return the floor of reading `tokens` tokens in each of `rows` new rows, by both models.

        On average a token attends to half of the tokens.
        """
        floors = [
            self.forward(shape, rows, tokens, tokens / 2, logits=False) for shape in self._shapes
        ]
        return sum(floors, Floor())

    def drafting(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Floor:
        """Return the floor of K forwards of the draft and the choice of a token after each."""
        if self.draft is None:
            return Floor()
        k = num_draft_tokens
        # After a full acceptance the draft has not read its own last token yet. So the first
        # forward reads two tokens a row, in every round, to have one shape; the others read one.
        first = self.forward(self.draft, rows, 2, np.maximum(slots - k, 0))
        other = self.forward(self.draft, rows, 1, np.maximum(slots - k / 2, 0))
        logit_bytes = rows * self.draft.vocabulary * ITEMSIZE[self.dtype]
        choice = self._floor(logit_bytes, CHOOSING)
        return first.times(np.sign(k)) + other.times(np.maximum(k - 1, 0)) + choice.times(k)

    def verifying(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Floor:
        """Return the floor of one forward of the target over K + 1 tokens a row."""
        return self.forward(self.target, rows, num_draft_tokens + 1, slots)

    def moving(self, slots: Numbers) -> Floor:
        """Return the floor of moving the K/V of so many slots, all rows together, in both models.

        Each slot is read and written once, by one kernel for each layer's K and each V.
        """
        bytes_per_slot = sum(shape.kv_bytes_per_slot(self.dtype) for shape in self._shapes)
        kernels = sum(2 * shape.layers for shape in self._shapes)
        return self._floor(2 * slots * bytes_per_slot, kernels * np.sign(slots))

    def phases(
        self,
        rows: Numbers,
        num_draft_tokens: Numbers,
        slots: Numbers,
        *,
        moved: Numbers = 0,
        carried: Numbers = 0,
        entering: Numbers = 0,
        prompt: Numbers = 0,
    ) -> dict[str, Floor]:
        """Return the floor of each phase of one round, by the phases' names.

        Args:
            rows, num_draft_tokens: B and K. K = 0 is a step of autoregressive decoding.
            slots: T, slots that a row's verification attends to, on average: its n + K.
            moved: slots that are realigned, all rows together; see `realigned_rows`.
            carried: slots that change their row before the round, all rows together.
            entering, prompt: rows that enter, and the tokens that each of them has to read.
        """
        # The acceptance reads the target's logits once.
        logits = rows * (num_draft_tokens + 1) * self.target.vocabulary
        return {
            "schedule": self.prefill(entering, prompt) + self.moving(carried),
            "draft": self.drafting(rows, num_draft_tokens, slots),
            "verify": self.verifying(rows, num_draft_tokens, slots),
            "accept": self._floor(logits * ITEMSIZE[self.dtype], ACCEPTING),
            "synchronise": self.moving(moved),
        }

    def phase_seconds(
        self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers, **work: Numbers
    ) -> dict[str, Numbers]:
        """Return the seconds of each phase of a round: a `RoundCosts`. Arguments as `phases`."""
        phases = self.phases(rows, num_draft_tokens, slots, **work)
        return {phase: floor.seconds for phase, floor in phases.items()}

    @property
    def _shapes(self) -> list[ModelShape]:
        """The models that hold K/V."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    def _floor(
        self, moved: Numbers, launches: Numbers, flops: Numbers = 0.0, rows: Numbers = 1.0
    ) -> Floor:
        """Return the floor of work on this device; `rows` are those of its matrix products."""
        ceilings = self.ceilings
        launch_s = launches * ceilings.launch_s
        if self.captured and ceilings.replay_s is not None:
            launch_s = launches * ceilings.replay_s
        bandwidth_s = moved / ceilings.bandwidth_at(moved)
        compute_s = flops / ceilings.matmul_at(self.dtype, rows)
        seconds = np.maximum(bandwidth_s, compute_s)
        if ceilings.replay_s is not None and not self.captured:
            seconds = np.maximum(seconds, launch_s)  # a GPU works while its host launches
        else:
            seconds = seconds + launch_s
        return Floor(moved, flops, launches, bandwidth_s, compute_s, launch_s, seconds)


def floors(phases: Mapping[str, Floor]) -> pd.DataFrame:
    """Return a table with one entry a phase, summed over all rounds.

    Columns: phase, megabytes, gflops, launches, bandwidth_ms, compute_ms, launch_ms, floor_ms,
    bound.
    """
    entries = []
    for phase, floor in phases.items():
        entry: dict[str, object] = {"phase": phase}
        for column, (attribute, unit) in _COLUMNS.items():
            entry[column] = floor.total(attribute) * unit
        entries.append(entry | {"bound": floor.bound})
    return pd.DataFrame(entries)


def against_floor(run: RecordedRun, roofline: Roofline) -> pd.DataFrame:
    """Return one entry a phase over all rounds of a run, and a last one, "round", for their sum.

    Columns: phase, measured_ms, floor_ms, ratio (measured / floor; NaN where there was nothing to
    do), bound. The floors are those of the rows, drafts and lengths of each round. Prompts and
    moved K/V count when the next round of their row shows them.

    Raises:
        ValueError: the run was not recorded and is None, or its dtype is not the roofline's.
    """
    check_recorded(run)
    if run.meta["dtype"] != roofline.dtype:
        raise ValueError(
            f"dtype of the roofline must be the run's, {run.meta['dtype']!r}, got"
            f" {roofline.dtype!r}; make a roofline for that dtype"
        )
    work = _work_per_round(run)
    k = work["drafted"]
    phases = roofline.phases(
        run.rounds["batch"].astype(np.float64),
        k,
        work["length"] + k,
        moved=work["moved"],
        carried=work["carried"],
        entering=work["entering"],
        prompt=work["prompt"] / np.maximum(work["entering"], 1),
    )
    found = floors(phases)[["phase", "floor_ms", "bound"]]
    measured = [float(run.rounds[f"{phase}_ms"].astype(np.float64).sum()) for phase in PHASES]
    found.insert(1, "measured_ms", measured)
    sums = found[["measured_ms", "floor_ms"]].sum()
    longest = found["bound"][found["floor_ms"].idxmax()]
    found.loc[len(found)] = {"phase": "round", **sums, "bound": longest}
    floor_ms = found["floor_ms"].where(found["floor_ms"] > 0)  # NaN where there was no work
    found.insert(3, "ratio", found["measured_ms"] / floor_ms)
    return found


def _work_per_round(run: RecordedRun) -> dict[str, np.ndarray]:
    """Return what each round had to do, arrays with an entry a round.

    drafted: K; length: the rows' mean n; entering, prompt: new rows, and the tokens they read;
    moved, carried: slots of K/V moved within a row, and from row to row before the round.
    """
    rows = pd.DataFrame({name: values for name, values in run.rows.items() if values.ndim == 1})
    before = rows.groupby("request")[["row", "start_after"]].shift()
    is_new = before["row"].isna()
    changed_place = before["row"] != rows["row"]
    changed_start = before["start_after"] != rows["start"]
    realigned = rows["start_after"] != rows["start"]
    # A result has no moves. What moved shows in where a row starts, compared with its last round.
    rows["entering"] = is_new
    rows["prompt"] = (rows["length"] - 1).where(is_new, 0)
    rows["carried"] = (rows["pending"] - rows["start"]).where(
        ~is_new & (changed_place | changed_start), 0
    )
    rows["moved"] = (rows["pending_after"] - rows["start_after"]).where(realigned, 0)
    by_round = rows.groupby("round")
    table = by_round[["entering", "prompt", "carried", "moved"]].sum()
    table["drafted"] = by_round["drafted"].max()
    table["length"] = by_round["length"].mean()
    table = table.reindex(range(len(run.rounds["batch"])), fill_value=0)
    return {name: table[name].to_numpy(np.float64) for name in table}
