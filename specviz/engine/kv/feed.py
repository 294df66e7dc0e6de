"""The input of one forward: tokens, and where each lies, stands and looks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Feed:
    """The input of one forward. All tensors are on the model's device.

    Attributes:
        rows: (b,), rows of the slab.
        requests: the request of each live row of the slab, by its number.
        tokens, slots: (b, q), token ids and the slots that their K/V goes to.
        indices: (b, q), the tokens' indices in their own rows.
        positions: (b, q), the position ids that the model is given for them.
        visible: bool (b, q, w), the slots that each query attends to.
        valid: bool (b, q), False for the filling of shorter rows: in a prefill, and behind the last
            draft of a row that is verified.
        order: (b, w), the slots that `visible` refers to; None for 0..w-1.
        added: (b, q, w), `visible` as an additive mask, or None if that was not made yet.
        count: how many tokens are valid, where the host knows it and some may not be.
        nodes: (b, q), 1 + the number of the draft that each token is, 0 for a committed token. None
            where that follows from the indices, as it does for chains.
        shortened: (b,), by how many tokens the windows of layers are too short; None for none.
        goes_on: bool (b,), whether a row goes on from the states that its last forward left,
            whatever it reads now; None for no row.
        after: (b,), the index of the token whose states each row goes on from, -1 for none. The
            cache says so, where layers keep states.
    """

    rows: Tensor
    requests: Sequence[int]
    tokens: Tensor
    indices: Tensor
    positions: Tensor
    slots: Tensor
    visible: Tensor
    valid: Tensor
    order: Tensor | None = None
    added: Tensor | None = None
    count: int | None = None
    nodes: Tensor | None = None
    shortened: Tensor | None = None
    goes_on: Tensor | None = None
    after: Tensor | None = None

    def part(self, tokens: Tensor, columns: slice) -> "Feed":
        """Return some columns of the feed, with these tokens (b, q) in them."""
        # Slices are views: a draft step costs no new mask, slots or positions.
        added = None if self.added is None else self.added[:, columns]
        nodes = None if self.nodes is None else self.nodes[:, columns]
        return replace(
            self,
            tokens=tokens,
            indices=self.indices[:, columns],
            positions=self.positions[:, columns],
            slots=self.slots[:, columns],
            visible=self.visible[:, columns],
            valid=self.valid[:, columns],
            added=added,
            nodes=nodes,
            goes_on=None if columns.start else self.goes_on,
        )
