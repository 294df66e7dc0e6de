"""The shortest time of each phase of a round, from the models' sizes and the device's ceilings.

A forward takes at least max(bytes / bandwidth, operations / matmul rate). It reads every weight
once, the K/V that its rows hold and a state of each, and writes K/V, states and logits (Williams et
al. 2009, "Roofline"). Kernel launches come on top where they cannot be hidden. Activations are not
counted: with few tokens they are small beside weights and K/V, and stay in caches.

Whether speculation pays at these costs is computed in `breakeven`.
"""

from dataclasses import dataclass

import numpy as np

from specviz.costs.ceilings import Ceilings
from specviz.costs.floor import Floor
from specviz.costs.measured_shape import state_traffic
from specviz.costs.shapes import ModelShape, Numbers, itemsize

CHOOSING = 2  # kernels that choose a token: argmax, and storing it
ACCEPTING = 12  # argmax, comparison, running product, clipping at EOS and budget, appending


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
        itemsize(self.dtype)
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
        moved = moved + state_traffic(shape, rows, tokens, logits)
        if logits:
            moved = moved + rows * tokens * shape.vocabulary * itemsize(self.dtype)
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
        logit_bytes = rows * self.draft.vocabulary * itemsize(self.dtype)
        choice = self._traffic(logit_bytes, CHOOSING)
        return first.times(np.sign(k)) + other.times(np.maximum(k - 1, 0)) + choice.times(k)

    def verifying(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Floor:
        """Return the floor of one forward of the target over K + 1 tokens a row.

        K = 0 is a step of autoregressive decoding.
        """
        return self.forward(self.target, rows, num_draft_tokens + 1, slots)

    def accepting(self, rows: Numbers, num_draft_tokens: Numbers) -> Floor:
        """Return the floor of the acceptance: reading the target's logits once, and arithmetic."""
        logits = rows * (num_draft_tokens + 1) * self.target.vocabulary
        return self._traffic(logits * itemsize(self.dtype), ACCEPTING)

    def moving(self, slots: Numbers) -> Floor:
        """Return the floor of moving the K/V of so many slots, all rows together, in both models.

        Each slot is read and written once, by one kernel for each layer's K and each V.
        """
        bytes_per_slot = sum(shape.kv_bytes_per_slot(self.dtype) for shape in self._shapes)
        kernels = sum(2 * shape.layers for shape in self._shapes)
        return self._traffic(2 * slots * bytes_per_slot, kernels * np.sign(slots))

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
            rows, num_draft_tokens: B and K.
            slots: T, slots that a row's verification attends to, on average: its n + K.
            moved: slots that are realigned, all rows together; see `realigned_rows`.
            carried: slots that change their row before the round, all rows together.
            entering, prompt: rows that enter, and the tokens that each of them has to read.
        """
        return {
            "schedule": self.prefill(entering, prompt) + self.moving(carried),
            "draft": self.drafting(rows, num_draft_tokens, slots),
            "verify": self.verifying(rows, num_draft_tokens, slots),
            "accept": self.accepting(rows, num_draft_tokens),
            "synchronise": self.moving(moved),
        }

    def phase_seconds(
        self,
        rows: Numbers,
        num_draft_tokens: Numbers,
        slots: Numbers,
        *,
        moved: Numbers = 0,
        carried: Numbers = 0,
        entering: Numbers = 0,
        prompt: Numbers = 0,
    ) -> dict[str, Numbers]:
        """Return the seconds of each phase of a round, as `phases` has them: `ServingCosts`."""
        work = {"moved": moved, "carried": carried, "entering": entering, "prompt": prompt}
        phases = self.phases(rows, num_draft_tokens, slots, **work)
        return {phase: floor.seconds for phase, floor in phases.items()}

    @property
    def _shapes(self) -> list[ModelShape]:
        """The models that hold K/V."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    def _traffic(self, moved: Numbers, launches: Numbers) -> Floor:
        """Return the floor of work that multiplies no matrices."""
        return self._floor(moved, launches, 0.0, 1.0)

    def _floor(self, moved: Numbers, launches: Numbers, flops: Numbers, rows: Numbers) -> Floor:
        """Return the floor of work on this device; `rows` are those of its matrix products."""
        ceilings = self.ceilings
        has_graphs = ceilings.replay_s is not None
        launch_s = launches * ceilings.launch_s
        if self.captured and ceilings.replay_s is not None:
            launch_s = launches * ceilings.replay_s
        bandwidth_s = moved / ceilings.bandwidth_at(moved)
        compute_s = flops / ceilings.matmul_at(self.dtype, rows)
        work_s = np.maximum(bandwidth_s, compute_s)
        if has_graphs and not self.captured:
            seconds = np.maximum(work_s, launch_s)  # a GPU works while its host launches
        else:
            seconds = work_s + launch_s
        return Floor(moved, flops, launches, bandwidth_s, compute_s, launch_s, seconds)
