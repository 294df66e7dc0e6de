"""The size of a model of any class, from what was measured on it: weights, K/V, states, workspace.

Not known here: how it was measured, running models.
"""

from dataclasses import dataclass
from typing import Any

from specviz.costs.shapes import ModelShape, Numbers, itemsize


@dataclass(frozen=True)
class MeasuredShape(ModelShape):
    """Sizes of a model in the dtype in which it was measured.

    Of the sizes of a `ModelShape`, heads, kv_heads and head_dim are those of the largest layer of
    K/V, and intermediate is not used.

    Attributes:
        own_parameters: all of the model's, tied ones once.
        kv_values: numbers of K/V, an indexer's keys among them, in one slot of one row. Only
            layers that attend have any, and all of them keep full slabs.
        state_bytes: one state of one row, over all layers.
        kept_states: states that a row keeps however many tokens it drafts, as a number of bytes.
        column_bytes: states that a row keeps for each token that it drafts.
        largest_state: the largest layer's share of a row's states.
        operations: floating-point operations of one token, without attention and LM head.
        kernels: modules with weights; each needs a kernel at least.
        fixed_work, column_work, row_work, token_work, slot_work, pair_work: bytes that a forward
            needs for a while: in any case, for each token of the longest row (layers of state read
            prompts row by row), for each row, for each of a row's tokens, for each slot that a row
            attends to, and for each token and slot.
    """

    own_parameters: int = 0
    kv_values: int = 0
    state_bytes: int = 0
    kept_states: int = 0
    column_bytes: int = 0
    largest_state: float = 0.0
    operations: int = 0
    kernels: int = 0
    fixed_work: int = 0
    column_work: int = 0
    row_work: int = 0
    token_work: int = 0
    slot_work: int = 0
    pair_work: int = 0

    def __post_init__(self) -> None:
        """Leave the sizes as they are: they were measured."""

    @property
    def parameters(self) -> int:
        return self.own_parameters

    def kv_bytes_per_slot(self, dtype: str) -> int:
        """Return the bytes of K/V in one slot of one row, over all layers that attend."""
        return self.kv_values * itemsize(dtype)

    def row_bytes(self, num_draft_tokens: int) -> int:
        """Return the bytes of one row's states in a run that drafts K tokens a round."""
        return self.kept_states + num_draft_tokens * self.column_bytes

    def workspace(self, rows: int, tokens: int) -> int:
        """Return the bytes that a forward needs for a while, without masks."""
        shared = self.fixed_work + tokens * self.column_work
        return shared + rows * (self.row_work + tokens * self.token_work)

    def mask_bytes(self, rows: int, tokens: int, slots: int) -> int:
        """Return the bytes of a forward's masks, and of K/V that is copied for it."""
        return rows * slots * (self.slot_work + tokens * self.pair_work)

    def flops(
        self, rows: Numbers, tokens: Numbers, slots: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Return the floating-point operations of matrix products in one forward."""
        own = self.operations + (2 * self.embedding_parameters if logits else 0)
        attended = 2 * self.kv_values * (self.heads // self.kv_heads) * slots
        return rows * tokens * (own + attended)

    def launches(self, *, logits: bool = True) -> int:
        """Return the fewest kernels of one forward: one for each module with weights."""
        return self.kernels + logits


def row_bytes(shape: ModelShape, num_draft_tokens: int) -> int:
    """Return the bytes of one row's states; 0 where layers keep K/V alone."""
    return shape.row_bytes(num_draft_tokens) if isinstance(shape, MeasuredShape) else 0


def moved_state_bytes(shape: ModelShape, rows: int, num_draft_tokens: int) -> int:
    """Return the bytes of the largest layer's states of rows that trade places."""
    if not isinstance(shape, MeasuredShape):
        return 0
    return int(rows * shape.row_bytes(num_draft_tokens) * shape.largest_state)


def state_traffic(shape: ModelShape, rows: Numbers, tokens: Numbers, logits: bool) -> Any:
    """Return the bytes of states that a forward reads and writes.

    It reads one state a row. It keeps one for each token, and where it reads prompts the last two.
    """
    written = tokens if logits else 2
    return rows * (1 + written) * getattr(shape, "state_bytes", 0)
